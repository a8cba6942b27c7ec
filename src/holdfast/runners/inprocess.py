"""What the runners in this process share: slots, attempts that wait for one, and the execution of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.runners.base import Finished, Succeeded
from holdfast.runners.execution import Execution
from holdfast.runners.unstarted import Unstarted
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.hooks import ErrorHook
from holdfast.tasks.manifest import manifest_of
from holdfast.tasks.task import Task


class InProcessRunner:
    may_wait = True
    many = False

    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, on_error: Sequence[ErrorHook] = (),
    ) -> None:  # fmt: skip
        self.tasks = list(tasks)
        self.slots = slots
        self.busy = 0
        self.manifest = manifest_of(self.tasks)
        self._worker = ""
        self._unstarted = Unstarted()
        self._execution = Execution(self.tasks, store, settings, on_error)

    def open(self, worker: str, finished: Finished, succeeded: Succeeded | None = None) -> None:
        """`finished` and `succeeded`: see Execution.open."""
        self._worker = worker
        self._execution.open(finished, succeeded)

    def equip(self, task: Task[..., object], values: Mapping[str, Any]) -> None:
        """Pass these resources to the handler from now on."""
        self._execution.equip(task, values)

    def waiting_since(self) -> float | None:
        return self._unstarted.since()

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        return self._unstarted.withdraw(most)

    def start(self, attempts: Sequence[Attempt]) -> None:
        raise NotImplementedError

    def close(self, timeout: float) -> None:
        raise NotImplementedError

    def stack(self, attempt: Attempt) -> str | None:
        """Where the handler of this attempt is, encoded by model/stack.py. None: it does not run here."""
        raise NotImplementedError
