"""The database as the application had it before Holdfast: its table, and SQL of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def is_sqlite(url: str) -> bool:
    return url.startswith("sqlite")


@contextmanager
def connect(url: str) -> Iterator[Any]:
    """A connection that commits each statement."""
    if is_sqlite(url):
        path = url.removeprefix("sqlite:///")
        connection: Any = sqlite3.connect(path, timeout=30, isolation_level=None)
    else:
        import psycopg

        connection = psycopg.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        connection.close()


def create(url: str) -> None:
    """The table, unless it is there."""
    with connect(url) as db:
        if is_sqlite(url):
            db.executescript((HERE / "schema_sqlite.sql").read_text())
        else:
            # Others may create it at the same moment: `if not exists` does not wait for them.
            with db.transaction():
                db.execute("select pg_advisory_xact_lock(hashtext('claim_check'))")
                db.execute((HERE / "schema_postgres.sql").read_text())


def old_claim_function(url: str) -> bool:
    """Is the function there by which the old worker claims?"""
    with connect(url) as db:
        return bool(db.execute("select to_regprocedure('claim_next_job(int)') is not null").fetchone()[0])


def counted(url: str) -> dict[str, int]:
    """Rows by their status."""
    with connect(url) as db:
        return dict(db.execute("select status, count(*) from analysis_jobs group by status").fetchall())
