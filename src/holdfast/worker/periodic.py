"""Loop: do this every so often, wake early, stop cleanly. A thread for the parts of a worker that keep time.
Bell: wakes who waits, also from a signal handler."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast import events

STUMBLE = 1.0  # seconds to wait after an error nobody expected
LONGEST = 3600.0  # seconds of one wait; the kernel counts milliseconds, and refuses more than 24 days of them


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
            except Exception as error:  # noqa: BLE001 - a thread that keeps leases alive must outlive any surprise
                events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                wait = STUMBLE
            if self._wake.wait(wait):
                self._wake.clear()


class Bell:
    """Rung by anyone, heard by one, who may wait for something to read at the same time. A signal handler runs in the
    middle of whatever the main thread does, so there is no lock: who rings leaves a mark, and writes to a pipe if the
    other sleeps; that one lies down first, and looks for the mark then. So one of the two sees the other."""

    def __init__(self) -> None:
        self._rung = False
        self._asleep = False
        self._inside, self._outside = os.pipe()
        os.set_blocking(self._inside, False)
        os.set_blocking(self._outside, False)
        self._waiting = select.poll()
        self._waiting.register(self._inside, select.POLLIN)
        self._beside = -1

    def ring(self) -> None:
        self._rung = True
        if self._asleep:
            with suppress(BlockingIOError):  # it is full, so it wakes
                os.write(self._outside, b"!")

    def wait(self, timeout: float | None = None, beside: int = -1) -> bool:
        """Until it rings, or did since the last wait, or there is something to read `beside` it. False: it was silent
        all the time, or for LONGEST."""
        if beside != self._beside:
            self._watch(beside)
        self._asleep = True
        try:
            if not self._rung:
                timeout_ms = None if timeout is None else max(0.0, min(timeout, LONGEST)) * 1000
                for ready, _ in self._waiting.poll(timeout_ms):
                    if ready == self._inside:
                        os.read(self._inside, 4096)
        finally:
            self._asleep = False
        if not self._rung:
            return False
        self._rung = False  # what rings from here on is heard by the next wait
        return True

    def _watch(self, beside: int) -> None:
        if self._beside >= 0:
            self._waiting.unregister(self._beside)
        if beside >= 0:
            self._waiting.register(beside, select.POLLIN)
        self._beside = beside

    def __del__(self) -> None:
        os.close(self._inside)
        os.close(self._outside)
