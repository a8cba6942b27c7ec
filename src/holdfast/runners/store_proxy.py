"""Progress, checkpoints and steps of an attempt in a process of its own: kept by its worker, on its behalf. The process
needs no way to the database for them, and the worker hears that the work moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.model.outcome import Progress
from holdfast.runners.wire import FindStep, KeepStep, Recording, Request, SaveCheckpoint
from holdfast.store.base import Ref, Row, Store
from holdfast.tasks.offload import at_once

if TYPE_CHECKING:
    from holdfast.runners.arrivals import Arrivals
    from holdfast.store.permits import Permits

Call = Callable[[Request], Any]


class StoreProxy:
    """What a JobContext knows of a Store, by way of the worker. It knows whose attempt this is: `ref` stays here."""

    def __init__(self, call: Call, store: Callable[[], Store] | None) -> None:
        self._call = call
        self._opened = store

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        cancel, pause = self._call(SaveCheckpoint(state, int(pending), None if done is None else int(done)))
        return cancel, pause

    def step(self, ref: Ref, name: str) -> tuple[bytes | None, bool, bool]:
        result, cancel, pause = self._call(FindStep(name))
        return result, cancel, pause

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        cancel, pause = self._call(KeepStep(name, result))
        return cancel, pause

    # -- what needs the database itself --------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        self._store().succeed_on(connection, ref, result, progress)
        self._call(Recording())

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        await self._store().asucceed_on(connection, ref, result, progress)
        await at_once(self._call, Recording())

    @property
    def permits(self) -> Permits | None:
        return self._store().permits

    def user_transaction(self, note: str = "") -> AbstractContextManager[Any]:
        return self._store().user_transaction(note)

    def look_around(self) -> None:
        self._store().look_around()

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._store().read(name, **parameters)

    def _store(self) -> Store:
        if self._opened is None:
            raise withheld()
        return self._opened()


def perform(store: Store, ref: Ref, request: Request, arrivals: Arrivals) -> Any:
    """The worker's side: what an attempt asks for, done under its own lease."""
    match request:
        case SaveCheckpoint(state, pending, done):
            return store.checkpoint(ref, None if state is None else arrivals.kept(state), pending, done)
        case FindStep(name):
            return store.step(ref, name)
        case KeepStep(name, result):
            return store.keep_step(ref, name, arrivals.kept(result))
        case Recording():
            return None


class Withheld:
    """Stands where an application has its store, in a process that is not to have it."""

    def __getattr__(self, name: str) -> Any:
        raise withheld()

    def close(self) -> None:
        """There is nothing to close."""


def withheld() -> HoldfastError:
    return HoldfastError(
        "this task's process has no database: declare the task with database=True to enqueue, to read jobs, or to use "
        "ctx.transaction() and ctx.succeed() in it",
        number="HF1311",
    )
