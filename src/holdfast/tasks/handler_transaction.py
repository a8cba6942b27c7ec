"""A handler's success, recorded in its own transaction: its writes and the outcome are one commit."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError, LeaseLost, OutcomeUnknown, StoreError, TooManyConnections
from holdfast.model.payload import Unfit, encode
from holdfast.tasks.lease_writes import LeaseWrites
from holdfast.tasks.offload import at_once, in_thread

if TYPE_CHECKING:
    from holdfast.store.engine import Permit

LOOK = 0.2  # seconds between two looks whether a thread that waits for a connection should stop
CROWDED_FIRST, CROWDED_MOST = 0.1, 5.0  # seconds between two tries while the server has no connection left
CHANCE = random.SystemRandom()  # the application may have seeded the shared generator
LONG = 2.0  # seconds a handler's transaction may block all other writers of a SQLite file without a warning


class Success:
    """Records that an attempt succeeded, on a connection of the handler's."""

    __slots__ = ("_recorded_on", "_writes")

    def __init__(self, writes: LeaseWrites) -> None:
        self._writes = writes
        self._recorded_on: Any = None  # the connection that success was last recorded on

    def record(self, result: Any, conn: Any) -> None:
        writes = self._writes
        data = self._prepare(result, conn)
        try:
            writes.store.attempts.succeed_on(conn, writes.ref, data, writes.attempt.progress)
        except LeaseLost as lost:
            self._refuse_second(conn, lost)
            raise
        self._recorded(conn)

    async def arecord(self, result: Any, conn: Any) -> None:
        writes = self._writes
        data = self._prepare(result, conn)
        try:
            await writes.store.attempts.asucceed_on(conn, writes.ref, data, writes.attempt.progress)
        except LeaseLost as lost:
            self._refuse_second(conn, lost)
            raise
        self._recorded(conn)

    def _prepare(self, result: Any, conn: Any) -> bytes | None:
        writes = self._writes
        if conn is not writes.open_on:
            writes.refuse_in_transaction("success on a connection of your own")
        try:
            return None if result is None else encode(result, limit=writes.settings.max_result)
        except Unfit as unfit:
            raise HoldfastError(
                f"the result of job {writes.attempt.held.id} can't be kept: {unfit}", number="HF1308"
            ) from None

    def _recorded(self, conn: Any) -> None:
        self._recorded_on = conn
        self._writes.attempt.record(True)

    def _refuse_second(self, conn: Any, lost: LeaseLost) -> None:
        """To the statement, a job that this same transaction has ended looks like a lost one. If it were given back as
        lost, it would run again and again."""
        if conn is self._recorded_on:
            raise HoldfastError(
                "success was recorded on this connection already: record it once, and in ctx.transaction() not at all, "
                "which does so itself (tx.set_result(…) gives it the result)",
                number="HF1310",
            ) from lost


