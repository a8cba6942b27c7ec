"""Warns at the start of a worker of due jobs that no worker can run, itself included. It costs one short read; without
it nobody would notice a misspelt queue or a forgotten deployment."""

from __future__ import annotations

from itertools import islice

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.unserved import Unserved, unserved
from holdfast.store.base import Store

MOST = 10  # kinds of jobs that are named


def warn_of_unserved(store: Store) -> None:
    try:
        found = list(islice(unserved(store.reads.waiting(), store.workers.all(), store.reads.now()), MOST))
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
