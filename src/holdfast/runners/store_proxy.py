"""Checkpoints and steps of an attempt in an isolated process, stored by its worker. So the process needs no access to
the database for them, and the worker sees that the work moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.model.outcome import Progress
from holdfast.runners.wire import FindStep, KeepStep, RecordsSuccess, SaveCheckpoint, StoreRequest
from holdfast.store.base import Ref, Store
from holdfast.tasks.offload import at_once

if TYPE_CHECKING:
    from holdfast.store.engine import Database, UserConnections

Send = Callable[[StoreRequest], Any]  # sends a request to the worker and returns the reply


class StoreProxy:
    """In the isolated process: what a JobContext needs of a Store. Attempts go by way of the worker; the rest is this
    process's own, if it may have it."""

    def __init__(self, send: Send, store: Callable[[], Store] | None) -> None:
        """`store`: opens the database; None: this process has no access to it."""
        self._open = store
        self.attempts = AttemptsProxy(send, self._store)

    @property
    def user_connections(self) -> UserConnections:
        return self._store().user_connections

    @property
    def db(self) -> Database:
        return self._store().db

    def _store(self) -> Store:
        if self._open is None:
            raise no_database()
        return self._open()


class AttemptsProxy:
    """The worker knows which attempt a request is for, so `ref` is not sent."""

    def __init__(self, send: Send, store: Callable[[], Store]) -> None:
        self._send = send
        self._store = store

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        cancel, pause = self._send(SaveCheckpoint(state, int(pending), None if done is None else int(done)))
        return cancel, pause

    def step(self, ref: Ref, name: str) -> tuple[bytes | None, bool, bool]:
        result, cancel, pause = self._send(FindStep(name))
        return result, cancel, pause

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        cancel, pause = self._send(KeepStep(name, result))
        return cancel, pause

    # -- what needs the database itself --------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        self._store().attempts.succeed_on(connection, ref, result, progress)
        self._send(RecordsSuccess())

    def checkpoint_on(
        self, connection: Any, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None
    ) -> None:
        self._store().attempts.checkpoint_on(connection, ref, state, pending, done)

    async def acheckpoint_on(
        self, connection: Any, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None
    ) -> None:
        await self._store().attempts.acheckpoint_on(connection, ref, state, pending, done)

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        await self._store().attempts.asucceed_on(connection, ref, result, progress)
        await at_once(self._send, RecordsSuccess())


class NoStore:
    """Stands in for the application's store in a process that may not have it."""

    def __getattr__(self, name: str) -> Any:
        raise no_database()

    def close(self) -> None:
        """There is nothing to close."""


def no_database() -> HoldfastError:
    return HoldfastError(
        "this task's process has no database: declare the task with database=True to enqueue, to read jobs, or to use "
        "ctx.transaction(), ctx.succeed() and ctx.checkpoint(conn=…) in it",
        number="HF1311",
    )
