"""A few open connections, handed out one at a time. No threads, no surprises: the newest one free is the next used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)

KEPT = 8  # connections kept open when free
_pools: weakref.WeakSet[Pool[Closable]] = weakref.WeakSet()
_graveyard: list[object] = []


class Pool(Generic[C]):
    def __init__(self, connect: Callable[[], C], usable: Callable[[C], bool]) -> None:
        self._connect = connect
        self._usable = usable
        self._free: list[C] = []
        self._lock = Lock()
        self._closed = False
        _pools.add(self)  # type: ignore[arg-type]

    @contextmanager
    def use(self) -> Iterator[C]:
        connection = self._take() or self._connect()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _take(self) -> C | None:
        with self._lock:
            while self._free:
                connection = self._free.pop()
                if self._usable(connection):
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: C) -> None:
        stale: list[C] = [connection]
        with self._lock:
            if not self._usable(connection):
                # Where one connection broke (a restart, a failover) the free ones have hardly survived.
                stale, self._free = [connection, *self._free], []
            elif not self._closed and len(self._free) < KEPT:
                self._free.append(connection)
                return
        for one in stale:
            one.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def disarm(self) -> None:
        """In a forked child: what was open belongs to the parent. Closing it here would end the parent's session
        (PostgreSQL) or drop its locks (SQLite), so it is put aside for as long as the process lives (F37)."""
        _graveyard.extend(self._free)
        self._free = []
        self._lock = Lock()


def _disarm_all() -> None:
    for pool in list(_pools):
        pool.disarm()


os.register_at_fork(after_in_child=_disarm_all)
