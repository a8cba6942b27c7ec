"""Store: the contract every place that keeps jobs fulfils, one method per verb. Read this file first.

What all stores share is written here once, in terms of a few primitives (`transaction`, `trips`, …) that each
database provides in its own way. Every write that ends or changes an attempt carries the fence of its claim and says
`where state = 'running' and fence = …`; no row changed means the lease was lost. Times are compared by the database's
clock alone; a test passes `clock`.

Parts of the contract that stand apart: `reading` (what is there), `rescues` (jobs are taken back), `steering` (people's
verbs), `crons`, `stacks`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from holdfast.errors import LeaseLost, StoreError
from holdfast.model.filter import ALL, Filter
from holdfast.model.job import (
    DEFAULT_LEASE,
    Claimed,
    Depth,
    Enqueued,
    Look,
    NewJob,
    Page,
    Request,
    Thing,
    Wants,
)
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome, Progress, Verb
from holdfast.model.peers import Place
from holdfast.store.columns import JobId as JobId
from holdfast.store.columns import Row as Row
from holdfast.store.crons import KeepsCrons
from holdfast.store.depth import depths
from holdfast.store.find import page
from holdfast.store.operator_verbs import OperatorVerbs
from holdfast.store.rescues import TakesBack
from holdfast.store.stack_requests import KeepsStacks

if TYPE_CHECKING:
    from holdfast.store.permits import Permits


class Ref(NamedTuple):
    """The right to end an attempt: a job and the fence it was claimed with."""

    id: JobId
    fence: str


class Transaction(Protocol):
    """An open transaction of ours: runs a statement by name."""

    def rows(self, name: str, /, **parameters: Any) -> list[Row]: ...


class Exchanged(msgspec.Struct):
    """What one trip to the database brought: which outcomes found their lease gone, or another outcome recorded before,
    which of the finished jobs somebody waits for, in which queues jobs wait again, and what was claimed. `refused`: why
    nothing was, though the outcomes were recorded. `cancelled`: jobs that were to go on later, and ended here because
    people had asked for that."""

    claimed: Claimed = msgspec.field(default_factory=Claimed)
    refused: StoreError | None = None
    lost: list[Outcome] = []  # each has its own
    already: list[Outcome] = []
    awaited: list[JobId] = []
    requeued: set[str] = msgspec.field(default_factory=set)
    cancelled: int = 0


class Trips(Protocol):
    """Trips of a worker to the database. Each records outcomes, all or none, and claims what is wanted: in one
    transaction, or the claim first, in one of its own."""

    @property
    def overlaps(self) -> bool:
        """May the next trip depart when the claim of the last one is answered, but not its outcomes?"""

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        """`drained`: fences with nothing left under them."""

    def claimed(self) -> Claimed | None:
        """What the oldest trip under way claimed, for sure. None: nothing yet, that comes with the rest."""

    def recorded(self) -> Exchanged:
        """The rest of what the oldest trip under way brought, which ends it."""


class Ear(Protocol):
    """A worker's own line to its store: its trips go this way, and on it comes word of new work. For one thread."""

    def fileno(self) -> int:
        """Readable as soon as there may be something to hear."""

    def tune(self, place: Place) -> bool:
        """Hear what concerns a worker in this place. False: that is so already."""

    def hear(self) -> Iterator[tuple[str, str, int | None]]:
        """What came since: the kind and what `Store.listen` tells, and how many workers act on it before this one
        (None: it is for all at once). Never waits. Raises StoreUnavailable when it has gone deaf."""

    def trips(self) -> AbstractContextManager[Trips]:
        """As `Store.trips`. What was said meanwhile is still heard."""

    def close(self) -> None: ...


