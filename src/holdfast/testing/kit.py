"""The kit: an application on a temporary store, and what a test does with it."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any

import msgspec

from holdfast import events
from holdfast.app import Holdfast
from holdfast.durations import Duration
from holdfast.errors import BadArguments, BadSettings, StoreError
from holdfast.job import Job, handle
from holdfast.model.job import ClaimedJob, JobRecord, Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import given_back
from holdfast.settings import flattened
from holdfast.store import open_store
from holdfast.store.engine import underlying
from holdfast.store.sqlite.plain_rows import begins_by_itself
from holdfast.tasks.current import JobInfo, in_handler
from holdfast.tasks.manifest import cron_of, info_of
from holdfast.tasks.options import names_of
from holdfast.tasks.task import Enqueuer, Task
from holdfast.testing.clock import Clock
from holdfast.testing.describe import blocking, listed, told
from holdfast.testing.inline import Inline, drain_here
from holdfast.testing.matching import as_json, fits, matches
from holdfast.worker.cron import Crons
from holdfast.worker.intake import FilterPauses
from holdfast.worker.worker import Worker

ENDS = ("succeed", "fail", "reschedule", "release", "park", "stop")
PAGE = 500
ENOUGH = 1_000  # attempts in one run_due()


@contextmanager
def store(
    app: Holdfast, *, now: datetime | None = None, inline: bool = False, url: str | None = None, conn: Any = None,
    **settings: Any,
) -> Iterator[Kit]:  # fmt: skip
    """Give an application a throw-away store, whatever it is configured with, and restore it at the end: a temporary
    SQLite file, tables of its own in the database `url`, or on the open connection `conn` (of SQLAlchemy, Django or a
    driver), as part of its transaction. Its clock stands still at `now` until it is moved. `settings` are those of
    `Holdfast(…)`; by default one handler of each kind (async, sync) runs at a time."""
    if in_handler():
        raise AssertionError("a handler can't move its own application to another store")
    clock = Clock(now)
    flattened(settings)  # refuses names that are no settings
    conn = _bound(conn)
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", ignore_cleanup_errors=True) as directory:
        before = app.settings, app._store, app._in_kit
        file = f"sqlite:///{directory}/jobs.db"
        place = {"url": file} if url is None and conn is None else _apart(url, conn, file, settings)
        given: dict[str, Any] = {"synchronous": "off", "concurrency": 1, "threads": 1, **settings, **place}
        if "lease" in given:
            given.setdefault("heartbeat", 0.0)
        app.settings = replace(app.settings, **given)
        app._store = None
        app._in_kit = True
        try:
            app._store = open_store(app.settings, clock=clock, conn=conn)
            app._store.schema.migrate()
            kit = Kit(app, clock, here=conn is not None)
            kit.declare_crons()
            with kit.inline() if inline else nullcontext():
                yield kit
        finally:
            if app._store is not None and (url is not None or conn is not None):
                with suppress(StoreError):  # the transaction of `conn` was broken off, or the database is away
                    app._store.schema.drop()
            app.close()
            app.settings, app._store, app._in_kit = before


def _apart(url: str | None, conn: Any, file: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a store with tables of its own, in this database or on this connection."""
    if url is not None and conn is not None:
        raise BadSettings("testing.store takes url= or conn=, not both")
    if named := settings.keys() & {"schema", "prefix"}:
        raise BadSettings(f"testing.store makes tables of its own in that database: leave out {named.pop()}=")
    if conn is not None:
        url = _url_of(conn, file)
    name = f"holdfast_test_{uuid.uuid4().hex[:12]}"
    # `prepare`: our connections prepare statements, and send notifications beside them. This one is the test's.
    return {"url": url, "schema": name, "prefix": f"{name}_", **({} if conn is None else {"prepare": False})}


