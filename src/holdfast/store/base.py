"""Store: the contract every place that keeps jobs fulfils, one method per verb. Read this file first.

What all stores share is written here once, in terms of a few primitives (`transaction`, `exchange`, …) that each
database provides in its own way. Every write that ends or changes an attempt carries the fence of its claim and says
`where state = 'running' and fence = …`; no row changed means the lease was lost. Times are compared by the database's
clock alone; a test passes `clock`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from holdfast import events
from holdfast.errors import LeaseLost, Refused, StoreError
from holdfast.model.filter import ALL, Filter
from holdfast.model.job import (
    DEFAULT_LEASE,
    Changed,
    Claimed,
    Depth,
    Enqueued,
    Held,
    Look,
    NewJob,
    Page,
    Request,
    Rescued,
    Thing,
    Wants,
)
from holdfast.model.lifecycle import IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.model.outcome import Crash, Error, Outcome, Verb
from holdfast.model.rescue import verdict
from holdfast.store.bar import bar, free
from holdfast.store.bulk import bulk
from holdfast.store.crons import KeepsCrons
from holdfast.store.depth import depths
from holdfast.store.find import arguments, chunks, page
from holdfast.store.reading import JobId as JobId
from holdfast.store.reading import Row as Row
from holdfast.store.stacks import KeepsStacks

RESCUE_BATCH = 20  # leases taken back in one transaction
RESCUE_ROUNDS = 50  # transactions in one call, while they find only leases with nothing left under them


class Ref(NamedTuple):
    """The right to end an attempt: a job and the fence it was claimed with."""

    id: JobId
    fence: str


class Transaction(Protocol):
    """An open transaction of ours: runs a statement by name."""

    def rows(self, name: str, /, **parameters: Any) -> list[Row]: ...


@dataclass(slots=True)
class Exchanged:
    """What one trip to the database brought: which outcomes found their lease gone, or another outcome recorded before,
    which of the finished jobs somebody waits for, in which queues jobs wait again, and what was claimed. `refused`: why
    nothing was, though the outcomes were recorded."""

    claimed: Claimed = field(default_factory=Claimed)
    refused: StoreError | None = None
    lost: list[Outcome] = field(default_factory=list)
    already: list[Outcome] = field(default_factory=list)
    awaited: list[JobId] = field(default_factory=list)
    requeued: set[str] = field(default_factory=set)


HandOut = Callable[[Claimed], None]


class Store(KeepsCrons, KeepsStacks):
    """Where jobs are kept."""

    can_listen: bool = False  # can it wake a sleeping worker?
    shown_url: str  # without secrets
    store_id: str = ""

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

    def pooled(self) -> bool:
        """Does something between us and the database share its sessions among clients?"""
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
    def exchange(
        self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str] = (),
        hand_out: HandOut | None = None,
    ) -> Exchanged:  # fmt: skip
        """Record these outcomes, all or none, and claim what is wanted: in one transaction, or the claim first.
        `drained`: fences with nothing left under them. `hand_out` is called with what was claimed as soon as that is
        sure; what is raised from then on concerns the outcomes alone."""

    @abstractmethod
    def claim_of(self, fence: str) -> list[Held]:
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
    def look(self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = ()) -> Look:
        """What the watchdog sees; marks the worker present."""

    def expire(self, limit: int = 1000) -> list[Row]:
        """Cancel queued jobs that were not started by their expiry."""
        with self.transaction() as tx:
            return tx.rows("expire", limit=limit)

    @abstractmethod
    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        """Retention: one bounded step. Returns how many were forgotten, and where to go on (None: done for now)."""

    # -- wake-ups: hints, never needed for correctness -------------------------------------------------------------

    def notify(self, queues: Iterable[str] = (), finished: Iterable[JobId] = (), requests: bool = False) -> None:
        """Tell listeners, after the commit: work waits in these queues, these jobs finished, people asked something.
        Coalesced; never fails."""

    @abstractmethod
    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        """Call `heard(kind, what)` for every wake-up until `stop()`; raises StoreUnavailable when it goes deaf.
        The first call comes once it listens: whoever looks then misses nothing. Kinds: `listening`; `queue` and its
        name (none: any); `lane` and a due job's queue, task and priority as JSON; `requests`; `finished` and an id;
        `changed`: something did."""

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
        self.notify(done.requeued, done.awaited)

    @abstractmethod
    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None) -> None:
        """Record success, fence-checked, on the caller's own open transaction: the effect and the outcome are one
        commit."""

    @abstractmethod
    async def asucceed_on(self, connection: Any, ref: Ref, result: bytes | None) -> None: ...

    @abstractmethod
    def user_transaction(self) -> AbstractContextManager[Any]:
        """A connection with an open transaction, for a handler's own writes: commits at the end."""

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
        return self.json(rows[0]["result"]), *asked

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

    # -- the watchdog --------------------------------------------------------------------------------------------

    def rescue(self, *, by_expiry: bool = True, dead: Sequence[str] = (), quarantine_after: int = 3) -> list[Rescued]:
        """Take back what silent workers held: leases past their end, and all leases of workers known to be dead.
        A bounded batch; call again while it returns any."""
        for _ in range(RESCUE_ROUNDS):
            with self.transaction() as tx:
                leases = tx.rows("expired_leases", by_expiry=by_expiry, dead=list(dead), limit=RESCUE_BATCH)
                rescued = [job for lease in leases for job in self._rescue_lease(tx, lease, quarantine_after)]
            if rescued or len(leases) < RESCUE_BATCH:
                return rescued
        return []

    def _rescue_lease(self, tx: Transaction, lease: Row, quarantine_after: int) -> Iterator[Rescued]:
        fence = str(lease["fence"])
        # Other jobs died with it if the worker had more in hand: then nobody knows whose fault it was.
        company = lease["held"] > 1 or lease["leases"] > 1
        ids = self.ids_of(lease["job_ids"])
        yield from self._taken_back(tx, ids, fence, lease["worker"], company, quarantine_after)
        tx.rows("drop_leases", fences=[fence])

    def crashed(self, crashes: Sequence[tuple[Ref, Crash]], worker: str, *, quarantine_after: int) -> list[Rescued]:
        """Take back what ran in a process that died, of a worker that lives."""
        with self.transaction() as tx:
            return [
                job
                for ref, crash in crashes
                for job in self._taken_back(
                    tx, [ref.id], ref.fence, worker, crash.company, quarantine_after, crash.cause, crash.output
                )
            ]

    def holds(self, held: Held) -> bool:
        """Does this job still run under this claim?"""
        rows = self.read("get", id=held.id)
        return bool(rows) and rows[0]["state"] == State.RUNNING and str(rows[0]["fence"]) == held.fence

    def _taken_back(
        self, tx: Transaction, ids: list[JobId], fence: str, worker: str, company: bool, quarantine_after: int,
        cause: str | None = None, output: str | None = None,
    ) -> Iterator[Rescued]:  # fmt: skip
        for job in tx.rows("leased_jobs", ids=ids, fence=fence):
            end = verdict(
                attempt=job["attempt"],
                max_attempts=job["max_attempts"],
                crashes=job["crashes"],
                suspicion=job["suspicion"],
                cancel=bool(job["cancel_requested"]),
                pause=bool(job["pause_requested"]),
                company=company,
                quarantine_after=quarantine_after,
                cause=cause,
            )
            told = {"error_code": end.error.code, "error_message": end.error.message}
            if not tx.rows(
                "rescue", id=job["id"], fence=fence, state=end.state.value, suspect=end.suspect, lapse=end.lapse,
                attempt=end.attempt, crashes=end.crashes, suspicion=end.suspicion, **told,
            ):  # fmt: skip
                continue
            tx.rows(
                "attempt", id=job["id"], fence=fence, life=job["life"], number=job["attempt"],
                worker=worker, outcome="crashed" if end.charged else "lost",
                started_at=job["started_at"], traceback=None, output=output, **told,
            )  # fmt: skip
            yield Rescued(
                str(job["id"]), job["queue"], end.state, job["attempt"], job["max_attempts"], end.charged, worker
            )

    @abstractmethod
    def ids_of(self, stored: Any) -> list[JobId]:
        """The job ids of a lease, as they are stored."""

    # -- people ----------------------------------------------------------------------------------------------------

    def pause(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """Hold a queued job; a running one is asked to park. Returns the state it is in now."""
        return self._act("pause", job_id, reason=reason, by=by)

    def resume(self, job_id: str) -> State:
        return self._act("resume", job_id)

    def cancel(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """End a job that does not run; a running one is asked to stop. Returns the state it is in now."""
        return self._act("cancel", job_id, reason=reason, by=by)

    def retry(self, job_id: str) -> State:
        return self._act("retry", job_id)

    def change(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
    ) -> State:
        """Change what a queued job waits for."""
        return self._act("change", job_id, priority=priority, delay=delay, run_at=run_at, tags=tags)

    def delete(self, job_id: str, *, unfinished: bool = True) -> State:
        """Forget a job and its history, one that has not finished only if allowed. Returns the state it was in."""
        return self._act("delete", job_id, unfinished=unfinished)

    def bulk(
        self, verb: str, filter: Filter, *, told: Callable[[Changed], None] | None = None, **parameters: Any
    ) -> Changed:
        """Pause, resume, cancel, retry, change or delete all jobs the filter means. `told` hears how far it is."""
        return bulk(self, verb, filter, told=told, **parameters)

    def matching(self, filter: Filter) -> Iterator[list[JobId]]:
        """All jobs the filter means, in chunks of ids, newest first. Reads on as it is asked for more."""
        return chunks(self, filter)

    def _act(self, verb: str, job_id: str, **parameters: Any) -> State:
        rows = self.act(verb, [self.key_of(job_id)], **parameters)
        if not rows:
            found = self.get(job_id).state
            needed = f"must be {_possible_in(verb)}"
            if parameters.get("unfinished") is False:
                needed = "must have finished; cancel it first"
            raise Refused(f"can't {verb} job {job_id}: it is {found}, and {needed}")
        return State(rows[0]["state"])

    def act(self, verb: str, ids: Sequence[JobId], **parameters: Any) -> list[Row]:
        """One verb on these jobs, in one transaction. Returns those that changed: what was not in a state for it stays
        as it is."""
        if verb == "change":
            tags = parameters["tags"]
            parameters |= {"run_at": self.instant(parameters["run_at"]), "tags": None if tags is None else list(tags)}
        if verb in REQUESTS:
            parameters = {"reason": None, "by": None} | parameters
        with self.transaction() as tx:
            rows = tx.rows(verb, ids=list(ids), **parameters)
            if rows and verb == "delete":
                forget(tx, [row["id"] for row in rows])
            if rows and verb == "retry":
                tx.rows("list_pending", ids=[row["id"] for row in rows])
        if rows and verb in ("resume", "retry", "change"):
            self.notify({row["queue"] for row in rows})
        if any(row["state"] == State.RUNNING for row in rows):
            self.notify(requests=True)
        if verb == "cancel" and (awaited := [row["id"] for row in rows if row["awaited"]]):
            self.notify(finished=awaited)
        for row in rows:
            events.emit(events.VERBS[verb], job=str(row["id"]), queue=row["queue"], state=row["state"])
        return rows

    def hold(
        self,
        kind: str,
        name: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        delay: float | None = None,
        filter: Filter = ALL,
    ) -> int:
        """Pause a queue, a task or what a filter means: no new attempts start, whichever worker looks. What runs
        goes on. Returns how many jobs a filter has set aside."""
        with self.transaction() as tx:
            tx.rows(
                "hold", kind=kind, name=name, by=by, reason=reason, until=self.instant(until), delay=delay,
                queues=list(filter.queues) or None, tasks=list(filter.tasks) or None, arguments=arguments(filter),
            )  # fmt: skip
        events.emit("held", kind=kind, name=name, by=by, reason=reason)
        return bar(self, filter) if kind == "filter" else 0

    def free(self) -> int:
        """Let go of jobs set aside by a pause by filter that is over: a bounded batch. Call while it returns any."""
        looked_at, queues = free(self)
        if queues:
            self.notify(set(queues))
            events.emit("freed", count=len(queues))
        return looked_at

    def clear_heads(self, most: int = 10_000) -> int:
        """Set aside what pauses by filter mean of the jobs that are due first, about so many; returns how many."""
        return bar(self, ALL, most=most)

    def let_go(self, kind: str, name: str, *, next_at: datetime | None = None) -> bool:
        """End the pause of a queue, a task, a filter or a cron (it goes on with this tick). False: there was none."""
        with self.transaction() as tx:
            ended = bool(tx.rows("let_go", kind=kind, name=name))
            if ended and next_at is not None:
                tx.rows("skip_cron", name=name, next_at=self.instant(next_at))
        if ended:
            while kind == "filter" and self.free():
                pass
            # A task's jobs may wait in any queue; an empty name wakes everyone.
            self.notify([name if kind == "queue" else ""])
            events.emit("let_go", kind=kind, name=name)
        return ended

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
        with self.transaction() as tx:
            tx.rows("await", id=self.key_of(job_id))

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

    def forget_workers(self, older_than: float) -> None:
        with self.transaction() as tx:
            tx.rows("forget_workers", minus_age=-older_than)


def forget(tx: Transaction, ids: Sequence[JobId]) -> None:
    """All that is kept of these jobs beside their rows."""
    for name in ("delete_attempts", "delete_steps", "delete_pending"):
        tx.rows(name, ids=list(ids))


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


def with_output(succeeded: Sequence[Outcome]) -> list[Outcome]:
    """Those that leave what they wrote."""
    return [outcome for outcome in succeeded if outcome.output is not None]


def _possible_in(verb: str) -> str:
    states = IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        states |= {State.RUNNING}
    return " or ".join(state for state in State if state in states)


def may_be_lost(outcome: Outcome) -> bool:
    """Giving back what never started loses nothing, whoever has it now: there is no handler to stop, no result to drop
    and, after a lost reply, no history to find it in."""
    return outcome.verb != "release" or outcome.attempt is not None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
