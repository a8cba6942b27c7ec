"""A few open connections, handed out one at a time. No threads, no surprises: the newest one free is the next used."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """`in_order`: is this one fit for further use? Asked after each. `usable`: is it still? Asked before it is lent,
    where one that is free can break. `survives_fork`: may a child open connections of its own while ones from before
    the fork exist? PostgreSQL's may; SQLite keeps what it has locked in the memory of the process, which the child
    inherits and believes (F37).

    Whoever enqueues passes here: the list of free ones is taken from and added to without a lock, each by one call that
    no thread can see half done."""

    def __init__(
        self, connect: Callable[[], C], in_order: Callable[[C], bool], usable: Callable[[C], bool] | None = None, *,
        survives_fork: bool = True,
    ) -> None:  # fmt: skip
        self._connect = connect
        self._in_order = in_order
        self._usable = usable
        self._survives_fork = survives_fork
        self._free: list[C] = []
        self._open: set[C] = set()  # by this process: free or lent
        self._opening = 0
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
        connection = self._opened()
        try:
            yield connection
        finally:
            self._end(connection)

    def take(self) -> C:
        """A free connection or a new one. Whoever took it gives it back."""
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
            _graveyard.append(connection)  # lent before this process was forked: see in_child
        elif not self._in_order(connection):
            # Where one connection broke (a restart, a failover) the free ones have hardly survived.
            self._end(connection)
            self._end_free()
        elif len(self._free) < KEPT:
            self._free.append(connection)
            if self._closed:
                self._end_free()
        else:
            self._end(connection)

    def _opened(self) -> C:
        if self._forked_open:
            raise StoreError(
                "this process was forked while its parent had the SQLite file open, and would lose what it writes: "
                "fork before the first use, close() before it, or start processes by spawn",
                number="HF3101",
            )
        with self._lock:
            self._opening += 1
        connection: C | None = None
        try:
            connection = self._connect()
        finally:
            with self._lock:
                self._opening -= 1
                if connection is not None:
                    self._open.add(connection)
        return connection

    def _end(self, connection: C) -> None:
        try:
            connection.close()
        finally:
            with self._lock:
                self._open.discard(connection)

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

    def before_fork(self) -> None:
        """What would not survive is closed while it is still ours alone; what is in use can't be."""
        if not self._survives_fork:
            self._end_free()

    def in_child(self) -> None:
        """What was open belongs to the parent. Closing it here would end the parent's session, so it is put aside for
        as long as the process lives."""
        _graveyard.extend(self._open)
        self._forked_open = self._forked_open or (not self._survives_fork and bool(self._open or self._opening))
        self._free = []
        self._open = set()
        self._opening = 0
        self._lock = Lock()


def _before_fork() -> None:
    for pool in list(_pools):
        pool.before_fork()


def _in_child() -> None:
    for pool in list(_pools):
        pool.in_child()


os.register_at_fork(before=_before_fork, after_in_child=_in_child)
