"""Finds the jobs that a filter matches, newest first, without reading a big table from end to end: a page looks through
a bounded number of the newest ids and says if it stopped there. Running and failed jobs are found by their indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from holdfast.model.filter import DERIVED, Filter, as_json
from holdfast.model.job import Page
from holdfast.store.columns import JobId, Records, key_of
from holdfast.store.database import Database

STEP = 10_000  # ids that one statement looks through
WINDOW = 100_000  # ids, or failures, that are looked through for one page
CHUNK = 500  # jobs changed in one transaction
LAST = 2**63 - 1


def page(db: Database, filter: Filter, before: str | None, limit: int) -> Page:
    top = LAST if before is None else key_of(before)
    ids: list[int] = []
    cut, reached = False, None
    for found, floor in _found(db, filter, top, limit=limit, window=WINDOW):
        ids += found
        reached = floor
        if len(ids) >= limit:
            break
    else:
        cut = reached is not None
    found_here = ids[:limit]
    rows = db.read("list", ids=found_here) if found_here else []
    record = Records(db.codec).record
    following = str(ids[limit - 1]) if len(ids) >= limit else str(reached) if reached else None
    return Page(map(record, rows), cut=cut, next=following)


def chunks(db: Database, filter: Filter) -> Iterator[list[JobId]]:
    """All jobs that the filter matches, each once, however old; jobs enqueued meanwhile are left out."""
    for found, _ in _found(db, filter, LAST, limit=STEP, window=None):
        for start in range(0, len(found), CHUNK):
            yield list(found[start : start + CHUNK])


def _found(
    db: Database, filter: Filter, top: int, *, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    """Ids in steps, and the id below which nothing was looked at yet (None: nothing is left)."""
    wanted = parameters(db, filter)
    few = _few(db, filter)
    if few is None:
        yield from _walk(db, wanted, top, limit, window if filter else None)
        return
    few = sorted((id for id in few if id < top), reverse=True)
    for start in range(0, len(few), STEP):
        rows = db.read("find_of", ids=few[start : start + STEP], limit=STEP, **wanted)
        yield [row["id"] for row in rows], None


def _few(db: Database, filter: Filter) -> Sequence[int] | None:
    """The ids among which all matches must be, if an index provides them."""
    if filter.ids:
        return [key_of(id) for id in filter.ids]
    if filter.states == ("running",):
        return [row["id"] for row in db.read("running_ids")]
    if filter.states == ("failed",):
        ids = [row["id"] for row in db.read("failed_ids", limit=WINDOW + 1)]
        # More than a page looks through: walk the ids as for other filters.
        return ids if len(ids) <= WINDOW else None
    return None


def _walk(
    db: Database, wanted: dict[str, Any], top: int, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    looked = 0
    while True:
        [row] = db.read("newest", before=top)
        newest = row["id"]
        if newest is None:
            yield [], None
            return
        if window is not None and looked >= window:
            yield [], newest + 1
            return
        floor = newest - STEP
        rows = db.read("find", before=newest + 1, after=floor, limit=limit, **wanted)
        looked += STEP
        top = floor + 1
        yield [row["id"] for row in rows], top


def parameters(db: Database, filter: Filter) -> dict[str, Any]:
    """The parameters of the fragment matching.sql."""
    since = filter.since
    ago = -since.total_seconds() if isinstance(since, timedelta) else None
    return {
        "states": [state for state in filter.states if state not in DERIVED] if filter.states else None,
        **{name: name in filter.states for name in DERIVED},
        "queues": list(filter.queues) or None,
        "tasks": list(filter.tasks) or None,
        "keys": list(filter.keys) or None,
        "workers": list(filter.workers) or None,
        "tags": list(filter.tags) or None,
        "error": None if filter.error is None else f"%{_literal(filter.error)}%",
        "minus_since": ago,
        "since_time": None if isinstance(since, timedelta) else db.codec.instant(since),
        "arguments": arguments(filter),
    }


def _literal(text: str) -> str:
    """A text that LIKE takes literally."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def arguments(filter: Filter) -> str | None:
    if not filter.args:
        return None
    import json

    return json.dumps(
        [
            # The path in the notation of each database. The grammar allows no quotes in a name.
            {"path": "{" + ",".join(quoted) + "}", "route": ".".join(["$", *quoted]), "values": as_json(value)}
            for path, value in filter.args
            for quoted in [[f'"{part}"' for part in path]]
        ]
    )
