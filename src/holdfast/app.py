"""Holdfast, the object users hold: each public verb, one short method."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, cast, overload

import msgspec

from holdfast import api_keys, events, monitoring, operations, pausing, run_now
from holdfast.adopting import AdoptArguments, Adopted, said_mapping
from holdfast.durations import Duration
from holdfast.errors import UNGUARDED, BadArguments, BadSettings, SchemaOutdated, StoreUnavailable, UnknownTask
from holdfast.job import Job
from holdfast.model.access import Authorize, Role
from holdfast.model.cron import CatchUp, CronRecord
from holdfast.model.job import Enqueued, NewJob, Processed
from holdfast.model.mapping import Mapping
from holdfast.model.presets import PRESETS
from holdfast.model.text import nearest, plural
from holdfast.settings import (
    ARGUMENT,
    SettingsArguments,
    dotted,
    flattened,
    load_settings,
    named_twice,
    sources,
    url_outside,
)
from holdfast.store import open_store, same_database
from holdfast.store.adopted import SameKey
from holdfast.store.base import Store
from holdfast.tasks.around import Wrapper, checked_wrapper
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_context
from holdfast.tasks.decorator import TaskDecorator
from holdfast.tasks.hooks import AlertHook, DoctorCheck, ErrorHook, Hook, Hooks, checked_hook
from holdfast.tasks.offload import in_thread, notice_loop, twin
from holdfast.tasks.options import (
    NOW_QUEUE,
    TaskOptions,
    by_of,
    limit_of,
    looked_for,
    names_of,
    reason_of,
    task_defaults,
)
from holdfast.tasks.options import seconds as seconds_of
from holdfast.tasks.resources import Resource, Use
from holdfast.tasks.schedules import schedule_of
from holdfast.tasks.task import AsyncTask, Bound, SyncTask, Task
from holdfast.waiters import Waiters

if TYPE_CHECKING:
    from holdfast.runners.inprocess import InProcessGroup, InProcessRunner
    from holdfast.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
REAL_DATABASE = "HOLDFAST_REAL_DATABASE"  # an environment variable: tests may use the application's database
C = TypeVar("C", bound=DoctorCheck)
H = TypeVar("H", bound=Hook)
E = TypeVar("E", bound=ErrorHook)
A = TypeVar("A", bound=AlertHook)
W = TypeVar("W", bound=Wrapper)


class Holdfast:
    """An application: its tasks, and the database its jobs are kept in.

    `Holdfast()` uses the database that HOLDFAST_URL or the settings file names. `Holdfast("postgresql://…")` names it
    in the code; if HOLDFAST_URL or the file then names another one, the first use of the database raises BadSettings.
    `pinned=True` ignores them instead. Further keyword arguments are settings."""

    def __init__(self, url: str | None = None, *, pinned: bool = False, **settings: Unpack[SettingsArguments]) -> None:
        self.settings = load_settings(url=url, **settings)
        self.sources = sources(url=url, **settings)
        if pinned and url is None:
            raise BadSettings("pinned=True makes the URL in the code the only one that counts: it needs a URL")
        self._contested: tuple[str, str, str, str] | None = None  # what `named_twice` takes
        other, place = url_outside()
        if url is not None and other and not pinned:
            self._contested = url, _line(sys._getframe(1)), other, place
        self.tasks: dict[str, Task[..., Any]] = {}
        self.adopted: dict[str, Adopted] = {}
        self._names: dict[str, str] = {}  # name or alias -> the task it belongs to
        self._resources: list[Resource[Any]] = []
        self._hooks = Hooks()
        self._checks: list[DoctorCheck] = []
        self._opening = threading.Lock()
        self._store: Store | None = None
        self._looker: Holdfast | None = None
        self._free_slots = run_now.FreeSlots(lambda: self.worker([NOW_QUEUE]))
        self._in_kit = False  # of `holdfast.testing`: no worker but the test itself runs jobs

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
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Declare a task. Its stored name is the function's name, or `name=`; never its module's path. `aliases=` keep
        jobs running that were enqueued under an earlier name. `cron=` enqueues it by a schedule, in `timezone=` (UTC);
        `catch_up=` says which missed ticks are made up for after a downtime: "none", the "latest" (the default) or
        "all". `isolation="process"` runs each attempt in a process of its own, within `limits=`, with only the basic
        environment variables and those that `env=` names, and without the database unless `database=True`."""
        if function is not None and not callable(function):
            raise BadSettings(
                f"@task takes options by name, as in @task(queue=…), not {function!r:.80}", number="HF1111"
            )
        decorator = TaskDecorator(self._declare, cast(TaskOptions, options))
        return decorator if function is None else decorator(function)

    def _declare(
        self, function: Callable[..., Any], options: TaskOptions, mapping: Mapping | None = None
    ) -> Task[..., Any]:
        preset = dict(self._preset_options)
        if mapping is not None:
            preset.pop("max_attempts", None)  # the mapping says that
        defaults = task_defaults(function, cast(TaskOptions, {**preset, **options}), mapping)
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

    @property
    def _preset_options(self) -> dict[str, Any]:
        preset = self.settings.preset
        return PRESETS[preset].task if preset else {}

    def adopt(self, table: str, **mapping: Unpack[AdoptArguments]) -> Adopted:
        """Work a table of your own as a queue: `audits = hf.adopt("audits", states={…}, heartbeat_at="last_beat")`. The
        arguments say which of its columns mean what; without any, the settings file does (`[adopt.audits]`). Nothing
        happens to the table before `holdfast adopt audits`, or `audits.install()`."""
        made = Adopted(self, said_mapping(table, dict(mapping), _line(sys._getframe(1))))
        if made.name in self.adopted:
            raise BadSettings(
                f"the table {made.name!r} is adopted twice: give one of them another name=…", number="HF1160"
            )
        self.adopted[made.name] = made
        return made

    def find_task(self, name: str) -> Task[..., Any]:
        try:
            return self.tasks[self._names[name]]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            near = nearest(name, self._names)
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
        afterwards; it may be asynchronous."""
        resource: Resource[Any] = Resource(function)
        self._resources.append(resource)
        return resource

    @property
    def injected(self) -> Any:
        """The default of a handler's parameter: the worker passes the resource whose type is the parameter's
        annotation. `open_pool.injected` names a resource instead."""
        return Use(None)

    def on_start(self, hook: H) -> H:
        """Call this when a process that runs handlers starts, before it takes jobs."""
        self._hooks.start.append(hook)
        return hook

    def on_stop(self, hook: H) -> H:
        """Call this when a process that runs handlers stops, after its last job."""
        self._hooks.stop.append(hook)
        return hook

    def on_error(self, hook: E) -> E:
        """Call this with the job and the exception whenever an attempt errors, times out or loses its process, and with
        None and the exception when a poll fails."""
        self._hooks.error.append(checked_hook("on_error", hook, "the job", "the exception"))
        return hook

    def on_alert(self, hook: A) -> A:
        """Call this with the Alert whenever one begins, and once more when it ends. Of all workers one calls it."""
        self._hooks.alert.append(checked_hook("on_alert", hook, "the Alert"))
        return hook

    def doctor_check(self, check: C) -> C:
        """Let `holdfast doctor` call this, too. The function returns what is wrong, a sentence each, or nothing: that
        another program's function is gone, say. It is to change nothing."""
        self._checks.append(check)
        return check

    def around_attempt(self, wrapper: W) -> W:
        """Run this around every attempt: a generator that takes an AttemptInfo and yields once, where the handler runs.
        The first one declared is the outermost. An asynchronous one goes around asynchronous handlers only."""
        self._hooks.around.append(checked_wrapper(wrapper))
        return wrapper

    def _secrets(self, task: str) -> frozenset[str]:
        """The arguments of a task that must not be shown: marked as Secret, or with a name that says so."""
        return self.find_task(task).secrets if task in self._names else frozenset()

    # -- the store ---------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The open store, for code that may block. On SQLite the schema is created when first needed; PostgreSQL needs
        `holdfast migrate`."""
        notice_loop(self.settings.sync_in_loop)
        return self._get_store()

    def _get_store(self) -> Store:
        if self._store is None:
            with self._opening:
                if self._store is None:
                    self._store = self._opened()
        return self._store

    def _opened(self) -> Store:
        _refuse_while_importing()
        self._check_url()
        self._refuse_in_tests()
        store = open_store(self.settings)
        try:
            self._fit(store)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def _looking(self) -> Holdfast:
        """This application for those who only look. In the test kit: itself."""
        if self._in_kit:
            return self
        with self._opening:
            if self._looker is None:
                self._looker = Looking(self)
            return self._looker

    def _fit(self, store: Store) -> None:
        try:
            store.schema.check()
        except SchemaOutdated:
            if not self.settings.url.startswith("sqlite"):
                raise
            # Not earlier: migrating writes, and the caller may have a transaction open that blocks other writers.
            try:
                store.schema.migrate()
            except (StoreUnavailable, BadSettings) as error:
                raise StoreUnavailable(
                    f"the tables for jobs can't be created now: {error}. "
                    "Call hf.migrate() or `holdfast migrate` before you open a transaction of your own"
                ) from None

    def _check_url(self) -> None:
        """Raise if the code names one database, and HOLDFAST_URL or a settings file another."""
        if self._contested is not None:
            url, _, other, _ = self._contested
            if self.settings.url == url and not same_database(self.settings, other):
                raise named_twice(*self._contested)

    def _refuse_in_tests(self) -> None:
        """A test that forgot the test kit must not work on the database that the application is configured with. (A
        program that a test starts inherits the variable, but not pytest: it was started on purpose.)"""
        testing = "PYTEST_CURRENT_TEST" in os.environ and "pytest" in sys.modules
        if testing and os.environ.get(REAL_DATABASE, "0") in ("", "0"):
            raise BadSettings(
                f"a test is running, and this application would use its real database, {self.settings.shown_url}: give "
                "it a throw-away store, with testing.store(hf) or the fixture holdfast_store. To let tests use it, put "
                f"holdfast_real_database = true into the settings of pytest, or set {REAL_DATABASE}=1",
                number="HF1116",
            )

    def reconfigure(self, *, url: str | None = None, **settings: Unpack[SettingsArguments]) -> None:
        """Change the settings of a declared application. A URL given here is the one that counts."""
        given = {name: value for name, value in {"url": url, **settings}.items() if value is not None}
        places = {dotted(*key): ARGUMENT for key in flattened(given)}
        self.close()
        if "url" in given:
            self._contested = None
        if "lease" in given:
            given.setdefault("heartbeat", 0.0)  # a quarter of the new one
        self.settings = replace(self.settings, **given)  # type: ignore[arg-type]
        self.sources |= places

    def migrate(self) -> list[str]:
        """Bring the database's schema up to date; returns what was applied."""
        notice_loop(self.settings.sync_in_loop)
        _refuse_while_importing()
        self._check_url()
        self._refuse_in_tests()
        with closing(open_store(self.settings)) as store:
            return store.schema.migrate()

    def close(self) -> None:
        """Close the connections to the database, after pending wake-ups have been sent, and after the jobs that run in
        this process for `run_now` have finished."""
        self._free_slots.close()
        self._hub.close()
        if self._looker is not None:
            self._looker.close()
            self._looker = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- enqueue -----------------------------------------------------------------------------------------------------

    def _submit(self, bound: Bound[R]) -> Job[R]:
        # On the caller's connection it waits as the caller's own statements do: not our business in an event loop.
        store = self.store if bound.conn is None else self._get_store()
        self._refuse_in_transaction(bound.conn)
        done = store.enqueue(bound.new) if bound.conn is None else store.enqueue_on(bound.conn, bound.new)
        return self._enqueued(bound, done)

    def _enqueued(self, bound: Bound[R], done: Enqueued) -> Job[R]:
        if done.created and events.wanted("enqueued"):
            # In the caller's own transaction it is not committed yet.
            events.emit("enqueued", count=1, task=bound.task.name, job=done.id, committed=bound.conn is None)
        return Job(
            self, done.id, bound.task.name, created=done.created, state=done.state,
            commits_later=bound.conn is not None,
        )  # fmt: skip

    def _submit_row(self, table: Adopted, row: dict[str, Any], same: SameKey, conn: Any) -> Job[Any]:
        return table._submit(row, same, conn)

    def _refuse_in_transaction(self, conn: Any = None) -> None:
        context = current_context.get()
        if context is not None and context.blocks(self.settings, conn):
            raise BadSettings(
                "this handler has a transaction open, and SQLite one writer: enqueue within it, using(conn=tx.conn)",
                number="HF1112",
            )

    async def _asubmit(self, bound: Bound[R]) -> Job[R]:
        if bound.conn is None:
            return await in_thread(self, self._submit, bound)
        self._refuse_in_transaction(bound.conn)
        store = self._store
        if store is None:
            store = await in_thread(self, self._get_store)
        done = await store.aenqueue_on(bound.conn, bound.new)
        return self._enqueued(bound, done)

    _run_now = run_now.run_now
    _arun_now = run_now.arun_now

    def enqueue_many(self, jobs: Iterable[Bound[R]]) -> list[Job[R]]:
        """Enqueue many jobs, all or none: `hf.enqueue_many(task.bind(x) for x in xs)`."""
        return [
            Job(self, done.id, task, created=done.created, state=done.state)
            for chunk, tasks in self._stream(jobs)
            for done, task in zip(chunk, tasks, strict=True)
        ]

    def enqueue_stream(self, jobs: Iterable[Bound[Any]]) -> int:
        """Like enqueue_many, for streams too long to return a handle for each; returns how many were enqueued."""
        return sum(len(chunk) for chunk, _ in self._stream(jobs))

    def _stream(self, jobs: Iterable[Bound[Any]]) -> Iterator[tuple[list[Enqueued], list[str]]]:
        self._refuse_in_transaction()
        if isinstance(jobs, Bound):
            raise BadArguments(
                "enqueue_many takes several jobs: enqueue_many([task.bind(…), …]); one is task.enqueue(…)"
            )
        # The store answers in chunks, in the order of the jobs.
        names: list[str] = []
        wanted = events.wanted("enqueued")
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
            tasks = names[: len(chunk)]
            del names[: len(chunk)]
            if wanted:
                created.update(task for done, task in zip(chunk, tasks, strict=True) if done.created)
            yield chunk, tasks
        for task, count in created.items():
            events.emit("enqueued", count=count, task=task, committed=True)

    # -- schedules -----------------------------------------------------------------------------------------------------

    def schedule(
        self, name: str, bound: Bound[Any], *, cron: str, timezone: str = "UTC", catch_up: CatchUp = "latest",
        reason: str | None = None, by: str | None = None,
    ) -> CronRecord:  # fmt: skip
        """Enqueue a task with these arguments at every tick: `hf.schedule("audit", audit.bind(url), cron="0 3 * * *")`.
        It is stored, and fired by every worker that has the task. The same name again changes it."""
        made = schedule_of(name, bound, cron=cron, timezone=timezone, catch_up=catch_up, now=self.store.reads.now())
        declared = name in self.tasks and self.tasks[name]._schedule is not None
        reason, by = reason_of("schedule", reason), by_of("schedule", by)
        if declared or not self.store.crons.schedule(made, reason, by):
            raise BadArguments(f"schedule {name}: a task declares a cron of this name, choose another")
        return made

    def unschedule(self, name: str, *, reason: str | None = None, by: str | None = None) -> bool:
        """Remove a schedule that was made by `schedule`. Jobs it has enqueued stay. False: there is none."""
        looked_for("unschedule: the name", name)
        return self.store.crons.unschedule(name, reason_of("unschedule", reason), by_of("unschedule", by))

    # -- for operators -------------------------------------------------------------------------------------------------

    job = operations.job
    jobs = operations.jobs
    count = operations.count
    queues = operations.queues
    task_summaries = operations.task_summaries
    error_groups = operations.error_groups
    retry = operations.retry
    cancel = operations.cancel
    delete = operations.delete
    change = operations.change
    replay = operations.replay
    preview = operations.preview
    bulk_operations = operations.bulk_operations
    pause_queue = pausing.pause_queue
    pause_task = pausing.pause_task
    pause_cron = pausing.pause_cron
    pause_matching = pausing.pause_matching
    pause_jobs = pausing.pause_jobs
    resume_queue = pausing.resume_queue
    resume_task = pausing.resume_task
    resume_cron = pausing.resume_cron
    resume_matching = pausing.resume_matching
    resume_jobs = pausing.resume_jobs
    pauses = pausing.pauses
    audit = operations.audit
    why = operations.why
    why_queue = operations.why_queue
    stack = operations.stack
    output = operations.output
    workers = operations.workers
    stop_worker = operations.stop_worker
    health = monitoring.health
    metrics = monitoring.metrics
    alerts = monitoring.alerts
    doctor = operations.doctor
    crons = operations.crons
    run_cron = operations.run_cron
    create_api_key = api_keys.create_api_key
    revoke_api_key = api_keys.revoke_api_key
    api_keys = api_keys.api_keys

    # -- over HTTP -----------------------------------------------------------------------------------------------------

    def asgi(
        self, authorize: Authorize | None = None, *, open: bool | Role = False, run_now: bool = True
    ) -> Callable[[Any, Any, Any], Awaitable[None]]:  # fmt: skip
        """The HTTP API, to be mounted at any path: `app.mount("/jobs", hf.asgi(authorize=…))`. `authorize` gets each
        request that has no API key and no job token, and returns its Access, or None to refuse it. `open`: the role of
        whoever is refused; True: "admin". With neither, only API keys and job tokens are let in. `run_now`: jobs that
        are submitted with `?wait=` run in this process; False: workers run them."""
        try:
            from holdfast.http.api import api
        except ImportError as missing:
            raise BadSettings(
                f"the HTTP API needs a package that is missing ({missing.name}): pip install 'holdfast[web]'",
                number="HF1105",
            ) from None
        from holdfast.http.gate import Gate

        return api(self, Gate(self, authorize, open=open), runs_jobs=run_now)

    # -- work ----------------------------------------------------------------------------------------------------------

    def _runner_group(
        self, *, isolated: bool = False, threads: type[InProcessRunner] | None = None
    ) -> InProcessGroup:  # fmt: skip
        """What runs this application's handlers in this process, for workers and runner processes. `isolated`: also
        those of tasks that want a process of their own. `threads` runs synchronous ones, in place of threads."""
        from holdfast.runners.inprocess import InProcessGroup, ThreadRunner

        return InProcessGroup(
            self.store, self.settings, self.tasks.values(), resources=self._resources, hooks=self._hooks,
            isolated=isolated, threads=threads or ThreadRunner,
        )  # fmt: skip

    def _isolated_runner_group(self, task: str, store: Store, threads: type[InProcessRunner]) -> InProcessGroup:
        """The same for a process that runs one attempt of this task."""
        from holdfast.runners.inprocess import InProcessGroup

        return InProcessGroup(
            store, self.settings, [self.find_task(task)], resources=self._resources, hooks=self._hooks, isolated=True,
            threads=threads,
        )  # fmt: skip

    def _withhold(self, store: Any) -> None:
        """Use this in place of the store, in a process that must not have the database."""
        self._store = store

    def worker(self, queues: Iterable[str] | None = None) -> Worker:
        """A worker for this application: `hf.worker().run()`."""
        from holdfast.runners.isolated import (  # code that only enqueues does not need it
            reference_of,
            with_isolation,
        )
        from holdfast.worker.worker import Worker

        served = None if queues is None else names_of("worker: queues", queues)
        group = with_isolation(self._runner_group(), lambda: reference_of(self), self.store, self.settings)
        return Worker(self.store, self.settings, group, queues=served)

    def drain(
        self, queues: Iterable[str] | None = None, *, seconds: Duration | None = None, jobs: int | None = None
    ) -> Processed:
        """Run jobs here until none is due, or for so long ("50s"), or until so many jobs were claimed (a retry counts
        again). Returns how many jobs finished: succeeded, failed for good or cancelled. Its `attempts` and `failed`
        count these."""
        return self.worker(queues).drain(
            seconds=None if seconds is None else seconds_of("drain: seconds", seconds),
            jobs=None if jobs is None else limit_of("drain: jobs", jobs, least=0),
        )

    def _decode_result(self, task: str, data: bytes | None) -> Any:
        if data is None:
            return None
        if task in self._names:
            return self.find_task(task)._signature.result(data)
        return msgspec.json.decode(data)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _expecting(self, id: str, wake: Callable[[], object]) -> AbstractContextManager[None]:
        """Calls `wake` on another thread whenever this job may have finished."""
        return self._hub.expecting(id, wake)

    @cached_property
    def _hub(self) -> Waiters:
        return Waiters(self._get_store)

    # -- asynchronous twins --------------------------------------------------------------------------------------------

    amigrate = twin(migrate)
    aenqueue_many = twin(enqueue_many)
    aenqueue_stream = twin(enqueue_stream)
    aschedule = twin(schedule)
    aunschedule = twin(unschedule)
    adrain = twin(drain)
    ajob = twin(job)
    ajobs = twin(jobs)
    acount = twin(count)
    aqueues = twin(queues)
    atask_summaries = twin(task_summaries)
    aerror_groups = twin(error_groups)
    aretry = twin(retry)
    acancel = twin(cancel)
    adelete = twin(delete)
    achange = twin(change)
    areplay = twin(replay)
    apreview = twin(preview)
    abulk_operations = twin(bulk_operations)
    apause_queue = twin(pause_queue)
    apause_task = twin(pause_task)
    apause_cron = twin(pause_cron)
    apause_matching = twin(pause_matching)
    apause_jobs = twin(pause_jobs)
    aresume_queue = twin(resume_queue)
    aresume_task = twin(resume_task)
    aresume_cron = twin(resume_cron)
    aresume_matching = twin(resume_matching)
    aresume_jobs = twin(resume_jobs)
    apauses = twin(pauses)
    aaudit = twin(audit)
    awhy = twin(why)
    awhy_queue = twin(why_queue)
    astack = twin(stack)
    aoutput = twin(output)
    aworkers = twin(workers)
    ahealth = twin(health)
    ametrics = twin(metrics)
    aalerts = twin(alerts)
    astop_worker = twin(stop_worker)
    adoctor = twin(doctor)
    acrons = twin(crons)
    arun_cron = twin(run_cron)
    acreate_api_key = twin(create_api_key)
    aapi_keys = twin(api_keys)
    arevoke_api_key = twin(revoke_api_key)

    def __repr__(self) -> str:
        return f"<Holdfast {self.settings.shown_url}: {len(self.tasks)} {plural('task', len(self.tasks))}>"


