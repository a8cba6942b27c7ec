"""How quickly a count grows, of late."""

from __future__ import annotations

WINDOW = 30.0  # seconds; what lies more than twice as far back is forgotten


class Speed:
    """Told now and then how far a count is, tells items a second over the last half minute to a minute."""

    def __init__(self, at: float, count: int) -> None:
        self._from = self._next = (at, count)

    def now(self, at: float, count: int) -> float | None:
        """None: too early to tell, or the count began anew."""
        began, first = self._from
        if count < first:
            self._from = self._next = (at, count)
            return None
        if at - self._next[0] >= WINDOW:
            self._from, self._next = self._next, (at, count)
        return (count - first) / (at - began) if at > began else None
