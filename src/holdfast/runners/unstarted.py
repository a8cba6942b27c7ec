"""Attempts that wait for a slot. The desk adds them, slots take them, and each is taken exactly once."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from holdfast.tasks.attempt import Attempt


class Unstarted(deque[Attempt]):
    """The oldest is taken first (`popleft` raises IndexError when there is none). Safe from any thread."""

    def since(self) -> float | None:
        """When the oldest was claimed (monotonic)."""
        try:
            return self[0].taken
        except IndexError:
            return None

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """Take back what has not begun, the newest first."""
        back: list[Attempt] = []
        with suppress(IndexError):  # none is left
            while most is None or len(back) < most:
                back.append(self.pop())
        return back
