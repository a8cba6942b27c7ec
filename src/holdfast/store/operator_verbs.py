"""The verbs of people: on one job, and on all jobs that a filter means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast import events
from holdfast.errors import Refused, ValueRefused
from holdfast.model.filter import Filter
from holdfast.model.job import Changed, NewJob
from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.store.audit import Call
from holdfast.store.bulk_calls import BulkCall, BulkCalls, Plan, Told, outcome
from holdfast.store.columns import JobId, Row, key_of, parameters
from holdfast.store.engine import Database, Transaction, Wakeups
from holdfast.store.reads import Reads

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


class OperatorVerbs:
    def __init__(self, db: Database, reads: Reads, wakeups: Wakeups) -> None:
        self._db = db
        self._reads = reads
        self._wakeups = wakeups
        self.bulk_calls = BulkCalls(db, reads, self.act)

    def pause(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """Pause a queued job; ask a running one to park. Returns the state it is in now."""
        return self._act("pause", job_id, reason, by)

    def resume(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        return self._act("resume", job_id, reason, by)

    def cancel(self, job_id: str, reason: str | None = None, by: str | None = None) -> State:
        """End a job that does not run; ask a running one to stop. Returns the state it is in now."""
        return self._act("cancel", job_id, reason, by)

    def retry(
        self, job_id: str, reason: str | None = None, by: str | None = None, *, queue: str | None = None
    ) -> State:
        """Another life for a finished job, in another queue if one is given."""
        return self._act("retry", job_id, reason, by, queue=queue)

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
        told: Told | None = None,
        counted: int = 0,
        **parameters: Any,
    ) -> Changed:
        """Pause, resume, cancel, retry, change or delete all jobs that the filter matches. `told` is called with the
        progress. `counted`: how many they are, for whoever watches it."""
        return self.bulk_calls.all(Plan(verb, filter, reason, by, parameters, jobs=counted), told)

    def bulk_some(
        self,
        verb: str,
        filter: Filter,
        reason: str | None = None,
        by: str | None = None,
        *,
        limit: int | None,
        spread: float = 0.0,
        told: Told | None = None,
        **parameters: Any,
    ) -> Changed:
        """Apply a verb to the oldest `limit` jobs that the filter matches and that are in a state for it. `spread`:
        retried jobs are due evenly over so many seconds. Jobs in another state are counted as refused, as by `bulk`."""
        return self.bulk_calls.some(Plan(verb, filter, reason, by, parameters, spread), limit, told)

    def replay(
        self, job_id: str, new: NewJob, reason: str | None = None, by: str | None = None, *, edited: Sequence[str] = ()
    ) -> str:  # fmt: skip
        """Enqueue a job, which has no key, in the manner of this one; `edited` are the arguments that differ. Returns
        its id."""
        with self._db.transaction() as tx:
            [made] = tx.rows("enqueue", **parameters(new, self._db.codec))
            id = str(made["id"])
            Call("replay", f"id:{job_id}", by, reason, {"job": id, "edited": list(edited) or None}, job_id).record(
                tx, Changed(1, 0)
            )
        self._wakeups.hint(new.queue)
        return id

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
        if verb == "delete" and job.source is not None:
            if job.state in FINISHED:
                return f"its row in {job.source} does not say yet that it is {job.state}; try again"
            return f"it is {job.state}, and so says its row in {job.source}: cancel it first, or delete the row"
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

    def act(self, verb: str, ids: Sequence[JobId], call: Call | BulkCall, **parameters: Any) -> list[Row]:
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
        self, verb: str, ids: Sequence[JobId], call: Call | BulkCall, *, reason: str | None = None,
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
            call.record(tx, outcome(verb, ids, rows), [row["id"] for row in rows], ids)
        if rows and verb in ("resume", "retry", "change"):
            self._wakeups.tell([row["queue"] for row in rows if row["state"] != State.PAUSED])
        if any(row["state"] == State.RUNNING for row in rows):
            self._wakeups.notify(requests=True)
        if verb == "cancel" and (awaited := [row["id"] for row in rows if row["awaited"]]):
            self._wakeups.notify(finished=awaited)
        for row in rows:
            events.emit(events.VERBS[verb], job=str(row["id"]), queue=row["queue"], state=row["state"])
        return rows


def _retry(
    tx: Transaction, ids: list[JobId], delays: Mapping[JobId, float] | None = None, queue: str | None = None
) -> list[Row]:
    """`delays`: seconds until a job is due; without one it is due at once. `queue`: another one than it was in."""
    rows = tx.rows("retry", ids=ids)
    if len(rows) < len(ids):  # the keys of some may have gone to other jobs since
        tx.rows("yield_keys", ids=ids)
        tx.rows("retake_keys", ids=ids)
        rows += tx.rows("retry", ids=ids)
    if rows:
        tx.rows("list_pending", ids=[row["id"] for row in rows])
    moved: dict[float | None, list[JobId]] = {}
    for row in rows:
        delay = (delays or {}).get(row["id"]) or None
        if delay or queue:
            moved.setdefault(delay, []).append(row["id"])
    for delay, some in moved.items():
        tx.rows("change", ids=some, queue=queue, delay=delay, priority=None, run_at=None, tags=None)
    return [{**row, "queue": queue or row["queue"]} for row in rows]


def _possible_in(verb: str) -> list[State]:
    states = IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        states |= {State.RUNNING}
    return [state for state in State if state in states]
