"""What a worker says when it starts: which due jobs nobody can run, itself included. A hint, at the price of one short
look; without it, a misspelt queue or a forgotten deployment is silence."""

from __future__ import annotations

from itertools import islice

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.unserved import Unserved, unserved
from holdfast.store.base import Store

TOLD = 10  # kinds of jobs that are named


def warn_of_unserved(store: Store) -> None:
    try:
        found = list(islice(unserved(store.waiting(), store.workers(), store.now()), TOLD))
    except StoreError as error:
        events.emit("unavailable", error=str(error), wait=0.0)
        return
    for one in found:
        waiting = one.waiting
        events.emit(
            "unserved", queue=waiting.queue, task=waiting.task, many=f"{waiting.jobs}{'+' * waiting.more}",
            because=_because(one),
        )  # fmt: skip


def _because(one: Unserved) -> str:
    if not one.served:
        return "no worker that is up serves that queue"
    nearest = f" (nearest: {', '.join(one.nearest)})" if one.nearest else ""
    return f"no worker that serves it has that task{nearest}"
