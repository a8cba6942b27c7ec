"""Sends wake-ups after the commit, on a thread and connection of its own, coalesced: however many jobs are enqueued
while one NOTIFY is under way, the next carries each queue once. (Inside the transaction, NOTIFY makes commits queue
for one database-wide lock, F18.) A wake-up is a hint: one that can't be sent is dropped, polling finds the job."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable

from holdfast import events
from holdfast.errors import StoreError
from holdfast.store.postgres.connect import Connection, translated

SEND = "select pg_notify(c, p) from unnest(%s::text[], %s::text[]) as w (c, p)"
IDLE = 10.0  # seconds without a wake-up after which thread and connection are given up
FLUSH = 1.0  # seconds a process that exits waits for its last wake-ups


_notifiers: weakref.WeakSet[Notifier] = weakref.WeakSet()


class Notifier:
    def __init__(self, connect: Callable[[], Connection], where: str) -> None:
        self._connect = connect
        self._where = where
        self.reset()
        _notifiers.add(self)
        atexit.register(_flush, weakref.ref(self))

    def reset(self) -> None:
        """Begin afresh. In a forked child the thread is gone, and may have held the lock when it went (F37)."""
        self._waiting: dict[tuple[str, str], None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._sending = False

    def send(self, wakeups: Iterable[tuple[str, str]]) -> None:
        with self._changed:
            before = len(self._waiting)
            self._waiting.update(dict.fromkeys(wakeups))
            if len(self._waiting) == before:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="holdfast-notify", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout: float = FLUSH) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._sending, timeout)

    def _run(self) -> None:
        connection: Connection | None = None
        try:
            while batch := self._next():
                try:
                    with translated(self._where):
                        if connection is None or connection.closed:
                            connection = self._connect()
                        connection.execute(SEND, ([c for c, _ in batch], [p for _, p in batch]))
                except StoreError as error:
                    events.emit("notify_failed", error=str(error))
                finally:
                    with self._changed:
                        self._sending = False
                        self._changed.notify_all()
        finally:
            if connection is not None:
                connection.close()

    def _next(self) -> list[tuple[str, str]]:
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._waiting), IDLE):
                self._thread = None
                return []
            batch, self._waiting = list(self._waiting), {}
            self._sending = True
            return batch


def _flush(notifier: weakref.ref[Notifier]) -> None:
    alive = notifier()
    if alive is not None:
        alive.flush()


def _reset_all() -> None:
    for notifier in list(_notifiers):
        notifier.reset()


os.register_at_fork(after_in_child=_reset_all)
