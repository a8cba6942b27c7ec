"""Loop: do this every so often, wake early, stop cleanly. A thread for the parts of a worker that keep time."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
            wait = self._step()
            if self._wake.wait(wait):
                self._wake.clear()
