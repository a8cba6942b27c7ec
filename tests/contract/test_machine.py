"""Any sequence of verbs, in any order, by anyone who ever held a claim: a Hypothesis state machine on both databases.

Two things are checked after every step. `Book` restates in plain Python what each verb promises, and the rows in the
database must equal it, column by column. And the invariants (nothing lost or invented, one owner, fenced writes, honest
charges) are checked on the rows themselves, before and after the step, without the book: a mistake made twice would
still be found there.

The bundle `claims` keeps every (job, fence) ever issued: most of them are stale, and that is the point.
HOLDFAST_MACHINE_EXAMPLES=5000 makes it a campaign."""

from __future__ import annotations

import os
import sqlite3
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, event
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule, run_state_machine_as_test
from msgspec.structs import replace

from holdfast.errors import JobNotFound, LeaseLost, Refused, StoreError
from holdfast.model.job import FOREVER, Claimed, Enqueued, NewJob, Wants
from holdfast.model.lifecycle import FINISHED, TRANSITIONS, State
from holdfast.model.outcome import Error, Outcome, Verb
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.store.postgres import claim_floors
from holdfast.store.postgres.claim_floors import SLACK, ClaimFloors, LaneFloors
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.rescues import RESCUE_BATCH
from holdfast.store.sqlite.store import SqliteStore
from tests.contract.rows import Rows
from tests.factories import BOOM, Clock

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "120"))
STEPS = 60

QUEUES = ("a", "b")
TASKS = ("x", "y")  # what workers serve; jobs of task "z" are never to be touched
WORKERS = ("w1", "w2", "w3")
QUARANTINE_AFTER = 2  # low, so that a short run reaches it
KEEP_FINISHED, KEEP_FAILED = 90.0, 180.0

Q, R, S, F, P, C = State
CANCELLED = Error("CANCELLED", "cancelled on request")


@dataclass
class Kept:
    """A row of the jobs table, as far as verbs change it. The fields are the columns read."""

    id: int
    queue: str
    task: str
    state: State
    priority: int
    max_attempts: int
    run_at: datetime
    ready_at: datetime | None
    expires_at: datetime | None
    key: str | None
    holds_key: bool
    attempt: int = 0
    life: int = 1
    crashes: int = 0
    suspicion: int = 0
    pause_requested: bool = False
    cancel_requested: bool = False
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failed_at: datetime | None = None
    fence: str | None = None
    worker: str | None = None
    result: str | None = None
    checkpoint: str | None = None
    error_code: str | None = None
    asked_at: datetime | None = None
    source: str | None = None  # the adopted table whose row it is


@dataclass
class KeptLease:
    worker: str
    expires_at: datetime
    held: int
    job_ids: list[int]


Whose = str | int
Tried = tuple[int, int, str]  # life, number, outcome


@dataclass
class Seen:
    """Everything in the database at one moment."""

    jobs: dict[int, Kept] = field(default_factory=dict)
    leases: dict[str, KeptLease] = field(default_factory=dict)
    attempts: dict[tuple[int, str], Tried] = field(default_factory=dict)
    pauses: dict[tuple[str, str], datetime | None] = field(default_factory=dict)
    ledger: list[tuple[int, str]] = field(default_factory=list)


# -- the model: what each verb promises --------------------------------------------------------------------------------


