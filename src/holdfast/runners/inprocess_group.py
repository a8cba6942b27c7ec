"""Runs a worker's handlers in this process: coroutines on an event loop, synchronous handlers on threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadSettings
from holdfast.runners.base import Runner, WorkerLink
from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import no_stack, not_running
from holdfast.runners.threads import ThreadRunner
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.hooks import Hooks
from holdfast.tasks.manifest import info_of
from holdfast.tasks.resources import OpenResources, Resource
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    import asyncio

LAST_CALLS = 0.5  # seconds for error hooks to be called for the last errors, when the worker ends


class InProcessGroup:
    suspect_runner: Runner | None = None

    def __init__(
        self, store: Store, settings: Settings, tasks: Iterable[Task[..., object]], *,
        resources: Sequence[Resource[Any]] = (), hooks: Hooks | None = None, isolated: bool = False,
        threads: type[InProcessRunner] = ThreadRunner,
    ) -> None:  # fmt: skip
        """`isolated`: also run tasks here that ask for a process of their own; otherwise an IsolatingGroup does."""
        tasks = list(tasks)
        if not tasks:
            raise BadSettings(
                "this application declares no tasks: there is nothing a worker could run", number="HF1110"
            )
        self.tasks = tuple(info_of(task) for task in tasks)
        self._hooks = hooks or Hooks()
        self._resources = OpenResources(resources)
        for task in tasks:
            self._resources.plan(f"task {task.name}", task.signature.uses, is_async=task.is_async)
        self.runners: list[InProcessRunner] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        here = [task for task in tasks if isolated or task.defaults.isolation is None]
        if mine := [task for task in here if task.is_async]:
            # With it comes asyncio, which takes as long to import as all of Holdfast.
            from holdfast.runners.event_loop import LoopRunner

            runner = LoopRunner(settings.concurrency, mine, store, settings, on_error=self._hooks.error)
            self.runners.append(runner)
            self._loop = runner.loop
        if mine := [task for task in here if not task.is_async]:
            self.runners.append(threads(settings.threads, mine, store, settings, on_error=self._hooks.error))
        self._stop_hooks: Callable[[float], None] | None = None

    def open(self, link: WorkerLink) -> None:
        self._link = link
        for runner in self.runners:
            runner.open(link.worker, link.outcomes.finished)
        self.open_resources(link.worker)

    def open_resources(self, worker: str) -> None:
        """Open what the handlers ask for, and call the start hooks."""
        for runner in self.runners:
            for task in runner.tasks:
                if task.signature.uses:
                    values = self._resources.values(
                        f"task {task.name}", task.signature.uses, self._loop, is_async=task.is_async
                    )
                    runner.equip(task, values)
        self._hooks.started(self._loop)
        self._stop_hooks = self._hooks.listen(worker)

    def stack(self, attempt: Attempt) -> None:
        self._link.stack_taken(attempt, self.stack_of(attempt))

    def stack_of(self, attempt: Attempt) -> str:
        try:
            found = (runner.stack(attempt) for runner in self.runners)
            return next((stack for stack in found if stack is not None), None) or not_running(attempt)
        except Exception as error:  # noqa: BLE001 - looking at a handler must not hurt it
            return no_stack(error)

    def abandon(self, seconds: float) -> None:
        """Coroutines were cancelled; a thread can't be ended."""

    def close(self, end_by: float) -> None:
        if self._stop_hooks is not None:
            self._stop_hooks(max(0.0, min(LAST_CALLS, (end_by - time.monotonic()) / 3)))
            self._hooks.stopped(self._loop)
        self._resources.close(end_by)
        for runner in self.runners:
            runner.close(max(0.0, min(2.0, end_by - time.monotonic())))
