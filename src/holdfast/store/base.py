"""Store: the contract that every place that keeps jobs fulfils. Read this file first.

A Store is made of parts, each of which has its own module. Some are written once, in terms of a `Database` that runs
our statements; some each database provides in its own way, behind a protocol. The verbs that a worker's loop and an
enqueue need stand here.

Every write that ends or changes an attempt carries the fence of its claim and says `where state = 'running' and
fence = …`; no row changed means the lease was lost. Times are compared by the database's clock alone; a test passes
its own clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.model.job import Claimed, Enqueued, Look, NewJob, Wants
from holdfast.model.outcome import Outcome
from holdfast.model.polling import NO_POLLS, Polling
from holdfast.store.adopted import AdoptedTables
from holdfast.store.alerts import Alerts
from holdfast.store.attempts import Attempts
from holdfast.store.audit import Audit
from holdfast.store.columns import JobId, Row
from holdfast.store.credentials import Credentials
from holdfast.store.crons import Crons
from holdfast.store.engine import Database, Schema, Transaction, UserConnections, Wakeups
from holdfast.store.enqueue_steps import arun_steps, enqueue_steps, run_steps
from holdfast.store.exchange import Exchange, Exchanged, Ref, Trips, by_verb, exchange, goes_on
from holdfast.store.operator_verbs import OperatorVerbs, Retention
from holdfast.store.pauses import Pauses
from holdfast.store.reads import Reads
from holdfast.store.rescues import Rescues
from holdfast.store.rollups import Rollups
from holdfast.store.stack_requests import StackRequests
from holdfast.store.workers import Workers

__all__ = ["Exchanged", "JobId", "Ref", "Row", "Store", "Transaction", "Trips", "by_verb", "goes_on"]


class Enqueue(Protocol):
    """How jobs get into a database, by connections of ours."""

    def enqueue(self, job: NewJob) -> Enqueued: ...

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]: ...

    def close(self) -> None: ...


class Store(ABC):
    """Where jobs are kept."""

    adopted: AdoptedTables

    def __init__(
        self, db: Database, *, schema: Schema, wakeups: Wakeups, user_connections: UserConnections, enqueueing: Enqueue,
        exchanging: Exchange, attempts: type[Attempts] = Attempts,
        rollups: type[Rollups] = Rollups,
    ) -> None:  # fmt: skip
        self.db = db
        self.schema = schema
        self.wakeups = wakeups
        self.user_connections = user_connections
        self.enqueueing = enqueueing
        self.exchanging = exchanging
        self.reads = Reads(db)
        self.attempts = attempts(db, exchanging, wakeups, user_connections)
        self.rescues = Rescues(db)
        self.retention = Retention(db)
        self.workers = Workers(db, wakeups)
        self.operator = OperatorVerbs(db, self.reads, wakeups)
        self.pauses = Pauses(db, wakeups)
        self.crons = Crons(db, self.workers, self.reads, wakeups)
        self.stack_requests = StackRequests(db, wakeups)
        self.audit = Audit(db)
        self.credentials = Credentials(db)
        self.rollups = rollups(db)
        self.alerts = Alerts(db)

    @property
    def shown_url(self) -> str:
        """Without secrets."""
        return self.db.shown_url

    # -- enqueue -----------------------------------------------------------------------------------------------

    def enqueue(self, job: NewJob) -> Enqueued:
        """Keep a new job, or return the one that holds the same key."""
        return self.enqueueing.enqueue(job)

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        """Keep many, streamed in constant memory: yields what became of each chunk as it is sent; all are committed
        together when the iterator ends, none if it fails."""
        return self.enqueueing.enqueue_many(jobs)

    def enqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        """Keep a new job on the caller's open transaction: its rollback leaves no job and no wake-up."""
        execute = self.user_connections.execute_on(connection)
        return run_steps(enqueue_steps(self.db, job, may_raise=self.user_connections.may_raise), execute)

    async def aenqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        """The same on an asynchronous connection."""
        execute = await self.user_connections.aexecute_on(connection)
        return await arun_steps(enqueue_steps(self.db, job, may_raise=self.user_connections.may_raise), execute)

    # -- the worker's trip ---------------------------------------------------------------------------------------

    def trips(self) -> AbstractContextManager[Trips]:
        """A connection for trips, for the caller alone."""
        return self.exchanging.trips()

    def exchange(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str] = ()) -> Exchanged:
        """One trip: record these outcomes, drop the leases of these fences, and claim what is wanted."""
        with self.trips() as trips:
            return exchange(trips, finished, wants, drained)

    def claim_of(self, fence: str) -> Claimed:
        """What a claim took whose reply was lost. If it took nothing, it never will."""
        return self.exchanging.claim_of(fence)

    @abstractmethod
    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False, polling: Polling = NO_POLLS, memory: int | None = None,
    ) -> Look:  # fmt: skip
        """What the watchdog sees; marks the worker present, and `open` to wake-ups or not: it hears them and has a free
        slot. `polling`: what its polls did, and `memory`: how many bytes it occupies, for others to see."""

    @abstractmethod
    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        """How many jobs, up to `most`, workers of these tasks and queues would take before this one; and the first id
        among them. `due_at` is as it is stored."""

    def close(self) -> None:
        self.wakeups.close()
        self.exchanging.close()
        self.enqueueing.close()
        self.db.close()
