"""Keeps rows of adopted tables and their jobs in step where no trigger could: rows that changed while triggers were
missing, jobs that ended while their table was left alone, and heartbeats."""

from __future__ import annotations

import sqlite3
import time
from contextlib import AbstractContextManager
from typing import Any

from holdfast.store.adopted import Settled, Swept
from holdfast.store.sqlite.adopted_triggers import SourceSql
from holdfast.store.sqlite.connect import Connection
from holdfast.store.sqlite.database import SqliteDatabase

BATCH = 500  # rows in one transaction: about 25 ms, for which others wait
# Seconds at least between two of them. Foreign writers don't come through our gate: SQLite has them try again, in their
# first 150 ms every 25 ms at the most, so one of their tries finds the file free.
REST = 0.03


class InStep:
    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self._adopting = db.adopting

    def sweep(self, name: str, after: str | None, most: int = 1000) -> Swept:
        with self._db.use() as connection:
            found = self._working(connection.db, name)
            if found is None:
                return Swept(None, 0)
            page = self._db.rows(connection.db, found.follow.page(first=after is None), {"after": after, "most": most})
            strays = [row["id"] for row in page if row["stray"]]
            orphans = []
            if len(page) < most:
                orphans = [row["id"] for row in self._db.rows(connection.db, found.follow.orphans(), {})]
            for texts, ids in ((found.follow.statements(), strays), (found.follow.gone(), orphans)):
                for first in range(0, len(ids), BATCH):
                    began = time.monotonic()
                    self._run(connection.writing(), texts, ids[first : first + BATCH])
                    time.sleep(max(REST, time.monotonic() - began))
            if len(page) < most and self._is_to_be_walked(connection.db, name):
                with connection.writing() as db:
                    self._db.rows(db, self._db.statements["source_swept"], {"name": name, "reached": None})
        return Swept(str(page[-1]["id"]) if len(page) == most else None, len(strays) + len(orphans))

    def _is_to_be_walked(self, db: sqlite3.Connection, name: str) -> bool:
        return any(other == name and to is not None for other, _, _, _, to in self._adopting.read(db))

    def unready(self, db: sqlite3.Connection, ids: list[int]) -> set[int]:
        """In an open transaction: those of these jobs of rows that may not be claimed. The others have the latest
        values of their rows now. If the row of one says something else, that was missed, and the job follows it now."""
        unready = set[int]()
        for found in self._adopting.workable if ids else ():
            missed = [row["id"] for row in self._db.rows(db, found.follow.unready, {"ids": ids})]
            if missed:
                self._follow(db, found, missed)
                unready.update(missed)
            self._db.rows(db, found.follow.latest_args, {"ids": ids})
        return unready

    def _follow(self, db: sqlite3.Connection, found: SourceSql, ids: list[int]) -> None:
        rows = [row["source_id"] for row in self._db.rows(db, self._db.statements["source_rows"], {"ids": ids})]
        for text in found.follow.statements():
            self._db.rows(db, text, {"ids": rows})
        gone = [row["id"] for row in self._db.rows(db, found.follow.missing(), {"ids": rows})]
        for text in found.follow.gone() if gone else ():
            self._db.rows(db, text, {"ids": gone})

    def settle(self, name: str, most: int = 200) -> Settled:
        """What became of jobs while their table was left alone."""
        with self._db.use() as connection:
            text = self._db.statements["source_owed"]
            owed = [row["id"] for row in self._db.rows(connection.db, text, {"name": name, "most": most})]
            self._look_again(connection, name)
            found = self._working(connection.db, name)
            if not owed or found is None:
                return Settled(waiting=len(owed))
            try:
                self._settle(connection.writing(), found, owed)
            except sqlite3.IntegrityError:
                # A value that their table refuses must not keep the others.
                return Settled(settled=sum(self._settled_alone(connection.writing(), found, id) for id in owed))
        return Settled(settled=len(owed))

    def _look_again(self, connection: Connection, name: str) -> None:
        """A table that was mended is worked again from our next write on, which sees that the schema has changed. If
        nothing else goes on, there is none."""
        for other, mapping, _, refused, _ in self._adopting.read(connection.db):
            if other == name and refused is not None and self._adopting.sql(connection.db, mapping)[1] is None:
                with connection.writing():
                    pass

    def _settle(self, writing: AbstractContextManager[sqlite3.Connection], found: SourceSql, ids: list[int]) -> None:
        with writing as db:
            taken = [row["id"] for row in self._db.rows(db, found.follow.taken(), {"ids": ids})]
            owed = [id for id in ids if id not in taken]
            for text in found.project.settling():
                self._db.rows(db, text, {"ids": owed})
            self._db.rows(db, self._db.statements["source_paid"], {"ids": ids})
            if taken:
                self._follow(db, found, taken)

    def _settled_alone(self, writing: AbstractContextManager[sqlite3.Connection], found: SourceSql, id: int) -> bool:
        try:
            self._settle(writing, found, [id])
        except sqlite3.IntegrityError:
            return False
        return True

    def beat(self, name: str) -> None:
        with self._db.use() as connection:
            found = self._working(connection.db, name)
            texts = (
                [text for text in (found.project.beating(), found.follow.hear()) if text] if found is not None else []
            )
            if texts:
                self._run(connection.writing(), texts, [])

    def _run(self, writing: AbstractContextManager[sqlite3.Connection], texts: list[str], ids: list[Any]) -> None:
        with writing as db:
            for text in texts:
                self._db.rows(db, text, {"ids": ids})

    def _working(self, db: sqlite3.Connection, name: str) -> SourceSql | None:
        """Its statements; None: it is left alone, or can't be worked."""
        for other, mapping, suspended, refused, _ in self._adopting.read(db):
            if other == name and not suspended and refused is None:
                return self._adopting.sql(db, mapping)[0]
        return None
