"""Saves a handler's checkpoint: its state, and how many items are pending and done."""

from __future__ import annotations

from typing import Any

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.payload import Unfit, encode_checkpoint
from holdfast.tasks.lease_writes import LeaseWrites, Write
from holdfast.tasks.progress import check_counts


def saving(writes: LeaseWrites, state: Any, pending: int, done: int | None) -> Write:
    """Returns what saves this checkpoint. The first call encodes the state: a large one is no work for an event
    loop."""
    check_counts(pending=pending, done=done)
    attempt = writes.attempt
    job = str(attempt.held.id)
    data: bytes | None = None

    def save() -> tuple[bool, bool]:
        nonlocal data
        if data is None:
            try:
                data = encode_checkpoint(state, limit=writes.settings.max_result)
            except Unfit as unfit:
                raise HoldfastError(f"the checkpoint of job {job} can't be kept: {unfit}", number="HF1308") from None
        requests = writes.store.checkpoint(writes.ref, data, pending, done)
        if done is not None and attempt.done is not None:
            attempt.done = int(done)  # the count reported before is out of date
        events.emit("checkpointed", job=job, pending=pending, done=done)
        return requests

    return save
