"""The verbs of people: on one job, and on all jobs that a filter means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast import events
from holdfast.errors import Refused, RowLocked, StoreUnavailable, ValueRefused
from holdfast.model.filter import Filter, in_state_for, text
from holdfast.model.job import Changed
from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.store.audit import NOTHING, BegunCall, Call
from holdfast.store.columns import JobId, Row, key_of
from holdfast.store.engine import Database, Transaction, Wakeups
from holdfast.store.reads import CHUNK, Reads

if TYPE_CHECKING:
    from collections.abc import Iterable


# What time ends: jobs that were not started by their expiry, and what finished long ago. Each call is a bounded step.


class Retention:
    def __init__(self, db: Database) -> None:
        self._db = db

    def expire(self, limit: int = 1000) -> list[Row]:
        """Cancel queued jobs that were not started by their expiry."""
        with self._db.transaction() as tx:
            return tx.rows("expire", limit=limit)

    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        """Forget jobs that finished so many seconds ago, along the ids. Returns how many were forgotten, and where to
        go on (None: done for now, what comes next is too young)."""
        # Look first: only if there may be something to forget does it write.
        [step] = self._db.read("purge_step", after_id=after_id, limit=limit, minus_youngest=-min(finished, failed))
        if step["reached"] is None:
            return 0, None
        with self._db.transaction() as tx:
            gone = tx.rows(
                "purge", after_id=after_id, reached=step["reached"], minus_finished=-finished, minus_failed=-failed
            )
            forget(tx, [row["id"] for row in gone])
        return len(gone), None if step["young"] else step["reached"]

    def drop_pending(self, limit: int = 1000) -> int:
        """Take finished jobs off the list of those with work pending. Returns how many."""
        return len(self._db.write("drop_pending", limit=limit))


def forget(tx: Transaction, ids: Sequence[JobId]) -> None:
    """All that is kept of these jobs beside their rows."""
    if ids:
        for name in ("delete_attempts", "delete_steps", "delete_pending"):
            tx.rows(name, ids=list(ids))


# The verbs of people, on many jobs: in chunks, each in its own transaction, so that nobody waits long for a lock and
# what is done stays done if the rest fails.

STEPS = 1_000  # different instants at most that retried jobs are spread over
LOCKED = 3  # locked jobs in a chunk before we give up: each one makes us wait


def bulk(
    verbs: OperatorVerbs, chunks: Iterable[Sequence[JobId]], verb: str, call: BegunCall, *,
    told: Callable[[Changed], None] | None = None, **parameters: Any,
) -> Changed:  # fmt: skip
    """How many jobs were changed, were in a state that does not allow it, or run and were asked. `told` is called after
    each chunk."""
    total = NOTHING
    for ids in chunks:
        try:
            rows = verbs.act(verb, ids, call, **parameters)
        except (StoreUnavailable, ValueRefused):
            rows = _one_by_one(verbs, verb, ids, call, parameters)
        done = _done(verb, ids, rows)
        total = Changed(total.changed + done.changed, total.refused + done.refused, total.asked + done.asked)
        if told is not None:
            told(total)
    call.end()
    return total


def _one_by_one(
    verbs: OperatorVerbs, verb: str, ids: Sequence[JobId], call: BegunCall, parameters: dict[str, Any]
) -> list[Row]:
    """Somebody holds a lock on one of them, there was a deadlock, or one was refused: then each job by itself. All that
    can be changed are changed before a lock is reported."""
    done: list[Row] = []
    locked: list[RowLocked] = []
    for id in ids:
        try:
            done += verbs.act(verb, [id], call, **parameters)
        except RowLocked as error:
            locked.append(error)
            if len(locked) == LOCKED:
                break
    if locked:
        raise locked[0]
    return done


def _done(verb: str, ids: Sequence[JobId], rows: Sequence[Row]) -> Changed:
    """What a verb did to these jobs, by the rows it returned."""
    running = sum(row["state"] == State.RUNNING for row in rows) if verb in REQUESTS else 0
    return Changed(len(rows) - running, len(ids) - len(rows), running)


class OperatorVerbs:
    def __init__(self, db: Database, reads: Reads, wakeups: Wakeups) -> None:
        self._db = db
        self._reads = reads
        self._wakeups = wakeups

    def pause(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """Pause a queued job; ask a running one to park. Returns the state it is in now."""
        return self._act("pause", job_id, reason, by)

    def resume(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        return self._act("resume", job_id, reason, by)

    def cancel(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """End a job that does not run; ask a running one to stop. Returns the state it is in now."""
        return self._act("cancel", job_id, reason, by)

    def retry(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        return self._act("retry", job_id, reason, by)

    def change(
        self,
        job_id: str,
        reason: str | None = None,
        by: str | None = None,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
    ) -> State:
        """Change the queue, priority, due time or tags of a job that is queued or paused."""
        given = {"queue": queue, "priority": priority, "delay": delay, "run_at": run_at, "tags": tags}
        return self._act("change", job_id, reason, by, **given)

    def delete(
        self, job_id: str, reason: str | None = None, by: str | None = None, *, unfinished: bool = True
    ) -> State:
        """Delete a job and its history; one that has not finished only if allowed. Returns the state it was in."""
        return self._act("delete", job_id, reason, by, unfinished=unfinished)

    def bulk(
        self,
        verb: str,
        filter: Filter,
        reason: str | None = None,
        by: str | None = None,
        *,
        told: Callable[[Changed], None] | None = None,
        **parameters: Any,
    ) -> Changed:
        """Pause, resume, cancel, retry, change or delete all jobs that the filter matches. `told` is called with the
        progress."""
        call = Call(verb, text(filter), by, reason, parameters).begin(self._db)
        return bulk(self, self._reads.matching(filter), verb, call, told=told, reason=reason, by=by, **parameters)

    def retry_some(
        self,
        filter: Filter,
        reason: str | None = None,
        by: str | None = None,
        *,
        limit: int | None,
        spread: float,
        told: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Retry the oldest `limit` jobs that the filter matches and that can be retried, evenly over `spread`
        seconds."""
        able = in_state_for("retry", filter)
        ids = [] if able is None else self._reads.oldest(able, limit)
        chunks = [ids[start : start + CHUNK] for start in range(0, len(ids), CHUNK)]
        call = Call("retry", text(filter), by, reason, {"limit": limit, "spread": spread}).begin(self._db)
        return bulk(
            self, chunks, "retry", call, told=told, reason=reason, by=by, delays=spread_over(ids, spread)
        )  # fmt: skip

    def await_finish(self, job_id: str) -> None:
        """Ask whoever finishes this job to say so."""
        self._db.write("await", id=key_of(job_id))  # at once: a claim passes over a row that is locked

    def _act(self, verb: str, job_id: str, reason: str | None, by: str | None, **parameters: Any) -> State:
        call = Call(verb, f"id:{job_id}", by, reason, parameters, job_id)
        rows = self.act(verb, [key_of(job_id)], call, reason=reason, by=by, **parameters)
        if not rows:
            raise Refused(f"can't {verb} job {job_id}: {self._why_not(verb, job_id, **parameters)}")
        return State(rows[0]["state"])

    def _why_not(self, verb: str, job_id: str, *, unfinished: bool = True, **_: Any) -> str:
        job = self._reads.get(job_id)
        possible = [state for state in _possible_in(verb) if unfinished or state in FINISHED]
        if verb == "retry" and job.key is not None and job.state in possible:
            held = self._db.read("key_held", task=job.task, key=job.key)
            if held and str(held[0]["id"]) != job.id:
                there = f"job {held[0]['id']}, which is {held[0]['state']}"
                return f"its key {job.key!r} went to {there}, and equal jobs are not unfinished at the same time"
        if job.state in possible:
            return f"it was not {job.state} yet when this was asked; try again"
        needed = f"must be {' or '.join(possible)}" if unfinished else "must have finished; cancel it first"
        return f"it is {job.state}, and {needed}"

    def act(self, verb: str, ids: Sequence[JobId], call: Call | BegunCall, **parameters: Any) -> list[Row]:
        """Apply a verb to these jobs, and record it as part of a call, in one transaction. Returns those that changed;
        jobs in other states stay as they are."""
        try:
            return self._act_on(verb, ids, call, **parameters)
        except ValueRefused:
            if verb != "retry":
                raise
        # Another job took one of their keys at the moment it was free. Now that job can be seen.
        return self._act_on(verb, ids, call, **parameters)

    def _act_on(
        self, verb: str, ids: Sequence[JobId], call: Call | BegunCall, *, reason: str | None = None,
        by: str | None = None, **parameters: Any,
    ) -> list[Row]:  # fmt: skip
        if verb == "change":
            tags = parameters["tags"]
            parameters |= {
                "run_at": self._db.codec.instant(parameters["run_at"]),
                "tags": None if tags is None else list(tags),
            }
        if verb in REQUESTS:
            parameters |= {"reason": reason, "by": by}
        with self._db.transaction() as tx:
            rows = (
                _retry(tx, list(ids), **parameters) if verb == "retry" else tx.rows(verb, ids=list(ids), **parameters)
            )
            if rows and verb == "delete":
                forget(tx, [row["id"] for row in rows])
            call.record(tx, _done(verb, ids, rows))
        if rows and verb in ("resume", "retry", "change"):
            self._wakeups.tell([row["queue"] for row in rows if row["state"] != State.PAUSED])
        if any(row["state"] == State.RUNNING for row in rows):
            self._wakeups.notify(requests=True)
        if verb == "cancel" and (awaited := [row["id"] for row in rows if row["awaited"]]):
            self._wakeups.notify(finished=awaited)
        for row in rows:
            events.emit(events.VERBS[verb], job=str(row["id"]), queue=row["queue"], state=row["state"])
        return rows