def _bound(conn: Any) -> Any:
    """The connection of a session of SQLAlchemy: a session begins with a savepoint, and the transaction comes first."""
    if not hasattr(conn, "get_bind"):
        return conn
    if not hasattr(conn.get_bind(), "in_transaction"):
        raise BadSettings(
            "this session gets its connections from an engine, and another one after each commit: bind it to the "
            "connection whose transaction the test rolls back, Session(bind=connection, "
            'join_transaction_mode="create_savepoint"), or use testing.store(hf, url=…)',
            number="HF1112",
        )
    return conn.get_bind()


def _url_of(conn: Any, file: str) -> str:
    """What to call the database of a connection. `file`: for one of SQLite, which may be in memory."""
    driver = underlying(conn)
    if isinstance(driver, sqlite3.Connection):
        _refuse_lone_savepoint(conn, driver)
        return file
    if type(driver).__module__.partition(".")[0] == "psycopg" and hasattr(driver, "transaction"):
        return f"postgresql://{driver.info.host}:{driver.info.port}/{driver.info.dbname}"
    raise BadSettings(
        "testing.store(hf, conn=…) needs an open connection of sqlite3, psycopg, SQLAlchemy or Django (not an "
        f"asynchronous one), not {type(conn).__name__}",
        number="HF1112",
    )


