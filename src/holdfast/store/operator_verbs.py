"""The part of a Store by which people steer: one job, all that a filter means, a queue, a task."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast import events
from holdfast.errors import Refused, ValueRefused
from holdfast.model.filter import Filter
from holdfast.model.job import Changed
from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.store.bulk import bulk
from holdfast.store.columns import JobId, Row
from holdfast.store.filter_pauses import changed, hold_waiting, let_go
from holdfast.store.find import chunks
from holdfast.store.reads import Reading

if TYPE_CHECKING:
    from holdfast.store.base import Transaction


class OperatorVerbs(Reading):
    if TYPE_CHECKING:  # what the rest of a Store brings

        @abstractmethod
        def transaction(self) -> AbstractContextManager[Transaction]: ...
        @abstractmethod
        def notify(
            self, queues: Iterable[str] = (), finished: Iterable[JobId] = (), *, requests: bool = False
        ) -> None: ...
        @abstractmethod
        def tell(self, queues: Sequence[str]) -> None: ...

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
            raise Refused(f"can't {verb} job {job_id}: {self._why_not(verb, job_id, **parameters)}")
        return State(rows[0]["state"])

    def _why_not(self, verb: str, job_id: str, *, unfinished: bool = True, **_: Any) -> str:
        job = self.get(job_id)
        possible = [state for state in _possible_in(verb) if unfinished or state in FINISHED]
        if verb == "retry" and job.key is not None and job.state in possible:
            held = self.read("key_held", task=job.task, key=job.key)
            if held and str(held[0]["id"]) != job.id:
                there = f"job {held[0]['id']}, which is {held[0]['state']}"
                return f"its key {job.key!r} went to {there}, and equal jobs are not unfinished at the same time"
        if job.state in possible:
            return f"it was not {job.state} yet when this was asked; try again"
        needed = f"must be {' or '.join(possible)}" if unfinished else "must have finished; cancel it first"
        return f"it is {job.state}, and {needed}"

    def act(self, verb: str, ids: Sequence[JobId], **parameters: Any) -> list[Row]:
        """One verb on these jobs, in one transaction. Returns those that changed: what was not in a state for it stays
        as it is."""
        try:
            return self._act_on(verb, ids, **parameters)
        except ValueRefused:
            if verb != "retry":
                raise
        # Another took one of their keys in the very moment it was free: now that one is there to be seen.
        return self._act_on(verb, ids, **parameters)

    def _act_on(self, verb: str, ids: Sequence[JobId], **parameters: Any) -> list[Row]:
        if verb == "change":
            tags = parameters["tags"]
            parameters |= {
                "run_at": self.codec.instant(parameters["run_at"]),
                "tags": None if tags is None else list(tags),
            }
        if verb in REQUESTS:
            parameters = {"reason": None, "by": None} | parameters
        with self.transaction() as tx:
            rows = _retry(tx, list(ids)) if verb == "retry" else tx.rows(verb, ids=list(ids), **parameters)
            if rows and verb == "delete":
                forget(tx, [row["id"] for row in rows])
        if rows and verb in ("resume", "retry", "change"):
            self.tell([row["queue"] for row in rows])
        if any(row["state"] == State.RUNNING for row in rows):
            self.notify(requests=True)
        if verb == "cancel" and (awaited := [row["id"] for row in rows if row["awaited"]]):
            self.notify(finished=awaited)
        for row in rows:
            events.emit(events.VERBS[verb], job=str(row["id"]), queue=row["queue"], state=row["state"])
        return rows

    def add_pause(
        self,
        kind: str,
        name: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        delay: float | None = None,
    ) -> int:
        """Pause a queue, a task, a cron or the jobs that a filter means: no new attempts start, whichever worker looks.
        What runs goes on. Returns how many jobs are held by a filter's pause."""
        with self.transaction() as tx:
            tx.rows(
                "add_pause", kind=kind, name=name, by=by, reason=reason, until=self.codec.instant(until), delay=delay
            )
            if kind == "filter":
                changed(tx)
        events.emit("held", kind=kind, name=name, by=by, reason=reason)
        return hold_waiting(self, name=name) if kind == "filter" else 0

    def hold_heads(self, most: int = 10_000) -> int:
        """Hold the jobs at the heads of lanes that pauses by filter mean, about so many; returns how many."""
        return hold_waiting(self, most=most)

    def let_go(self) -> int:
        """Let go of jobs whose hold has ended, a bounded batch; returns how many. Call again while it returns any."""
        judged, queues = let_go(self)
        if queues:
            self.notify(set(queues))
            events.emit("freed", count=len(queues))
        return judged

    def drop_pause(self, kind: str, name: str, *, next_at: datetime | None = None) -> bool:
        """End the pause of a queue, a task, a filter or a cron (it goes on with this tick). False: there was none."""
        with self.transaction() as tx:
            ended = bool(tx.rows("drop_pause", kind=kind, name=name))
            if ended and kind == "filter":
                changed(tx)
            if ended and next_at is not None:
                tx.rows("skip_cron", name=name, next_at=self.codec.instant(next_at))
        if ended:
            while kind == "filter" and self.let_go():
                pass
            # A task's jobs may wait in any queue; an empty name wakes everyone.
            self.notify([name if kind == "queue" else ""])
            events.emit("let_go", kind=kind, name=name)
        return ended


def _retry(tx: Transaction, ids: list[JobId]) -> list[Row]:
    rows = tx.rows("retry", ids=ids)
    if len(rows) < len(ids):  # keys of some may have gone to others since
        tx.rows("yield_keys", ids=ids)
        tx.rows("retake_keys", ids=ids)
        rows += tx.rows("retry", ids=ids)
    if rows:
        tx.rows("list_pending", ids=[row["id"] for row in rows])
    return rows


def forget(tx: Transaction, ids: Sequence[JobId]) -> None:
    """All that is kept of these jobs beside their rows."""
    for name in ("delete_attempts", "delete_steps", "delete_pending"):
        tx.rows(name, ids=list(ids))


def _possible_in(verb: str) -> list[State]:
    states = IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        states |= {State.RUNNING}
    return [state for state in State if state in states]
