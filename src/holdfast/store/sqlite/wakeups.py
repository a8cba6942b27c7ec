"""SQLite can't notify. But its change counter, read after a write to the file and without touching the data, says
cheaply whether anyone has committed (docs/decisions/0015)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import cast

from holdfast.store.columns import JobId
from holdfast.store.sqlite.connect import translated
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.watch import Watch


class SqliteWakeups:
    """Sends nothing: every commit changes the file, which wakes whoever listens."""

    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self.can_listen = db.settings.listen

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None: ...

    def tell(self, queues: Sequence[str]) -> None: ...

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None: ...

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        with translated(str(self._db.path)), self._db.pool.fresh() as connection:
            seen = _change_counter(connection.db)  # from here on, the log has its file
            with closing(Watch(self._db.path, restless=finished)) as watch:
                heard("listening", "")
                while not stop():
                    watch.wait()
                    now = _change_counter(connection.db)
                    if now != seen:
                        seen = now
                        heard("changed", "")

    def open_ear(self) -> None:
        """Listening goes by a connection of its own."""

    def close(self) -> None: ...


def _change_counter(db: sqlite3.Connection) -> int:
    return cast(int, db.execute("pragma data_version").fetchone()[0])
