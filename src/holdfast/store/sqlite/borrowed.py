"""A store on one SQLite connection that belongs to a test: everything is done there, in savepoints, so that it is part
of whatever transaction the test has open, and ends with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Any, cast

from holdfast.errors import BadSettings, StoreError
from holdfast.model.job import Enqueued, NewJob
from holdfast.settings import Settings
from holdfast.store.engine import underlying
from holdfast.store.pool import BorrowedConnection, ConnectionPool
from holdfast.store.sqlite.connect import Connection
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.enqueue import SqliteEnqueue
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.user_connections import SqliteUserConnections

LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 has no name for


class PlainRows:
    """A connection of the user's as our statements need it: its rows are tuples and its text is str."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.driver = db

    @property
    def text_factory(self) -> Any:
        return self.driver.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self.driver.text_factory = factory

    @property
    def in_transaction(self) -> bool:
        return self.driver.in_transaction

    @property
    def total_changes(self) -> int:
        return self.driver.total_changes

    def execute(self, text: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._cursor().execute(text, parameters)

    def executemany(self, text: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        return self._cursor().executemany(text, parameters)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self.driver.cursor()
        cursor.row_factory = None
        return cursor


class SavepointConnection(Connection):
    """Our handle on that connection. What we commit elsewhere is a savepoint here."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._name = "the connection of the test"
        self.driver = db
        self.db = cast(sqlite3.Connection, PlainRows(db))
        self.gate = cast(Gate, nullcontext())
        self.pool: ConnectionPool[Connection] = BorrowedConnection(self)
        self._pool = self.pool

    def __enter__(self) -> Connection:
        self._text_factory, self.driver.text_factory = self.driver.text_factory, str
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.driver.text_factory = self._text_factory
        super().__exit__(kind, error, trace)

    def misplaced(self) -> StoreError | None:
        return None

    def refuse_if_misplaced(self, every: float = 0.0) -> None: ...

    def use_log(self) -> None: ...

    def be_patient(self) -> None: ...  # how long the connection waits for a lock is its owner's business

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        # Where the driver begins transactions by itself, it does so before an insert, and not before a savepoint: that
        # would then be a transaction of its own, and committed at its end.
        legacy = getattr(self.driver, "autocommit", LEGACY) == LEGACY
        if legacy and self.driver.isolation_level is not None and not self.driver.in_transaction:
            self.db.execute("begin")
        self.db.execute("savepoint holdfast")
        try:
            yield self.db
        except BaseException:
            if self.driver.in_transaction:
                self.db.execute("rollback to savepoint holdfast")
                self.db.execute("release savepoint holdfast")
            raise
        self.db.execute("release savepoint holdfast")

    def insert(self, text: str, row: tuple[Any, ...]) -> int:
        with self.writing() as db:
            return cast(int, db.execute(text, row).lastrowid)


class BorrowedDatabase(SqliteDatabase):
    def __init__(self, settings: Settings, clock: Callable[[], datetime] | None, connection: Any) -> None:
        self.borrowed = SavepointConnection(underlying(connection))
        super().__init__(settings, clock)

    def open_pool(self) -> ConnectionPool[Connection]:
        return self.borrowed.pool


class BorrowedEnqueue(SqliteEnqueue):
    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        with self._db.use() as connection, connection.writing() as db:
            done = self._keep(db, list(jobs))
        yield done


class BorrowedUserConnections(SqliteUserConnections):
    _db: BorrowedDatabase

    def checked(self, connection: Any) -> sqlite3.Connection:
        if underlying(connection) is not self._db.borrowed.driver:
            raise BadSettings(
                "conn= is another connection than the one that testing.store(hf, conn=…) was given", number="HF1112"
            )
        driver: sqlite3.Connection = self._db.borrowed.driver
        return driver

    @contextmanager
    def transaction(self, note: str = "") -> Iterator[Any]:
        with self._db.use() as connection, connection.writing():
            yield self._db.borrowed.driver
