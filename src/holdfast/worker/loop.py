"""Loop: periodic work on a thread of its own, done early when woken, stopped cleanly. Bell: wakes the desk."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast import events

STUMBLE = 1.0  # seconds to wait after an unexpected error
LONGEST = 3600.0  # seconds of one wait: poll(2) counts milliseconds in 32 bits, and refuses more than 24 days


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


class Bell:
    """Anyone may ring; one thread waits.

    A signal handler may ring, and it interrupts the main thread anywhere, so there can be no lock. Whoever rings sets a
    flag, then writes to a pipe if the other thread sleeps. Whoever waits first says that it sleeps, then checks the
    flag. So one of the two always notices the other."""

    def __init__(self) -> None:
        self._rung = False
        self._asleep = False
        self._inside, self._outside = os.pipe()
        os.set_blocking(self._inside, False)
        os.set_blocking(self._outside, False)
        self._poll = select.poll()
        self._poll.register(self._inside, select.POLLIN)

    def ring(self) -> None:
        self._rung = True
        if self._asleep:
            with suppress(BlockingIOError):  # the pipe is full, so the other thread wakes anyway
                os.write(self._outside, b"!")

    def wait(self, timeout: float | None = None) -> bool:
        """Until it rings, or rang since the last wait. False: it did not ring within the timeout, nor within
        LONGEST."""
        self._asleep = True
        try:
            if not self._rung:
                timeout_ms = None if timeout is None else max(0.0, min(timeout, LONGEST)) * 1000
                if self._poll.poll(timeout_ms):
                    os.read(self._inside, 4096)
        finally:
            self._asleep = False
        if not self._rung:
            return False
        self._rung = False  # what rings from here on ends the next wait
        return True

    def __del__(self) -> None:
        os.close(self._inside)
        os.close(self._outside)
