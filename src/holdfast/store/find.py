"""Finds the jobs a filter means, newest first, without reading a big table from end to end: a page looks through so
many of the newest ids and says if it stopped there. What runs or failed is found by the indexes kept for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from holdfast.model.filter import DERIVED, Filter, as_json
from holdfast.model.job import Page

if TYPE_CHECKING:
    from holdfast.store.columns import JobId
    from holdfast.store.reads import Reading

STEP = 10_000  # ids looked through by one statement
WINDOW = 100_000  # ids, or failures, looked through for one page
CHUNK = 500  # jobs changed in one transaction
LAST = 2**63 - 1


def page(store: Reading, filter: Filter, before: str | None, limit: int) -> Page:
    top = LAST if before is None else cast(int, store.key_of(before))
    ids: list[int] = []
    cut, reached = False, None
    for found, floor in _found(store, filter, top, limit=limit, window=WINDOW):
        ids += found
        reached = floor
        if len(ids) >= limit:
            break
    else:
        cut = reached is not None
    records = store.records(ids[:limit])
    following = str(ids[limit - 1]) if len(ids) >= limit else str(reached) if reached else None
    return Page(records, cut=cut, next=following)


def chunks(store: Reading, filter: Filter) -> Iterator[list[JobId]]:
    """All jobs the filter means, each once, however old; those that come while it goes on are left out."""
    for found, _ in _found(store, filter, LAST, limit=STEP, window=None):
        for start in range(0, len(found), CHUNK):
            yield list(found[start : start + CHUNK])


def _found(
    store: Reading, filter: Filter, top: int, *, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    """Ids in steps, and the id from which on nothing was looked at yet (None: nothing is left)."""
    wanted = parameters(store, filter)
    few = _few(store, filter)
    if few is None:
        yield from _walk(store, wanted, top, limit, window if filter else None)
        return
    few = sorted((id for id in few if id < top), reverse=True)
    for start in range(0, len(few), STEP):
        rows = store.read("find_of", ids=few[start : start + STEP], limit=STEP, **wanted)
        yield [row["id"] for row in rows], None


def _few(store: Reading, filter: Filter) -> Sequence[int] | None:
    """The ids among which all that is meant must be, if there is an index that tells."""
    if filter.ids:
        return [cast(int, store.key_of(id)) for id in filter.ids]
    if filter.states == ("running",):
        return [row["id"] for row in store.read("running_ids")]
    if filter.states == ("failed",):
        ids = [row["id"] for row in store.read("failed_ids", limit=WINDOW + 1)]
        # More than a page looks through: then the ids are walked like any others.
        return ids if len(ids) <= WINDOW else None
    return None


def _walk(
    store: Reading, wanted: dict[str, Any], top: int, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    looked = 0
    while True:
        [row] = store.read("newest", before=top)
        newest = row["id"]
        if newest is None:
            yield [], None
            return
        if window is not None and looked >= window:
            yield [], newest + 1
            return
        floor = newest - STEP
        rows = store.read("find", before=newest + 1, after=floor, limit=limit, **wanted)
        looked += STEP
        top = floor + 1
        yield [row["id"] for row in rows], top


def parameters(store: Reading, filter: Filter) -> dict[str, Any]:
    """What the fragment matching.sql is told."""
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
        "since_time": None if isinstance(since, timedelta) else store.codec.instant(since),
        "arguments": arguments(filter),
    }


def _literal(text: str) -> str:
    """A text that LIKE takes as it stands."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def arguments(filter: Filter) -> str | None:
    if not filter.args:
        return None
    import json

    return json.dumps(
        [
            # The way to it, as each database writes one. The grammar lets no quotes into a name.
            {"path": "{" + ",".join(quoted) + "}", "route": ".".join(["$", *quoted]), "values": as_json(value)}
            for path, value in filter.args
            for quoted in [[f'"{part}"' for part in path]]
        ]
    )
