"""A pause by filter: jobs it means are set aside, out of the claim's sight, so that however many there are, they stand
in front of nobody. Those that wait when it begins are set aside here; those that come later, by the claim that would
have taken them. When it is over, by its end or by people, they go back to their old places.

What `bar` promises, once the pause itself is committed: every job it means that waited then is set aside, or was taken
by a claim before. A claim under way holds a lock on what it takes; whoever sets that aside waits for it. One that
begins later sees the pause."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast.errors import RowLocked, StoreUnavailable
from holdfast.model.filter import Filter
from holdfast.store.bulk import LOCKED
from holdfast.store.find import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.store.operator_verbs import OperatorVerbs
    from holdfast.store.reads import JobId, Row

PAGE = 1000  # jobs of a lane looked at by one statement
LANES = 1_000_000
BEFORE_ALL = datetime(1000, 1, 1, tzinfo=UTC)


def bar(store: OperatorVerbs, filter: Filter, *, most: int | None = None) -> int:
    """Set aside what waits and is meant; returns how many. `most`: about so many, and only from the heads of lanes, for
    who sees to it that none stands in front of others."""
    barred = 0
    locked: list[RowLocked] = []
    for ids in _waiting(store, filter, heads=most is not None):
        if most is not None and barred >= most:
            break
        for start in range(0, len(ids), CHUNK):
            done, trouble = _set_aside(store, ids[start : start + CHUNK])
            barred += done
            locked += trouble
            if len(locked) >= LOCKED:
                raise _complaint(locked)
    if locked:
        raise _complaint(locked)
    return barred


def _complaint(locked: list[RowLocked]) -> RowLocked:
    return RowLocked(
        "the pause stands, and whoever claims from now on keeps to it, but jobs that wait could not all be set aside: "
        f"someone's open transaction holds them: {locked[0].message}; pause once more when it has ended"
    )


def _waiting(store: OperatorVerbs, filter: Filter, *, heads: bool) -> Iterator[list[JobId]]:
    for lane in store.read("every_lane", lanes=LANES, most=0):
        place = {name: lane[name] for name in ("queue", "task", "priority")}
        if (filter.queues and place["queue"] not in filter.queues) or (
            filter.tasks and place["task"] not in filter.tasks
        ):
            continue
        after_at, after_id = store.instant(BEFORE_ALL), 0
        rows: list[Row] = [{}] * PAGE
        while len(rows) == PAGE:
            rows = store.read("lane_page", **place, after_at=after_at, after_id=after_id, limit=PAGE)
            meant = [row["id"] for row in rows if row["meant"]]
            yield meant
            if rows:
                after_at, after_id = rows[-1]["ready_at"], rows[-1]["id"]
            if heads and not meant:
                break


def _set_aside(store: OperatorVerbs, ids: Sequence[JobId]) -> tuple[int, list[RowLocked]]:
    if not ids:
        return 0, []
    try:
        return _bar(store, ids), []
    except StoreUnavailable:
        pass
    # Someone holds a lock on one of them, or two wait for each other: then each by itself.
    done, locked = 0, []
    for id in ids:
        try:
            done += _bar(store, [id])
        except RowLocked as error:
            locked.append(error)
            if len(locked) == LOCKED:
                break
    return done, locked


def _bar(store: OperatorVerbs, ids: Sequence[JobId]) -> int:
    with store.transaction() as tx:
        return len(tx.rows("bar", ids=list(ids)))


def free(store: OperatorVerbs) -> tuple[int, list[str]]:
    """Let go of a bounded number of jobs whose pause is over, or gone; returns how many, and the queues of those that
    go on: what another pause means is set aside by that one. Call again while it returns any."""
    looked_at, queues = 0, []
    with store.transaction() as tx:
        for pause in tx.rows("barred_by"):
            if not pause["stands"] and looked_at < CHUNK:
                ids = [row["id"] for row in tx.rows("barred_ids", name=pause["name"], limit=CHUNK - looked_at)]
                rows = tx.rows("free", ids=ids)
                again = {row["id"] for row in tx.rows("bar", ids=ids)}
                queues += [row["queue"] for row in rows if row["id"] not in again]
                looked_at += len(ids)
    return looked_at, queues
