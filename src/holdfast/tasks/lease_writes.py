"""What an attempt writes to the store while it runs: checkpoints, steps, its success. All under its lease."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError, LeaseLost, StoreUnavailable
from holdfast.model.outcome import MAX_COUNT
from holdfast.model.payload import Unfit, encode_checkpoint
from holdfast.store.base import Ref
from holdfast.tasks.attempt import Attempt, emit_lost
from holdfast.tasks.current import current_worker
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.base import Store


OUTAGE_WAIT = 1.0  # seconds between two tries while the database is away

Write = Callable[[], tuple[bool, bool]]  # returns what people have requested meanwhile: (cancel, pause)


class LeaseWrites:
    """One attempt's access to the store."""

    __slots__ = ("attempt", "open_on", "settings", "store")

    def __init__(self, attempt: Attempt, store: Store, settings: Settings) -> None:
        self.attempt = attempt
        self.store = store
        self.settings = settings
        self.open_on: Any = None  # the connection of an open `ctx.transaction()` block

    @property
    def ref(self) -> Ref:
        return Ref(self.attempt.held.id, self.attempt.held.fence)

    def write(self, write: Write, what: str) -> None:
        """Repeat this until it is done, however long the database is away: an outage is not the job's fault, and its
        lease outlasts one."""
        self.refuse_in_transaction(what)
        while not self._try(write):
            self.attempt.raise_if_stopping()
            time.sleep(OUTAGE_WAIT)

    async def awrite(self, write: Write, what: str) -> None:
        """The same for coroutines. No thread is occupied while the database is away."""
        import asyncio

        self.refuse_in_transaction(what)
        while not await in_thread(self.store, self._try, write):
            self.attempt.raise_if_stopping()
            await asyncio.sleep(OUTAGE_WAIT)

    def refuse_in_transaction(self, what: str) -> None:
        """On SQLite a second connection would wait for the handler's own transaction, which waits for this."""
        if self.open_on is not None and self.settings.url.startswith("sqlite"):
            raise BadSettings(
                f"this handler has a transaction open, and SQLite one writer: {what} comes before ctx.transaction()",
                number="HF1112",
            )

    def _try(self, write: Write) -> bool:
        """False: the database is away."""
        attempt = self.attempt
        try:
            cancel, pause = write()
        except LeaseLost:
            if attempt.recorded:
                return True  # it has succeeded: there is nothing left to save
            if attempt.lose():
                emit_lost(attempt.held, current_worker.get())
            attempt.raise_if_stopping()
        except StoreUnavailable:
            return False
        else:
            attempt.moved = time.monotonic()
            if cancel:
                attempt.ask("cancel")
            elif pause:
                attempt.ask("pause")
        return True

    def blocks(self, settings: Settings, conn: Any) -> bool:
        """Is a transaction block open on the SQLite file that these settings name, on another connection than this?"""
        if self.open_on is None or self.open_on is conn:
            return False
        if not self.settings.url.startswith("sqlite") or not settings.url.startswith("sqlite"):
            return False
        from holdfast.store.sqlite.connect import path_of

        return path_of(self.settings) == path_of(settings)


# Progress of a handler. What it reports is kept in memory with its attempt, and written about once a second by the
# heartbeat; a checkpoint is saved at once.

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


def encoded_checkpoint(writes: LeaseWrites, state: Any) -> bytes:
    try:
        return encode_checkpoint(state, limit=writes.settings.max_result)
    except Unfit as unfit:
        job = writes.attempt.held.id
        raise HoldfastError(f"the checkpoint of job {job} can't be kept: {unfit}", number="HF1308") from None


def checkpoint_on(writes: LeaseWrites, conn: Any, state: Any, pending: int, done: int | None) -> None:
    """Save it on the handler's own transaction."""
    data = _before_checkpoint_on(writes, conn, state, pending, done)
    writes.store.attempts.checkpoint_on(conn, writes.ref, data, pending, done)
    _after_checkpoint_on(writes, pending, done)


async def acheckpoint_on(writes: LeaseWrites, conn: Any, state: Any, pending: int, done: int | None) -> None:
    data = _before_checkpoint_on(writes, conn, state, pending, done)
    await writes.store.attempts.acheckpoint_on(conn, writes.ref, data, pending, done)
    _after_checkpoint_on(writes, pending, done)


def _before_checkpoint_on(writes: LeaseWrites, conn: Any, state: Any, pending: int, done: int | None) -> bytes:
    check_counts(pending=pending, done=done)
    if writes.open_on is not None:
        raise BadSettings("ctx.transaction() ends with success: a checkpoint comes before it", number="HF1112")
    return encoded_checkpoint(writes, state)


def _after_checkpoint_on(writes: LeaseWrites, pending: int, done: int | None) -> None:
    attempt = writes.attempt
    if done is not None:  # the worker may be another process: it hears that the work moves
        attempt.done = int(done)
        attempt.fresh = True
    events.emit("checkpointed", job=str(attempt.held.id), pending=pending, done=done)


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
            data = encoded_checkpoint(writes, state)
        requests = writes.store.attempts.checkpoint(writes.ref, data, pending, done)
        if done is not None and attempt.done is not None:
            attempt.done = int(done)  # the count reported before is out of date
        events.emit("checkpointed", job=job, pending=pending, done=done)
        return requests

    return save
