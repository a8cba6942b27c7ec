"""A few open connections, lent one at a time. It has no threads; the connection that was freed last is lent next."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from typing import Generic, Protocol, TypeVar

from holdfast.errors import StoreError


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)

KEPT = 8  # connections kept open when free
_pools: weakref.WeakSet[ConnectionPool[Closable]] = weakref.WeakSet()
_graveyard: list[object] = []
_forked: set[Path | None] = set()  # SQLite files that were open when this process was forked


class ConnectionPool(Generic[C]):
    """`in_order`: may this connection be used again? Asked after each use. `usable`: is it still alive? Asked before it
    is lent, for connections that can break while free. `file`: the SQLite file that the connections have open. SQLite
    records its locks in the memory of the process, which a forked child inherits and trusts: the child must not open
    that file.

    Every enqueue comes through here, so the list of free connections is used without a lock: each access is one call
    that is atomic for other threads."""

    def __init__(
        self, connect: Callable[[], C], in_order: Callable[[C], bool], usable: Callable[[C], bool] | None = None, *,
        file: Path | None = None,
    ) -> None:  # fmt: skip
        self._connect = connect
        self._in_order = in_order
        self._usable = usable
        self.file = file
        self._free: list[C] = []
        self._open: weakref.WeakSet[C] = weakref.WeakSet()  # opened by this process: free or lent
        self._opening = 0
        self._lock = Lock()
        self._closed = False
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
        """A new connection, closed at the end of the block."""
        connection = self._opened()
        try:
            yield connection
        finally:
            self._end(connection)

    def take(self) -> C:
        """A free connection or a new one. The caller gives it back."""
        try:
            connection = self._free.pop()
        except IndexError:
            return self._opened()
        if self._usable is None or self._usable(connection):
            return connection
        self._end(connection)
        self._end_free()
        return self._opened()

    def give_back(self, connection: C) -> None:
        if connection not in self._open:
            self._end(connection)
        elif not self._in_order(connection):
            # If one connection broke (a restart, a failover), the free ones are probably broken, too.
            self._end(connection)
            self._end_free()
        elif len(self._free) < KEPT:
            self._free.append(connection)
            if self._closed:
                self._end_free()
        else:
            self._end(connection)

    def _opened(self) -> C:
        if self.file in _forked:
            raise StoreError(
                "this process was forked while its parent had the SQLite file open, and would lose what it writes: "
                "fork before the first use, close() before it, or start processes by spawn",
                number="HF3101",
            )
        with self._lock:
            self._opening += 1
        try:
            connection = self._connect()
            self._open.add(connection)
        finally:
            with self._lock:
                self._opening -= 1
        return connection

    def _end(self, connection: C) -> None:
        if connection in self._open:
            connection.close()
            self._open.discard(connection)
        else:
            _graveyard.append(connection)  # it was lent when this process was forked, and belongs to its parent

    def _end_free(self) -> None:
        while True:
            try:
                connection = self._free.pop()
            except IndexError:
                return
            self._end(connection)

    def close(self) -> None:
        self._closed = True
        self._end_free()

    @property
    def is_open(self) -> bool:
        return bool(self._open or self._opening)

    def before_fork(self) -> None:
        """Close what a child must not inherit, while we are its only owner. Connections in use can't be closed."""
        if self.file is not None:
            self._end_free()

    def in_child(self) -> None:
        """The open connections belong to the parent. Closing them here would end the parent's sessions, so they are
        kept aside for as long as this process lives."""
        _graveyard.extend(self._open)
        self._free = []
        self._open = weakref.WeakSet()
        self._opening = 0
        self._lock = Lock()


class BorrowedConnection(ConnectionPool[C]):
    """A pool of one connection that belongs to someone else: lent to one thread at a time, and never closed."""

    def __init__(self, connection: C) -> None:
        super().__init__(lambda: connection, lambda connection: True)
        self._connection = connection
        self._turn = RLock()

    def take(self) -> C:
        self._turn.acquire()
        return self._connection

    def give_back(self, connection: C) -> None:
        self._turn.release()

    def close(self) -> None: ...


def _before_fork() -> None:
    for pool in list(_pools):
        pool.before_fork()


def _in_child() -> None:
    pools = list(_pools)
    _forked.update(pool.file for pool in pools if pool.file is not None and pool.is_open)
    for pool in pools:
        pool.in_child()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