class Book(Seen):
    def held_by(self, ref: Ref) -> Kept | None:
        job = self.jobs.get(int(ref.id))
        return job if job is not None and job.state is R and job.fence == ref.fence else None

    def recorded(self, ref: Ref) -> bool:
        """Was an outcome of this very claim written, by its holder?"""
        job = self.jobs.get(int(ref.id))
        if job is not None and job.state is S and job.fence == ref.fence:
            return True
        tried = self.attempts.get((int(ref.id), ref.fence))
        return tried is not None and tried[2] not in ("crashed", "lost")

    def key_holder(self, new: NewJob, now: datetime) -> Kept | None:
        """The job that answers for this key; a finished one gives it up."""
        for job in self.jobs.values():
            if new.key is not None and job.holds_key and (job.task, job.key) == (new.task, new.key):
                too_old = now - timedelta(seconds=min(new.reuse or 0.0, 1e9))
                if job.state in (F, C) or (job.state is S and (job.finished_at or now) <= too_old):
                    job.holds_key = False
                else:
                    return job
        return None

    def enqueue(self, new: NewJob, id: int, now: datetime, source: str | None) -> None:
        due = now + timedelta(seconds=new.delay)
        expires = None if new.expires_in is None else now + timedelta(seconds=new.expires_in)
        held = new.key is not None
        self.jobs[id] = Kept(
            id, new.queue, new.task, Q, new.priority, new.max_attempts, due, due, expires, new.key, held, source=source
        )

    def held_back(self, job: Kept, now: datetime) -> datetime | None:
        """Until when a pause of its queue or task keeps a job; datetime.max: until someone ends it."""
        ends = [self.pauses.get(name, now) for name in (("queue", job.queue), ("task", job.task))]
        if None in ends:
            return datetime.max.replace(tzinfo=UTC)
        end = max(end for end in ends if end is not None)
        return end if end > now else None

    def served(self, wants: Wants, now: datetime) -> list[Kept]:
        return [
            job
            for job in self.jobs.values()
            if job.state is Q and job.task in wants.tasks and (wants.queues is None or job.queue in wants.queues)
        ]

    def choose(self, wants: Wants, now: datetime) -> list[Kept]:
        """What a claim must take: of the most urgent due jobs any for the free slots, and ahead of them those that may
        wait for one."""
        return [job for rank, job in enumerate(self.first(wants, now)) if rank < wants.limit or self.may_wait(job)]

    def passes(self, wants: Wants, now: datetime) -> bool:
        return len(self.choose(wants, now)) < len(self.first(wants, now))

    def may_wait(self, job: Kept) -> bool:
        return job.attempt == 0 and job.max_attempts > 1

    def first(self, wants: Wants, now: datetime) -> list[Kept]:
        open_jobs = [job for job in self.served(wants, now) if self.held_back(job, now) is None]
        ready = [
            job
            for job in open_jobs
            if job.ready_at is not None
            and job.ready_at <= now
            and (job.attempt > 0 or job.expires_at is None or job.expires_at > now)
        ]
        return sorted(ready, key=_urgency)[: wants.limit + wants.ahead]

    def claim(self, wants: Wants, now: datetime) -> list[int]:
        taken = self.choose(wants, now)
        for job in taken:
            job.state, job.fence, job.worker, job.started_at = R, wants.fence, wants.worker, now
            job.attempt += 1
            job.ready_at = None
        ids = [job.id for job in taken]
        if ids:
            end = now + timedelta(seconds=wants.lease)
            self.leases[wants.fence] = KeptLease(wants.worker, end, wants.held + len(ids), sorted(ids))
        return ids

    def next_due(self, wants: Wants, now: datetime) -> datetime | None:
        """The first moment ahead at which this worker could take something it can't take now."""
        moments = []
        for job in self.served(wants, now):
            if job.ready_at is None:
                continue
            due = max(job.ready_at, self.held_back(job, now) or job.ready_at)
            expires = None if job.attempt else job.expires_at
            if now < due < datetime.max.replace(tzinfo=UTC) and (expires is None or due < expires):
                moments.append(due)
        return min(moments, default=None)

    def end(self, outcome: Outcome, now: datetime) -> str:
        """What an outcome does: 'done', 'recorded' before, 'lost', or 'refused'."""
        ref = Ref(outcome.id, outcome.fence)
        job = self.held_by(ref)
        if job is None:
            # Given back before it started: nothing was done under the lease, so nothing can be lost with it.
            unstarted = outcome.verb == "release" and outcome.attempt is None
            return "recorded" if unstarted or self.recorded(ref) else "lost"
        number, refund = job.attempt, outcome.verb in ("release", "park")
        asked = C if job.cancel_requested else P if job.pause_requested else Q
        match outcome.verb:
            case "succeed":
                job.state, job.finished_at, job.error_code = S, now, None
                job.result = None if outcome.result is None else outcome.result.decode()
                return "done"  # a succeeded attempt lives in the job's row; its fence stays, its requests too
            case "fail":
                job.state, job.finished_at = C if job.cancel_requested else F, now
                job.failed_at = now if job.state is F else None
            case "stop":
                job.state, job.finished_at = C, now
            case "park":
                job.state, job.expires_at = asked, None  # queued, if the request was taken back
            case "reschedule" if asked is not C and job.attempt >= job.max_attempts:
                return "refused"  # a queued job that can never be claimed must not exist
            case "reschedule":
                job.state, job.crashes, job.suspicion = asked, 0, 0
                job.run_at = now + timedelta(seconds=outcome.delay)
            case "release":
                job.state = asked
                job.expires_at = job.expires_at if outcome.attempt is None else None  # what has begun expires no more
                if outcome.delay:
                    job.run_at = now + timedelta(seconds=outcome.delay)
        if outcome.error is not None:
            job.error_code = outcome.error.code
        elif job.state is C:
            job.error_code = "CANCELLED"
        if outcome.verb not in ("fail", "stop"):
            job.fence = None
        job.attempt -= refund
        job.pause_requested = job.cancel_requested = False
        job.ready_at = job.run_at if job.state is Q else None
        if job.state is C:
            job.finished_at = now
        if outcome.attempt is not None:
            self.attempts[int(ref.id), ref.fence] = (job.life, number, outcome.attempt)
        return "done"

    def drop_leases(self, fences: Iterable[str]) -> None:
        for fence in set(fences) & set(self.leases):
            if not any(job.state is R and job.fence == fence for job in self.jobs.values()):
                del self.leases[fence]

    def rescue(self, by_expiry: bool, dead: Sequence[str], now: datetime) -> list[tuple[int, State]]:
        due = [
            (lease.worker, lease.expires_at, fence)
            for fence, lease in self.leases.items()
            if (by_expiry and lease.expires_at < now) or lease.worker in dead
        ]
        leases = Counter(lease.worker for lease in self.leases.values())
        rescued = []
        for worker, _, fence in sorted(due)[:RESCUE_BATCH]:
            lease = self.leases[fence]
            for id in lease.job_ids:
                job = self.held_by(Ref(id, fence))
                if job is not None:
                    self._take_back(job, fence, company=lease.held > 1 or leases[worker] > 1, now=now)
                    rescued.append((id, job.state))
            del self.leases[fence]
        return rescued

    def _take_back(self, job: Kept, fence: str, *, company: bool, now: datetime) -> None:
        """As docs/retries.md tells it: among others, two losses in a row cost nothing; all else is charged."""
        charged = not company or job.suspicion == 2
        self.attempts[job.id, fence] = (job.life, job.attempt, "crashed" if charged else "lost")
        job.error_code = "CRASHED" if charged else "LOST"
        if charged:
            job.crashes += 1
        else:
            job.attempt -= 1
            job.suspicion += 1
        if job.cancel_requested:
            job.state = C
        elif charged and job.crashes >= QUARANTINE_AFTER:
            job.state, job.error_code = F, "QUARANTINED"
        elif charged and job.attempt == job.max_attempts:
            job.state = F
        else:
            job.state = P if job.pause_requested else Q
        job.expires_at = None
        job.pause_requested = job.cancel_requested = False
        if job.state in FINISHED:
            job.finished_at, job.failed_at = now, now if job.state is F else None
        else:
            job.fence = job.worker = None
        if job.state is Q:
            job.run_at = job.ready_at = now

    def ask(self, verb: str, job: Kept, now: datetime) -> bool:
        """What people ask of a job. False: refused."""
        match verb, job.state:
            case "pause", State.QUEUED:
                job.state, job.ready_at, job.asked_at = P, None, now
            case "pause", State.RUNNING:
                if not (job.pause_requested or job.cancel_requested):
                    job.asked_at = now
                job.pause_requested = True
            case "resume", State.PAUSED:
                job.state, job.ready_at, job.asked_at = Q, job.run_at, None
            case "resume", State.RUNNING if job.pause_requested:
                job.pause_requested = False
                job.asked_at = job.asked_at if job.cancel_requested else None
            case "cancel", State.RUNNING:
                if not job.cancel_requested:
                    job.asked_at = now
                job.cancel_requested = True
            case "cancel", State.QUEUED | State.PAUSED:
                job.state, job.finished_at, job.error_code, job.asked_at = C, now, "CANCELLED", now
                job.ready_at = None
            case "cancel", State.FAILED:
                job.state, job.failed_at, job.asked_at = C, None, now
            case "retry", State.FAILED | State.CANCELLED if self.takes_key_back(job):
                job.state, job.run_at, job.ready_at = Q, now, now
                job.attempt, job.life, job.crashes, job.suspicion = 0, job.life + 1, 0, 0
                job.fence = job.worker = job.started_at = job.finished_at = job.failed_at = job.expires_at = None
                job.error_code = job.asked_at = None
            case "delete", state if state in FINISHED or (state is not R and job.source is None):
                self.forget(job.id)
            case _:
                return False
        return True

    def takes_key_back(self, job: Kept) -> bool:
        """May it be unfinished again, as far as its key goes?"""
        if job.key is None or job.holds_key:
            return True
        for other in self.jobs.values():
            if other.holds_key and (other.task, other.key) == (job.task, job.key):
                if other.state in (Q, R, P):
                    return False
                other.holds_key = False
        job.holds_key = True
        return True

    def change(self, job: Kept, priority: int | None, delay: float | None, now: datetime) -> bool:
        if job.state not in (Q, P):
            return False
        job.priority = job.priority if priority is None else priority
        job.run_at = job.run_at if delay is None else now + timedelta(seconds=delay)
        job.ready_at = None if job.ready_at is None else job.run_at
        return True

    def expire(self, now: datetime) -> list[int]:
        late = [
            job
            for job in self.jobs.values()
            if job.ready_at is not None and not job.attempt and job.expires_at is not None and job.expires_at <= now
        ]
        for job in late:
            job.state, job.finished_at, job.ready_at, job.error_code = C, now, None, "EXPIRED"
        return [job.id for job in late]

    def purge(self, now: datetime) -> int:
        keep = {S: KEEP_FINISHED, C: KEEP_FINISHED, F: KEEP_FAILED}
        old = [
            job.id
            for job in self.jobs.values()
            if job.finished_at is not None and job.finished_at < now - timedelta(seconds=keep[job.state])
        ]
        for id in old:
            self.forget(id)
        return len(old)

    def forget(self, id: int) -> None:
        del self.jobs[id]
        self.attempts = {name: tried for name, tried in self.attempts.items() if name[0] != id}


