"""Pauses of queues, tasks, crons, and of what a filter means: durable, with who asked, why, and until when."""

from __future__ import annotations

from datetime import datetime

from holdfast import events
from holdfast.model.job import COUNTED, Pause
from holdfast.store.columns import known
from holdfast.store.database import Database
from holdfast.store.filter_pauses import changed, hold_waiting, let_go
from holdfast.store.wakeups import Wakeups


class Pauses:
    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._wakeups = wakeups

    def all(self, *, count: bool = True) -> list[Pause]:
        """What is paused. `count`: with the number of jobs that a filter holds."""
        moment = self._db.codec.moment
        return [
            Pause(**{**row, "until": moment(row["until"]), "created_at": known(moment(row["created_at"]))})
            for row in self._db.read("pauses", most=COUNTED + 1 if count else 0)
        ]

    def add(
        self,
        kind: str,
        name: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        delay: float | None = None,
    ) -> int:
        """Pause a queue, a task, a cron or the jobs that a filter means: no worker starts new attempts. Running jobs
        continue. Returns how many jobs a filter's pause holds."""
        with self._db.transaction() as tx:
            until_at = self._db.codec.instant(until)
            tx.rows("add_pause", kind=kind, name=name, by=by, reason=reason, until=until_at, delay=delay)
            if kind == "filter":
                changed(tx)
        events.emit("held", kind=kind, name=name, by=by, reason=reason)
        return hold_waiting(self._db, name=name) if kind == "filter" else 0

    def hold_heads(self, most: int = 10_000) -> int:
        """Hold the jobs at the heads of lanes that pauses by filter mean, about so many; returns how many."""
        return hold_waiting(self._db, most=most)

    def let_go(self) -> int:
        """Let go of jobs whose hold has ended, a bounded batch; returns how many. Call again while it returns any."""
        judged, queues = let_go(self._db)
        if queues:
            self._wakeups.notify(set(queues))
            events.emit("freed", count=len(queues))
        return judged

    def drop(self, kind: str, name: str, *, next_at: datetime | None = None) -> bool:
        """End the pause of a queue, a task, a filter or a cron (which continues with this tick). False: there was
        none."""
        with self._db.transaction() as tx:
            ended = bool(tx.rows("drop_pause", kind=kind, name=name))
            if ended and kind == "filter":
                changed(tx)
            if ended and next_at is not None:
                tx.rows("skip_cron", name=name, next_at=self._db.codec.instant(next_at))
        if ended:
            while kind == "filter" and self.let_go():
                pass
            # A task's jobs may wait in any queue; an empty name wakes everyone.
            self._wakeups.notify([name if kind == "queue" else ""])
            events.emit("let_go", kind=kind, name=name)
        return ended
