"""How many jobs a runner may claim ahead of its free slots: only as many as will start within a moment, judging by
the attempts before them. So a worker with short jobs claims thousands at once, and one with long jobs leaves them to
other workers."""

from __future__ import annotations

SOON = 0.1  # seconds within which a prefetched job should start
FIRST = 100  # jobs prefetched at first, if they are short enough
HEAVIEST = 32_000_000  # bytes of arguments prefetched
FARTHEST = 4_000  # jobs prefetched at most: more gain nothing (docs/decisions/0007)


class Prefetch:
    """Two bounds apply. The first is slots divided by run time: each slot takes its next job when it is done with one.
    The second is a window that grows and shrinks with how long recent jobs waited for a slot: many slots may share one
    processor, and only the waiting shows that."""

    def __init__(self) -> None:
        self._run_time = 0.0  # seconds an attempt takes
        self._window = FIRST
        self._count = 0
        self._seconds = 0.0
        self._longest_wait = 0.0
        self._weight = 0.0  # bytes of arguments a job has

    def weigh(self, jobs: int, argument_bytes: int) -> None:
        """Note the size of the jobs of one claim."""
        self._weight = max(argument_bytes / jobs, self._weight / 2)

    def ended(self, count: int, seconds: float, longest_wait: float) -> None:
        """Note attempts that ended: how long they ran in total, and the longest that one of them waited for a slot."""
        self._count += count
        self._seconds += seconds
        self._longest_wait = max(longest_wait, self._longest_wait)

    def measure(self) -> None:
        """Adjust both bounds to what ended since the last call."""
        if not self._count:
            return
        newest = self._seconds / self._count
        self._run_time = (self._run_time + newest) / 2 if self._run_time else newest
        if self._longest_wait > SOON:
            self._window = max(1, self._window // 2)
        elif self._longest_wait < SOON / 2:
            # At this rate so many would start soon. But never grow from a few to thousands in a single step.
            soon = int(self._count * SOON / max(self._longest_wait, 0.001))
            self._window = min(FARTHEST, max(self._window, min(soon, self._window * 40)))
        self._count, self._seconds, self._longest_wait = 0, 0.0, 0.0

    def stalled(self) -> None:
        """Prefetched jobs did not start in time: prefetch nothing until the run time is known anew."""
        self._window, self._run_time = FIRST, 0.0

    def ahead(self, slots: int) -> int:
        if not self._run_time:
            return 0
        return min(self._window, int(SOON * slots / self._run_time), int(HEAVIEST / max(1.0, self._weight)))
