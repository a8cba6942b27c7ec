"""Attempts that a worker asked back from a pooled process, because they have not begun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.runners.channel import Garbled
from holdfast.runners.messages import Withdraw


class Withdrawals:
    """One request at a time for coroutines, and one for synchronous handlers: the process answers each of them, and an
    answer that nobody asked for is refused."""

    def __init__(self, send: Callable[[Withdraw], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._asked_at: dict[bool, float] = {}  # is_async -> since when an answer is due (monotonic)

    def request(self, most: int | None, *, is_async: bool) -> None:
        """What has not begun comes back with the answer."""
        with self._lock:
            if is_async in self._asked_at:
                return
            self._asked_at[is_async] = time.monotonic()
        self._send(Withdraw(is_async, most))

    def answered(self, is_async: bool) -> None:
        if self._asked_at.pop(is_async, None) is None:
            raise Garbled("gave back what nobody asked for")

    def is_pending(self, *, is_async: bool) -> bool:
        return is_async in self._asked_at

    def silent_for(self) -> float:
        """Seconds that an answer is due."""
        return time.monotonic() - min(self._asked_at.values(), default=time.monotonic())
