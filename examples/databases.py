"""A database as an application uses it beside Holdfast: its own connections, and the script that makes its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


@contextmanager
def connect(url: str) -> Iterator[Any]:
    """A connection that commits each statement."""
    if is_sqlite(url):
        path = url.removeprefix("sqlite:///")
        connection: Any = sqlite3.connect(path, timeout=30, isolation_level=None)
        # Holdfast's processes empty the log, and only they: see its page on operating.
        connection.execute("pragma wal_autocheckpoint = 0")
    else:
        import psycopg

        connection = psycopg.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


def create(url: str, folder: Path) -> None:
    """The tables, unless they are there: `schema_sqlite.sql` or `schema_postgres.sql` of this folder."""
    with connect(url) as db:
        if is_sqlite(url):
            db.executescript((folder / "schema_sqlite.sql").read_text())
        else:
            # Others may create them at the same moment: `if not exists` does not wait for them.
            with db.transaction():
                db.execute("select pg_advisory_xact_lock(hashtext(%s))", [folder.name])
                db.execute((folder / "schema_postgres.sql").read_text())
