"""Do many enqueue at once? Then one wake-up serves for several jobs: each takes a lock that all of them take, and wakes
somebody who is awake. Who enqueues sees it from its own jobs alone: the ids between two of them are others' jobs,
and as long as it waits for its commits, they wait for theirs."""

from __future__ import annotations

WINDOW = 0.05  # seconds that are looked at together
MANY = 4.5  # commits under way at the same time, on average
WAKEUPS = 250  # a second, from all who enqueue, are enough where they are many
LONGEST_REST = 0.1  # seconds


class WakeupRate:
    """`rest`: seconds between two wake-ups of this process. `commit`: seconds a commit takes."""

    def __init__(self) -> None:
        self.rest = self.commit = 0.0
        self._began: float | None = None

    def enqueued(self, id: int, seconds: float, now: float) -> None:
        """This process has enqueued a job, which took so long."""
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
        # By Little's law: so many a second, each for so long.
        under_way = all_jobs / span * self.commit
        self.rest = min(processes / WAKEUPS, LONGEST_REST) if under_way > MANY else 0.0
        self._begin(now, id)

    def _begin(self, now: float, id: int) -> None:
        self._began, self._id = now, id
        self._jobs, self._seconds = 0, 0.0
