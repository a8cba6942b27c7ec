"""A few open connections, handed out one at a time. No threads, no surprises: the newest one free is the next used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import Generic, Protocol, TypeVar

from holdfast.errors import StoreError


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)

KEPT = 8  # connections kept open when free
_pools: weakref.WeakSet[Pool[Closable]] = weakref.WeakSet()
_graveyard: list[object] = []


class Pool(Generic[C]):
    """`usable`: is this one fit for use? Asked before it is lent. `in_order`: the same after its use, if that is
    quicker to tell. `survives_fork`: may a child open connections of its own while ones from before the fork exist?
    PostgreSQL's may; SQLite keeps what it has locked in the memory of the process, which the child inherits and
    believes (F37)."""

    def __init__(
        self, connect: Callable[[], C], usable: Callable[[C], bool], in_order: Callable[[C], bool] | None = None, *,
        survives_fork: bool = True,
    ) -> None:  # fmt: skip
        self._connect = connect
        self._usable = usable
        self._in_order = in_order or usable
        self._survives_fork = survives_fork
        self._free: list[C] = []
        self._lent = 0
        self._lock = Lock()
        self._closed = False
        self._forked_open = False
        _pools.add(self)  # type: ignore[arg-type]

    @contextmanager
    def use(self) -> Iterator[C]:
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    @contextmanager
    def fresh(self) -> Iterator[C]:
        """A connection that nobody used before or will after."""
        with self._lock:
            self._lend()
        try:
            with closing(self._connect()) as connection:
                yield connection
        finally:
            self._returned()

    def take(self) -> C:
        """A free connection or a new one. Whoever took it gives it back."""
        with self._lock:
            self._lend()
            if self._free and self._usable(self._free[-1]):
                return self._free.pop()
            broken, self._free = self._free, []
        try:
            for one in broken:
                one.close()
            return self._connect()
        except BaseException:
            self._returned()
            raise

    def give_back(self, connection: C) -> None:
        stale: list[C] = [connection]
        with self._lock:
            if not self._in_order(connection):
                # Where one connection broke (a restart, a failover) the free ones have hardly survived.
                stale, self._free = [connection, *self._free], []
            elif not self._closed and len(self._free) < KEPT:
                self._free.append(connection)
                self._lent -= 1
                return
        try:
            for one in stale:
                one.close()
        finally:
            self._returned()

    def _lend(self) -> None:
        if self._forked_open:
            raise StoreError(
                "this process was forked while its parent had the SQLite file open, and would lose what it writes: "
                "fork before the first use, close() before it, or start processes by spawn",
                number="HF3101",
            )
        self._lent += 1

    def _returned(self) -> None:
        with self._lock:
            self._lent -= 1

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def before_fork(self) -> None:
        """What would not survive is closed while it is still ours alone; what is in use can't be."""
        if not self._survives_fork:
            with self._lock:
                free, self._free = self._free, []
            for connection in free:
                connection.close()

    def in_child(self) -> None:
        """What was open belongs to the parent. Closing it here would end the parent's session, so it is put aside for
        as long as the process lives."""
        _graveyard.extend(self._free)
        self._forked_open = self._forked_open or (not self._survives_fork and self._lent > 0)
        self._free = []
        self._lent = 0
        self._lock = Lock()


def _before_fork() -> None:
    for pool in list(_pools):
        pool.before_fork()


def _in_child() -> None:
    for pool in list(_pools):
        pool.in_child()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