def spread_over(ids: Sequence[JobId], seconds: float) -> dict[JobId, float]:
    """In how many seconds each of these jobs is due: the first at once, the others at even distances. Many jobs share
    an instant, so that few statements set them."""
    steps = min(len(ids), STEPS)
    return {id: seconds * (n * steps // len(ids)) / steps for n, id in enumerate(ids)} if seconds else {}


def _retry(tx: Transaction, ids: list[JobId], delays: Mapping[JobId, float] | None = None) -> list[Row]:
    """`delays`: seconds until a job is due; without one it is due at once."""
    rows = tx.rows("retry", ids=ids)
    if len(rows) < len(ids):  # the keys of some may have gone to other jobs since
        tx.rows("yield_keys", ids=ids)
        tx.rows("retake_keys", ids=ids)
        rows += tx.rows("retry", ids=ids)
    if rows:
        tx.rows("list_pending", ids=[row["id"] for row in rows])
    later: dict[float, list[JobId]] = {}
    for row in rows:
        if delay := (delays or {}).get(row["id"]):
            later.setdefault(delay, []).append(row["id"])
    for delay, put_off in later.items():
        tx.rows("change", ids=put_off, queue=None, delay=delay, priority=None, run_at=None, tags=None)
    return rows


def _possible_in(verb: str) -> list[State]:
    states = IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        states |= {State.RUNNING}
    return [state for state in State if state in states]
