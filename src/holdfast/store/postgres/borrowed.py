"""A store on one PostgreSQL connection that belongs to a test: everything is done there, in savepoints, so that it is
part of whatever transaction the test has open, and ends with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, cast

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.string import ByteaBinaryLoader

from holdfast.errors import BadSettings
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.engine import Transaction, underlying
from holdfast.store.pool import BorrowedConnection, ConnectionPool
from holdfast.store.postgres.connect import Connection, translated
from holdfast.store.postgres.database import PostgresDatabase, StatementTransaction
from holdfast.store.postgres.exchange import PostgresExchange, Trip
from holdfast.store.postgres.session import Answers
from holdfast.store.postgres.user_connections import PostgresUserConnections
from holdfast.store.postgres.wakeups import PostgresWakeups


class SavepointSession:
    """A connection of the user's as our statements need it. What we commit elsewhere is a savepoint here."""

    host = None
    deadline: float | None = None

    def __init__(self, driver: psycopg.Connection[Any], where: str) -> None:
        self.driver = driver
        self.answers = Answers(where, lambda session: None)
        # As on our own connections, whatever the user's is told to make of JSON.
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("json", ByteaBinaryLoader)

    @property
    def connection(self) -> psycopg.Connection[Any]:
        return self.driver

    @property
    def pgconn(self) -> Any:
        return self.driver.pgconn

    @property
    def info(self) -> Any:
        return self.driver.info

    @property
    def closed(self) -> bool:
        return self.driver.closed

    def cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        return psycopg.Cursor(self.driver, row_factory=tuple_row)

    def execute(self, query: Any, parameters: Any = None, *, prepare: bool | None = None) -> Any:
        return self.cursor().execute(query, parameters, prepare=False)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if not self.driver.autocommit and self.driver.info.transaction_status is TransactionStatus.IDLE:
            self.execute("select 1")  # begins the user's transaction: psycopg would commit one that it began for us
        with self.driver.transaction():
            yield

    def close(self) -> None: ...


class BorrowedDatabase(PostgresDatabase):
    def __init__(self, settings: Settings, clock: Callable[[], datetime] | None, connection: Any) -> None:
        self.borrowed = SavepointSession(underlying(connection), settings.shown_url)
        super().__init__(settings, clock)

    def connect(self) -> Connection:
        return cast(Connection, self.borrowed)

    def open_pool(self) -> ConnectionPool[Connection]:
        return BorrowedConnection(self.connect())

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.use() as connection, connection.transaction():
            yield StatementTransaction(self, connection)

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self.transaction() as tx:
            yield tx  # within the user's, whose isolation level is set

    def execute(self, connection: Connection, text: str, parameters: dict[str, Any]) -> psycopg.RawCursor[Any]:
        query, names = self.numbered(text)
        given = self.parameters(parameters)
        cursor = psycopg.RawCursor(self.borrowed.driver, row_factory=tuple_row)
        cursor.adapters.register_loader("json", ByteaBinaryLoader)
        return cursor.execute(query, [given[name] for name in names], binary=True, prepare=False)


class BorrowedExchange(PostgresExchange):
    @contextmanager
    def trips(self) -> Iterator[Trip]:
        """The connection is in pipeline mode during a trip and no longer: between two of them it is the user's."""
        with self._db.use() as connection, connection.transaction():
            trip = self._open_trip()
            trip.overlaps = False
            try:
                yield trip
            finally:
                trip.abandon()
                connection.pgconn.exit_pipeline_mode()
                connection.pgconn.nonblocking = 0

    def _is_recorded(self, outcome: Outcome) -> bool:
        """Asked by a trip whose answers were all read."""
        pgconn = self._db.connect().pgconn
        pgconn.exit_pipeline_mode()
        try:
            return super()._is_recorded(outcome)
        finally:
            pgconn.enter_pipeline_mode()


class BorrowedUserConnections(PostgresUserConnections):
    _db: BorrowedDatabase

    def checked(self, connection: Any) -> psycopg.Connection[Any]:
        if underlying(connection) is not self._db.borrowed.driver:
            raise BadSettings(
                "conn= is another connection than the one that testing.store(hf, conn=…) was given", number="HF1112"
            )
        driver: psycopg.Connection[Any] = self._db.borrowed.driver
        return driver

    @contextmanager
    def transaction(self, note: str = "") -> Iterator[Any]:
        with translated(self._db.shown_url), self._db.use() as connection, connection.transaction():
            yield self._db.borrowed.driver


class NoWakeups(PostgresWakeups):
    """Nobody listens for what a test has not committed."""

    def notify(self, *args: Any, **options: Any) -> None: ...

    def tell(self, queues: Any) -> None: ...

    def hint(self, queue: str, lane: Any = None, *, due_in: float = 0.0) -> None: ...
