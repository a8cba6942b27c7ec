"""What the runners in this process share: slots, attempts that wait for one, and the execution of an attempt."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadSettings
from holdfast.runners.base import Finished, Runner, Succeeded, Unstarted, WorkerLink
from holdfast.runners.execution import Execution
from holdfast.runners.stacks import no_stack, not_running, of_thread
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import current_worker
from holdfast.tasks.hooks import Hooks
from holdfast.tasks.manifest import info_of, manifest_of
from holdfast.tasks.resources import OpenResources, Resource
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    import asyncio


class InProcessRunner:
    may_wait = True
    many = False

    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, hooks: Hooks | None = None,
    ) -> None:  # fmt: skip
        self.tasks = list(tasks)
        self.slots = slots
        self.busy = 0
        self.manifest = manifest_of(self.tasks)
        self._worker = ""
        self._unstarted = Unstarted()
        self._execution = Execution(self.tasks, store, settings, hooks or Hooks())

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


# Runs synchronous handlers on threads. A thread can't be stopped from outside: its handler sees a stop request
# through its context, and keeps its slot and its lease until it returns.


class ThreadRunner(InProcessRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, hooks: Hooks | None = None,
    ) -> None:  # fmt: skip
        super().__init__(slots, tasks, store, settings, hooks=hooks)
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item for each attempt that was added
        self._threads: list[threading.Thread] = []
        self._running: dict[int, Attempt] = {}  # by thread: what it runs, or ran last
        self._closing = False

    def start(self, attempts: Sequence[Attempt]) -> None:
        for _ in range(min(len(attempts), self.slots - len(self._threads))):
            name = f"holdfast-thread-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads; the existing ones do the work
                break
            self._threads.append(thread)
        if self._threads:
            self._unstarted.extend(attempts)
            for _ in attempts:
                self._calls.put(None)
        else:
            for attempt in attempts:
                self._execution.give_back(attempt)

    def close(self, timeout: float) -> None:
        """End the idle threads; the others end with their handler, or with the process."""
        self._closing = True
        for _ in self._threads:
            self._calls.put(None)

    def stack(self, attempt: Attempt) -> str | None:
        thread = next((one for one in self._threads if self._running.get(one.ident or 0) is attempt), None)
        text = None if thread is None or thread.ident is None else of_thread(thread.ident)
        if thread is None or text is None or attempt.ended:
            return None
        return self._execution.encoded_stack(attempt, thread.name, text)

    def _serve(self) -> None:
        current_worker.set(self._worker)
        me = threading.get_ident()
        while True:
            self._calls.get()
            if self._closing:
                return
            try:
                attempt = self._unstarted.popleft()
            except IndexError:  # it was withdrawn
                continue
            self._running[me] = attempt
            copy_context().run(self._execution.run, attempt)


# Runs a worker's handlers in this process: coroutines on an event loop, synchronous handlers on threads.

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
                "this application declares no tasks, so there is nothing that a worker could run: import the modules "
                "that declare your tasks where the application is made",
                number="HF1110",
            )
        self.tasks = tuple(info_of(task) for task in tasks)
        self._hooks = hooks or Hooks()
        self._resources = OpenResources(resources)
        for task in tasks:
            self._resources.plan(f"task {task.name}", task._signature.uses, is_async=task.is_async)
        self.runners: list[InProcessRunner] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        here = [task for task in tasks if isolated or task._defaults.isolation is None]
        if mine := [task for task in here if task.is_async]:
            # With it comes asyncio, which takes as long to import as all of Holdfast.
            from holdfast.runners.event_loop import LoopRunner

            runner = LoopRunner(settings.concurrency, mine, store, settings, hooks=self._hooks)
            self.runners.append(runner)
            self._loop = runner.loop
        if mine := [task for task in here if not task.is_async]:
            self.runners.append(threads(settings.threads, mine, store, settings, hooks=self._hooks))
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
                if task._signature.uses:
                    values = self._resources.values(
                        f"task {task.name}", task._signature.uses, self._loop, is_async=task.is_async
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
