"""Inline mode: a job runs as soon as it is enqueued, in the thread that enqueued it, and an error of its handler is
raised there. It uses the worker's own desk, turn by turn; only the place where attempts run differs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from holdfast.app import Holdfast
from holdfast.job import Job
from holdfast.runners.execution import Handler
from holdfast.runners.inprocess import InProcessRunner
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_worker
from holdfast.tasks.task import Bound
from holdfast.worker.desk import Desk

R = TypeVar("R")

NAME = "inline"  # of the worker, as it is stored with a job


class CallerRunner(InProcessRunner):
    """Runs attempts in the thread that starts them, and remembers what each handler raised."""

    def __init__(self, app: Holdfast, desk: Desk) -> None:
        super().__init__(1, app.tasks.values(), app.store, app.settings)
        self.open(NAME, desk.ended.finished)
        self.raised: dict[str, BaseException | None] = {}

    def start(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self.raised[str(attempt.held.id)] = copy_context().run(self._run, attempt)

    def close(self, timeout: float) -> None: ...

    def _run(self, attempt: Attempt) -> BaseException | None:
        current_worker.set(NAME)
        return self._execution.run(attempt, _call)


def _call(handler: Handler, context: JobContext, args: bytes) -> object:
    value = handler.run(context, args)
    return _awaited(value) if handler.is_async else value


def _awaited(coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a coroutine in a loop of its own, on another thread if this one already runs a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    answer: list[object] = []
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

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @contextmanager
    def installed(self) -> Iterator[None]:
        mine = {"submit": self.submit, "enqueue_many": self.enqueue_many, "enqueue_stream": self.enqueue_stream}
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
        job = Holdfast.submit(self._app, bound)
        if bound.conn is None and _begins(bound, job):
            self.run([job.id])
        return job

    def enqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        given = list(jobs)
        made = Holdfast.enqueue_many(self._app, given)
        self.run([job.id for bound, job in zip(given, made, strict=True) if _begins(bound, job)])
        return made

    def enqueue_stream(self, jobs: Iterable[Bound[Any]]) -> int:
        return len(self.enqueue_many(jobs))

    def run(self, ids: Collection[str]) -> None:
        """Run one attempt of each of these jobs, and of those due before them. Raises what the first of them raised."""
        desk = Desk(NAME, self._app.store, self._app.settings, None)
        runner = CallerRunner(self._app, desk)
        desk.add(runner)
        wanted = set(ids)
        while True:
            desk.mandate.claiming = not wanted <= runner.raised.keys()
            if not desk.turn():
                if desk.idle():
                    break
                desk.wait(0.05)
        for id in ids:
            if error := runner.raised.get(id):
                raise error
