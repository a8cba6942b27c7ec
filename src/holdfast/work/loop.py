"""Loop: do this every so often, wake early, stop cleanly. A thread for the parts of a worker that keep time.
Bell: wakes who waits, also from a signal handler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from holdfast import events

STUMBLE = 1.0  # seconds to wait after an error nobody expected


class Loop:
    """Calls `step` on a thread of its own; what it returns is the longest wait until the next call."""

    def __init__(self, name: str, step: Callable[[], float]) -> None:
        self._step = step
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self, timeout: float = 5.0) -> None:
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)

    @property
    def stopping(self) -> bool:
        return self._stopping

    def _run(self) -> None:
        while not self._stopping:
            try:
                wait = self._step()
            except Exception as error:  # noqa: BLE001 - a thread that keeps leases alive must outlive any surprise
                events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                wait = STUMBLE
            if self._wake.wait(wait):
                self._wake.clear()


class Bell:
    """Rung by anyone, heard by one. A signal handler runs in the middle of whatever the main thread does: with an Event
    it could wait for a lock which that very thread holds. A SimpleQueue may be interrupted by itself."""

    def __init__(self) -> None:
        self._rung: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        if self._rung.empty():
            self._rung.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Until it rings, or did since the last wait. False: it was silent all the time."""
        try:
            self._rung.get(timeout=timeout)
            while not self._rung.empty():
                self._rung.get_nowait()
        except Empty:
            return False
        return True