def _refuse_lone_savepoint(conn: Any, driver: sqlite3.Connection) -> None:
    """SQLAlchemy leaves it to Python's driver to begin a transaction, and the driver does so before an INSERT but not
    before a SAVEPOINT. That savepoint is then the whole transaction: its release commits, and the test's rollback comes
    too late."""
    nested = hasattr(conn, "in_nested_transaction") and conn.in_nested_transaction()
    if nested and driver.in_transaction and begins_by_itself(driver):
        raise BadSettings(
            "this session was used before testing.store(hf, conn=…). On SQLite it has begun with a savepoint outside a "
            "transaction, so what it commits stays after the test's rollback. Open the kit before you use the session, "
            "or let SQLAlchemy send BEGIN itself: see SQLAlchemy in docs/testing.md",
            number="HF1112",
        )


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that `run_due` ran. `outcome` is the name of its event: succeeded, failed, rescheduled, released,
    parked or stopped."""

    id: str
    task: str
    attempt: int
    outcome: str
    error: str | None = None
    delay: float = 0.0
    exception: BaseException | None = field(default=None, compare=False)  # what the handler raised


class Kit:
    """An application on a temporary store. `app` is yours; nothing about it is faked."""

    def __init__(self, app: Holdfast, clock: Clock, *, here: bool = False) -> None:
        """`here`: `run_due` runs synchronous handlers in the thread that calls it."""
        self.app = app
        self.clock = clock
        self._here = here

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.clock.now

    def advance(self, by: Duration) -> datetime:
        """Move the database's clock forward: "90s", "1h 30m", seconds or a timedelta. Runs nothing."""
        self.declare_crons()
        return self.clock.advance(by)

    def declare_crons(self) -> None:
        """Store the crons of tasks, as a worker does when it starts: their first tick is the next one from now."""
        for info in map(info_of, self.app.tasks.values()):
            if info.cron is not None:
                self.app.store.crons.declare(cron_of(info, self.now))

    # -- running -----------------------------------------------------------------------------------------------------

    def run_due(
        self, *, queues: Iterable[str] | None = None, expect: State | str | None = None, limit: int = ENOUGH
    ) -> list[Ran]:
        """Run everything that is due now in this process, and what falls due as a result; returns the attempts that
        ran, in the order in which they ended. Before that it does what workers do by the clock: it takes back jobs of
        dead workers, cancels expired ones, deletes old ones and enqueues the jobs of crons. `expect` is a state that
        every job which ran must be in afterwards."""
        __tracebackhide__ = True
        wanted = None if expect is None else _state(expect)
        served = None if queues is None else names_of("run_due: queues", queues)
        ran: list[Ran] = []
        raised: dict[tuple[str, int], BaseException] = {}

        def hear(name: str, fields: dict[str, Any]) -> None:
            if name in ENDED and fields.get("worker") == worker:
                ran.extend(_ran(name, job, raised) for job in fields["jobs"] if "seconds" in job)

        def keep(job: JobInfo | None, error: BaseException) -> None:
            if job is not None:
                raised[job.id, job.attempt] = error

        hooks = self.app._hooks.error
        hooks.append(keep)
        unsubscribe = events.subscribe(hear)
        self.clock.take_over_rows(self.app.store)
        try:
            Crons(self.app.store, map(info_of, self.app.tasks.values()), due_in=lambda seconds: None).step()
            # A test's patches and its clock exist only in this process, so isolated tasks run here too.
            if self._here:
                worker = f"testing~{uuid.uuid4().hex[:12]}"
                drain_here(self.app, worker, served, limit)
            else:
                group = self.app._runner_group(isolated=True)
                working = Worker(self.app.store, self.app.settings, group, queues=served)
                worker = working.id
                working.watchdog.catch_up()
                working.drain(jobs=limit)
        finally:
            unsubscribe()
            hooks.remove(keep)
        if len(ran) >= limit and any(job.state is State.QUEUED and job.run_at <= self.now for job in self._records()):
            raise AssertionError(
                f"{len(ran)} attempts ran and more is due: does a task enqueue itself, or try again at once for ever? "
                f"(run_due(limit=…) allows more); {self._listed()}"
            )
        if wanted is not None:
            self._check_ran(ran, wanted)
        return ran

    async def arun_due(self, **options: Any) -> list[Ran]:
        """`run_due` for asynchronous tests: the test's own loop keeps running."""
        return await asyncio.to_thread(self.run_due, **options)

    def _check_ran(self, ran: Sequence[Ran], wanted: State) -> None:
        __tracebackhide__ = True
        if not ran:
            raise AssertionError(f"nothing was due, so nothing is {wanted}; {self._listed()}")
        found = [self.app.store.reads.get(id) for id in dict.fromkeys(one.id for one in ran)]
        if others := [record for record in found if record.state is not wanted]:
            lines = "\n".join(f"  {told(self.app, record, self.now)}" for record in others)
            failed = {record.id for record in others}
            cause = next((one.exception for one in reversed(ran) if one.id in failed and one.exception), None)
            raise AssertionError(f"{len(others)} of {len(found)} jobs that ran are not {wanted}:\n{lines}") from cause

    def inline(self) -> AbstractContextManager[None]:
        """`with kit.inline():` a job runs as soon as it is enqueued, in the thread that enqueues it, and an error of
        its handler is raised there. The outcome is recorded as usual: a job to be retried waits for `run_due`."""
        return Inline(self.app, self.clock).installed()

    # -- looking -----------------------------------------------------------------------------------------------------

    def jobs(self, task: Enqueuer[..., Any] | str | None = None, *, state: State | str | None = None) -> list[Job[Any]]:
        """All jobs, the oldest first."""
        name = task.task.name if isinstance(task, Enqueuer) else task
        found = self._records(name, None if state is None else _state(state))
        return [handle(self.app, record) for record in found]

    def why(self, job: Job[Any]) -> list[str]:
        """What keeps `run_due()` from running this job, as codes of `job.why()`: `["BACKOFF"]`. Empty: nothing. (A
        missing worker is no reason here, because `run_due` acts as one.)"""
        return [reason.code.value for reason in blocking(job.why())]

    def assert_enqueued(self, task: Enqueuer[..., Any], /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Assert that there is a job of this task with these arguments, in any state; other arguments may have any
        value. Options are written as in an enqueue: `assert_enqueued(send.using(queue="mail"), to="you")`. Returns the
        newest such job."""
        __tracebackhide__ = True
        if found := self._matching(task, args, kwargs):
            return handle(self.app, found[-1])
        raise AssertionError(f"no job of {_asked(task, args, kwargs)} was enqueued; {self._listed()}")

    def assert_not_enqueued(self, task: Enqueuer[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Assert that there is no such job."""
        __tracebackhide__ = True
        if found := self._matching(task, args, kwargs):
            lines = "\n".join(f"  {told(self.app, record, self.now)}" for record in found)
            raise AssertionError(f"{len(found)} jobs of {_asked(task, args, kwargs)} were enqueued:\n{lines}")

    def _matching(
        self, asked: Enqueuer[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[JobRecord]:  # fmt: skip
        task = asked.task
        wanted = as_json(task._signature.partial(args, kwargs))
        defaults = as_json(task._signature.defaults)
        return [
            record
            for record in self._records(task.name)
            if matches(defaults | msgspec.json.decode(record.args), wanted) and fits(record, asked._options)
        ]

    def _records(self, task: str | None = None, state: State | None = None) -> list[JobRecord]:
        found: list[JobRecord] = []
        before = None
        while page := self.app.store.reads.jobs(task=task, state=state, before=before, limit=PAGE):
            found += page
            before = page[-1].id
        return found[::-1]

    def _listed(self) -> str:
        return listed(self.app, self._records(), self.now)

    # -- trouble -----------------------------------------------------------------------------------------------------

    @contextmanager
    def failing(
        self, task: Task[..., Any], error: BaseException | type[BaseException], *, times: int | None = None
    ) -> Iterator[None]:
        """`with kit.failing(send, ConnectionError("down"), times=2):` the handler raises this error instead of running,
        the first `times` times, or always if that is None."""
        function = task.function
        calls = count(1)

        def fails(*args: Any, **kwargs: Any) -> Any:
            if times is None or next(calls) <= times:
                raise error
            return function(*args, **kwargs)

        task.function = fails
        try:
            yield
        finally:
            task.function = function

    def crash(self, job: Job[Any]) -> None:
        """Let a worker claim this job and die. The first `run_due()` after its lease has expired, such as after
        `kit.advance("1m")`, takes it back."""
        others: list[ClaimedJob] = []
        while found := self._claim_one(job.task):
            if str(found.id) == job.id:
                break
            others.append(found)
        back = [given_back(held, started=False) for held in others]
        self.app.store.exchange(back, None, [held.fence for held in others])
        if found is None:
            raise AssertionError(
                f"no worker would take it: {told(self.app, self.app.store.reads.get(job.id), self.now)}"
            )

    def _claim_one(self, task: str) -> ClaimedJob | None:
        fence = str(uuid.uuid4())
        wants = Wants(
            fence=fence, worker=f"crashed-{fence[:8]}", tasks=(task,), limit=1, lease=self.app.settings.lease
        )  # fmt: skip
        claimed = self.app.store.attempts.claim(wants)
        free, held = FilterPauses(self.app.store).split(claimed.jobs, claimed.filter_version)
        self.app.store.exchange(held, None, [fence] if held else [])
        return next(iter(free), None)

    def __repr__(self) -> str:
        return f"<Kit of {self.app!r} at {self.now.isoformat()}>"


def _state(name: State | str) -> State:
    if name not in set(State):
        raise BadArguments(f"there is no state {name!r}; there are {', '.join(State)}")
    return State(name)


ENDED = frozenset(events.VERBS[verb] for verb in ENDS)


def _ran(outcome: str, job: dict[str, Any], raised: dict[tuple[str, int], BaseException]) -> Ran:
    error = f"{job['error_code']}: {job['error']}" if "error" in job else None
    exception = raised.get((job["job"], job["attempt"]))
    return Ran(job["job"], job["task"], job["attempt"], outcome, error, job.get("delay", 0.0), exception)


def _asked(asked: Enqueuer[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    task = asked.task
    given = task._signature.partial(args, kwargs)
    call = ", ".join(f"{n}={'***' if n in task.secrets else repr(v)[:100]}" for n, v in given.items())
    options = ", ".join(f"{name}={value!r:.100}" for name, value in asked._options.items())
    return f"{task.name}({call})" + (f" with {options}" if options else "")
