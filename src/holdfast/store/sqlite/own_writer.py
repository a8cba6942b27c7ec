"""Who has SQLite's write lock: is it a transaction that the caller itself has open? Then waiting for it is in vain, and
the caller should enqueue on that connection.

SQLite doesn't know, and Python keeps no list of connections. So this asks the kernel which process has the lock, and
the garbage collector which connections of this process have a transaction open. Only called once a write was refused;
where the kernel can't be asked, the answer is no."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

from holdfast.store.sqlite.gate import writer_of


def is_this_process(database: Path) -> bool:
    return writer_of(database) == os.getpid()


def is_this_thread(database: Path) -> bool:
    """Is it certain that the transaction can't end before the caller goes on? If another thread may have a transaction
    open, it could be that one, which ends in a moment."""
    if not is_this_process(database):
        return False
    if threading.active_count() == 1:
        return True
    found = [connection for connection in _connections() if _may_write(connection, database)]
    return bool(found) and all(_is_of_this_thread(connection) for connection in found)


def _connections() -> list[sqlite3.Connection]:
    # By the type itself: isinstance() would ask proxies for their __class__, and some then do what they put off.
    return [found for found in gc.get_objects() if issubclass(type(found), sqlite3.Connection)]


def _may_write(connection: sqlite3.Connection, database: Path) -> bool:
    try:
        if not connection.in_transaction:
            return False
    except sqlite3.ProgrammingError:
        return False  # it is closed
    try:
        cursor = connection.cursor()
        cursor.row_factory = None
        files = [row[2] for row in cursor.execute("pragma database_list").fetchall()]
        return any(file and os.path.samefile(os.fsdecode(file), database) for file in files)
    except (sqlite3.Error, OSError):
        return True  # of another thread, so that its file is unknown


def _is_of_this_thread(connection: sqlite3.Connection) -> bool:
    """sqlite3 keeps a connection to the thread that opened it, by default; Django has one for each thread."""
    if any(connection is one for one in _of_django()):
        return True
    elsewhere: list[bool] = []
    other = threading.Thread(target=lambda: elsewhere.append(_refuses(connection)))
    other.start()
    other.join()
    return elsewhere == [True] and not _refuses(connection)


def _refuses(connection: sqlite3.Connection) -> bool:
    """May this thread not use it?"""
    try:
        connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
    except sqlite3.ProgrammingError:
        return True
    return False


def _of_django() -> list[Any]:
    """Django's connections of this thread, if the program uses Django."""
    django = sys.modules.get("django.db")
    if django is None:
        return []
    try:
        return [one.connection for one in django.connections.all(initialized_only=True)]
    except Exception:  # noqa: BLE001 - imported, but not configured
        return []
