"""The verbs of people, on many jobs: in chunks, each in its own transaction, so that nobody waits long for a lock and
what is done stays done if the rest fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import RowLocked, StoreUnavailable, ValueRefused
from holdfast.model.job import Changed
from holdfast.model.lifecycle import REQUESTS, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.store.columns import JobId, Row
    from holdfast.store.operator_verbs import OperatorVerbs

LOCKED = 3  # locked jobs in a chunk before we give up: each one makes us wait


def bulk(
    verbs: OperatorVerbs, chunks: Iterable[Sequence[JobId]], verb: str, *,
    told: Callable[[Changed], None] | None = None, **parameters: Any,
) -> Changed:  # fmt: skip
    """How many jobs were changed, were in a state that does not allow it, or run and were asked. `told` is called after
    each chunk."""
    changed = refused = asked = 0
    for ids in chunks:
        try:
            rows = verbs.act(verb, ids, **parameters)
        except (StoreUnavailable, ValueRefused):
            rows = _one_by_one(verbs, verb, ids, parameters)
        running = sum(row["state"] == State.RUNNING for row in rows) if verb in REQUESTS else 0
        changed, refused, asked = changed + len(rows) - running, refused + len(ids) - len(rows), asked + running
        if told is not None:
            told(Changed(changed, refused, asked))
    return Changed(changed, refused, asked)


def _one_by_one(verbs: OperatorVerbs, verb: str, ids: Sequence[JobId], parameters: dict[str, Any]) -> list[Row]:
    """Somebody holds a lock on one of them, there was a deadlock, or one was refused: then each job by itself. All that
    can be changed are changed before a lock is reported."""
    done: list[Row] = []
    locked: list[RowLocked] = []
    for id in ids:
        try:
            done += verbs.act(verb, [id], **parameters)
        except RowLocked as error:
            locked.append(error)
            if len(locked) == LOCKED:
                break
    if locked:
        raise locked[0]
    return done
