"""Crons: one row each. Whoever moves a cron on to its next tick enqueues the job, in the same transaction. So there is
one job a tick, however many workers try, and whichever of them die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from holdfast.model.cron import CronRecord, Step, correlation_of, cron_tag
from holdfast.model.job import Changed, NewJob
from holdfast.store.audit import Call
from holdfast.store.columns import Row, parameters
from holdfast.store.engine import Database, Transaction, Wakeups
from holdfast.store.reads import Reads
from holdfast.store.workers import Workers


class Crons:
    def __init__(self, db: Database, workers: Workers, reads: Reads, wakeups: Wakeups) -> None:
        self._db = db
        self._workers = workers
        self._reads = reads
        self._wakeups = wakeups

    def declare(self, cron: CronRecord) -> None:
        """Store what a worker's code declares. The next tick changes only if the schedule does."""
        with self._db.transaction() as tx:
            tx.rows(
                "declare_cron", name=cron.name, expression=cron.expression, timezone=cron.timezone,
                catch_up=cron.catch_up, queue=cron.queue, priority=cron.priority, max_attempts=cron.max_attempts,
                tags=list(cron.tags), next_at=self._db.codec.instant(cron.next_at),
            )  # fmt: skip

    def rename(self, name: str, aliases: Iterable[str]) -> None:
        """Rename a cron and its pause: under both names, each tick would have two jobs."""
        with self._db.transaction() as tx:
            for alias in aliases:
                tx.rows("rename_cron", name=name, alias=alias)
                tx.rows("rename_pause", name=name, alias=alias)
                tx.rows("drop_cron", name=alias)
                tx.rows("drop_pause", kind="cron", name=alias)

    def fire(self, cron: CronRecord, step: Step) -> str | None:
        """Take a tick and enqueue its job, both or neither; None: another worker took it, or there was none to take."""
        with self._db.transaction() as tx:
            taken = tx.rows(
                "advance_cron", name=cron.name, expression=cron.expression, timezone=cron.timezone,
                due=self._db.codec.instant(cron.next_at), tick=self._db.codec.instant(step.tick),
                next_at=self._db.codec.instant(step.next_at),
            )  # fmt: skip
            if not taken or step.tick is None:
                return None
            id = self._enqueue(tx, cron.name, taken[0], step.tick)
        self._wakeups.hint(taken[0]["queue"])
        return id

    def run(self, name: str, *, by: str | None = None, reason: str | None = None) -> str | None:
        """Enqueue a job of this cron now, apart from its schedule. None: there is no such cron."""
        with self._db.transaction() as tx:
            found = tx.rows("cron", name=name)
            if not found:
                return None
            id = self._enqueue(tx, name, found[0], None)
            Call("run_cron", name, by, reason, {"job": id}).record(tx, Changed(1, 0))
        self._wakeups.hint(found[0]["queue"])
        return id

    def _enqueue(self, tx: Transaction, name: str, cron: Row, tick: datetime | None) -> str:
        job = NewJob(
            task=name, args=b"{}", queue=cron["queue"], priority=cron["priority"], max_attempts=cron["max_attempts"],
            tags=self._db.codec.words(cron["tags"]), run_at=tick,
            correlation_id=cron_tag(name) if tick is None else correlation_of(name, tick),
        )  # fmt: skip
        [made] = tx.rows("enqueue", **parameters(job, self._db.codec))
        return str(made["id"])

    def all(self, *, with_workers: bool = False) -> list[CronRecord]:
        """Every cron; if asked, with the number of live workers that declare it."""
        rows = self._db.read("crons")
        declared: Counter[str] = Counter()
        if rows and with_workers:
            now = self._reads.now()
            declared.update(name for worker in self._workers.all() if worker.alive(now) for name in worker.crons)
        moments = ("next_at", "last_at", "paused_at", "paused_until", "now")
        return [
            CronRecord(
                **{
                    **row,
                    **{name: self._db.codec.moment(row[name]) for name in moments},
                    "tags": self._db.codec.words(row["tags"]),
                    "workers": declared[row["name"]],
                }
            )
            for row in rows
        ]
