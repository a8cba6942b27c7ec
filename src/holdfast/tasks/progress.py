"""Progress that a handler reports: kept in memory with its attempt, written about once a second by the heartbeat."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TypeVar

from holdfast.errors import HoldfastError
from holdfast.model.outcome import MAX_COUNT
from holdfast.tasks.attempt import Attempt

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
