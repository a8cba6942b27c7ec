"""The database as the application had it before Holdfast: its table, and SQL of its own."""

from __future__ import annotations

from pathlib import Path

from examples import databases
from examples.databases import connect, is_sqlite

__all__ = ["connect", "is_sqlite"]


def create(url: str) -> None:
    """The table, unless it is there."""
    databases.create(url, Path(__file__).parent)


def old_claim_function(url: str) -> bool:
    """Is the function there by which the old worker claims?"""
    with connect(url) as db:
        return bool(db.execute("select to_regprocedure('claim_next_job(int)') is not null").fetchone()[0])


def counted(url: str) -> dict[str, int]:
    """Rows by their status."""
    with connect(url) as db:
        return dict(db.execute("select status, count(*) from analysis_jobs group by status").fetchall())
