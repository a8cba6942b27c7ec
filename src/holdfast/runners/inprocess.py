"""What the runners inside the worker's own process share: the handlers by name, what waits for a slot, and the
decision what follows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from holdfast import events
from holdfast.errors import HoldfastError, LeaseLost
from holdfast.model.outcome import Error, Outcome, clean
from holdfast.model.stack import Taken, shown
from holdfast.redact import hiding
from holdfast.runners.base import Ended
from holdfast.runners.decide import on_raise, on_return
from holdfast.runners.unstarted import Waiting
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored, job_fields
from holdfast.tasks.context import JobContext
from holdfast.tasks.hooks import ErrorHook, errored
from holdfast.tasks.job_info import info_of
from holdfast.tasks.manifest import manifest_of
from holdfast.tasks.options import TaskDefaults
from holdfast.tasks.task import Task


class Handler(Protocol):
    """A task as a runner calls it: as declared, or with its resources."""

    @property
    def defaults(self) -> TaskDefaults: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def secrets(self) -> frozenset[str]: ...

    @property
    def run(self) -> Callable[[JobContext, bytes], Any]: ...


class InProcessRunner(Waiting):
    may_wait = True
    many = False

    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, on_error: Sequence[ErrorHook] = (),
    ) -> None:  # fmt: skip
        super().__init__()
        self.tasks = tasks = list(tasks)
        self.slots = slots
        self.busy = 0
        self.worker = ""  # whose it is, for log lines
        self.manifest = manifest_of(tasks)
        self._on_error = on_error
        self._handlers: dict[str, Handler] = {
            name: task for task in tasks for name in (task.name, *task.defaults.aliases)
        }
        self._store = store
        self._settings = settings
        self.finished: Ended = _nobody

    def equip(self, task: Task[..., object], values: Mapping[str, Any]) -> None:
        """Hand these resources to the handler from now on."""
        equipped = task.equipped(dict(values))
        self._handlers.update(dict.fromkeys((task.name, *task.defaults.aliases), equipped))

    def start(self, attempts: Sequence[Attempt]) -> None:
        raise NotImplementedError

    def close(self, timeout: float) -> None:
        raise NotImplementedError

    def stack(self, attempt: Attempt) -> str | None:
        """Where the handler of this attempt is, as text that travels (model/stack.py). None: it does not run here."""
        raise NotImplementedError

    def _taken(self, attempt: Attempt, thread: str, text: str) -> str:
        hide = hiding(attempt.held.args, self._handlers[attempt.held.task].secrets, self._settings.url)
        return Taken(os.getpid(), thread, shown(text, hide)).encoded()

    def _on_return(self, attempt: Attempt, value: object) -> Outcome | None:
        policy = self._handlers[attempt.held.task].defaults.retry
        outcome = _surely(attempt, lambda: on_return(attempt, value, policy, max_result=self._settings.max_result))
        return self._told(attempt, outcome, None)

    def _on_raise(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        task = self._handlers[attempt.held.task]

        def decide() -> Outcome | None:
            hide = hiding(attempt.held.args, task.secrets, self._settings.url)
            return on_raise(attempt, error, task.defaults.retry, hide)

        return self._told(attempt, _surely(attempt, decide), error)

    def _told(self, attempt: Attempt, outcome: Outcome | None, error: BaseException | None) -> Outcome | None:
        """The same outcome; if it is an error, listeners and the application's hooks have heard of it. Not of a lost
        lease: the store will refuse the outcome, and the desk tell of that."""
        if isinstance(error, LeaseLost) and outcome is not None:
            events.emit("lease_doubted", **job_fields(attempt.held))
        if outcome is None or outcome.error is None or isinstance(error, LeaseLost):
            return outcome
        emit_errored(attempt.held, outcome)
        unsure = outcome.recorded and error is None  # it may have succeeded
        if self._on_error and not unsure and outcome.attempt in ("errored", "timed_out"):
            if outcome.attempt == "timed_out":
                error = TimeoutError(outcome.error.message)
            errored(self._on_error, info_of(attempt.held), error or HoldfastError(outcome.error.message))
        return outcome


def _nobody(attempt: Attempt, outcome: Outcome | None) -> None:
    raise AssertionError("a runner belongs to a crew that was opened")


def _surely(attempt: Attempt, decide: Callable[[], Outcome | None]) -> Outcome | None:
    """An attempt without an outcome would be held for ever: if even deciding fails, that is the outcome."""
    try:
        return decide()
    except BaseException as broken:  # noqa: BLE001 - values and errors of users may raise anything when looked at
        told = Error("UNDECIDED", clean(f"what it left can't be made sense of: {type(broken).__name__}"))
        return Outcome("fail", attempt.held.id, attempt.held.fence, "errored", error=told)
