"""If many processes enqueue at once, one wake-up serves several jobs: each NOTIFY takes the same lock, and would wake
workers that are already awake. A process estimates the load from its own jobs: the ids between two of them are jobs of
others, and others wait about as long for their commits."""

from __future__ import annotations

WINDOW = 0.05  # seconds of one measurement
MANY = 4.5  # commits in flight at the same time, on average
WAKEUPS = 250  # per second, from all processes together, are enough under load
LONGEST_REST = 0.1  # seconds


class WakeupRate:
    """`rest`: seconds to pause between two wake-ups of this process. `commit`: seconds that a commit takes."""

    def __init__(self) -> None:
        self.rest = self.commit = 0.0
        self._began: float | None = None

    def enqueued(self, id: int, seconds: float, now: float) -> None:
        """This process has enqueued a job, which took so many seconds."""
        if self._began is None:
            self._begin(now, id)
            return
        self._jobs += 1
        self._seconds += seconds
        span = now - self._began
        if span < WINDOW:
            return
        all_jobs = max(1, id - self._id)
        self.commit = self._seconds / self._jobs
        processes = all_jobs / self._jobs
        # Little's law: the rate times the time each takes.
        under_way = all_jobs / span * self.commit
        self.rest = min(processes / WAKEUPS, LONGEST_REST) if under_way > MANY else 0.0
        self._begin(now, id)

    def _begin(self, now: float, id: int) -> None:
        self._began, self._id = now, id
        self._jobs, self._seconds = 0, 0.0
