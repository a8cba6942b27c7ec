"""Jobs in a SQLite file: one host, many processes, nothing to install."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.json import encode

from holdfast.model.job import Look
from holdfast.model.polling import NO_POLLS, Polling
from holdfast.settings import Settings
from holdfast.store.attempts import Attempts, as_text
from holdfast.store.base import JobId, Ref, Store
from holdfast.store.migrate import misfit
from holdfast.store.rollups import BATCH, Rollups
from holdfast.store.sqlite.adopted import SqliteAdopted
from holdfast.store.sqlite.borrowed import BorrowedDatabase, BorrowedEnqueue, BorrowedUserConnections
from holdfast.store.sqlite.codec import seconds_until, stored
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.enqueue import SqliteEnqueue
from holdfast.store.sqlite.exchange import SqliteExchange
from holdfast.store.sqlite.reading import ReadingDatabase
from holdfast.store.sqlite.schema import SqliteSchema
from holdfast.store.sqlite.user_connections import SqliteUserConnections
from holdfast.store.sqlite.wakeups import SqliteWakeups


class SqliteStore(Store):
    db: SqliteDatabase

    def __init__(
        self, settings: Settings, *, clock: Callable[[], datetime] | None = None, conn: Any = None,
        reading: bool = False,
    ) -> None:  # fmt: skip
        """`conn`: a connection of the user's, on which everything is done (borrowed.py). `reading`: for those who only
        look (reading.py)."""
        ours = ReadingDatabase if reading else SqliteDatabase
        db = ours(settings, clock) if conn is None else BorrowedDatabase(settings, clock, conn)
        users = SqliteUserConnections(db) if conn is None else BorrowedUserConnections(db)
        adopted = SqliteAdopted(db, users)
        self.adopted = adopted
        super().__init__(
            db, schema=SqliteSchema(db), wakeups=SqliteWakeups(db), user_connections=users,
            enqueueing=SqliteEnqueue(db) if conn is None else BorrowedEnqueue(db),
            exchanging=SqliteExchange(db, adopted.in_step), attempts=SqliteAttempts,
            rollups=SqliteRollups,
        )  # fmt: skip

    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False, polling: Polling = NO_POLLS, memory: int | None = None,
    ) -> Look:  # fmt: skip
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        with self.db.use() as connection:
            with connection.writing() as db:
                told = {"worker": worker, "polling": encode(polling).decode(), "memory": memory}
                self.db.rows(db, self.db.statements["seen"], told)
            now = self.db.clock()
            [seen] = self.db.rows(
                connection.db, self.db.statements["look"],
                {"worker": worker, "tasks": list(tasks), "crons": list(crons)},
            )  # fmt: skip
            lanes = self.db.readable(connection.db, self.db.statements["open_lanes"], scope)
            misplaced = connection.misplaced()
        upcoming = [lane["ready_at"] for lane in lanes]
        upcoming += [seen["next_pause_end"]] if seen["next_pause_end"] else []
        lease_end, tick, filter_end = seen["next_lease_end"], seen["next_tick"], seen["next_filter_end"]
        return Look(
            next_lease_end=lease_end and seconds_until(lease_end, now),
            next_due=seconds_until(min(upcoming), now) if upcoming else None,
            expired_leases=bool(seen["expired_leases"]),
            expired_jobs=bool(seen["expired_jobs"]),
            next_tick=tick and seconds_until(tick, now),
            next_pause_end=filter_end and seconds_until(filter_end, now),
            filter_pauses=bool(seen["filter_pauses"]),
            ended_holds=bool(seen["ended_holds"]),
            known=bool(seen["known"]),
            stop_requested=bool(seen["stop_requested"]),
            adopted=bool(seen["adopted"]),
            bulk_seen=seen["bulk_seen"] and seconds_until(seen["bulk_seen"], now),
            deltas=bool(seen["deltas"]),
            misfit=misplaced or misfit("sqlite", self.shown_url, seen["version"], seen["oldest_code"]),
        )

    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        with self.db.use() as connection:
            now = stored(self.db.clock())
            jobs, first = 0, list[JobId]()
            for lane in self.db.readable(connection.db, self.db.statements["open_lanes"], scope):
                if lane["ready_at"] > now or lane["priority"] < priority or jobs >= most:
                    continue
                place = {"queue": lane["queue"], "task": lane["task"], "lane": lane["priority"], "id": id}
                [found] = self.db.rows(
                    connection.db, self.db.statements["ahead"],
                    {**place, "priority": priority, "due_at": due_at, "most": most - jobs},
                )  # fmt: skip
                jobs += found["jobs"]
                first += [found["first"]] if found["first"] is not None else []
        return min(jobs, most), min(first, default=None)


class SqliteAttempts(Attempts):
    """Where PostgreSQL has one statement, these are several in a transaction."""

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        with self._db.transaction() as tx:
            rows = tx.rows(
                "checkpoint", id=ref.id, fence=ref.fence, checkpoint=as_text(state), pending=pending, done=done
            )
            if rows and pending:
                tx.rows("list_pending", ids=[ref.id])
        return self._asked_of(ref, "checkpoint", rows)

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        with self._db.transaction() as tx:
            rows = tx.rows("step", id=ref.id, fence=ref.fence, name=name)
            if rows:
                tx.rows("keep_step", id=ref.id, fence=ref.fence, name=name, result=as_text(result))
        return self._asked_of(ref, "step", rows)


class SqliteRollups(Rollups):
    """One writer at a time: what is there when it begins to fold is all that there is, up to an id."""

    def fold(self, limit: int = BATCH) -> int:
        with self._db.transaction() as tx:
            [step] = tx.rows("fold_reach", limit=limit)
            if step["folded"]:
                tx.rows("fold", reached=step["reached"])
                tx.rows("folded", reached=step["reached"])
        return int(step["folded"])
