"""Jobs in PostgreSQL: many hosts, one database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.json import encode

from holdfast.model.job import Look
from holdfast.model.peers import Place
from holdfast.model.polling import NO_POLLS, Polling
from holdfast.settings import Settings
from holdfast.store.base import JobId, Store
from holdfast.store.migrate import misfit
from holdfast.store.postgres.adopted import PostgresAdopted
from holdfast.store.postgres.borrowed import BorrowedDatabase, BorrowedExchange, BorrowedUserConnections, NoWakeups
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.enqueue import PostgresEnqueue
from holdfast.store.postgres.exchange import PostgresExchange
from holdfast.store.postgres.reading import ReadingDatabase
from holdfast.store.postgres.schema import PostgresSchema
from holdfast.store.postgres.user_connections import PostgresUserConnections
from holdfast.store.postgres.wakeups import PostgresWakeups


class PostgresStore(Store):
    db: PostgresDatabase
    wakeups: PostgresWakeups
    enqueueing: PostgresEnqueue
    exchanging: PostgresExchange

    def __init__(
        self, settings: Settings, *, clock: Callable[[], datetime] | None = None, conn: Any = None,
        reading: bool = False,
    ) -> None:  # fmt: skip
        """`conn`: a connection of the user's, on which everything is done (borrowed.py). `reading`: for those who only
        look (reading.py)."""
        ours = ReadingDatabase if reading else PostgresDatabase
        db = ours(settings, clock) if conn is None else BorrowedDatabase(settings, clock, conn)
        exchanging = PostgresExchange(db) if conn is None else BorrowedExchange(db)
        wakeups = PostgresWakeups(db) if conn is None else NoWakeups(db)
        users = PostgresUserConnections(db) if conn is None else BorrowedUserConnections(db)
        super().__init__(
            db, schema=PostgresSchema(db), wakeups=wakeups, user_connections=users,
            enqueueing=PostgresEnqueue(db, wakeups), exchanging=exchanging,
        )  # fmt: skip
        self.adopted = PostgresAdopted(db, wakeups, users)

    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False, polling: Polling = NO_POLLS, memory: int | None = None,
    ) -> Look:  # fmt: skip
        with self.db.use() as connection:
            rows = self.db.rows(
                connection,
                self.db.statements["look"],
                {
                    "worker": worker, "tasks": list(tasks), "queues": None if queues is None else list(queues),
                    "crons": list(crons), "open": open,
                    "polling": encode(polling).decode(), "memory": memory,
                },
            )  # fmt: skip
        place = Place(rows[0].pop("rank"), rows[0].pop("count"))
        why = misfit("postgres", self.shown_url, rows[0].pop("version"), rows[0].pop("oldest_code"))
        return Look(**rows[0], misfit=why, place=place)

    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        [found] = self.db.read(
            "ahead", tasks=list(tasks), queues=None if queues is None else list(queues), priority=priority,
            due_at=due_at, id=id, most=most,
        )  # fmt: skip
        return found["jobs"], found["first"]
