"""For those who only look at a PostgreSQL database: nothing is written, and no statement takes long. Each read is a
transaction that brings these limits along, so they hold behind a pooler, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg

from holdfast.errors import OutcomeUnknown
from holdfast.store.columns import Row
from holdfast.store.engine import PATIENCE, Transaction, only_reads, takes_too_long
from holdfast.store.pool import ConnectionPool
from holdfast.store.postgres.connect import Connection, usable
from holdfast.store.postgres.database import PostgresDatabase, StatementTransaction


class ReadingDatabase(PostgresDatabase):
    def open_pool(self) -> ConnectionPool[Connection]:
        return ConnectionPool(self._connect_to_read, usable, usable)

    def connect(self) -> Connection:
        """For what enqueues and claims, which has connections of its own."""
        raise only_reads(self.shown_url)

    def _connect_to_read(self) -> Connection:
        def begin(connection: Connection) -> Connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return connection

        return self.begin(self.primary.connect("holdfast-look"), begin)

    @contextmanager
    def use(self) -> Iterator[Connection]:
        with super().use() as connection, connection.transaction():
            connection.execute(f"set local statement_timeout = {int(PATIENCE * 1000)}", prepare=False)
            try:
                yield connection
            except pg.QueryCanceled:
                raise takes_too_long(self.shown_url) from None

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self.use() as connection:
            yield StatementTransaction(self, connection)

    def transaction(self) -> Any:
        raise only_reads(self.shown_url)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        try:
            return self._read(name, parameters)
        except OutcomeUnknown:  # the connection broke under way: it is simply asked again
            return self._read(name, parameters)

    def _read(self, name: str, parameters: dict[str, Any]) -> list[Row]:
        with self.snapshot() as tx:
            return tx.rows(name, **parameters)

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        raise only_reads(self.shown_url)
