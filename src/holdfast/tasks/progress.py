"""Progress of a handler. What it reports is kept in memory with its attempt, and written about once a second by the
heartbeat; a checkpoint is saved at once."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.outcome import MAX_COUNT
from holdfast.model.payload import Unfit, encode_checkpoint
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.lease_writes import LeaseWrites, Write

T = TypeVar("T")


def check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or not 0 <= value <= MAX_COUNT):
            raise HoldfastError(f"{name} must be a whole number from 0 to {MAX_COUNT}, not {value!r}", number="HF1202")


def checked_note(note: object) -> str:
    if not isinstance(note, str):
        raise HoldfastError(f"note must be a text, not {note!r:.80}", number="HF1202")
    return str(note)


def track(attempt: Attempt | None, items: Iterable[T], done: int) -> Iterator[T]:
    if attempt is None:
        yield from items
        return
    for item in items:
        if attempt.reason is not None:
            attempt.raise_if_stopping()
        yield item
        done += 1
        attempt.done = done
        attempt.fresh = True


async def atrack(attempt: Attempt | None, items: AsyncIterable[T], done: int) -> AsyncIterator[T]:
    async for item in items:
        if attempt is not None:
            attempt.raise_if_stopping()
        yield item
        done += 1
        if attempt is not None:
            attempt.done = done
            attempt.fresh = True


def saving_checkpoint(writes: LeaseWrites, state: Any, pending: int, done: int | None) -> Write:
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
        requests = writes.store.attempts.checkpoint(writes.ref, data, pending, done)
        if done is not None and attempt.done is not None:
            attempt.done = int(done)  # the count reported before is out of date
        events.emit("checkpointed", job=job, pending=pending, done=done)
        return requests

    return save