class HandlerTransaction:
    """A handler's own transaction, which ends with its success. Works with `with` and with `async with`; the connection
    is synchronous in both."""

    def __init__(self, writes: LeaseWrites, success: Success) -> None:
        self._writes = writes
        self._success = success
        self._store = writes.store
        self._permits = writes.store.user_connections.permits
        self._held: list[Permit] = []  # none or one
        self._opened: AbstractContextManager[Any]
        self._opened_at = 0.0  # monotonic
        self._result: Any = None
        self._first = threading.Lock()  # taken by whoever is first: the thread that opened it, or a handler that left
        self.conn: Any = None

    def set_result(self, result: Any) -> None:
        self._result = result

    def __enter__(self) -> HandlerTransaction:
        if _on_loop():
            raise HoldfastError(
                "write `async with ctx.transaction()` in a coroutine: a plain `with` would block the event loop, and "
                "with it the transactions that this one waits for",
                number="HF1310",
            )
        self._refuse_nested()
        try:
            if self._permits is not None:
                self._wait_for(self._request_permit())
            for wait in _growing():
                with suppress(TooManyConnections):
                    self._open()
                    break
                self._wait_for(None, wait)
        except BaseException:
            self._return_permit()
            raise
        return self

    async def __aenter__(self) -> HandlerTransaction:
        import asyncio

        self._refuse_nested()
        try:
            if self._permits is not None and not (permit := self._request_permit()).done():
                await asyncio.wrap_future(permit)
            for wait in _growing():
                with suppress(TooManyConnections):
                    await in_thread(self._store, self._open_unless_left)
                    break
                await asyncio.sleep(wait)
        except BaseException:  # cancelled, or its coroutine is closed
            self._close_if_second()
            self._return_permit()
            raise
        return self

    def _refuse_nested(self) -> None:
        if self._writes.open_on is not None:
            raise BadSettings(
                "this handler has a transaction open already, and a job succeeds once: leave its block first",
                number="HF1112",
            )

    def _request_permit(self) -> Permit:
        assert self._permits is not None
        self._held.append(self._permits.ask())
        return self._held[0]

    def _return_permit(self) -> None:
        """May be called twice: by a handler that left, and by the thread that opened its transaction."""
        with suppress(IndexError):
            permit = self._held.pop()
            assert self._permits is not None
            self._permits.give_back(permit)

    def _wait_for(self, permit: Permit | None, seconds: float = float("inf")) -> None:
        """Wait for a permit, or this long. Raises StopAttempt once the attempt should stop."""
        attempt = self._writes.attempt
        until = time.monotonic() + seconds
        while time.monotonic() < until and (permit is None or not permit.done()):
            attempt.raise_if_stopping()
            rest = min(LOOK, until - time.monotonic())
            if permit is None:
                time.sleep(max(0.0, rest))
            else:
                with suppress(TimeoutError):
                    permit.result(rest)
        attempt.raise_if_stopping()

    def _open(self) -> None:
        held = self._writes.attempt.held
        opened = self._store.user_connections.transaction(f"job {held.id} ({held.task})")
        self.conn = opened.__enter__()
        self._opened = opened
        self._opened_at = time.monotonic()
        self._writes.open_on = self.conn

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._writes.open_on = None
        try:
            if kind is None:
                self._record_success()
            try:
                self._opened.__exit__(kind, error, trace)
            except OutcomeUnknown:
                if not self._is_recorded():
                    raise
        except BaseException:
            self._writes.attempt.record(False)  # it was not committed
            raise
        finally:
            self._return_permit()
            self._warn_if_long()

    def _record_success(self) -> None:
        try:
            if not getattr(self.conn, "in_transaction", True):
                raise HoldfastError(
                    "leave commit and rollback to ctx.transaction(): its block ended them itself", number="HF1310"
                )
            self._success.record(self._result, self.conn)
        except BaseException as refused:
            self._opened.__exit__(type(refused), refused, refused.__traceback__)
            if isinstance(refused, LeaseLost):
                self._look_for_primary()
            raise

    def _is_recorded(self) -> bool:
        """The reply to the commit was lost. Was it committed? If nobody can say, the worker finds out: the outcome that
        it records instead waits for whoever still locks the job's row, and is refused if the commit came first."""
        ref = self._writes.ref
        try:
            return bool(self._store.db.read("recorded", id=ref.id, fence=ref.fence))
        except StoreError:
            return False

    def _look_for_primary(self) -> None:
        """Another server may have said that the lease is lost: the next transaction goes to the right one."""
        with suppress(StoreError):
            self._store.db.look_around()

    def _warn_if_long(self) -> None:
        """On SQLite every other writer waited for this transaction."""
        seconds, held = time.monotonic() - self._opened_at, self._writes.attempt.held
        if seconds > LONG and self._writes.settings.url.startswith("sqlite"):
            events.emit("writers_waited", job=str(held.id), task=held.task, seconds=seconds)

    # A handler may be cancelled while a thread opens its transaction, and its loop may end before that thread is done.
    # Whoever of the two comes second closes the transaction: left open, it would lock out every writer on SQLite.

    def _open_unless_left(self) -> None:
        self._open()
        self._close_if_second()

    def _close_if_second(self) -> None:
        if not self._first.acquire(blocking=False):
            left = GeneratorExit()
            self.__exit__(type(left), left, None)

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await at_once(self.__exit__, kind, error, trace)


def _growing() -> Iterator[float]:
    """Seconds before each next try: longer every time, with jitter."""
    longest = CROWDED_FIRST
    while True:
        yield longest * CHANCE.uniform(0.5, 1.0)
        longest = min(2 * longest, CROWDED_MOST)


def _on_loop() -> bool:
    """Does this thread run an event loop? (If it does, asyncio was imported.)"""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
