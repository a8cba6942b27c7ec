"""What a worker tells its peers: the other workers that serve the same tasks and queues (model/peers.py).

A wake-up for one job reaches two workers only. What they know of each other may be a lease old, so the one that was
told may be full. Then it has to wake others, or the job would wait although another worker has a free slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.model.job import ClaimedJob
from holdfast.model.peers import LATE, Place
from holdfast.store.base import Store
from holdfast.worker.claims import Claims
from holdfast.worker.runner_slots import RunnerSlots

ALL_AWAKE = 1.0  # seconds after a wake-up for all workers in which a full worker wakes nobody


class Peers:
    """Instants are monotonic."""

    def __init__(self, store: Store, claims: Claims) -> None:
        self._store = store
        self._claims = claims
        self.place = Place()  # this worker's rank among its peers, and how many they are
        self.wake_all_at: float | None = None  # when to wake all, because of a job that we had no slot for
        self.announce_due = False  # only this worker was told to look: it announces the next due time it learns of
        self._all_woken_at = 0.0
        self._overdue_announced_at = 0.0

    @property
    def exist(self) -> bool:
        return self.place.count > 1

    def all_woken(self, now: float) -> None:
        """Every worker heard a wake-up."""
        self._all_woken_at = now

    def job_announced(self, slots: Iterable[RunnerSlots], now: float) -> None:
        """We were the first to hear of a job for one of these runners. If one is full, wake the others in a moment:
        more such jobs may follow, and one wake-up serves for all of them."""
        if self.wake_all_at is None and self.exist and any(self._claims.is_full(one) for one in slots):
            self.wake_all_at = now + LATE

    def wake_all_if_time(self, slots: Iterable[RunnerSlots], now: float) -> None:
        if self.wake_all_at is not None and self.wake_all_at <= now:
            self.wake_all_at = None
            if any(self._claims.is_full(one) for one in slots):
                self._store.wakeups.notify([""])  # all of them: a few might be full as well

    def due_now(self, now: float) -> float | None:
        """A job falls due, and only two workers set a timer for that. If this one is full, others have to look.
        Returns when to try again, if we announced one a moment ago: due times arrive as wake-ups, so a flood of them
        must not cause a flood of announcements."""
        if not self.exist or self._claims.has_room():
            return None
        if now < self._overdue_announced_at + LATE:
            return self._overdue_announced_at + LATE
        self._overdue_announced_at = now
        self._store.wakeups.hint("")
        return None

    def due_in(self, seconds: float) -> float | None:
        """In how many seconds this worker looks for a job that falls due; None: others have set a timer. If we may be
        the only one that knows of it, they are told."""
        announce, self.announce_due = self.announce_due, False
        ours = self.place.due(seconds)
        if ours is None and announce:
            self._store.wakeups.hint("", due_in=seconds)
        return ours

    def wake_for_more(self, jobs: Sequence[ClaimedJob], now: float) -> None:
        """An idle worker claimed these and is full at once, so there may be more. Unless all workers were woken just
        now, wake some."""
        if not self.exist or now < self._all_woken_at + ALL_AWAKE:
            return
        if len(jobs) == 1:
            self._store.wakeups.hint(jobs[0].queue, (jobs[0].task, jobs[0].priority))
        else:
            self._store.wakeups.notify({job.queue for job in jobs})