class Looking(Holdfast):
    """An application as those have it who only look: the same tasks and settings, on connections of its own that refuse
    writes and end what takes long. Looking then never keeps a worker or a request waiting."""

    def __init__(self, app: Holdfast, *, alone: bool = False) -> None:
        """`alone`: never let the application itself use its database, which creates a SQLite file that is missing and
        migrates an old one."""
        self.__dict__.update(app.__dict__)
        self.__dict__.pop("_hub", None)
        self._app = None if alone else app
        self._store = self._looker = None
        self._opening = threading.Lock()

    @property
    def _looking(self) -> Holdfast:
        return self

    def _opened(self) -> Store:
        if self._app is not None:
            self._app._get_store()
        self._refuse_in_tests()
        store = open_store(self.settings, reading=True)
        try:
            store.schema.check()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _line(frame: FrameType) -> str:
    """The place in the code that a frame is at: `app.py, line 5`."""
    path = Path(frame.f_code.co_filename)
    if not path.is_file():
        return "the code"
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}, line {frame.f_lineno},"


_importing = False


@contextmanager
def importing() -> Iterator[None]:
    """While this is entered, a runner process or a command imports an application. Each of them would repeat whatever
    the module does with the database, so that is refused."""
    global _importing
    _importing = True
    try:
        yield
    finally:
        _importing = False


def _refuse_while_importing() -> None:
    if _importing:
        raise BadSettings(
            "an application can't use its database or start a worker while it is imported to run its jobs",
            number=UNGUARDED,
        )
