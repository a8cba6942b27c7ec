"""A PostgreSQL database and our connections to it: runs statements by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from holdfast.errors import OutcomeUnknown
from holdfast.settings import Settings
from holdfast.store.columns import Lists, Row
from holdfast.store.engine import Transaction
from holdfast.store.pool import ConnectionPool
from holdfast.store.postgres.codec import PostgresCodec, numbers
from holdfast.store.postgres.connect import LOCK_TIMEOUT, Connection, shares_sessions, translated, usable
from holdfast.store.postgres.primary import Primary
from holdfast.store.statements import Statements

T = TypeVar("T")


class PostgresDatabase:
    """`clock`: a test's, in place of the server's."""

    retry_holder: tuple[str, ...] = ("retry_key",)

    def __init__(self, settings: Settings, clock: Callable[[], datetime] | None) -> None:
        self.settings = settings
        self.shown_url = settings.shown_url
        self.clock = clock
        self.schema = '"' + settings.schema + '"'
        self.codec = PostgresCodec()
        self.lists = Lists(stamps=clock is not None, expiry="extract(epoch from {} - @now)::float8")
        now = "%(now)s::timestamptz" if clock else "statement_timestamp()"
        tick = "%(now)s::timestamptz" if clock else "clock_timestamp()"
        self.statements = Statements(
            "postgres",
            lists=self.lists,
            table=lambda name: f"{self.schema}.{name}",
            now=now,
            clock=tick,
            after=lambda name: f"({tick} + make_interval(secs => %({name})s::float8))",
            any_of=lambda name: f"= any(%({name})s::bigint[])",
            parameter=lambda name: f"%({name})s",
        )
        self._numbered: dict[str, tuple[bytes, tuple[str, ...]]] = {}
        self.primary = Primary(settings)
        self.pool = self.open_pool()

    def open_pool(self) -> ConnectionPool[Connection]:
        return ConnectionPool(self.connect, usable, usable)

    # -- connections -------------------------------------------------------------------------------------------------

    def connect(self) -> Connection:
        return self.primary.connect()

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """A connection of the pool. Translates driver errors raised in the block."""
        with self.pool.use() as connection, translated(self.shown_url, connection):
            yield connection

    def begin(self, connection: Connection, begin: Callable[[Connection], T]) -> T:
        """Begin to use a new connection; if that fails, the connection is closed."""
        try:
            with translated(self.shown_url, connection):
                return begin(connection)
        except BaseException:
            connection.close()
            raise

    def writing(self) -> None:
        """Writers don't keep each other out here."""

    def shares_sessions(self) -> bool:
        with self.use() as connection:
            return shares_sessions(connection, self.settings)

    @property
    def has_several_hosts(self) -> bool:
        return self.primary.several

    def look_around(self) -> None:
        self.primary.look_around()

    def writable(self) -> list[str]:
        return [f"{place} ({server or 'it does not say who it is'})" for place, server in self.primary.writable()]

    def close(self) -> None:
        self.pool.close()

    # -- statements --------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """It waits for no lock for long. Where a session can't keep settings (behind a pooler), each transaction brings
        its own."""
        with self.use() as connection, connection.transaction():
            if not self.settings.prepare:
                connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
            yield StatementTransaction(self, connection)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self.use() as connection, connection.transaction():
            connection.execute("set transaction isolation level repeatable read, read only")
            yield StatementTransaction(self, connection)

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        # In one message: there is no moment in which a frozen client holds the row's lock.
        with self.use() as connection:
            return self.rows(connection, self.statements[name], parameters)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        try:
            return self.write(name, **parameters)
        except OutcomeUnknown:  # the connection broke under way: nothing was changed, so it is simply asked again
            return self.write(name, **parameters)

    def rows(self, connection: Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = self.execute(connection, text, parameters)
        if cursor.description is None:
            return []
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def execute(self, connection: Connection, text: str, parameters: dict[str, Any]) -> psycopg.RawCursor[Any]:
        """Run one of our statements. Its parameters are numbered once: the driver would do so every time."""
        query, names = self.numbered(text)
        given = self.parameters(parameters)
        return psycopg.RawCursor(connection).execute(query, [given[name] for name in names], binary=True)

    def parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        for name in ("ids", "fences"):
            if isinstance(parameters.get(name), list):
                parameters[name] = numbers(parameters[name])
        if self.clock is not None:
            parameters["now"] = self.clock()
        return parameters

    def numbered(self, text: str) -> tuple[bytes, tuple[str, ...]]:
        """A statement with its parameters by number, and their names in that order."""
        numbered = self._numbered.get(text)
        if numbered is None:
            numbered = self._numbered[text] = _number(text)
        return numbered


class StatementTransaction:
    def __init__(self, database: PostgresDatabase, connection: Connection) -> None:
        self._database = database
        self._connection = connection

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._database.rows(self._connection, self._database.statements[name], parameters)


def _number(text: str) -> tuple[bytes, tuple[str, ...]]:
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return "%" if match[0] == "%%" else f"${names.setdefault(match[1], len(names) + 1)}"

    return re.sub(r"%%|%\((\w+)\)s", number, text).encode(), tuple(names)
