"""Holdfast, the object users hold: each public verb, one short method."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

import msgspec

from holdfast import events
from holdfast.errors import BadArguments, BadSettings, SchemaOutdated, StoreError, StoreUnavailable, UnknownTask
from holdfast.handle import Job
from holdfast.model.cron import CatchUp, CronRecord
from holdfast.model.filter import BadFilter, Filter, parse
from holdfast.model.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, Changed, Enqueued, NewJob, Page, Pause
from holdfast.model.lifecycle import State
from holdfast.model.retry import DEFAULT_RETRY, RetryLike, retry_policy
from holdfast.model.why import QueueWhy, Reason
from holdfast.settings import load_settings, sources
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.why import why, why_queue
from holdfast.work.context import JobContext, current
from holdfast.work.cron import declaration
from holdfast.work.hooks import ErrorHook, Hook, Hooks, checked_error_hook
from holdfast.work.resources import Resource, Use
from holdfast.work.tasks import (
    AsyncTask,
    Bound,
    Seconds,
    SyncTask,
    Task,
    aware,
    name_of,
    names_of,
    priority_of,
    seconds,
    task_defaults,
)
from holdfast.work.worker import Worker

if TYPE_CHECKING:
    from holdfast.doctor import Finding

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Hook)
E = TypeVar("E", bound=ErrorHook)


class Holdfast:
    """An application: its tasks, and the database its jobs are kept in.

    `Holdfast("sqlite:///jobs.db")` or `Holdfast("postgresql://…")`; without a URL, HOLDFAST_URL or the settings file
    decide. Further keyword arguments are settings."""

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        try:
            self.settings = load_settings(url=url, **settings)
            self.sources = sources(url=url, **settings)
        except TypeError as error:
            raise BadSettings(str(error).replace("Settings.__init__()", "Holdfast")) from None
        self.tasks: dict[str, Task[..., Any]] = {}
        self._names: dict[str, str] = {}  # name or alias -> the task it belongs to
        self._resources: list[Resource[Any]] = []
        self._hooks = Hooks()
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
        cron: str | None = None,
        timezone: str | None = None,
        catch_up: CatchUp | None = None,
    ) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare a task. Its stored name is the function's name, or `name=`; never its module's path. `aliases=` keep
        jobs running that were enqueued under an earlier name. `cron=` enqueues it by a schedule, in `timezone=` (UTC);
        `catch_up=` says which ticks are made up for after a downtime: "none", the "latest" (so by default) or "all"."""
        if function is not None and not callable(function):
            raise BadSettings(
                f"@task takes options by name, as in @task(queue=…), not {function!r:.80}", number="HF1111"
            )
        decorator = TaskDecorator(self, options)
        return decorator if function is None else decorator(function)

    def declare(self, function: Callable[..., Any], options: dict[str, Any]) -> Task[..., Any]:
        given: dict[str, Any] = {
            "queue": DEFAULT_QUEUE, "priority": 0, "max_attempts": DEFAULT_MAX_ATTEMPTS, "retry": DEFAULT_RETRY,
            "timeout": None, "reuse": None, "aliases": (), "tags": (), "name": None,
            "cron": None, "timezone": None, "catch_up": None,
        }  # fmt: skip
        unknown = options.keys() - given.keys()
        if unknown:
            raise BadSettings(
                f"@task has no option {', '.join(sorted(unknown))}; it takes {', '.join(sorted(given))}",
                number="HF1111",
            )
        given.update(options)
        given["retry"] = retry_policy(given["retry"])
        defaults = task_defaults(function, **given)
        for name in (defaults.name, *defaults.aliases):
            if name in self._names:
                raise BadSettings(
                    f"the task name {name!r} is taken by {self._names[name]!r}: give one of them name=…",
                    number="HF1111",
                )
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
            near = get_close_matches(name, self._names, 1)
            hint = f" (perhaps {near[0]!r})" if near else ""
            raise UnknownTask(f"there is no task {name!r} in this application; declared: {known}{hint}") from None

    # -- resources and hooks -----------------------------------------------------------------------------------------

    @overload
    def resource(self, function: Callable[..., AsyncIterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, function: Callable[..., Coroutine[Any, Any, T]], /) -> Resource[T]: ...
    @overload
    def resource(self, function: Callable[..., Iterator[T]], /) -> Resource[T]: ...
    @overload
    def resource(self, function: Callable[..., T], /) -> Resource[T]: ...

    def resource(self, function: Callable[..., Any], /) -> Any:
        """Declare what a worker opens once for its handlers. The function returns it, or yields it once and closes it
        after that; it may be asynchronous."""
        resource: Resource[Any] = Resource(function)
        self._resources.append(resource)
        return resource

    @property
    def injected(self) -> Any:
        """As the default of a handler's parameter: a worker passes the resource that gives what the parameter is
        annotated as. `open_pool.injected` names one instead."""
        return Use(None)

    def on_start(self, hook: H) -> H:
        """Call this when a worker process starts, before it takes jobs."""
        self._hooks.start.append(hook)
        return hook

    def on_stop(self, hook: H) -> H:
        """Call this when a worker process stops, after its last job."""
        self._hooks.stop.append(hook)
        return hook

    def on_error(self, hook: E) -> E:
        """Call this with the job and the exception whenever an attempt errors or times out."""
        self._hooks.error.append(checked_error_hook(hook))
        return hook

    def secrets(self, task: str) -> frozenset[str]:
        """The arguments of a task that are not to be shown: marked as Secret, or named so."""
        return self.find_task(task).secrets if task in self._names else frozenset()

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The open store. On SQLite the schema is made when it is first needed; PostgreSQL wants `holdfast migrate`."""
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._opened()
        return self._store

    def _opened(self) -> Store:
        store = open_store(self.settings)
        try:
            self._fit(store)
        except BaseException:
            store.close()
            raise
        return store

    def _fit(self, store: Store) -> None:
        try:
            store.check()
        except SchemaOutdated:
            if not self.settings.url.startswith("sqlite"):
                raise
            # Only now: migrating writes, and the caller may have a transaction open that no other writer gets past.
            try:
                store.migrate()
            except StoreUnavailable as error:
                raise StoreUnavailable(
                    f"the tables for jobs can't be made now: {error}. "
                    "Call hf.migrate() or `holdfast migrate` before you open a transaction of your own"
                ) from None

    def reconfigure(self, **settings: Any) -> None:
        """Change settings of an application that is declared already: the command line over the code."""
        self.close()
        if "lease" in settings:
            settings.setdefault("heartbeat", 0.0)  # a quarter of the new one
        self.settings = replace(self.settings, **settings)
        self.sources |= dict.fromkeys(settings, "argument")

    def migrate(self) -> list[str]:
        """Bring the database's schema up to date; returns what was applied."""
        with closing(open_store(self.settings)) as store:
            return store.migrate()

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
        store = self.store
        if bound.conn is None:
            self._refuse_in_transaction()
            done = store.enqueue(bound.new)
        else:
            done = store.enqueue_on(bound.conn, bound.new)
        _tell(bound, done)
        return Job(self, done.id, bound.task.name, created=done.created)

    def _refuse_in_transaction(self) -> None:
        context = current.get()
        if context is not None and context.transaction_open and self.settings.url.startswith("sqlite"):
            raise BadSettings(
                "this handler has a transaction open, and SQLite one writer: enqueue within it, using(conn=tx.conn)",
                number="HF1112",
            )

    async def asubmit(self, bound: Bound[R]) -> Job[R]:
        if bound.conn is None:
            return await asyncio.to_thread(self.submit, bound)
        done = await self.store.aenqueue_on(bound.conn, bound.new)
        _tell(bound, done)
        return Job(self, done.id, bound.task.name, created=done.created)

    def enqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        """Keep many jobs, all or none: `hf.enqueue_many(task.bind(x) for x in xs)`."""
        return [Job(self, done.id, task, created=done.created) for chunk in self._stream(jobs) for done, task in chunk]

    def enqueue_stream(self, jobs: Iterable[Bound[Any]]) -> int:
        """As enqueue_many, for streams too long to keep a handle on each; returns how many were enqueued."""
        return sum(len(chunk) for chunk in self._stream(jobs))

    async def aenqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        return await asyncio.to_thread(self.enqueue_many, jobs)

    def _stream(self, jobs: Iterable[Bound[Any]]) -> Iterator[list[tuple[Enqueued, str]]]:
        # Answers come in the order of the jobs within what the store calls a chunk.
        names: list[str] = []
        telling = events.wanted("enqueued")
        created: Counter[str] = Counter()

        def news() -> Iterator[NewJob]:
            for bound in jobs:
                if not isinstance(bound, Bound):
                    raise BadArguments(
                        f"enqueue_many takes tasks with their arguments, task.bind(…), not {bound!r:.80}"
                    )
                if bound.conn is not None:
                    raise BadSettings(
                        "enqueue_many uses a transaction of its own: conn= is not possible here", number="HF1112"
                    )
                names.append(bound.task.name)
                yield bound.new

        for chunk in self.store.enqueue_many(news()):
            kept = list(zip(chunk, names, strict=False))
            del names[: len(chunk)]
            if telling:
                created.update(task for done, task in kept if done.created)
            yield kept
        for task, count in created.items():
            events.emit("enqueued", count=count, task=task, committed=True)

    # -- people --------------------------------------------------------------------------------------------------------

    def job(self, id: str) -> Job[Any]:
        """The job with this id."""
        return Job(self, str(id), self.store.get(str(id)).task, created=False)

    def jobs(
        self,
        filter: str = "",
        *,
        state: State | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        """The jobs a filter means (`"state:failed queue:mail since:1h"`), newest first; `.next` is where to go on."""
        return self.store.jobs(parse(filter), state=state, queue=queue, task=task, before=before, limit=limit)

    def retry(self, filter: str) -> Changed:
        """Another life for every failed or cancelled job the filter means."""
        return self.store.bulk("retry", _some(filter))

    def cancel(self, filter: str, reason: str = "cancelled on request") -> Changed:
        """End every job the filter means that has not finished; failed ones are dismissed, running ones asked."""
        return self.store.bulk("cancel", _some(filter), reason=reason)

    def delete(self, filter: str) -> Changed:
        """Forget every finished job the filter means, with its history."""
        return self.store.bulk("delete", _some(filter), unfinished=False)

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
        return self.store.change(id, **changes(priority=priority, delay=delay, run_at=run_at, tags=tags))

    @overload
    def pause(self, filter: str, /) -> Changed: ...
    @overload
    def pause(
        self, *, queue: str | None = None, task: str | None = None, cron: str | None = None, by: str | None = None,
        why: str | None = None, until: datetime | timedelta | None = None,
    ) -> None: ...  # fmt: skip

    def pause(
        self,
        filter: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        cron: str | None = None,
        by: str | None = None,
        why: str | None = None,
        until: datetime | timedelta | None = None,
    ) -> Changed | None:
        """Pause a queue or a task: no new attempts start until `resume`, or until the time given. Or a cron: its ticks
        are let go until then. Or the jobs a filter means: queued ones are held, running ones asked to park."""
        if filter is not None:
            _alone(filter, queue, task, cron, by, why, until)
            return self.store.bulk("pause", _some(filter))
        kind, name = _which(queue, task, cron)
        if kind == "cron":
            self._cron(name)
        if isinstance(until, timedelta):
            self.store.hold(kind, name, by=by, reason=why, delay=seconds("pause: until", until))
        else:
            self.store.hold(kind, name, by=by, reason=why, until=aware("pause: until", until))
        return None

    @overload
    def resume(self, filter: str, /) -> Changed: ...
    @overload
    def resume(self, *, queue: str | None = None, task: str | None = None, cron: str | None = None) -> bool: ...

    def resume(
        self, filter: str | None = None, *, queue: str | None = None, task: str | None = None, cron: str | None = None
    ) -> Changed | bool:
        """End the pause of a queue, a task or a cron, which goes on with its next tick; False: it was not paused. Or of
        the jobs a filter means."""
        if filter is not None:
            _alone(filter, queue, task, cron)
            return self.store.bulk("resume", _some(filter))
        kind, name = _which(queue, task, cron)
        next_at = None
        if kind == "cron":
            paused = self._cron(name)
            next_at = paused.schedule.after(paused.now)
        return self.store.let_go(kind, name, next_at=next_at)

    def pauses(self) -> list[Pause]:
        return self.store.pauses()

    def why(self, id: str) -> list[Reason]:
        """Why a job does not run, or what became of it: every reason that holds, in order."""
        return why(self.store, str(id))

    def why_queue(self, queue: str) -> QueueWhy:
        """What the jobs of a queue wait for, counted by reason over a bounded window."""
        return why_queue(self.store, name_of("the name of a queue", queue))

    def doctor(self) -> list[Finding]:
        """What is wrong with the database, or soon will be; what is in order is told as well. Changes nothing."""
        from holdfast.doctor import examine

        return examine(self.settings)

    # -- crons ---------------------------------------------------------------------------------------------------------

    def crons(self) -> list[CronRecord]:
        """The crons this database knows, and those this application declares, by name."""
        known = {cron.name: cron for cron in self.store.crons(with_workers=True)}
        mine = [task for task in self.tasks.values() if task.schedule is not None and task.name not in known]
        now = self.store.now() if mine else None
        known |= {task.name: declaration(task, now) for task in mine if now is not None}
        return [known[name] for name in sorted(known)]

    def run_cron(self, name: str) -> Job[Any]:
        """Enqueue a job of this cron now; its schedule goes on as it was."""
        self._cron(name)
        id = self.store.run_cron(name)
        if id is None:
            raise UnknownTask(f"the cron {name!r} is gone")
        return Job(self, id, name, created=True)

    def _cron(self, name: str) -> CronRecord:
        """The cron of this name, as the database has it; one that only this application knows is made known to it."""
        known = {cron.name: cron for cron in self.crons()}
        if name not in known:
            there = ", ".join(known) or "none"
            raise UnknownTask(f"there is no cron {name!r} in {self.settings.shown_url}; there are: {there}")
        if name not in {cron.name for cron in self.store.crons()}:
            self.store.declare_cron(known[name])
        return known[name]

    # -- work ----------------------------------------------------------------------------------------------------------

    def worker(self, queues: Iterable[str] | None = None) -> Worker:
        """A worker for this application: `hf.worker().run()`."""
        served = None if queues is None else names_of("worker: queues", queues)
        return Worker(
            self.store, self.settings, self.tasks.values(), queues=served, resources=self._resources, hooks=self._hooks
        )

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

    def expecting(self, id: str, wake: Callable[[], object]) -> AbstractContextManager[None]:
        """Calls `wake`, on another thread, whenever this job may have finished."""
        return self._hub.expecting(id, wake)

    @cached_property
    def _hub(self) -> Hub:
        return Hub(lambda: self.store)

    def __repr__(self) -> str:
        return f"<Holdfast {self.settings.shown_url}: {len(self.tasks)} tasks>"


class Hub:
    """Wakes those who wait for a job: one listener per application, only while somebody waits."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None

    @contextmanager
    def expecting(self, id: str, wake: Callable[[], object]) -> Iterator[None]:
        if os.getpid() != self._pid:  # forked: the listener is the parent's, and so is who held the lock
            self.__init__(self._store)  # type: ignore[misc]
        with self._lock:
            self._waiting.setdefault(id, []).append(wake)
            if self._thread is None and self._store().can_listen:
                self._thread = threading.Thread(target=self._listen, name="holdfast-waiting", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[id].remove(wake)
                if not self._waiting[id]:
                    del self._waiting[id]

    def _listen(self) -> None:
        deaf = False
        while True:
            with self._lock:
                if deaf or not self._waiting:
                    self._thread = None
                    return
            try:
                self._store().listen(self._heard, self._nobody, finished=True)
            except StoreError:
                deaf = True  # those who wait look by themselves, a little later

    def _nobody(self) -> bool:
        with self._lock:
            return not self._waiting

    def _heard(self, kind: str, what: str) -> None:
        with self._lock:
            concerned = [self._waiting.get(what, [])] if kind == "finished" else self._waiting.values()
            for wakes in concerned:
                for wake in wakes:
                    with suppress(RuntimeError):  # its event loop is closed
                        wake()


class TaskDecorator:
    """What `@hf.task(…)` gives: turns a function into a task of the same signature, less its context."""

    def __init__(self, app: Holdfast, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._app.declare(function, self._options)


def _tell(bound: Bound[Any], done: Enqueued) -> None:
    if done.created:
        # On the caller's own transaction it is not committed yet.
        events.emit("enqueued", count=1, task=bound.task.name, job=done.id, committed=bound.conn is None)


def changes(
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What is to change of a job, checked."""
    if delay is not None and run_at is not None:
        raise BadArguments("change: delay and run_at exclude each other")
    return {
        "priority": None if priority is None else priority_of("change", priority),
        "delay": None if delay is None else seconds("change: delay", delay),
        "run_at": aware("change: run_at", run_at),
        "tags": None if tags is None else names_of("change: tags", tags),
    }


def _which(queue: str | None, task: str | None, cron: str | None) -> tuple[str, str]:
    named = [(kind, name) for kind, name in (("queue", queue), ("task", task), ("cron", cron)) if name is not None]
    if len(named) != 1:
        raise BadSettings("name either a queue, a task or a cron")
    [(kind, name)] = named
    return kind, name_of(f"the name of a {kind}", name)


def _some(text: str) -> Filter:
    filter = parse(text)
    if not filter:
        raise BadFilter("an empty filter means every job there is: say which, as in state:failed or id:42")
    return filter


def _alone(filter: str, *others: object) -> None:
    if any(other is not None for other in others):
        raise BadArguments(f"a filter ({filter!r}) means jobs: name a queue or a task apart from it")
