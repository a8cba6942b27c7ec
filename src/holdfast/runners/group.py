"""Who runs the handlers of a worker: here, in the worker's own process. `runners/pool.py` has the crew that runs them
in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import BadSettings, HoldfastError
from holdfast.runners.base import Ends, Runner, Told
from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import absent, untold
from holdfast.runners.threads import ThreadRunner
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.hooks import Hooks
from holdfast.tasks.manifest import TaskInfo, info_of
from holdfast.tasks.resources import Open, Resource
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    import asyncio

LAST_CALLS = 0.5  # seconds for error hooks to be called for the last errors, when the worker ends


class RunnerGroup(Protocol):
    tasks: tuple[TaskInfo, ...]
    misfit: Callable[[HoldfastError], None]  # called if it can't go on
    stopping: bool  # set when the worker is to stop: whatever `open` waits for is no longer waited for
    answer: Callable[[Attempt, str], None]  # told where a handler is, when that was asked

    @property
    def runners(self) -> Sequence[Runner]: ...

    @property
    def solo(self) -> Runner | None:
        """Where an attempt of any task can run alone in a process, if there is such a place."""

    def open(self, worker: str, ends: Ends, lock: int | None, slots_changed: Callable[[], None]) -> None:
        """Make ready to run attempts; nothing is claimed before. `lock`: the descriptor that says the worker lives; who
        runs handlers must not have it, since any copy of it can unlock it."""

    def stack(self, attempt: Attempt) -> None:
        """Ask where the handler of this attempt is: `answer` is told now or later, unless its process hears nothing."""

    def abandon(self, seconds: float) -> None:
        """End what did not stop when it was told to, where that can be done; wait so long for it."""

    def close(self, end_by: float) -> None:
        """No handler runs any more, except a thread that can't be stopped. Wait until then (monotonic) at most: what
        has not ended by itself is ended."""


class InProcessGroup:
    """Coroutines on an event loop, synchronous handlers on threads, both in this process."""

    def __init__(
        self, store: Store, settings: Settings, tasks: Iterable[Task[..., object]], *,
        resources: Sequence[Resource[Any]] = (), hooks: Hooks | None = None, isolated: bool = False,
        threads: type[InProcessRunner] = ThreadRunner,
    ) -> None:  # fmt: skip
        """`isolated`: run tasks here, too, that ask for a process of their own; else an IsolatingCrew does."""
        tasks = list(tasks)
        if not tasks:
            raise BadSettings(
                "this application declares no tasks: there is nothing a worker could run", number="HF1110"
            )
        self.tasks = tuple(info_of(task) for task in tasks)
        self.misfit: Callable[[HoldfastError], None] = lambda error: None
        self.stopping = False
        self.answer: Callable[[Attempt, str], None] = lambda attempt, stack: None
        self._hooks = hooks or Hooks()
        self._resources = Open(resources)
        for task in tasks:
            self._resources.plan(f"task {task.name}", task.signature.uses, is_async=task.is_async)
        self.runners: list[InProcessRunner] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        here = [task for task in tasks if isolated or task.defaults.isolation is None]
        if mine := [task for task in here if task.is_async]:
            from holdfast.runners.event_loop import (
                LoopRunner,  # and with it asyncio, which takes as long as all of ours
            )

            runner = LoopRunner(settings.concurrency, mine, store, settings, on_error=self._hooks.error)
            self.runners.append(runner)
            self._loop = runner.loop
        if mine := [task for task in here if not task.is_async]:
            self.runners.append(threads(settings.threads, mine, store, settings, on_error=self._hooks.error))
        self.solo: Runner | None = None
        self._equipped = False

    def open(
        self, worker: str, ends: Told, lock: int | None = None, slots_changed: Callable[[], None] | None = None
    ) -> None:
        """Open what the handlers ask for."""
        for runner in self.runners:
            runner.worker, runner.finished = worker, ends.finished
            for task in runner.tasks:
                if task.signature.uses:
                    values = self._resources.values(
                        f"task {task.name}", task.signature.uses, self._loop, is_async=task.is_async
                    )
                    runner.equip(task, values)
        self._hooks.started(self._loop)
        self._listening_no_more = self._hooks.listen(worker)
        self._equipped = True

    def stack(self, attempt: Attempt) -> None:
        self.answer(attempt, self.stack_of(attempt))

    def stack_of(self, attempt: Attempt) -> str:
        try:
            found = (runner.stack(attempt) for runner in self.runners)
            return next((stack for stack in found if stack is not None), None) or absent(attempt)
        except Exception as error:  # noqa: BLE001 - who only looks must not hurt what runs
            return untold(error)

    def abandon(self, seconds: float) -> None:
        """A thread can't be ended; coroutines were cancelled."""

    def close(self, end_by: float) -> None:
        if self._equipped:
            self._listening_no_more(max(0.0, min(LAST_CALLS, (end_by - time.monotonic()) / 3)))
            self._hooks.stopped(self._loop)
        self._resources.close(end_by)
        for runner in self.runners:
            runner.close(max(0.0, min(2.0, end_by - time.monotonic())))
