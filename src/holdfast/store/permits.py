"""A fair semaphore: at most so many permits at once, first come, first served. A permit is a future, so that threads
and coroutines can wait for one side by side."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from threading import Lock

Permit = Future[None]  # done: it was granted


class Permits:
    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[Permit] = deque()
        self._lock = Lock()

    def ask(self) -> Permit:
        permit = Permit()
        with self._lock:
            if self._free:
                self._free -= 1
                permit.set_result(None)
            else:
                self._line.append(permit)
        return permit

    def give_back(self, permit: Permit) -> None:
        """Whether it was granted or is still waited for."""
        if permit.cancel():
            return
        with self._lock:
            heir = self._next()
            if heir is None:
                self._free += 1
        if heir is not None:
            heir.set_result(None)  # not under the lock: this runs callbacks of whoever waits

    def _next(self) -> Permit | None:
        while self._line:
            heir = self._line.popleft()
            if heir.set_running_or_notify_cancel():
                return heir
        return None
