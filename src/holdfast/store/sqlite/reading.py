"""For those who only look at a SQLite file: nothing is written, no read takes long, and no file is created."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from holdfast.errors import StoreError
from holdfast.store.engine import PATIENCE, only_reads, takes_too_long
from holdfast.store.pool import ConnectionPool
from holdfast.store.sqlite.adopted_triggers import add_functions
from holdfast.store.sqlite.connect import CACHE_KIB, Connection, code_of, inode_of, translated
from holdfast.store.sqlite.database import SqliteDatabase

STEPS = 10_000  # of SQLite's machine between two looks at the clock: about a millisecond


class ReadingConnection(Connection):
    """It has no gate: it takes no turn among those who write."""

    def __init__(self, path: Path, pool: ConnectionPool[Connection]) -> None:
        self.path = path
        self._name = str(path)
        self._pool = pool
        self._ends_at = time.monotonic() + PATIENCE
        with translated(self._name):
            self.db = sqlite3.connect(
                f"{path.as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self.db.execute("pragma query_only = on")
            self.db.execute("pragma wal_autocheckpoint = 0")
            self.db.execute(f"pragma cache_size = -{CACHE_KIB}")
            add_functions(self.db)
            self.db.set_progress_handler(self._is_late, STEPS)
        self._inode = inode_of(self._name)

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends_at

    def __enter__(self) -> Connection:
        self._ends_at = time.monotonic() + PATIENCE
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_INTERRUPT:
            self._pool.give_back(self)
            raise takes_too_long(self._name) from None
        super().__exit__(kind, error, trace)

    def be_patient(self) -> None:
        """It waits as long as it may read, from the beginning."""

    def refuse_if_misplaced(self, every: float = 0.0) -> None:
        """Whoever asks this is about to write."""
        raise only_reads(self._name)

    def use_log(self) -> None:
        raise only_reads(self._name)

    def writing(self) -> Any:
        raise only_reads(self._name)

    def close(self) -> None:
        self.db.close()


class ReadingDatabase(SqliteDatabase):
    def open_pool(self) -> ConnectionPool[Connection]:
        return ConnectionPool(self._connect, self._in_order, file=self.path)

    def _connect(self) -> Connection:
        if not self.path.exists():
            raise StoreError(f"there is no file {self.path}: nothing has made it yet", number="HF3301")
        return ReadingConnection(self.path, self.pool)

    @staticmethod
    def _in_order(connection: Connection) -> bool:
        """If the file was replaced, the next look opens the new one."""
        return connection.in_order() and connection.misplaced() is None

    def use_to_write(self) -> Connection:
        raise only_reads(str(self.path))
