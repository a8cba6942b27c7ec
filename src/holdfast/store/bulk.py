"""The verbs of people, on all jobs a filter means: in chunks, each one transaction, so that nobody waits long for a
lock and what is done stays done if the rest fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreUnavailable
from holdfast.model.filter import Filter
from holdfast.model.job import Changed
from holdfast.store.find import chunks

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.store.base import Store


def bulk(
    store: Store, verb: str, filter: Filter, *, told: Callable[[Changed], None] | None = None, **parameters: Any
) -> Changed:
    """How many jobs were changed, and how many were not in a state for it. `told` hears of each chunk."""
    changed = refused = 0
    for ids in chunks(store, filter):
        try:
            done = len(store.act(verb, ids, **parameters))
        except StoreUnavailable:
            # Someone holds a lock on one of them, or two wait for each other: then each by itself.
            done = sum(len(store.act(verb, [id], **parameters)) for id in ids)
        changed, refused = changed + done, refused + len(ids) - done
        if told is not None:
            told(Changed(changed, refused))
    return Changed(changed, refused)
