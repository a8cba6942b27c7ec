"""Progress, checkpoints and steps of an attempt in a process of its own: kept by its worker, on its behalf. The process
needs no way to the database for them, and the worker hears that the work moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError
from holdfast.model.outcome import Progress
from holdfast.store.base import Ref, Row, Store
from holdfast.work.offload import at_once

if TYPE_CHECKING:
    from holdfast.store.permits import Permits

RELAYED = frozenset(["checkpoint", "progress", "step", "keep_step"])  # verbs of a Store
RECORDING = "recording"  # the handler is about to record its success itself: a job that is done by then was not lost

Call = Callable[[str, tuple[Any, ...]], Any]


class Relay:
    """What a JobContext knows of a Store, by way of the worker. It knows whose attempt this is: `ref` stays here."""

    def __init__(self, call: Call, store: Callable[[], Store] | None) -> None:
        self._call = call
        self._opened = store

    def checkpoint(self, ref: Ref, *values: Any) -> tuple[bool, bool]:
        return self._told("checkpoint", values)

    def progress(self, ref: Ref, *values: Any) -> tuple[bool, bool]:
        return self._told("progress", values)

    def step(self, ref: Ref, name: str) -> tuple[bytes | None, bool, bool]:
        result, cancel, pause = self._call("step", (name,))
        return result, cancel, pause

    def keep_step(self, ref: Ref, *values: Any) -> tuple[bool, bool]:
        return self._told("keep_step", values)

    def _told(self, name: str, values: tuple[Any, ...]) -> tuple[bool, bool]:
        cancel, pause = self._call(name, values)
        return cancel, pause

    # -- what needs the database itself --------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        self._store().succeed_on(connection, ref, result, progress)
        self._call(RECORDING, ())

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        await self._store().asucceed_on(connection, ref, result, progress)
        await at_once(self._call, RECORDING, ())

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
