"""The verbs of people, on all jobs a filter means: in chunks, each one transaction, so that nobody waits long for a
lock and what is done stays done if the rest fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import RowLocked, StoreUnavailable, ValueRefused
from holdfast.model.filter import Filter
from holdfast.model.job import Changed
from holdfast.model.lifecycle import REQUESTS, State
from holdfast.store.find import chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store.columns import JobId, Row
    from holdfast.store.operator_verbs import OperatorVerbs

LOCKED = 3  # jobs of a chunk that may be locked before we give up: each makes us wait


def bulk(
    store: OperatorVerbs, verb: str, filter: Filter, *, told: Callable[[Changed], None] | None = None, **parameters: Any
) -> Changed:
    """How many jobs were changed, were not in a state for it, or run and were asked. `told` hears of each chunk."""
    changed = refused = asked = 0
    for ids in chunks(store, filter):
        try:
            rows = store.act(verb, ids, **parameters)
        except (StoreUnavailable, ValueRefused):
            rows = _one_by_one(store, verb, ids, parameters)
        running = sum(row["state"] == State.RUNNING for row in rows) if verb in REQUESTS else 0
        changed, refused, asked = changed + len(rows) - running, refused + len(ids) - len(rows), asked + running
        if told is not None:
            told(Changed(changed, refused, asked))
    return Changed(changed, refused, asked)


def _one_by_one(store: OperatorVerbs, verb: str, ids: Sequence[JobId], parameters: dict[str, Any]) -> list[Row]:
    """Someone holds a lock on one of them, two wait for each other, or one is refused: then each by itself. Those that
    can be changed are, before a lock is complained of."""
    done: list[Row] = []
    locked: list[RowLocked] = []
    for id in ids:
        try:
            done += store.act(verb, [id], **parameters)
        except RowLocked as error:
            locked.append(error)
            if len(locked) == LOCKED:
                break
    if locked:
        raise locked[0]
    return done
