"""Holdfast, the object users hold: each public verb, one short method."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import msgspec

from holdfast.errors import BadSettings, StoreError, UnknownTask
from holdfast.handle import Job
from holdfast.model.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, JobRecord, NewJob, Pause
from holdfast.model.lifecycle import State
from holdfast.model.retry import DEFAULT_RETRY, RetryLike, retry_policy
from holdfast.settings import load_settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.work.context import JobContext
from holdfast.work.tasks import AsyncTask, Bound, Seconds, SyncTask, Task, seconds, task_defaults
from holdfast.work.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """An application: its tasks, and the database its jobs are kept in.

    `Holdfast("sqlite:///jobs.db")` or `Holdfast("postgresql://…")`; without a URL, HOLDFAST_URL or the settings file
    decide. Further keyword arguments are settings."""

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        try:
            self.settings = load_settings(url=url, **settings)
        except TypeError as error:
            raise BadSettings(str(error).replace("Settings.__init__()", "Holdfast")) from None
        self.tasks: dict[str, Task[..., Any]] = {}
        self._names: dict[str, str] = {}  # name or alias -> the task it belongs to
        self._opening = threading.Lock()
        self._store: Store | None = None

    # -- tasks -----------------------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[Concatenate[JobContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
        retry: RetryLike = DEFAULT_RETRY,
        timeout: Seconds | None = None,
        reuse: Seconds | Literal["forever"] | None = None,
        aliases: Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare a task. Its stored name is the function's name, or `name=`; never its module's path. `aliases=` keep
        jobs running that were enqueued under an earlier name."""
        decorator = TaskDecorator(self, options)
        return decorator if function is None else decorator(function)

    def declare(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        given: dict[str, Any] = {
            "queue": DEFAULT_QUEUE, "priority": 0, "max_attempts": DEFAULT_MAX_ATTEMPTS, "retry": DEFAULT_RETRY,
            "timeout": None, "reuse": None, "aliases": (), "tags": (), "name": None,
        }  # fmt: skip
        unknown = options.keys() - given.keys()
        if unknown:
            raise BadSettings(f"@task has no option {', '.join(sorted(unknown))}; it takes {', '.join(sorted(given))}")
        given.update(options)
        given["retry"] = retry_policy(given["retry"])
        defaults = task_defaults(function, **given)
        for name in (defaults.name, *defaults.aliases):
            if name in self._names:
                raise BadSettings(f"the task name {name!r} is taken by {self._names[name]!r}: give one of them name=…")
        kind = AsyncTask if inspect.iscoroutinefunction(function) else SyncTask
        task: Task[..., Any] = kind(self, function, defaults)
        self.tasks[task.name] = task
        self._names.update(dict.fromkeys((defaults.name, *defaults.aliases), defaults.name))
        return task

    def find_task(self, name: str) -> Task[..., Any]:
        try:
            return self.tasks[self._names[name]]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"there is no task {name!r} in this application; declared: {known}") from None

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The open store. On SQLite the schema is made when it is first needed; PostgreSQL wants `holdfast migrate`."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    store = open_store(self.settings)
                    if self.settings.url.startswith("sqlite"):
                        store.migrate()
                    else:
                        store.check()
                    self._store = store
        return self._store

    def reconfigure(self, **settings: Any) -> None:
        """Change settings of an application that is declared already: the command line over the code."""
        self.close()
        self.settings = replace(self.settings, **settings)

    def migrate(self) -> list[str]:
        """Bring the database's schema up to date; returns what was applied."""
        return open_store(self.settings).migrate()

    def close(self) -> None:
        """Let go of the database's connections; wake-ups under way are sent first."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- enqueue -----------------------------------------------------------------------------------------------------

    def submit(self, bound: Bound[R]) -> Job[R]:
        if bound.conn is not None:
            done = self.store.enqueue_on(bound.conn, bound.new)
        else:
            done = self.store.enqueue(bound.new)
        return Job(self, done.id, bound.task.name, created=done.created)

    async def asubmit(self, bound: Bound[R]) -> Job[R]:
        if bound.conn is None:
            return await asyncio.to_thread(self.submit, bound)
        done = await self.store.aenqueue_on(bound.conn, bound.new)
        return Job(self, done.id, bound.task.name, created=done.created)

    def enqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        """Keep many jobs, all or none: `hf.enqueue_many(task.bind(x) for x in xs)`."""
        return [Job(self, *known) for chunk in self._stream(jobs) for known in chunk]

    def enqueue_stream(self, jobs: Iterable[Bound[Any]]) -> int:
        """As enqueue_many, for streams too long to keep a handle on each; returns how many were enqueued."""
        return sum(len(chunk) for chunk in self._stream(jobs))

    async def aenqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        return await asyncio.to_thread(self.enqueue_many, jobs)

    def _stream(self, jobs: Iterable[Bound[Any]]) -> Iterator[list[tuple[str, str]]]:
        # Answers come in the order of the jobs within what the store calls a chunk.
        names: list[str] = []

        def news() -> Iterator[NewJob]:
            for bound in jobs:
                if bound.conn is not None:
                    raise BadSettings("enqueue_many uses a transaction of its own: conn= is not possible here")
                names.append(bound.task.name)
                yield bound.new

        for chunk in self.store.enqueue_many(news()):
            yield [(done.id, name) for done, name in zip(chunk, names, strict=False)]
            del names[: len(chunk)]

    # -- people --------------------------------------------------------------------------------------------------------

    def job(self, id: str) -> Job[Any]:
        """The job with this id."""
        return Job(self, id, self.store.get(id).task, created=False)

    def jobs(
        self,
        *,
        state: State | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[JobRecord]:
        """Jobs, newest first."""
        wanted = None if state is None else State(state)
        return self.store.jobs(state=wanted, queue=queue, task=task, before=before, limit=limit)

    def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
    ) -> State:
        """Change priority, due time or tags of a queued job."""
        later = None if delay is None else seconds("change: delay", delay)
        return self.store.change(id, priority=priority, delay=later, run_at=run_at, tags=tags)

    def pause(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        by: str | None = None,
        why: str | None = None,
        until: datetime | timedelta | None = None,
    ) -> None:
        """Pause a queue or a task: no new attempts start until `resume`, or until the time given."""
        kind, name = _which(queue, task)
        if isinstance(until, timedelta):
            self.store.hold(kind, name, by=by, reason=why, delay=until.total_seconds())
        else:
            self.store.hold(kind, name, by=by, reason=why, until=until)

    def resume(self, *, queue: str | None = None, task: str | None = None) -> bool:
        """End the pause of a queue or a task. False: it was not paused."""
        return self.store.let_go(*_which(queue, task))

    def pauses(self) -> list[Pause]:
        return self.store.pauses()

    # -- work ----------------------------------------------------------------------------------------------------------

    def worker(self, queues: Iterable[str] | None = None) -> Worker:
        """A worker for this application: `hf.worker().run()`."""
        return Worker(self.store, self.settings, self.tasks.values(), queues=queues)

    def drain(
        self, queues: Iterable[str] | None = None, *, seconds: float | None = None, jobs: int | None = None
    ) -> int:
        """Work here until nothing is due, or until so many seconds or jobs; returns how many were processed."""
        return self.worker(queues).drain(seconds=seconds, jobs=jobs)

    def decode_result(self, task: str, data: bytes | None) -> Any:
        if data is None:
            return None
        if task in self._names:
            return self.find_task(task).signature.result(data)
        return msgspec.json.decode(data)

    # -- waiting -------------------------------------------------------------------------------------------------------

    @contextmanager
    def waiting(self, id: str) -> Iterator[threading.Event]:
        """An event that is set when this job may have finished."""
        store = self.store
        store.await_finish(id)
        with self._hub.expecting(id) as event:
            yield event

    @cached_property
    def _hub(self) -> Hub:
        return Hub(lambda: self.store)

    def __repr__(self) -> str:
        return f"<Holdfast {self.settings.shown_url}: {len(self.tasks)} tasks>"


class Hub:
    """Wakes those who wait for a job: one listener per application, only while somebody waits."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._events: dict[str, set[threading.Event]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def expecting(self, id: str) -> Iterator[threading.Event]:
        event = threading.Event()
        with self._lock:
            self._events.setdefault(id, set()).add(event)
            if self._thread is None and self._store().can_listen:
                self._thread = threading.Thread(target=self._listen, name="holdfast-waiting", daemon=True)
                self._thread.start()
        try:
            yield event
        finally:
            with self._lock:
                self._events[id].discard(event)
                if not self._events[id]:
                    del self._events[id]

    def _listen(self) -> None:
        try:
            self._store().listen(self._heard, self._nobody, finished=True)
        except StoreError:
            pass  # those who wait look by themselves, a little later
        with self._lock:
            self._thread = None

    def _nobody(self) -> bool:
        with self._lock:
            return not self._events

    def _heard(self, kind: str, what: str) -> None:
        with self._lock:
            concerned = self._events.get(what, set()) if kind == "finished" else set().union(*self._events.values())
            for event in concerned:
                event.set()


class TaskDecorator:
    """What `@hf.task(…)` gives: turns a function into a task of the same signature, less its context."""

    def __init__(self, app: Holdfast, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._app.declare(function, self._options)


def _which(queue: str | None, task: str | None) -> tuple[str, str]:
    if (queue is None) == (task is None):
        raise BadSettings("name either a queue or a task")
    return ("queue", queue) if queue is not None else ("task", task or "")
