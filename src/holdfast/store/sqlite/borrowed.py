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
from holdfast.store.engine import Transaction, underlying
from holdfast.store.pool import BorrowedConnection, ConnectionPool
from holdfast.store.sqlite.adopted_triggers import Adopting, add_functions
from holdfast.store.sqlite.connect import Connection
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.enqueue import SqliteEnqueue
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.plain_rows import begin_as_driver, plain_rows
from holdfast.store.sqlite.user_connections import SqliteUserConnections


class SavepointConnection(Connection):
    """Our handle on that connection. What we commit elsewhere is a savepoint here."""

    def __init__(self, db: sqlite3.Connection, adopting: Adopting) -> None:
        self._name = "the connection of the test"
        self._adopting = adopting
        self.driver = db
        self.db = plain_rows(db)
        add_functions(db)
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

    def schema_was_changed(self) -> bool:
        return False  # every write looks

    def be_patient(self) -> None: ...  # how long the connection waits for a lock is its owner's business

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        begin_as_driver(self.driver)
        self.db.execute("savepoint holdfast")
        try:
            with self._adopting.on(self.db) as self._adopting.workable:
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
        self.borrowed = SavepointConnection(underlying(connection), Adopting(settings.prefix))
        super().__init__(settings, clock)

    def open_pool(self) -> ConnectionPool[Connection]:
        return self.borrowed.pool

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with self.transaction() as tx:
            yield tx  # the user's transaction is open, and there is no other connection


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