def _urgency(job: Kept) -> tuple[int, datetime, int]:
    assert job.ready_at is not None
    return (-job.priority, job.ready_at, job.id)


# -- the database, read and written past the store ---------------------------------------------------------------------

AS_TEXT = ("fence", "result", "checkpoint")
COLUMNS = ", ".join(f"cast({f.name} as text)" if f.name in AS_TEXT else f.name for f in fields(Kept))
FLAGS = ("holds_key", "pause_requested", "cancel_requested")


class Place(ABC):
    """The same database through a connection of the caller's own."""

    def __init__(self, store: Store, clock: Clock, rows: Rows | None) -> None:
        """`rows`: what jobs of task x in queue a are."""
        self.store = store
        self.clock = clock
        self.rows = rows
        self.execute(f"create table {self.table('ledger')} (job_id bigint, fence text)")

    @abstractmethod
    def table(self, name: str) -> str: ...

    @abstractmethod
    def execute(self, text: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def moment(self, value: Any) -> datetime | None: ...

    @abstractmethod
    def ids(self, value: Any) -> list[int]: ...

    @abstractmethod
    def transaction(self, *, commit: bool) -> Any:
        """A transaction of the caller's: gives the connection."""

    def write_effect(self, ref: Ref) -> None:
        self.execute(f"insert into {self.table('ledger')} values ({ref.id}, '{ref.fence}')")

    def clear(self) -> None:
        for name in ("jobs", "leases", "attempts", "pauses", "ledger"):
            self.execute(f"delete from {self.table(name)}")
        if self.rows is not None:
            self.rows.sql("delete from {t}")

    def see(self) -> Seen:
        leases = self.execute(
            f"select cast(fence as text), worker, expires_at, held, job_ids from {self.table('leases')}"
        )
        attempts = self.execute(
            f"select job_id, cast(fence as text), life, number, outcome from {self.table('attempts')}"
        )
        pauses = self.execute(f"select kind, name, until from {self.table('pauses')}")
        ledger = self.execute(f"select job_id, fence from {self.table('ledger')} order by job_id, fence")
        return Seen(
            {job.id: job for job in map(self._kept, self.execute(f"select {COLUMNS} from {self.table('jobs')}"))},
            {fence: KeptLease(w, self._known(end), held, self.ids(ids)) for fence, w, end, held, ids in leases},
            {(id, fence): (life, number, outcome) for id, fence, life, number, outcome in attempts},
            {(kind, name): self.moment(until) for kind, name, until in pauses},
            [(id, fence) for id, fence in ledger],
        )

    def _kept(self, row: tuple[Any, ...]) -> Kept:
        values = dict(zip((f.name for f in fields(Kept)), row, strict=True))
        for name, value in values.items():
            if name.endswith(("_at", "_until")):
                values[name] = self.moment(value)
            elif name in FLAGS:
                values[name] = bool(value)
        return Kept(**{**values, "state": State(values["state"])})

    def _known(self, value: Any) -> datetime:
        moment = self.moment(value)
        assert moment is not None
        return moment


class SqlitePlace(Place):
    def __init__(self, store: SqliteStore, clock: Clock, rows: Rows | None) -> None:
        self.connection = sqlite3.connect(store.db.path, isolation_level=None)
        self.prefix = store.db.settings.prefix
        super().__init__(store, clock, rows)

    def table(self, name: str) -> str:
        return f'"{self.prefix}{name}"'

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(text).fetchall()

    def moment(self, value: Any) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value).replace(tzinfo=UTC)

    def ids(self, value: Any) -> list[int]:
        return [int(id) for id in value.strip("[]").split(",")]

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[sqlite3.Connection]:
        self.connection.execute("begin immediate")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("rollback")
            raise
        self.connection.execute("commit" if commit else "rollback")


class PostgresPlace(Place):
    def __init__(self, store: PostgresStore, clock: Clock, rows: Rows | None) -> None:
        self.connection = psycopg.connect(store.db.settings.url, autocommit=True)
        self.connection.execute("set timezone to 'UTC'")
        self.schema = store.db.settings.schema
        super().__init__(store, clock, rows)

    def table(self, name: str) -> str:
        return f'"{self.schema}".{name}'

    def execute(self, text: str) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def moment(self, value: Any) -> datetime | None:
        return value  # type: ignore[no-any-return]

    def ids(self, value: Any) -> list[int]:
        return list(value)

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[psycopg.Connection[Any]]:
        with self.connection.transaction(force_rollback=not commit):
            yield self.connection


# -- the machine -------------------------------------------------------------------------------------------------------


def new_jobs(reuse: float | None) -> st.SearchStrategy[NewJob]:
    return st.builds(
        NewJob,
        task=st.sampled_from(("x", "x", "y", "z")),
        queue=st.sampled_from(QUEUES),
        args=st.just(b"{}"),
        priority=st.sampled_from((0, 0, 1, -1)),
        max_attempts=st.integers(1, 3),
        delay=st.sampled_from((0.0, 0.0, 0.0, 5.0, 60.0)),
        expires_in=st.sampled_from((None, None, None, 3.0, 30.0)),
        key=st.sampled_from((None, None, "k", "l")),
        reuse=st.just(reuse),
    )


