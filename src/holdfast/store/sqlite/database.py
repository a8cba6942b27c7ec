"""A SQLite file and our connections to it: runs statements by name, with the host's clock."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from holdfast.model.facts import Holder
from holdfast.settings import Settings
from holdfast.store.columns import Lists, Row
from holdfast.store.engine import Transaction
from holdfast.store.pool import ConnectionPool
from holdfast.store.sqlite.adopted_triggers import Adopting
from holdfast.store.sqlite.codec import SqliteCodec, Stamp, later, stored
from holdfast.store.sqlite.connect import Connection, path_of, prepare_file, reading_text_as
from holdfast.store.sqlite.gate import holder_of
from holdfast.store.statements import Statements


class SqliteDatabase:
    """`stamp`: the clock's reading, as it is stored."""

    has_several_hosts = False
    retry_holder: tuple[str, ...] = ("retry", "list_pending", "due_again")

    def __init__(self, settings: Settings, clock: Callable[[], datetime] | None) -> None:
        self.settings = settings
        self.shown_url = settings.shown_url
        self.path = path_of(settings)
        self.clock = clock or (lambda: datetime.now(UTC))
        self.for_tests = clock is not None
        self.stamp: Callable[[], str] = Stamp() if clock is None else (lambda: stored(self.clock()))
        self.codec = SqliteCodec()
        self.statements = Statements(
            "sqlite",
            lists=Lists(stamps=True, expiry="{}"),
            table=lambda name: f'"{settings.prefix}{name}"',
            now=":now",
            clock=":now",
            after=lambda name: f":{name}_at",
            any_of=lambda name: f"in (select value from json_each(:{name}))",  # noqa: S608 - our own names
            by_ready=f'indexed by "{settings.prefix}jobs_ready"',
        )
        self.adopting = Adopting(settings.prefix)
        self._after: dict[str, list[str]] = {}
        self.pool = self.open_pool()

    def open_pool(self) -> ConnectionPool[Connection]:
        prepare_file(self.path)
        return ConnectionPool(self._connect, Connection.in_order, file=self.path)

    def _connect(self) -> Connection:
        return Connection(self.path, self.settings, self.pool, self.adopting)

    def use(self) -> Connection:
        connection = self.pool.take()
        connection.be_patient()
        return connection

    def use_to_write(self) -> Connection:
        """For whoever does nothing but write, which sets its own patience: a setting less for every enqueue."""
        return self.pool.take()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.use_to_write() as connection, connection.writing() as db:
            yield self.on(db)

    def on(self, db: sqlite3.Connection) -> Transaction:
        """Statements by name in a transaction that is open."""
        return _Transaction(self, db)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self.use() as connection:
            connection.db.execute("begin")
            try:
                yield _Transaction(self, connection.db)
            finally:
                connection.db.execute("rollback")

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        with self.transaction() as tx:
            return tx.rows(name, **parameters)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        with self.use() as connection:
            return self.readable(connection.db, self.statements[name], parameters)

    def readable(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        """What a statement reads. SQLite stores any bytes as text; bytes that are no text are replaced."""
        try:
            return self.rows(db, text, dict(parameters))
        except sqlite3.OperationalError as error:
            if "UTF-8" not in str(error):
                raise
        with reading_text_as(db, lambda value: value.decode(errors="replace")):
            return self.rows(db, text, dict(parameters))

    def rows(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = db.execute(text, self.parameters(text, parameters))
        rows = cursor.fetchall()
        if not rows:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def parameters(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Fill in the clock, and the instants that a statement reckons from it: SQLite has no clock but the host's."""
        now = self.clock()
        parameters["now"] = stored(now)
        after = self._after.get(text)
        if after is None:
            after = self._after[text] = sorted({m[1] for m in re.finditer(r":(\w+)_at\b", text)})
        for name in after:
            if name in parameters:
                parameters[f"{name}_at"] = later(now, parameters[name])
        for name, value in parameters.items():
            if isinstance(value, list):
                parameters[name] = json.dumps(value)
        return parameters

    def writing(self) -> Holder | None:
        return holder_of(self.path)

    def shares_sessions(self) -> bool:
        return False

    def look_around(self) -> None:
        """A file has no other servers."""

    def writable(self) -> list[str]:
        return []

    def close(self) -> None:
        self.pool.close()


class _Transaction:
    def __init__(self, database: SqliteDatabase, db: sqlite3.Connection) -> None:
        self._database = database
        self._db = db

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        # Others may have inserted bytes that are no text, which must not keep anyone from changing the job.
        with reading_text_as(self._db, lambda value: value.decode(errors="replace")):
            return self._database.rows(self._db, self._database.statements[name], parameters)
