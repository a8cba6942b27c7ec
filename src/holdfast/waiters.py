"""Wakes callers that wait for a job to finish."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast import events
from holdfast.errors import StoreError
from holdfast.store.base import Store


class Waiters:
    """Wakes callers that wait for a job: one listener per application, which runs only while somebody waits."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        self._reported = False  # that listening failed

    @contextmanager
    def expecting(self, id: str, wake: Callable[[], object]) -> Iterator[None]:
        if os.getpid() != self._pid:  # forked: the listener, and whoever held the lock, are the parent's
            self.__init__(self._store)  # type: ignore[misc]
        with self._lock:
            self._waiting.setdefault(id, []).append(wake)
            if self._thread is None and self._store().wakeups.can_listen:
                self._thread = threading.Thread(target=self._listen, name="holdfast-waiting", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[id].remove(wake)
                if not self._waiting[id]:
                    del self._waiting[id]

    def _listen(self) -> None:
        failed = False
        while True:
            with self._lock:
                if failed or not self._waiting:
                    self._thread = None
                    return
            try:
                self._store().wakeups.listen(self._received, self._nobody, finished=True)
            except StoreError as error:
                failed = True  # waiting callers look at intervals
                if not self._reported:
                    self._reported = True
                    events.emit("deaf", error=str(error))

    def _nobody(self) -> bool:
        with self._lock:
            return not self._waiting

    def _received(self, kind: str, what: str, turn: int | None) -> None:
        with self._lock:
            self._reported = False
            concerned = [self._waiting.get(what, [])] if kind == "finished" else []
            if kind in ("listening", "changed"):  # ignore anything else: anyone may send notifications
                concerned = list(self._waiting.values())
            for wakes in concerned:
                for wake in wakes:
                    with suppress(RuntimeError):  # its event loop is closed
                        wake()
