"""A verb of people on many jobs: in chunks, each in a transaction of its own, so that nobody waits long for a lock and
what is done stays done. Beside its row in the audit, a call has one that says what is left to do, as long as it is
under way; the transaction of each chunk moves it on. If whoever performs the call dies, that row goes silent, and a
worker takes the call over. The row names its holder, so one that was only slow can do no more."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.errors import Refused, RowLocked, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.audit import BulkOperation
from holdfast.model.filter import Filter, in_state_for, not_in_state_for, parse, text
from holdfast.model.job import Changed
from holdfast.model.lifecycle import REQUESTS, State
from holdfast.store.audit import NOTHING, BegunCall, Call, audit_record
from holdfast.store.columns import JobId, Row
from holdfast.store.engine import Database, Transaction
from holdfast.store.reads import CHUNK, Reads

STEPS = 1_000  # different instants at most that retried jobs are spread over
LOCKED = 3  # locked jobs in a chunk before we give up: each one makes us wait
SILENT = 20.0  # seconds without a sign of its holder after which a call is carried on by somebody else
NEWEST = 1_000  # calls of operators among which those on many jobs are looked for
SEEN_EVERY = 1.0  # seconds between two signs of a holder that finds no jobs to change

Told = Callable[[Changed], None]


@dataclass(frozen=True)
class Plan:
    """What a call does. `spread`: retried jobs are due evenly over so many seconds; `jobs`: so many of them, or 0 if
    they were not counted."""

    verb: str
    filter: Filter
    reason: str | None = None
    by: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    spread: float = 0.0
    jobs: int = 0

    def stored(self, now: datetime) -> str:
        """As JSON, with times that mean the same whenever it is read."""
        since = self.filter.since
        filter = replace(self.filter, since=now - since) if isinstance(since, timedelta) else self.filter
        return msgspec.json.encode({**vars(self), "filter": text(filter)}).decode()

    @classmethod
    def read(cls, stored: bytes) -> Plan:
        given = msgspec.json.decode(stored)
        if run_at := given["parameters"].get("run_at"):
            given["parameters"]["run_at"] = datetime.fromisoformat(run_at)
        return cls(**{**given, "filter": parse(given["filter"])})


class BulkCall:
    """A call that is under way, as its holder knows it."""

    def __init__(
        self, db: Database, id: int, holder: str, plan: Plan, reached: int | None = None, remaining: int | None = None
    ) -> None:  # fmt: skip
        self._db = db
        self._begun = BegunCall(db, id)
        self._holder = holder
        self._seen = time.monotonic()
        self.plan = plan
        self.reached = reached
        self.remaining = remaining
        self.stuck = False  # it has left out a job, and will come back to it

    def record(self, tx: Transaction, done: Changed, jobs: Sequence[JobId], ids: Sequence[JobId]) -> None:
        """It has come to these ids and changed or asked these jobs, in one of its transactions."""
        self._begun.record(tx, done, jobs)
        self._reach(tx, None if self.stuck else int(ids[-1]), len(ids))
        self._seen = time.monotonic()

    def seen(self) -> None:
        """Its holder lives, but has found nothing to change for a while."""
        if time.monotonic() - self._seen < SEEN_EVERY:
            return
        with self._db.transaction() as tx:
            self._reach(tx, None, 0)
        self._seen = time.monotonic()

    def end(self) -> None:
        with self._db.transaction() as tx:
            self._drop(tx)
            tx.rows("end_audit", id=self._begun.id)

    def abandon(self) -> None:
        """Nobody is to carry it on: whoever made it knows what became of it."""
        with suppress(StoreError, Refused), self._db.transaction() as tx:
            self._drop(tx)

    def _reach(self, tx: Transaction, reached: int | None, done: int) -> None:
        if not tx.rows("reach_bulk_call", id=self._begun.id, holder=self._holder, reached=reached, done=done):
            raise self._taken()

    def _drop(self, tx: Transaction) -> None:
        if not tx.rows("drop_bulk_call", id=self._begun.id, holder=self._holder):
            raise self._taken()

    def _taken(self) -> Refused:
        return Refused(
            f"this call gave no sign for {SILENT:g} s, so a worker carries it on: holdfast audit tells how far it is"
        )


class Act(Protocol):
    def __call__(
        self, verb: str, ids: Sequence[JobId], call: BulkCall, *, reason: str | None, by: str | None, **parameters: Any
    ) -> list[Row]:  # fmt: skip
        """Apply a verb to these jobs and record it, in one transaction."""
        ...


class BulkCalls:
    def __init__(self, db: Database, reads: Reads, act: Act) -> None:
        self._db = db
        self._reads = reads
        self._act = act

    def all(self, plan: Plan, told: Told | None = None) -> Changed:
        call = self._begin(plan)
        return self._performed(call, self._reads.matching(plan.filter), told=told)

    def some(self, plan: Plan, limit: int | None, told: Told | None = None) -> Changed:
        """The oldest, and only jobs in a state for it."""
        ids, others = self._oldest(plan, limit), not_in_state_for(plan.verb, plan.filter)
        unfit = Changed(0, 0 if others is None else self._reads.count(others))
        plan = Plan(**{**vars(plan), "jobs": len(ids)})
        call = self._begin(plan, unfit, len(ids), limit=limit, spread=plan.spread or None)
        done = self._performed(call, _chunks(ids), delays=spread_over(ids, plan.spread), told=told)
        return Changed(done.changed, done.refused + unfit.refused, done.asked)

    def newest(self, limit: int) -> list[BulkOperation]:
        """Those under way, and the newest that have ended."""
        now = self._reads.now()
        return [self._operation(row, now) for row in self._db.read("bulk_calls", window=NEWEST, limit=limit)]

    def _operation(self, row: Row, now: datetime) -> BulkOperation:
        codec = self._db.codec
        under_way, remaining = row.pop("plan"), row.pop("remaining")
        seen_at = codec.moment(row.pop("seen_at"))
        call = audit_record(codec, row)
        done = call.changed + call.asked
        if under_way is None or seen_at is None:
            return BulkOperation(call, "cut short" if call.ended_at is None else "ended", None, done, None)
        jobs = Plan.read(codec.json(under_way) or b"").jobs or None
        if jobs is not None and remaining is not None:
            done = jobs - remaining
        silent = (now - seen_at).total_seconds() > SILENT
        return BulkOperation(call, "silent" if silent else "under way", jobs, done, seen_at)

    def take_silent(self) -> BulkCall | None:
        """Take over a call whose holder gives no sign any more."""
        holder = str(uuid.uuid4())
        for row in self._db.write("take_bulk_call", holder=holder, minus_silent=-SILENT):
            plan = Plan.read(self._db.codec.json(row["plan"]) or b"")
            return BulkCall(self._db, row["id"], holder, plan, row["reached"], row["remaining"])
        return None

    def carry_on(self, call: BulkCall, stopping: Callable[[], bool]) -> Changed:
        """Perform the rest of it. When told to stop, leave it to others."""
        plan = call.plan
        if call.remaining is None:
            return self._performed(call, self._reads.matching(plan.filter, call.reached), stopping=stopping)
        ids = self._oldest(plan, call.remaining, call.reached or 0, call.seen)
        delays = spread_over(ids, plan.spread * len(ids) / max(1, plan.jobs))
        return self._performed(call, _chunks(ids), delays=delays, stopping=stopping)

    def _begin(
        self, plan: Plan, done: Changed = NOTHING, remaining: int | None = None, **parameters: Any
    ) -> BulkCall:  # fmt: skip
        made = Call(plan.verb, text(plan.filter), plan.by, plan.reason, {**plan.parameters, **parameters})
        holder, now = str(uuid.uuid4()), self._reads.now()
        with self._db.transaction() as tx:
            id = made.begin_on(tx, done)
            tx.rows("add_bulk_call", id=id, plan=plan.stored(now), holder=holder, remaining=remaining)
        return BulkCall(self._db, id, holder, plan, None, remaining)

    def _oldest(
        self, plan: Plan, limit: int | None, after: int = 0, step: Callable[[], None] = lambda: None
    ) -> list[JobId]:  # fmt: skip
        able = in_state_for(plan.verb, plan.filter)
        return [] if able is None else self._reads.oldest(able, limit, after=after, step=step)

    def _performed(
        self, call: BulkCall, chunks: Iterable[Sequence[JobId]], *, delays: dict[JobId, float] | None = None,
        told: Told | None = None, stopping: Callable[[], bool] | None = None,
    ) -> Changed:  # fmt: skip
        """How many jobs were changed, were in a state that does not allow it, or run and were asked. `told` is called
        after each chunk. `stopping` is asked before each one, by a worker that carries the call on."""
        total = NOTHING
        try:
            for ids in chunks:
                if stopping is not None and stopping():
                    return total
                if not ids:
                    call.seen()
                    continue
                done = outcome(call.plan.verb, ids, self._change(call, ids, delays))
                total = Changed(total.changed + done.changed, total.refused + done.refused, total.asked + done.asked)
                if told is not None:
                    told(total)
            call.end()
        except StoreUnavailable as error:
            # The database is away, so whoever made the call can't know how far it is. A lock is told, and nobody
            # expects that more is done then.
            if isinstance(error, RowLocked) and stopping is None:
                call.abandon()
            raise
        except BaseException:
            call.abandon()
            raise
        return total

    def _change(self, call: BulkCall, ids: Sequence[JobId], delays: dict[JobId, float] | None) -> list[Row]:
        try:
            return self._once(call, ids, delays)
        except (StoreUnavailable, ValueRefused):
            pass
        # Somebody holds a lock on one of them, there was a deadlock, or one was refused: then each job by itself. All
        # that can be changed are changed before a lock is reported.
        done: list[Row] = []
        locked: list[RowLocked] = []
        for id in ids:
            try:
                done += self._once(call, [id], delays)
            except RowLocked as error:
                call.stuck = True
                locked.append(error)
                if len(locked) == LOCKED:
                    break
        if locked:
            raise locked[0]
        return done

    def _once(self, call: BulkCall, ids: Sequence[JobId], delays: dict[JobId, float] | None) -> list[Row]:
        plan = call.plan
        given = {**plan.parameters, "delays": delays} if delays else plan.parameters
        return self._act(plan.verb, ids, call, reason=plan.reason, by=plan.by, **given)


def outcome(verb: str, ids: Sequence[JobId], rows: Sequence[Row]) -> Changed:
    """What a verb did to these jobs, by the rows it returned."""
    running = sum(row["state"] == State.RUNNING for row in rows) if verb in REQUESTS else 0
    return Changed(len(rows) - running, len(ids) - len(rows), running)


def _chunks(ids: Sequence[JobId]) -> Iterable[Sequence[JobId]]:
    return (ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK))


def spread_over(ids: Sequence[JobId], seconds: float) -> dict[JobId, float]:
    """In how many seconds each of these jobs is due: the first at once, the others at even distances. Many jobs share
    an instant, so that few statements set them. Nothing if they are all due at once."""
    steps = min(len(ids), STEPS)
    return {id: seconds * (n * steps // len(ids)) / steps for n, id in enumerate(ids)} if seconds else {}
