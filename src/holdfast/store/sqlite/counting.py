"""Counts many jobs at once, where a trigger would count each (see store/rollups.py): a row of SQLite is written in
little more than a microsecond, and a trigger takes as long."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.model.rollups import bucket
from holdfast.store.columns import JobId
from holdfast.store.sqlite.codec import stored
from holdfast.store.sqlite.database import SqliteDatabase

Succeeding = tuple[str, str, str, str]  # queue, task, when it started, when it was due
_SUCCEEDING = msgspec.json.Decoder(list[Succeeding])


def count_enqueued(db: SqliteDatabase, connection: sqlite3.Connection, jobs: Mapping[tuple[str, str], int]) -> None:
    """Count new jobs, given by queue and task, that say they are `counted`."""
    for (queue, task), n in jobs.items():
        _append(db, connection, {"n": n, "queue": queue, "task": task, "what": "enqueued"})


def count_successes(db: SqliteDatabase, connection: sqlite3.Connection, fence: str, ids: Sequence[JobId]) -> None:
    """Count those of these jobs that still run under this fence. Call it just before their success is recorded."""
    [row] = db.readable(connection, db.statements["succeeding"], {"ids": list(ids), "fence": fence})
    [document] = row.values()
    now = db.clock()
    found: dict[tuple[str, ...], tuple[int, float, float]] = {}
    for (queue, task, started_at, run_at), n in Counter(_SUCCEEDING.decode(document)).items():
        started = _instant(started_at, now)
        waited = _milliseconds(_instant(run_at, started), started)
        ran = _milliseconds(started, now)
        group = queue, task, stored(started)[:16], bucket(waited), bucket(ran)
        jobs, all_waited, all_ran = found.get(group, (0, 0.0, 0.0))
        found[group] = jobs + n, all_waited + n * waited, all_ran + n * ran
    for (queue, task, minute, _, _), (jobs, all_waited, all_ran) in found.items():
        delta = {"n": jobs, "began": f"{minute}:00.000000", "waited_ms": all_waited, "ran_ms": all_ran}
        _append(db, connection, {**delta, "queue": queue, "task": task, "what": "succeeded"})


def _append(db: SqliteDatabase, connection: sqlite3.Connection, delta: dict[str, Any]) -> None:
    db.rows(connection, db.statements["delta"], {"began": None, "waited_ms": None, "ran_ms": None, **delta})


def _instant(text: str, otherwise: datetime) -> datetime:
    """Others may have written anything there; that must not cost the success."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return otherwise


def _milliseconds(since: datetime, until: datetime) -> float:
    return max(0.0, (until - since).total_seconds() * 1000)
