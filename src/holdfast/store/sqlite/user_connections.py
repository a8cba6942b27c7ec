"""Connections of users to the SQLite file: a caller's own, on which we run statements, and those that handlers get for
their own writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from holdfast.errors import BadSettings
from holdfast.store.columns import Row
from holdfast.store.engine import underlying
from holdfast.store.sqlite.connect import DISK_TROUBLE, TRANSIENT, code_of, is_transient, reading_text_as, translate
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.plain_rows import begin_as_driver, plain_rows

Execute = Callable[[str, dict[str, Any]], list[Row]]


class SqliteUserConnections:
    permits = None  # the file has one writer anyway
    may_raise = True  # the caller's transaction keeps others from writing in any case

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db

    def checked(self, connection: Any) -> sqlite3.Connection:
        """The driver's connection, if it is open on our file."""
        path = self._db.path
        if not isinstance(connection, sqlite3.Connection):
            connection = underlying(connection)
        if not isinstance(connection, sqlite3.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise BadSettings(f"conn= needs a sqlite3 connection to {path}, not a {kind}{self._hint}", number="HF1112")
        opened = {Path(row[2]) for row in connection.execute("pragma database_list").fetchall() if row[2]}
        if path.resolve() not in {other.resolve() for other in opened}:
            raise BadSettings(
                f"conn= is open on another file than the jobs are in ({path}){self._hint}", number="HF1112"
            )
        return connection

    @property
    def _hint(self) -> str:
        if not self._db.for_tests:
            return ""
        return (
            ". The jobs of this test are in a throw-away store: have it on that connection, testing.store(hf, conn=…), "
            "or in that database, testing.store(hf, url=…)"
        )

    def execute_on(self, connection: Any) -> Execute:
        connection = self.checked(connection)

        def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            cursor = connection.cursor()
            cursor.row_factory = None
            try:
                with reading_text_as(connection, str), self._in_step(connection, text):
                    rows = cursor.execute(text, self._db.parameters(text, parameters)).fetchall()
            except sqlite3.Error as error:
                # What is refused on a caller's own connection is the caller's affair; that others write is not.
                if is_transient(error):
                    raise translate(str(self._db.path), error) from error
                raise
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in rows]

        return execute

    def _in_step(self, connection: sqlite3.Connection, text: str) -> AbstractContextManager[object]:
        """What a statement changes in jobs is written to the rows of adopted tables. An insert changes none."""
        if text.startswith("insert"):
            return nullcontext()
        begin_as_driver(connection)
        return self._db.adopting.on(plain_rows(connection))

    async def aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Any]:
        """SQLite has no asynchronous connections: the same, for callers that await."""
        execute = self.execute_on(connection)

        async def aexecute(text: str, parameters: dict[str, Any]) -> list[Row]:
            return execute(text, parameters)

        return aexecute

    @contextmanager
    def transaction(self, note: str = "") -> Iterator[Any]:
        # A connection of its own: whatever the handler sets on it ends with it. An error of its statements is the
        # handler's own affair. That the database is busy when the transaction begins, or the disk full, is not.
        with self._db.pool.fresh() as connection:
            connection.gate.note = note
            inside = False
            try:
                with connection.writing() as db:
                    inside = True
                    yield db
                    inside = False
            except sqlite3.Error as error:
                if code_of(error) in (DISK_TROUBLE if inside else TRANSIENT):
                    raise translate(str(self._db.path), error) from error
                raise