PLAIN = st.builds(
    NewJob, task=st.just("x"), queue=st.sampled_from(QUEUES), args=st.just(b"{}"), max_attempts=st.integers(1, 3)
)
REUSE = st.sampled_from((None, 30.0, FOREVER))
VERBS: tuple[Verb, ...] = ("succeed", "fail", "reschedule", "release", "park", "stop")


class JobMachine(RuleBasedStateMachine):
    place: ClassVar[Place]

    jobs: Bundle[int] = Bundle("jobs")
    claims: Bundle[Ref] = Bundle("claims")  # all of them, for ever
    whose: st.SearchStrategy[Whose] = st.sampled_from(("any", 0, 1, "a zombie's"))
    outcomes: Bundle[Outcome] = Bundle("outcomes")  # those that were accepted

    def __init__(self) -> None:
        super().__init__()
        self.store = self.place.store
        self.clock = self.place.clock
        self.book = Book()
        self.before = Seen()
        self.ids: set[int] = set()  # every id ever kept
        self.issued = 0
        self.refs: list[Ref] = []  # what `claims` holds
        self.fences: set[str] = set()  # every fence ever issued
        self.charges: Counter[tuple[int, int]] = Counter()  # (job, life) -> claims less free releases
        self.successes: Counter[tuple[int, int]] = Counter()

    @initialize(target=jobs, news=st.lists(st.one_of(PLAIN, new_jobs(None)), min_size=2, max_size=6))
    def a_database_with_a_few_jobs(self, news: list[NewJob]) -> Any:
        self.place.clear()
        self.clock.now = datetime(2030, 1, 1, tzinfo=UTC)
        return self.keep_many(news)

    @property
    def now(self) -> datetime:
        return self.clock.now

    # -- enqueue ---------------------------------------------------------------------------------------------------

    @rule(target=jobs, new=REUSE.flatmap(new_jobs))
    def enqueue(self, new: NewJob) -> Any:
        holder = self.book.key_holder(new, self.now)
        return self.kept(new, holder, self.store.enqueue(new))

    @rule(target=jobs, new=REUSE.flatmap(new_jobs), commit=st.booleans())
    def enqueue_on_the_callers_transaction(self, new: NewJob, commit: bool) -> Any:
        book = deepcopy(self.book)
        holder = self.book.key_holder(new, self.now)
        with self.place.transaction(commit=commit) as connection:
            done = self.store.enqueue_on(connection, new)
        if commit:
            if holder is not None and isinstance(self.store, PostgresStore):
                new = replace(new, priority=holder.priority)  # there it raises nothing: that would lock the job
            return self.kept(new, holder, done, on_transaction=True)
        assert done.created is (holder is None)
        self.book = book
        self.check("nothing")  # rolled back: no row
        return multiple()

    @rule(target=jobs, news=REUSE.flatmap(lambda reuse: st.lists(new_jobs(reuse), min_size=1, max_size=4)))
    def enqueue_many(self, news: list[NewJob]) -> Any:
        return self.keep_many(news)

    def keep_many(self, news: list[NewJob]) -> Any:
        answers = [answer for chunk in self.store.enqueue_many(news) for answer in chunk]
        assert len(answers) == len(news)
        for new, done in zip(news, answers, strict=True):
            self.keep(new, self.book.key_holder(new, self.now), done)
        self.check("enqueue")
        return multiple(*dict.fromkeys(int(done.id) for done in answers))

    def kept(self, new: NewJob, holder: Kept | None, done: Enqueued, *, on_transaction: bool = False) -> int:
        self.keep(new, holder, done, on_transaction=on_transaction)
        self.check("enqueue")
        return int(done.id)

    def keep(self, new: NewJob, holder: Kept | None, done: Enqueued, *, on_transaction: bool = False) -> None:
        """A duplicate returns the live job; a new one is new."""
        assert done.created is (holder is None)
        if holder is not None:
            assert (done.id, done.state) == (str(holder.id), holder.state)
            if holder.state in (Q, P):
                holder.priority = max(holder.priority, new.priority)
            return
        assert int(done.id) not in self.ids
        self.ids.add(int(done.id))
        rows = self.place.rows
        source = new.task if rows is not None and rows.holds(new) and not on_transaction else None
        self.book.enqueue(new, int(done.id), self.now, source)

    # -- the worker ------------------------------------------------------------------------------------------------

    wanted = st.fixed_dictionaries(
        {
            "worker": st.sampled_from(WORKERS),
            "tasks": st.sampled_from((TASKS, TASKS, ("x",), ("y",), ("nobody's",))),
            "queues": st.sampled_from((None, None, ("a",), ("b", "a"), ("a", "a"))),
            "held": st.sampled_from((0, 0, 1, 2)),
            "lease": st.sampled_from((20.0, 40.0)),
        }
    )
    room = st.sampled_from(((1, 0), (2, 0), (3, 0), (1, 2), (2, 3), (0, 1), (0, 4)))  # free slots, and ahead of them

    @rule(target=claims, wanted=wanted, room=room)
    def claim(self, wanted: dict[str, Any], room: tuple[int, int]) -> Any:
        wants = Wants(fence=self.new_fence(), limit=room[0], ahead=room[1], **wanted)
        return self.taken(wants, self.store.attempts.claim(wants), [])

    @rule(target=claims, worker=st.sampled_from(WORKERS), limit=st.sampled_from((1, 1, 2, 5)))
    def claim_whatever_there_is(self, worker: str, limit: int) -> Any:
        wants = Wants(fence=self.new_fence(), worker=worker, tasks=TASKS, limit=limit, lease=20.0)
        if not self.book.choose(wants, self.now):
            # Most claims should find something; what is held stays held.
            self.keep_many([NewJob(task=task, args=b"{}", queue=queue) for task, queue in (("x", "a"), ("y", "b"))])
        return self.taken(wants, self.store.attempts.claim(wants), [])

    @rule(target=claims)
    def a_worker_crashes_with_one_job(self) -> Any:
        """Alone with its job: charged, counted, and in the end quarantined."""
        refs = self.claim_whatever_there_is("fragile", 1)
        self.rescue(by_expiry=False, dead={"fragile"})
        return refs

    def new_fence(self) -> str:
        """Random ones would make a failure hard to repeat: rescue goes by fence where all else is equal."""
        self.issued += 1
        return str(uuid.UUID(int=self.issued))

    def taken(self, wants: Wants, claimed: Claimed, ended: list[Outcome]) -> Any:
        """A claim returns what it moved, in order, and nothing else; and never lets a worker sleep too long."""
        waiting = deepcopy(self.book.first(wants, self.now))
        passes = self.book.passes(wants, self.now)
        expected = self.book.claim(wants, self.now)
        assert [job.id for job in claimed.jobs] == expected, f"{self.now}: {wants}, of {waiting}"
        for job in claimed.jobs:
            kept = self.book.jobs[int(job.id)]
            assert (job.fence, job.attempt, job.suspicion) == (wants.fence, kept.attempt, kept.suspicion)
            assert (job.task, job.queue, job.max_attempts) == (kept.task, kept.queue, kept.max_attempts)
            assert job.checkpoint == (None if kept.checkpoint is None else kept.checkpoint.encode())
        assert claimed.passed is passes
        assert not claimed.more  # nobody else is here to lock anything
        due = self.book.next_due(wants, self.now)
        assert claimed.next_due is None or claimed.next_due > 0
        if due is not None and len(waiting) < wants.limit + wants.ahead:
            assert claimed.next_due is not None
            assert claimed.next_due <= (due - self.now).total_seconds() + 1e-6
        self.check("exchange" if ended else "claim", ended=ended, wants=wants)
        # The reply was lost: asked again by its fence, the claim tells the same.
        assert not expected or [job.id for job in self.store.claim_of(wants.fence).jobs] == expected
        refs = [Ref(job.id, job.fence) for job in claimed.jobs]
        self.refs += refs
        return multiple(*refs)

    @rule(any_of=st.lists(st.tuples(claims, whose), min_size=1, max_size=3), lease=st.sampled_from((20.0, 40.0)))
    def renew(self, any_of: list[tuple[Ref, Whose]], lease: float) -> None:
        claims = [self.of(claim, whose) for claim, whose in any_of]
        fences = {ref.fence for ref in claims}
        standing, requests = self.store.attempts.renew(sorted(fences), claims, lease)
        assert standing == fences & set(self.book.leases)
        for fence in standing:
            row = self.book.leases[fence]
            row.expires_at = max(row.expires_at, self.now + timedelta(seconds=lease))
            row.held = len(claims)
        told = {(int(r.id), r.fence): "lost" if r.lost else (r.cancel, r.pause) for r in requests}
        expected: dict[tuple[int, str], Any] = {}
        for ref in claims:
            job = self.book.held_by(ref)
            if job is None:
                expected[int(ref.id), ref.fence] = "lost"
            elif job.cancel_requested or job.pause_requested:
                expected[int(ref.id), ref.fence] = (job.cancel_requested, job.pause_requested)
        assert told == expected
        self.check("renew", renewed=standing)

    def of(self, claim: Ref, whose: Whose) -> Ref:
        """Any claim ever made; or the nth that holds its job now; or of a zombie: the job runs, under another fence."""
        running = {job.id: job.fence for job in self.book.jobs.values() if job.state is R and job.fence}
        if whose == "a zombie's":
            choice = [ref for ref in self.refs if running.get(int(ref.id), ref.fence) != ref.fence]
        else:
            choice = [Ref(id, fence) for id, fence in running.items()]
        nth = whose if isinstance(whose, int) else -1
        return choice[nth % len(choice)] if choice and whose != "any" else claim

    def end(self, outcome: Outcome) -> Any:
        expected = self.book.end(outcome, self.now)
        if expected == "refused":
            with pytest.raises(StoreError):
                self.store.exchange([outcome], None, [outcome.fence])
            self.check("nothing")
            return multiple()
        done = self.store.exchange([outcome], None, [outcome.fence])
        assert done.lost == ([outcome] if expected == "lost" else [])
        self.book.drop_leases([outcome.fence])
        job = self.book.jobs.get(int(outcome.id))
        requeued = {job.queue} if expected == "done" and job is not None and job.state is Q else set()
        assert done.requeued == requeued
        self.check(outcome.verb, ended=[outcome] if expected == "done" else [])
        return outcome if expected == "done" else multiple()

    @rule(target=outcomes, claim=claims, whose=whose, result=st.sampled_from((None, b'"r"')))
    def succeed(self, claim: Ref, whose: Whose, result: bytes | None) -> Any:
        return self.end(Outcome("succeed", *self.of(claim, whose), result=result))

    @rule(target=outcomes, claim=claims, whose=whose)
    def fail(self, claim: Ref, whose: Whose) -> Any:
        return self.end(Outcome("fail", *self.of(claim, whose), "errored", error=BOOM))

    @rule(target=outcomes, claim=claims, whose=whose, delay=st.sampled_from((0.0, 5.0)))
    def reschedule(self, claim: Ref, whose: Whose, delay: float) -> Any:
        return self.end(Outcome("reschedule", *self.of(claim, whose), "errored", delay=delay, error=BOOM))

    @rule(target=outcomes, claim=claims, whose=whose)
    def release(self, claim: Ref, whose: Whose) -> Any:
        return self.end(Outcome("release", *self.of(claim, whose), "released"))

    @rule(claim=claims, whose=whose)
    def give_back_unstarted(self, claim: Ref, whose: Whose) -> None:
        self.end(Outcome("release", *self.of(claim, whose), None))

    @rule(target=outcomes, claim=claims, whose=whose)
    def snooze(self, claim: Ref, whose: Whose) -> Any:
        return self.end(Outcome("release", *self.of(claim, whose), "snoozed", delay=10.0))

    @rule(target=outcomes, claim=claims, whose=whose)
    def park(self, claim: Ref, whose: Whose) -> Any:
        return self.end(Outcome("park", *self.of(claim, whose), "parked"))

    @rule(target=outcomes, claim=claims, whose=whose)
    def stop(self, claim: Ref, whose: Whose) -> Any:
        return self.end(Outcome("stop", *self.of(claim, whose), "cancelled", error=CANCELLED))

    @rule(claim=claims, other=claims, verb=st.sampled_from(VERBS))
    def end_with_the_fence_of_another_job(self, claim: Ref, other: Ref, verb: Verb) -> None:
        error = BOOM if verb in ("fail", "reschedule", "stop") else None
        self.end(Outcome(verb, claim.id, other.fence, None if verb == "succeed" else "errored", error=error))

    @rule(claim=claims, whose=whose, done=st.integers(0, 9))
    def checkpoint(self, claim: Ref, whose: Whose, done: int) -> None:
        ref = self.of(claim, whose)
        job = self.book.held_by(ref)
        if job is None:
            with pytest.raises(LeaseLost):
                self.store.attempts.checkpoint(ref, b"[0]", 1, done)
            self.check("nothing")
            return
        asked = self.store.attempts.checkpoint(ref, str(done).encode(), 1, done)
        assert asked == (job.cancel_requested, job.pause_requested)
        job.checkpoint = str(done)
        self.check("checkpoint", ended=[Outcome("succeed", *ref)])

    @rule(claim=claims, whose=whose, commit=st.booleans())
    def succeed_on_the_callers_transaction(self, claim: Ref, whose: Whose, commit: bool) -> None:
        """The effect (a row in a ledger) and the success are one commit."""
        ref = self.of(claim, whose)
        outcome = Outcome("succeed", *ref, result=b'"tx"')
        if self.book.held_by(ref) is None:
            with pytest.raises(LeaseLost):
                self.finish_on_own_transaction(ref, commit=True)
            self.check("nothing")
            return
        self.finish_on_own_transaction(ref, commit=commit)
        if commit:
            self.book.end(outcome, self.now)
            self.book.ledger = sorted([*self.book.ledger, (int(ref.id), ref.fence)])
        self.check("succeed" if commit else "nothing", ended=[outcome])

    def finish_on_own_transaction(self, ref: Ref, *, commit: bool) -> None:
        with self.place.transaction(commit=commit) as connection:
            self.place.write_effect(ref)
            self.store.attempts.succeed_on(connection, ref, b'"tx"')

    @rule(target=claims, ends=st.lists(st.tuples(claims, st.sampled_from(VERBS)), max_size=4), wanted=wanted, room=room)
    def exchange(self, ends: list[tuple[Ref, Verb]], wanted: dict[str, Any], room: tuple[int, int]) -> Any:
        """Many outcomes, stale ones among them, and a claim: one trip."""
        wants = Wants(fence=self.new_fence(), limit=room[0], ahead=room[1], **wanted)
        finished: dict[int, Outcome] = {}
        for n, (claim, verb) in enumerate(ends):
            ref = self.of(claim, n if n % 2 else "any")
            job = self.book.held_by(ref)
            if verb == "reschedule" and job is not None and job.attempt >= job.max_attempts:
                verb = "fail"  # as the worker decides
            error = BOOM if verb in ("fail", "reschedule", "stop") else None
            result = b'"many"' if n % 2 else None
            attempt = None if verb == "succeed" else "errored"
            finished[int(ref.id)] = Outcome(verb, *ref, attempt, result if verb == "succeed" else None, error=error)
        outcomes = list(finished.values())
        # One after the other: which of the two comes first in one trip is the store's affair.
        done = self.store.exchange(outcomes, None, [outcome.fence for outcome in outcomes])
        claimed = self.store.exchange([], wants).claimed
        ends_by_fate = {id: self.book.end(outcome, self.now) for id, outcome in finished.items()}
        assert {int(outcome.id) for outcome in done.lost} == {id for id, e in ends_by_fate.items() if e == "lost"}
        self.book.drop_leases(outcome.fence for outcome in outcomes)
        return self.taken(wants, claimed, [o for id, o in finished.items() if ends_by_fate[id] == "done"])

    @rule(outcome=outcomes)
    def lose_reply(self, outcome: Outcome) -> None:
        """Sent again because the reply was lost: already recorded, and nothing changes."""
        done = self.store.exchange([outcome], None, [outcome.fence])
        assert done.lost == ([] if int(outcome.id) in self.book.jobs else [outcome])
        self.book.drop_leases([outcome.fence])
        self.check("nothing")

    # -- people ----------------------------------------------------------------------------------------------------

    def ask(self, verb: str, id: int, **options: Any) -> None:
        act = getattr(self.store.operator, verb)
        job = self.book.jobs.get(id)
        if job is None:
            with pytest.raises(JobNotFound):
                act(str(id), **options)
        elif not (self.book.change(job, now=self.now, **options) if options else self.book.ask(verb, job, self.now)):
            with pytest.raises(Refused):
                act(str(id), **options)
        else:
            assert act(str(id), **options) is job.state
        self.check(verb)

    @rule(id=jobs, verb=st.sampled_from(("pause", "pause", "resume", "resume", "cancel", "retry", "retry", "delete")))
    def ask_of_a_job(self, id: int, verb: str) -> None:
        self.ask(verb, id)

    @rule(claim=claims, whose=whose, verb=st.sampled_from(("pause", "cancel", "resume", "retry")))
    def ask_of_a_job_that_runs_or_ran(self, claim: Ref, whose: Whose, verb: str) -> None:
        self.ask(verb, int(self.of(claim, whose).id))

    @rule(target=claims, asked=st.sampled_from(("pause", "cancel")), verb=st.sampled_from(VERBS))
    def ask_of_a_job_that_then_ends(self, asked: str, verb: Verb) -> Any:
        """Whatever the holder does next, the request is honoured."""
        refs = self.claim_whatever_there_is("w1", 2)
        ref = self.of(Ref(0, ""), 0)
        if self.book.held_by(ref) is not None:
            self.ask(asked, int(ref.id))
            error = BOOM if verb in ("fail", "reschedule", "stop") else None
            self.end(Outcome(verb, *ref, None if verb == "succeed" else "errored", error=error))
        return refs

    @rule(id=jobs, priority=st.sampled_from((None, 2)), delay=st.sampled_from((None, 0.0, 15.0)))
    def change(self, id: int, priority: int | None, delay: float | None) -> None:
        self.ask("change", id, priority=priority, delay=delay)

    @rule(
        place=st.sampled_from((("queue", "a"), ("queue", "b"), ("task", "x"))),
        delay=st.sampled_from((None, 30.0, "let go", "let go", "let go")),
    )
    def hold_or_let_go(self, place: tuple[str, str], delay: float | str | None) -> None:
        if isinstance(delay, str):
            assert self.store.pauses.drop(*place) is (place in self.book.pauses)
            self.book.pauses.pop(place, None)
        else:
            self.store.pauses.add(*place, delay=delay)
            self.book.pauses[place] = None if delay is None else self.now + timedelta(seconds=delay)
        self.check("nothing")

    # -- the watchdog ----------------------------------------------------------------------------------------------

    @rule(by_expiry=st.booleans(), dead=st.sets(st.sampled_from(WORKERS), max_size=1))
    def rescue(self, by_expiry: bool, dead: set[str]) -> None:
        expected = self.book.rescue(by_expiry, sorted(dead), self.now)
        rescued = self.store.rescues.rescue(by_expiry=by_expiry, dead=sorted(dead), quarantine_after=QUARANTINE_AFTER)
        assert [(int(job.id), job.state) for job in rescued] == expected
        self.check("rescue", by_expiry=by_expiry, dead=dead)

    @rule(claim=claims, whose=st.sampled_from(("any", "a zombie's")))
    def rescue_on_an_old_read(self, claim: Ref, whose: Whose) -> None:
        """A watchdog that decided from what it read long ago: the statement checks state and fence itself."""
        ref = self.of(claim, whose)
        if self.book.held_by(ref) is None:
            with self.store.db.transaction() as tx:
                assert not tx.rows(
                    "rescue", id=ref.id, fence=ref.fence, state="queued", attempt=0,
                    crashes=0, suspicion=0, error_code="CRASHED", error_message="its worker went silent",
                    error_fingerprint="0123456789",
                )  # fmt: skip
        self.check("nothing")

    @rule(target=claims, worker=st.sampled_from(WORKERS))
    def leases_run_out_and_another_takes_over(self, worker: str) -> Any:
        self.clock.advance(41)
        self.rescue(by_expiry=True, dead=set())
        return self.claim_whatever_there_is(worker, 5)

    @rule(target=claims, verb=st.sampled_from(("succeed", "succeed", *VERBS)))
    def a_zombie_comes_back(self, verb: Verb) -> Any:
        """It held a job, went silent, was rescued and overtaken; now it wants to end the job all the same."""
        self.claim_whatever_there_is("w1", 2)
        refs = self.leases_run_out_and_another_takes_over("w2")
        zombie = self.of(Ref(0, ""), "a zombie's")
        if zombie.id:
            error = BOOM if verb in ("fail", "reschedule", "stop") else None
            self.end(Outcome(verb, *zombie, None if verb == "succeed" else "errored", error=error))
        return refs

    @rule(forget=st.booleans())
    def tidy_up(self, forget: bool) -> None:
        expected = self.book.expire(self.now)
        assert sorted(row["id"] for row in self.store.retention.expire()) == sorted(expected)
        self.check("expire")
        if forget:
            deleted, _ = self.store.retention.purge(0, finished=KEEP_FINISHED, failed=KEEP_FAILED)
            assert deleted == self.book.purge(self.now)
            self.check("purge")

    @rule(seconds=st.sampled_from((0.001, 1.0, 4.0, 21.0, 41.0, -2.0)))
    def advance_clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # -- the invariants --------------------------------------------------------------------------------------------

    def check(
        self,
        verb: str,
        *,
        ended: Sequence[Outcome] = (),
        wants: Wants | None = None,
        renewed: set[str] = frozenset(),  # type: ignore[assignment]
        by_expiry: bool = False,
        dead: set[str] = frozenset(),  # type: ignore[assignment]
    ) -> None:
        before, after = self.before, self.place.see()
        verbs = {outcome.verb for outcome in ended} | ({"claim"} if wants else set()) if verb == "exchange" else {verb}
        for id in before.jobs.keys() - after.jobs.keys():
            self.gone(before.jobs[id], verb)
        for id in after.jobs.keys() - before.jobs.keys():
            assert verb == "enqueue", "a row nobody asked for"
            assert id in self.ids, "a row nobody was told of"
            assert after.jobs[id].state is Q
        for id in before.jobs.keys() & after.jobs.keys():
            then, now = before.jobs[id], after.jobs[id]
            self.moved(then, now, verbs)
            self.fenced(then, now, verb, ended)
            if then.state is Q and now.state is R:
                assert wants is not None
                self.claimed(then, now, wants, after)
            if then.state is R and now.state is not R and verb == "rescue":
                self.rescued(then, now, before.leases, by_expiry, dead)
            self.counted(then, now, verb)
        if wants is not None:
            self.ahead(after, wants)
        self.leased(before, after, renewed)
        self.one_holder_a_key(after)
        self.effects_once(after)
        self.fences |= {wants.fence} if wants is not None else set()
        self.before = after
        for name in (f.name for f in fields(Seen)):
            assert getattr(after, name) == getattr(self.book, name), f"{name} after {verb}"
        if self.place.rows is not None:
            self.place.rows.check()

    def gone(self, job: Kept, verb: str) -> None:
        assert verb in ("delete", "purge"), "a job was lost"
        assert job.state is not R, "a running job was forgotten"
        assert verb == "delete" or job.state in FINISHED, "retention took an unfinished job"

    def moved(self, then: Kept, now: Kept, verbs: set[str]) -> None:
        if then.state is not now.state:
            event(f"{'+'.join(sorted(verbs))}: {then.state} -> {now.state}")
            # One trip may end an attempt and claim the job again: then it goes by way of queued.
            assert any(
                then.state in TRANSITIONS[v][0] and now.state in TRANSITIONS[v][1] for v in verbs if v in TRANSITIONS
            ), f"{verbs} moved a job from {then.state} to {now.state}"
        if then.state in FINISHED and now.state is not then.state:
            assert (verbs == {"retry"} and now.life == then.life + 1) or (verbs == {"cancel"} and then.state is F), (
                "terminal is final"
            )
        if then.state is R and then.cancel_requested and now.state is not R:
            assert now.state in (C, S), "a job asked to cancel went on"

    def fenced(self, then: Kept, now: Kept, verb: str, ended: Sequence[Outcome]) -> None:
        if then.state is R:
            requests = {"pause_requested", "cancel_requested", "asked_at"}
            asked = requests if verb in ("pause", "resume", "cancel") else set()
            changed = {f.name for f in fields(Kept) if getattr(then, f.name) != getattr(now, f.name)} - asked
            holder = any((outcome.id, outcome.fence) == (then.id, then.fence) for outcome in ended)
            assert not changed or holder or verb == "rescue", f"{verb} changed {changed} without the fence"

    def claimed(self, then: Kept, now: Kept, wants: Wants, after: Seen) -> None:
        assert then.ready_at is not None, "claimed while held"
        assert max(then.ready_at, then.run_at) <= self.now, "claimed early"
        assert now.fence == wants.fence, "claimed under another fence"
        assert now.fence not in self.fences, "a fence was used twice"
        assert now.attempt == then.attempt + 1 <= now.max_attempts, "the attempt is charged at claim"
        lease = after.leases[wants.fence]
        assert lease.expires_at == self.now + timedelta(seconds=wants.lease), "the lease is as long as asked"

    def ahead(self, after: Seen, wants: Wants) -> None:
        """Beyond its free slots a worker takes nothing that a crash would cost an attempt it had not begun."""
        taken = [job for job in after.jobs.values() if job.fence == wants.fence and job.state is R]
        assert len(taken) <= wants.limit + wants.ahead
        last = [job for job in taken if job.attempt == job.max_attempts]
        assert len(last) <= wants.limit, "the last attempt, taken ahead"

    def rescued(self, then: Kept, now: Kept, leases: dict[str, KeptLease], by_expiry: bool, dead: set[str]) -> None:
        assert then.fence is not None
        lease = leases[then.fence]
        assert (by_expiry and lease.expires_at < self.now) or lease.worker in dead, "its holder was alive"
        if now.crashes >= QUARANTINE_AFTER and now.crashes > then.crashes and now.state is not C:
            assert (now.state, now.error_code) == (F, "QUARANTINED"), "a poison job goes on"
        assert now.crashes <= QUARANTINE_AFTER, "more crashes than allowed"

    def counted(self, then: Kept, now: Kept, verb: str) -> None:
        """attempt = claims less free releases, and one success a life."""
        life = (now.id, now.life)
        if now.fence is not None and now.fence != then.fence and now.state is R:
            self.charges[life] += 1
        if then.state is R and (now.state is not R or now.fence != then.fence):
            assert then.fence is not None
            tried = self.book.attempts.get((then.id, then.fence))
            free = ("released", "snoozed", "parked", "lost")
            refunded = now.attempt - (now.state is R) < then.attempt
            assert tried is None or refunded or tried[2] not in free, "a free release was charged"
            self.charges[then.id, then.life] -= refunded
        assert now.attempt == self.charges[life], "attempt is not claims less free releases"
        assert now.attempt <= now.max_attempts
        if now.state is S and then.state is not S:
            self.successes[life] += 1
            assert self.successes[life] == 1, "completed twice"

    def leased(self, before: Seen, after: Seen, renewed: set[str]) -> None:
        for fence, lease in before.leases.items():
            kept = after.leases.get(fence)
            if kept is not None and kept != lease:
                assert fence in renewed, "a lease was changed by someone else than its holder"
                assert kept.expires_at >= lease.expires_at, "a lease became shorter"
        for job in after.jobs.values():
            if job.state is R:
                assert job.fence in after.leases, "a job runs without a lease: nobody would ever rescue it"
                assert job.id in after.leases[job.fence].job_ids, "a job runs under a lease that does not name it"

    def one_holder_a_key(self, after: Seen) -> None:
        holders = Counter((job.task, job.key) for job in after.jobs.values() if job.holds_key)
        assert all(count == 1 for count in holders.values()), "two jobs hold one key"
        without = [job.id for job in after.jobs.values() if job.key and not job.holds_key and job.state in (Q, R, P)]
        assert not without, "an unfinished job does not hold its key, so an equal one may come beside it"

    def effects_once(self, after: Seen) -> None:
        effects = Counter(id for id, _ in after.ledger)
        assert all(count == 1 for count in effects.values()), "an effect twice"
        for id, fence in after.ledger:
            if id in after.jobs:
                assert (after.jobs[id].state, after.jobs[id].fence) == (S, fence), "an effect without its success"