class Store(TakesBack, OperatorVerbs, KeepsCrons, KeepsStacks):
    """Where jobs are kept."""

    can_listen: bool = False  # can it wake a sleeping worker?
    shown_url: str  # without secrets
    store_id: str = ""
    permits: Permits | None = None  # for transactions of handlers, where only so many may be open at once

    # -- set-up ------------------------------------------------------------------------------------------------

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of what was applied. Safe from many processes at once."""

    @abstractmethod
    def pending(self) -> list[str]:
        """The names of what `migrate` would apply."""

    @abstractmethod
    def check(self) -> None:
        """Refuse with one clear sentence (SchemaOutdated) if database and code don't fit."""

    @abstractmethod
    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        """What our tables are made of: as they are, and as this version would make them."""

    def shares_sessions(self) -> bool:
        """Does something between us and the database share its sessions among clients?"""
        return False

    def look_around(self) -> None:
        """See that we work with the one server that should take writes."""

    def writable(self) -> list[str]:
        """The servers that take writes, of all that the URL names."""
        return []

    @property
    def has_several_hosts(self) -> bool:
        """Does the URL name more than one?"""
        return False

    @abstractmethod
    def close(self) -> None: ...

    # -- primitives each database provides ---------------------------------------------------------------------

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Our own write transaction: committed at the end, rolled back by an exception."""

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that writes, committed by itself."""
        with self.transaction() as tx:
            return tx.rows(name, **parameters)

    # -- enqueue -----------------------------------------------------------------------------------------------

    @abstractmethod
    def enqueue(self, job: NewJob) -> Enqueued:
        """Keep a new job, or return the one that holds the same key."""

    @abstractmethod
    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        """Keep many, streamed in constant memory: yields what became of each chunk as it is sent; all are committed
        together when the iterator ends, none if it fails."""

    @abstractmethod
    def enqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        """Keep a new job on the caller's open transaction: its rollback leaves no job and no wake-up."""

    @abstractmethod
    async def aenqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        """The same on an asynchronous connection."""

    # -- the worker's trip ---------------------------------------------------------------------------------------

    @abstractmethod
    def trips(self) -> AbstractContextManager[Trips]:
        """A connection for trips, for the caller alone."""

    def exchange(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str] = ()) -> Exchanged:
        """One trip."""
        with self.trips() as trips:
            trips.depart(finished, wants, drained)
            trips.claimed()
            return trips.recorded()

    @abstractmethod
    def claim_of(self, fence: str) -> Claimed:
        """What a claim took whose reply was lost. If it took nothing, it never will."""

    @abstractmethod
    def renew(self, fences: Sequence[str], held: Sequence[Ref], lease: float) -> tuple[set[str], list[Request]]:
        """Extend these leases. Returns the fences that still stand, and what concerns the jobs in hand."""

    def asked(self) -> list[Request]:
        """What people have asked of running jobs, whoever holds them."""
        return [
            Request(row["id"], row["fence"], bool(row["lost"]), bool(row["cancel"]), bool(row["pause"]))
            for row in self.read("asked")
        ]

    @abstractmethod
    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False,
    ) -> Look:  # fmt: skip
        """What the watchdog sees; marks the worker present, and `open` to wake-ups or not: it hears them and has a free
        slot."""

    def expire(self, limit: int = 1000) -> list[Row]:
        """Cancel queued jobs that were not started by their expiry."""
        with self.transaction() as tx:
            return tx.rows("expire", limit=limit)

    @abstractmethod
    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        """Retention: one bounded step. Returns how many were forgotten, and where to go on (None: done for now)."""

    # -- wake-ups: hints, never needed for correctness -------------------------------------------------------------

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None:
        """Tell all listeners, after the commit: work waits in these queues, these jobs finished, people asked
        something, a worker came or left. Coalesced; never fails."""

    def tell(self, queues: Sequence[str]) -> None:
        """Jobs wait again, each in one of these queues: if it is one job, a few workers are told, else all."""
        if len(queues) == 1:
            self.hint(queues[0])
        elif queues:
            self.notify(set(queues))

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        """Tell a few workers of one job, after the commit: it waits in this queue, with this task and priority if they
        are given, or falls due in so many seconds. Coalesced; never fails."""

    @abstractmethod
    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        """Call `heard(kind, what)` for every wake-up until `stop()`; raises StoreUnavailable when it goes deaf.
        The first call comes once it listens: whoever looks then misses nothing. Kinds: `listening`; `queue` and its
        name (none: any); `lane` and a due job's queue, task and priority as JSON; `due` and in how many seconds one
        falls due; `requests`; `workers`: some came or left; `finished` and an id; `changed`: something did;
        `mark`: another listener's, to hear itself by; `other`: anything else."""

    def open_ear(self) -> Ear | None:
        """A line on which trips are made and wake-ups heard, from now on. None: this store has none, so `listen`."""
        return None

    # -- the verbs, one job at a time --------------------------------------------------------------------------------

    def claim(self, wants: Wants) -> Claimed:
        return self.exchange([], wants).claimed

    def succeed(self, ref: Ref, result: bytes | None = None) -> None:
        self._end(Outcome("succeed", ref.id, ref.fence, result=result))

    def fail(self, ref: Ref, error: Error) -> None:
        self._end(Outcome("fail", ref.id, ref.fence, "errored", error=error))

    def reschedule(self, ref: Ref, delay: float, error: Error) -> None:
        self._end(Outcome("reschedule", ref.id, ref.fence, "errored", delay=delay, error=error))

    def release(self, ref: Ref, delay: float = 0.0) -> None:
        self._end(Outcome("release", ref.id, ref.fence, "snoozed" if delay else "released", delay=delay))

    def park(self, ref: Ref) -> None:
        self._end(Outcome("park", ref.id, ref.fence, "parked"))

    def stop(self, ref: Ref, reason: str | None = None) -> None:
        """End it as cancelled; without a reason, with that of whoever asked."""
        error = None if reason is None else Error("CANCELLED", reason)
        self._end(Outcome("stop", ref.id, ref.fence, "cancelled", error=error))

    def _end(self, outcome: Outcome) -> None:
        done = self.exchange([outcome], None, [outcome.fence])
        if done.lost:
            raise self._lost(Ref(outcome.id, outcome.fence), outcome.verb)
        for queue in done.requeued:
            self.hint(queue, due_in=outcome.delay)
        self.notify(finished=done.awaited)

    @abstractmethod
    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        """Record success, fence-checked, on the caller's own open transaction: the effect and the outcome are one
        commit."""

    @abstractmethod
    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None: ...

    @abstractmethod
    def user_transaction(self, note: str = "") -> AbstractContextManager[Any]:
        """A connection with an open transaction, for a handler's own writes: commits at the end. `note` says whose it
        is to those who wait for it. Whoever calls this has one of `permits`, if there are any."""

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        """Save progress under the lease. Returns (cancel, pause): what people have asked meanwhile."""
        return self._under_lease(ref, "checkpoint", checkpoint=_text(state), pending=pending, done=done)

    def progress(
        self, ref: Ref, done: int, total: int | None, note: str | None, rate: float | None = None
    ) -> tuple[bool, bool]:
        return self._under_lease(ref, "progress", done=done, total=total, note=note, rate=rate)

    def step(self, ref: Ref, name: str) -> tuple[bytes | None, bool, bool]:
        """What this step of a job in hand returned, as JSON (None: it was not run yet); and (cancel, pause)."""
        rows = self.read("step", id=ref.id, fence=ref.fence, name=name)
        asked = self._told(ref, "step", rows)
        return self.codec.json(rows[0]["result"]), *asked

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        """Keep what a step returned, under the lease. Returns (cancel, pause)."""
        return self._told(
            ref, "step", self.write("keep_step", id=ref.id, fence=ref.fence, name=name, result=_text(result))
        )

    def _under_lease(self, ref: Ref, name: str, **parameters: Any) -> tuple[bool, bool]:
        return self._told(ref, name, self.write(name, id=ref.id, fence=ref.fence, **parameters))

    def _told(self, ref: Ref, verb: str, rows: list[Row]) -> tuple[bool, bool]:
        """What people have asked of a job in hand; LeaseLost if it is not."""
        if not rows:
            raise self._lost(ref, verb)
        return bool(rows[0]["cancel_requested"]), bool(rows[0]["pause_requested"])

    def _lost(self, ref: Ref, verb: str) -> LeaseLost:
        rows = self.read("get", id=ref.id)
        now = "deleted" if not rows else f"{rows[0]['state']}"
        if rows and rows[0]["state"] == State.RUNNING:
            now += f", held by worker {rows[0]['worker']}"
        return LeaseLost(f"job {ref.id} is no longer held under this lease (it is {now}); this {verb} is dropped")

    def keep_output(self, ref: Ref, output: str) -> None:
        """What an attempt wrote whose success its handler recorded itself."""
        self.write("output", id=ref.id, fence=ref.fence, output=output)

    # -- reading -----------------------------------------------------------------------------------------------------

    def jobs(
        self,
        filter: Filter = ALL,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Newest first; `before` an id is the next page. Looks through a bounded number of jobs, and says if that cut
        it short."""
        return page(self, filter.narrowed(state=state, queue=queue, task=task), before, limit)

    def depths(self) -> list[Depth]:
        """How much waits, runs and failed, by queue and task; counted up to a cap."""
        return depths(self)

    def drop_pending(self, limit: int = 1000) -> int:
        """Take finished jobs off the list of those with work pending: one bounded step. Returns how many."""
        return len(self.write("drop_pending", limit=limit))

    def await_finish(self, job_id: str) -> None:
        """Ask whoever finishes this job to say so."""
        self.write("await", id=self.key_of(job_id))  # at once: a claim passes over a row that is locked

    # -- workers -----------------------------------------------------------------------------------------------------

    def register(
        self, *, id: str, name: str, host: str, pid: int, queues: Sequence[str] | None, tasks: Sequence[str],
        slots: int, crons: Sequence[str] = (), lease: float = DEFAULT_LEASE,
    ) -> None:  # fmt: skip
        with self.transaction() as tx:
            tx.rows(
                "register", id=id, name=name, host=host, pid=pid, slots=slots, lease=lease, tasks=list(tasks),
                crons=list(crons), queues=None if queues is None else list(queues),
            )  # fmt: skip

    def unregister(self, worker: str) -> None:
        with self.transaction() as tx:
            tx.rows("unregister", id=worker)
        self.notify(workers=True)

    def forget_workers(self, older_than: float) -> None:
        with self.transaction() as tx:
            tx.rows("forget_workers", minus_age=-older_than)


def by_verb(outcomes: Sequence[Outcome]) -> dict[Verb, list[Outcome]]:
    groups: dict[Verb, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.verb, []).append(outcome)
    return groups


def by_fence(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome], list[Outcome]]]:
    """Successes by fence, those without a result apart: they take the short way."""
    groups: dict[str, tuple[list[Outcome], list[Outcome]]] = {}
    for outcome in outcomes:
        group = groups.get(outcome.fence)
        if group is None:
            group = groups[outcome.fence] = ([], [])
        group[outcome.result is not None].append(outcome)
    return ((fence, plain, results) for fence, (plain, results) in groups.items())


def with_progress(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """The parameters of `progress` for those whose handlers have reported some: written before the outcome."""
    for outcome in outcomes:
        if outcome.progress is not None:
            done, total, note = outcome.progress
            yield {"id": outcome.id, "fence": outcome.fence, "done": done, "total": total, "note": note, "rate": None}


def success(ref: Ref, result: bytes | None, progress: Progress | None) -> dict[str, Any]:
    """The parameters of `succeed_on`."""
    done, total, note = progress or (None, None, None)
    return {"id": ref.id, "fence": ref.fence, "result": _text(result), "done": done, "total": total, "note": note}


def with_output(succeeded: Sequence[Outcome]) -> list[Outcome]:
    """Those that leave what they wrote."""
    return [outcome for outcome in succeeded if outcome.output is not None]


def goes_on(outcome: Outcome) -> bool:
    """Is the job to go on after this, unless people have asked otherwise?"""
    return outcome.verb in ("reschedule", "release", "park")


def may_be_lost(outcome: Outcome) -> bool:
    """Giving back what never started loses nothing, whoever has it now: there is no handler to stop, no result to drop
    and, after a lost reply, no history to find it in."""
    return outcome.verb != "release" or outcome.attempt is not None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
