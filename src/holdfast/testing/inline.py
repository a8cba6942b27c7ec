"""Runs handlers in the calling thread. It uses the worker's own desk, turn by turn; only the place where attempts run
differs.

Inline mode: a job runs as soon as it is enqueued, in the thread that enqueued it, and an error of its handler is raised
there. On a connection of the test's, `run_due` works so too: frameworks bind a connection to a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.adopting import Adopted
from holdfast.app import Holdfast
from holdfast.job import Job
from holdfast.model.mapping import Mapping
from holdfast.runners.base import WorkerLink
from holdfast.runners.event_loop import Slot
from holdfast.runners.inprocess import InProcessRunner
from holdfast.settings import Settings
from holdfast.store.adopted import SameKey
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import current_worker
from holdfast.tasks.hooks import Hooks
from holdfast.tasks.task import Bound, Task
from holdfast.testing.clock import Clock
from holdfast.worker.desk import Desk
from holdfast.worker.rescuer import Rescuer
from holdfast.worker.retention import Retention
from holdfast.worker.settler import settle
from holdfast.worker.watchdog import catch_up

R = TypeVar("R")

NAME = "inline"  # of the worker, as it is stored with a job


class CallerRunner(InProcessRunner):
    """Runs attempts in the thread that calls `run_started`, and remembers what each handler raised. Not when they
    start: the desk may have the connection in use then."""

    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, hooks: Hooks | None = None,
    ) -> None:  # fmt: skip
        super().__init__(1, tasks, store, settings, hooks=hooks)
        self._is_async = {name: task.is_async for task in self.tasks for name in (task.name, *task._defaults.aliases)}
        self.raised: dict[str, BaseException | None] = {}

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._unstarted.extend(attempts)

    def run_started(self) -> bool:
        """Run what was started; False: nothing was."""
        ran = False
        while self._unstarted.since() is not None:
            attempt = self._unstarted.popleft()
            self.raised[str(attempt.held.id)] = copy_context().run(self._run, attempt)
            ran = True
        return ran

    def close(self, timeout: float) -> None: ...

    def _run(self, attempt: Attempt) -> BaseException | None:
        current_worker.set(self._worker)
        if self._is_async[attempt.held.task]:
            return _awaited(self._run_async(attempt))
        return self._execution.run(attempt)

    async def _run_async(self, attempt: Attempt) -> BaseException | None:
        return await self._execution.run_async(attempt, Slot(asyncio.get_running_loop()))


def drain_here(app: Holdfast, worker: str, queues: tuple[str, ...] | None, limit: int) -> None:
    """Run what is due, up to so many attempts: synchronous handlers in this thread, and with no other thread that uses
    the store. Before that, what workers do by the clock."""
    store, settings = app.store, app.settings
    rescuer = Rescuer(
        worker, store, quarantine_after=settings.quarantine_after, job_due_in=lambda seconds: None
    )  # fmt: skip
    catch_up(store, rescuer, Retention(store, finished=settings.keep_finished, failed=settings.keep_failed))
    desk = Desk(worker, store, settings, queues)
    desk.mandate.budget = limit
    desk.mandate.exhaustive = True
    group = app._runner_group(isolated=True, threads=CallerRunner)
    callers = [runner for runner in group.runners if isinstance(runner, CallerRunner)]
    for runner in group.runners:
        desk.add(runner)
    group.open(WorkerLink(worker=worker, outcomes=desk.ended, stack_taken=lambda attempt, stack: None))

    def woke(mapping: Mapping) -> None:
        desk.wakeups.due_in(0.0)

    try:
        while not (desk.idle() and (desk.mandate.budget == 0 or (desk.found_all and not settle(store, woke)))):
            if not desk.turn() and not any(runner.run_started() for runner in callers):
                desk.wait(0.05)
    finally:
        group.close(time.monotonic() + 1.0)


def _awaited(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in a loop of its own, on another thread if this one already runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    answer: list[R] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(asyncio.run(coroutine))
        except BaseException as error:  # noqa: BLE001 - raised again where it belongs
            trouble.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="holdfast-inline")
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return answer[0]


def _begins(bound: Bound[Any], job: Job[Any]) -> bool:
    """Is there something to run? An enqueue may have begun another life of a failed job with the same key."""
    return job.created or bound.new.after_failure == "retry"


class Inline:
    """Replaces the enqueueing methods on the application object itself, so that enqueueing outside of tests pays
    nothing for this mode."""

    def __init__(self, app: Holdfast, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    @contextmanager
    def installed(self) -> Iterator[None]:
        mine = {
            "_submit": self.submit, "_submit_row": self.submit_row, "enqueue_many": self.enqueue_many,
            "enqueue_stream": self.enqueue_stream,
        }  # fmt: skip
        before = {name: vars(self._app).get(name) for name in mine}
        vars(self._app).update(mine)
        try:
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    del vars(self._app)[name]
                else:
                    vars(self._app)[name] = method

    def submit(self, bound: Bound[R]) -> Job[R]:
        job = Holdfast._submit(self._app, bound)
        if bound.conn is None and _begins(bound, job):
            self.run([job.id])
            job.refresh()
        return job

    def submit_row(self, table: Adopted, row: dict[str, Any], same: SameKey, conn: Any) -> Job[Any]:
        job = Holdfast._submit_row(self._app, table, row, same, conn)
        if conn is None and (job.created or same.after_failure == "retry"):
            self._clock.take_over_rows(self._app.store)
            self.run([job.id])
            job.refresh()
        return job

    def enqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        given = list(jobs)
        made = Holdfast.enqueue_many(self._app, given)
        self.run([job.id for bound, job in zip(given, made, strict=True) if _begins(bound, job)])
        return [job.refresh() for job in made]

    def enqueue_stream(self, jobs: Iterable[Bound[Any]]) -> int:
        return len(self.enqueue_many(jobs))

    def run(self, ids: Collection[str]) -> None:
        """Run one attempt of each of these jobs, and of those due before them. Raises what the first of them raised."""
        desk = Desk(NAME, self._app.store, self._app.settings, None)
        hooks = Hooks(around=self._app._hooks.around)  # what a handler raises is raised here: no error hook is called
        runner = CallerRunner(1, self._app.tasks.values(), self._app.store, self._app.settings, hooks=hooks)
        runner.open(NAME, desk.ended.finished)
        desk.add(runner)
        wanted = set(ids)
        while True:
            desk.mandate.claiming = not wanted <= runner.raised.keys()
            if not desk.turn() and not runner.run_started():
                if desk.idle():
                    break
                desk.wait(0.05)
        for id in ids:
            if error := runner.raised.get(id):
                raise error
