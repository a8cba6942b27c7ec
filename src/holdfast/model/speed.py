"""How quickly a count grows at present."""

from __future__ import annotations

WINDOW = 30.0  # seconds; nothing older than two windows is used


class Speed:
    """Given a count from time to time, works out items a second over the last 30 to 60 seconds."""

    def __init__(self, at: float, count: int) -> None:
        self._from = self._next = (at, count)

    def now(self, at: float, count: int) -> float | None:
        """None: too early to tell, or the count started again from a smaller number."""
        began, first = self._from
        if count < first:
            self._from = self._next = (at, count)
            return None
        if at - self._next[0] >= WINDOW:
            self._from, self._next = self._next, (at, count)
        return (count - first) / (at - began) if at > began else None
