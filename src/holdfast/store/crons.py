"""Crons: one row each. Whoever moves a cron on to its next tick enqueues the job, in the same transaction. So there is
one job a tick, however many workers try, and whichever of them die."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.model.cron import CronRecord, Step, correlation_of
from holdfast.model.job import Changed, NewJob
from holdfast.store.audit import Call
from holdfast.store.columns import Row, known, parameters
from holdfast.store.engine import Database, Transaction, Wakeups
from holdfast.store.reads import Reads
from holdfast.store.workers import Workers


class Crons:
    def __init__(self, db: Database, workers: Workers, reads: Reads, wakeups: Wakeups) -> None:
        self._db = db
        self._workers = workers
        self._reads = reads
        self._wakeups = wakeups

    def declare(self, cron: CronRecord) -> bool:
        """Store what a worker's code declares. The next tick changes only if the schedule does. False: people made a
        cron of this name."""
        return self._put(cron)

    def schedule(self, cron: CronRecord, reason: str | None = None, by: str | None = None) -> bool:
        """Store a cron that operators make, or change the one of this name. False: a task declares one of this name."""
        given = {"task": cron.task, "cron": cron.expression, "timezone": cron.timezone}
        done = self._put(cron, Call("schedule", cron.name, by, reason, given))
        self._wakeups.notify(workers=True)  # so that they look: its tick may be due before they would
        return done

    def _put(self, cron: CronRecord, call: Call | None = None) -> bool:
        with self._db.transaction() as tx:
            rows = tx.rows(
                "declare_cron", name=cron.name, task=cron.task,
                args=None if cron.stored_args is None else cron.stored_args.decode(),
                expression=cron.expression, timezone=cron.timezone, catch_up=cron.catch_up, queue=cron.queue,
                priority=cron.priority, max_attempts=cron.max_attempts, tags=list(cron.tags),
                next_at=self._db.codec.instant(cron.next_at),
            )  # fmt: skip
            if rows and call is not None:
                call.record(tx, Changed(1, 0))
        return bool(rows)

    def unschedule(self, name: str, reason: str | None = None, by: str | None = None) -> bool:
        """Remove a cron that operators made, and its pause. False: there is none of this name."""
        with self._db.transaction() as tx:
            gone = tx.rows("drop_cron", name=name, declared=False)
            if gone:
                tx.rows("drop_pause", kind="cron", name=name)
                Call("unschedule", name, by, reason).record(tx, Changed(1, 0))
        return bool(gone)

    def rename(self, name: str, aliases: Iterable[str]) -> None:
        """Rename a cron that a task declares, and its pause: under both names, each tick would have two jobs."""
        with self._db.transaction() as tx:
            for alias in aliases:
                found = tx.rows("cron", name=alias)
                if not found or found[0]["args"] is not None:
                    continue
                tx.rows("rename_cron", name=name, alias=alias)
                tx.rows("rename_pause", name=name, alias=alias)
                tx.rows("drop_cron", name=alias, declared=True)
                tx.rows("drop_pause", kind="cron", name=alias)

    def next_tick(self, tasks: Sequence[str], crons: Sequence[str]) -> float | None:
        """In how many seconds the first cron falls due that a worker with these tasks fires, which declare `crons`."""
        [row] = self._db.read("next_tick", tasks=list(tasks), crons=list(crons))
        next_at = self._db.codec.moment(row["next_at"])
        return None if next_at is None else (next_at - known(self._db.codec.moment(row["now"]))).total_seconds()

    def due(self, tasks: Sequence[str], crons: Sequence[str], most: int) -> list[CronRecord]:
        """Those of them that are due, about so many."""
        return [
            self._record(row) for row in self._db.read("due_crons", tasks=list(tasks), crons=list(crons), most=most)
        ]

    def fire(self, steps: Sequence[tuple[CronRecord, Step]]) -> dict[str, str]:
        """Take these ticks and enqueue their jobs, all or none. Returns the id of each cron's job; without one, another
        worker took the tick, or there was none to take."""
        ids: dict[str, str] = {}
        queues: list[str] = []
        with self._db.transaction() as tx:
            # By name: two workers that fire the same ones must not wait for each other.
            for cron, step in sorted(steps, key=lambda one: one[0].name):
                taken = tx.rows(
                    "advance_cron", name=cron.name, expression=cron.expression, timezone=cron.timezone,
                    due=self._db.codec.instant(cron.next_at), tick=self._db.codec.instant(step.tick),
                    next_at=self._db.codec.instant(step.next_at),
                )  # fmt: skip
                if taken and step.tick is not None:
                    ids[cron.name] = self._enqueue(tx, taken[0], step.tick)
                    queues.append(taken[0]["queue"])
        if queues:
            self._wakeups.tell(queues)
        return ids

    def run(self, name: str, *, by: str | None = None, reason: str | None = None) -> str | None:
        """Enqueue a job of this cron now, apart from its schedule. None: there is no such cron."""
        with self._db.transaction() as tx:
            found = tx.rows("cron", name=name)
            if not found:
                return None
            id = self._enqueue(tx, found[0], None)
            Call("run_cron", name, by, reason, {"job": id}, id).record(tx, Changed(1, 0))
        self._wakeups.hint(found[0]["queue"])
        return id

    def _enqueue(self, tx: Transaction, cron: Row, tick: datetime | None) -> str:
        job = NewJob(
            task=cron["task"], args=self._db.codec.json(cron["args"]) or b"{}", queue=cron["queue"],
            priority=cron["priority"], max_attempts=cron["max_attempts"], tags=self._db.codec.words(cron["tags"]),
            run_at=tick, correlation_id=correlation_of(cron["name"], cron["task"], tick),
        )  # fmt: skip
        [made] = tx.rows("enqueue", **parameters(job, self._db.codec))
        return str(made["id"])

    def all(self, *, with_workers: bool = False) -> list[CronRecord]:
        """Every cron; if asked, with the number of live workers that fire it."""
        rows = self._db.read("crons")
        declaring: Counter[str] = Counter()
        having: Counter[str] = Counter()  # the task
        if rows and with_workers:
            now = self._reads.now()
            for worker in self._workers.all():
                if worker.alive(now):
                    declaring.update(worker.crons)
                    having.update(worker.tasks)
        return [
            self._record(row, declaring[row["name"]] if row["args"] is None else having[row["task"]]) for row in rows
        ]

    def _record(self, row: Row, workers: int = 0) -> CronRecord:
        codec = self._db.codec
        row = dict(row)
        args = codec.json(row.pop("args"))
        moments = ("next_at", "last_at", "paused_at", "paused_until", "now")
        return CronRecord(
            **{
                **row,
                **{name: codec.moment(row[name]) for name in moments},
                "tags": codec.words(row["tags"]),
                "stored_args": args,
                "workers": workers,
            }
        )
