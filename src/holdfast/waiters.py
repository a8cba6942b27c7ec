"""Wakes those who wait for a job's end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from holdfast import events
from holdfast.errors import StoreError
from holdfast.store.base import Store


class Waiters:
    """Wakes those who wait for a job: one listener per application, only while somebody waits."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        self._told = False  # that nothing is heard

    @contextmanager
    def expecting(self, id: str, wake: Callable[[], object]) -> Iterator[None]:
        if os.getpid() != self._pid:  # forked: the listener is the parent's, and so is who held the lock
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
        deaf = False
        while True:
            with self._lock:
                if deaf or not self._waiting:
                    self._thread = None
                    return
            try:
                self._store().wakeups.listen(self._heard, self._nobody, finished=True)
            except StoreError as error:
                deaf = True  # those who wait look by themselves, a little later
                if not self._told:
                    self._told = True
                    events.emit("deaf", error=str(error))

    def _nobody(self) -> bool:
        with self._lock:
            return not self._waiting

    def _heard(self, kind: str, what: str) -> None:
        with self._lock:
            self._told = False
            concerned = [self._waiting.get(what, [])] if kind == "finished" else []
            if kind in ("listening", "changed"):  # anything else is not ours: anyone may notify
                concerned = list(self._waiting.values())
            for wakes in concerned:
                for wake in wakes:
                    with suppress(RuntimeError):  # its event loop is closed
                        wake()
