"""Periodic work on a thread of its own: every so often, early when woken, and stopped cleanly."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast import events

STUMBLE = 1.0  # seconds to wait after an unexpected error


class Loop:
    """Calls `step` again and again. What it returns is the longest wait until the next call, in seconds."""

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
        self.join(timeout)

    def join(self, timeout: float) -> None:
        self._thread.join(max(0.0, timeout))

    @property
    def stopping(self) -> bool:
        return self._stopping

    def _run(self) -> None:
        while not self._stopping:
            try:
                wait = self._step()
            except Exception as error:  # noqa: BLE001 - a thread that keeps leases alive must survive any surprise
                events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                wait = STUMBLE
            if self._wake.wait(wait):
                self._wake.clear()
