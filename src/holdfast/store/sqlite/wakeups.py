"""SQLite can't notify. But its change counter, read after a write to the file and without touching the data, says
cheaply whether anyone has committed (docs/decisions/0015)."""

from __future__ import annotations

import os
import select
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from holdfast import events
from holdfast.model.peers import Place
from holdfast.store.columns import JobId
from holdfast.store.engine import RESTLESS, Received
from holdfast.store.sqlite.connect import translated
from holdfast.store.sqlite.database import SqliteDatabase

if TYPE_CHECKING:
    import ctypes


# Decides when to check whether a SQLite file has changed: soon after a write to it, which Linux reports, and
# otherwise rarely.
#
# A write is not a commit yet. SQLite appends to its log, syncs it, and then publishes it in memory that processes
# share, of which nobody is notified. So after a write there are several checks, at intervals that double. All writers
# are on this host, as SQLite is refused on network file systems.

SOON = 0.001  # seconds from a write to the first check: most commits have happened by then
APART = 0.005  # seconds between checks at least, however much is written
SELDOM = 0.5  # seconds between checks while nobody writes: a safety net, and how soon a stop is noticed
POLL = 0.015  # seconds between checks where writes can't be watched

IN_MODIFY = 0x2


class Watch:
    """Watches a database file and its log, without reading them."""

    def __init__(self, path: Path, *, restless: bool = False) -> None:
        self._files = [os.fsencode(path), os.fsencode(f"{path}-wal")]
        self._seldom = RESTLESS if restless else SELDOM
        self._next = SOON
        self._not_before = 0.0
        self._inotify = -1
        self._written = select.poll()
        try:
            self._inotify = _done(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            self._watch()
        except (OSError, AttributeError) as error:
            self._give_up(error)
        else:
            self._written.register(self._inotify, select.POLLIN)

    def wait(self) -> None:
        """Until it is time to check."""
        if self._inotify < 0:
            time.sleep(POLL)
        elif self._written.poll(1000 * self._next):
            time.sleep(max(SOON, self._not_before - time.monotonic()))
            os.read(self._inotify, 1 << 16)
            self._next = SOON
            self._not_before = time.monotonic() + APART
        elif self._next < self._seldom:
            self._next = min(2 * self._next, self._seldom)
        else:
            self._watch_again()

    def _watch(self) -> None:
        for file in self._files:
            with suppress(FileNotFoundError):  # there is no log yet: we try again later
                _done(_libc().inotify_add_watch(self._inotify, file, IN_MODIFY))

    def _watch_again(self) -> None:
        """Watch a file that was created anew; for a file that is already watched this changes nothing."""
        try:
            self._watch()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self.close()
        if sys.platform == "linux":
            _tell(str(error))

    def close(self) -> None:
        if self._inotify >= 0:
            os.close(self._inotify)
            self._inotify = -1


@cache
def _tell(error: str) -> None:
    """Once, not for every listener."""
    events.emit("unwatched", error=error, times=round(1 / POLL))


@cache
def _libc() -> ctypes.CDLL:
    import ctypes  # needed only by listeners

    return ctypes.CDLL(None, use_errno=True)


def _done(answer: int) -> int:
    import ctypes

    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


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

    def listen(
        self, received: Received, stop: Callable[[], bool], *, finished: bool = False,
        place: Callable[[], Place] = Place,
    ) -> None:  # fmt: skip
        with translated(str(self._db.path)), self._db.pool.fresh() as connection:
            seen = _change_counter(connection.db)  # from here on, the log has its file
            with closing(Watch(self._db.path, restless=finished)) as watch:
                received("listening", "", None)
                while not stop():
                    watch.wait()
                    now = _change_counter(connection.db)
                    if now != seen:
                        seen = now
                        received("changed", "", None)

    def close(self) -> None: ...


def _change_counter(db: sqlite3.Connection) -> int:
    return cast(int, db.execute("pragma data_version").fetchone()[0])