def test_whatever_happens_in_whatever_order_the_invariants_hold(store: Store, clock: Clock) -> None:
    run_machine(store, clock, EXAMPLES)


def test_they_hold_where_some_jobs_are_rows_of_an_adopted_table(
    store: Store, clock: Clock, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Rows(settings, task="x", queue="a")
    rows.adopt(store)
    monkeypatch.setattr(store, "enqueue", partial(rows.enqueue, store))
    monkeypatch.setattr(store, "enqueue_many", lambda news: [[store.enqueue(new) for new in news]])
    try:
        run_machine(store, clock, max(1, EXAMPLES // 8), rows)
    finally:
        rows.close()


@pytest.mark.parametrize("engine", ["postgres"])
def test_they_hold_while_looking_everywhere_takes_long(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every claim is made from floors on. As long as nothing stands before one it finds what it should; what does is
    found by a survey."""
    assert isinstance(store, PostgresStore)
    for name, value in {"MANY_ENTRIES": -1, "IN_A_ROW": 0, "LEAST_REST": 0.0, "REST": 0.0}.items():
        monkeypatch.setattr(claim_floors, name, value)
    store.exchanging.floors = surveys = SparingSurveys(store, clock)
    run_machine(store, clock, EXAMPLES // 3)
    assert surveys.looked > 2 * surveys.made > 0


class SparingSurveys(ClaimFloors):
    """A survey is made at once, but only where a claim would pass something over. That may be what came back to its old
    place, never what has stood there since the last look: no floor is raised over a job."""

    def __init__(self, store: PostgresStore, clock: Clock) -> None:
        super().__init__(store.db.transaction)
        self._connection = psycopg.connect(store.db.settings.url, autocommit=True)
        self._ready = (
            "select queue, task, priority, extract(epoch from ready_at)::float8, id, xmin::text "
            f'from "{store.db.settings.schema}".jobs where ready_at is not null '
            "and (expires_at is null or attempt > 0 or expires_at > %s)"
        ).encode()
        self._clock = clock
        self.looked = self.made = 0
        self._stood: dict[object, set[tuple[Any, ...]]] = {}

    def of(self, wants: Wants) -> LaneFloors:
        looks = self._by_queues.setdefault(wants.queues, LaneFloors())
        looks._askers.add(wants.tasks)
        self.looked += 1
        standing = {
            row
            for row in self._connection.execute(self._ready, (self._clock(),)).fetchall()
            if row[1] in wants.tasks and (wants.queues is None or row[0] in wants.queues)
        }
        unknown = wants.tasks not in looks._newest
        passed = set() if unknown else {row for row in standing if self._is_passed_over(looks, wants, *row)}
        assert not passed & self._stood.get((wants.queues, wants.tasks), set())
        self._stood[wants.queues, wants.tasks] = standing
        if unknown or passed:
            self.made += 1
            self.make(looks, wants.queues, looks.begin_survey())
            assert looks.narrow
        return looks

    def _is_passed_over(
        self, looks: LaneFloors, wants: Wants, queue: str, task: str, priority: int, first: float, id: int, xmin: str
    ) -> bool:
        lane = (queue, task, priority)
        if lane not in looks._floors and id <= looks._newest[wants.tasks]:
            return True
        return first < looks._floors.get(lane, looks._since) - SLACK

    def close(self) -> None:
        self._connection.close()


def run_machine(store: Store, clock: Clock, examples: int, rows: Rows | None = None) -> None:
    if isinstance(store, SqliteStore):
        place: Place = SqlitePlace(store, clock, rows)
    else:
        assert isinstance(store, PostgresStore)
        place = PostgresPlace(store, clock, rows)
    machine = type("Machine", (JobMachine,), {"place": place})
    run_state_machine_as_test(
        machine,
        settings=hypothesis_settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
