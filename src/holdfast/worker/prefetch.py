"""How far ahead of its free slots a lane may claim: no more than will start in a moment, as the attempts before them
tell. So a worker with short jobs takes them by the thousand, and one with long jobs leaves them to others."""

from __future__ import annotations

SOON = 0.1  # seconds within which a job claimed ahead should start
FIRST = 100  # jobs claimed ahead at first, if they are short enough
HEAVIEST = 32_000_000  # bytes of arguments claimed ahead
FARTHEST = 4_000  # jobs claimed ahead at most: more gain nothing (docs/decisions/0007)


class Prefetch:
    """Two bounds. Each slot takes the next job when it is through with one: so many start within a moment. And what was
    handed out before waited so long: many slots may share one processor, which only the waiting shows."""

    def __init__(self) -> None:
        self._run_time = 0.0  # seconds an attempt takes
        self._window = FIRST
        self._count = 0
        self._seconds = 0.0
        self._longest_wait = 0.0
        self._weight = 0.0  # bytes of arguments a job has

    def weigh(self, jobs: int, arguments: int) -> None:
        """So many were claimed, with so many bytes of arguments."""
        self._weight = max(arguments / jobs, self._weight / 2)

    def ended(self, count: int, seconds: float, longest_wait: float) -> None:
        """So many attempts ended: how long they took together, and the longest that one of them waited for its slot."""
        self._count += count
        self._seconds += seconds
        self._longest_wait = max(longest_wait, self._longest_wait)

    def measure(self) -> None:
        """Take in what ended since the last time."""
        if not self._count:
            return
        newest = self._seconds / self._count
        self._run_time = (self._run_time + newest) / 2 if self._run_time else newest
        if self._longest_wait > SOON:
            self._window = max(1, self._window // 2)
        elif self._longest_wait < SOON / 2:
            # At this rate so many would start soon; but not from a few to thousands without a look in between.
            soon = int(self._count * SOON / max(self._longest_wait, 0.001))
            self._window = min(FARTHEST, max(self._window, min(soon, self._window * 40)))
        self._count, self._seconds, self._longest_wait = 0, 0.0, 0.0

    def stalled(self) -> None:
        """What was claimed ahead did not start in time: nothing more until it is known anew how long attempts take."""
        self._window, self._run_time = FIRST, 0.0

    def ahead(self, slots: int) -> int:
        if not self._run_time:
            return 0
        return min(self._window, int(SOON * slots / self._run_time), int(HEAVIEST / max(1.0, self._weight)))
