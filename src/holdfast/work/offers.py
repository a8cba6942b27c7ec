"""What an idle worker offers: to take the next job of each kind that came alone of late. Whoever enqueues one claims
it for us in the same transaction, and tells us all of it, so that it starts without another way to the database
(docs/decisions/0022). An offer is a claim whose answer is still to come: its fence is ours from the start, and one that
we may not hear of any more is looked up by that fence, as any claim whose reply was lost.

Only who has nothing to do offers: else a job would wait here for a slot that another worker has free."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from holdfast.model.job import Held
from holdfast.store.base import Ear, Store

QUIET = 0.02  # seconds in which nothing comes and nothing ends before offers are made: wake-ups serve a busy worker
MOST = 8  # kinds of jobs to offer for

# Goes on while the machine sleeps.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

Kind = tuple[str, str]  # queue, task


class Offers:
    """`at`: when to see to them (monotonic). `ended`: fences of those that are to be taken back in the database,
    too."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self.at: float | None = None
        self.ended: list[str] = []
        self._calm_at = 0.0
        self._kinds: dict[Kind, None] = {}  # the newest last
        self._standing: dict[str, Kind] = {}  # by fence
        self._ahead = 0.0  # seconds the database's clock is ahead of ours

    def came_alone(self, job: Held) -> None:
        kind = job.queue, job.task
        self._kinds.pop(kind, None)
        self._kinds[kind] = None
        if len(self._kinds) > MOST:
            del self._kinds[next(iter(self._kinds))]
        self.stir()

    def stir(self) -> None:
        """Something came, or has ended."""
        if self._kinds:
            self._calm_at = time.monotonic() + QUIET
            if self.at is None:
                self.at = self._calm_at

    def due(self) -> bool:
        return self.at is not None and self.at <= time.monotonic()

    def taken(self, fence: str) -> bool:
        """Somebody took this one. False: it is none that stands."""
        return self._standing.pop(fence, None) is not None

    def age(self, at: float) -> float:
        """Seconds since then, an instant of the database's clock, by our own: we may have been asleep, or stopped."""
        return time.clock_gettime(CLOCK) + self._ahead - at

    def make(self, ear: Ear, room_for: Callable[[Kind, int], bool]) -> None:
        """Offer what is not offered yet, if it is quiet. `room_for`: has a kind's runner more free slots than so many?
        That many offers stand."""
        if self._calm_at > time.monotonic():
            self.at = self._calm_at
            return
        self.at = None
        new: dict[str, Kind] = {}
        for kind in reversed(self._kinds):
            standing = self._standing.values()
            if kind not in standing and room_for(kind, len(standing)):
                fence = str(uuid.uuid4())
                new[fence] = self._standing[fence] = kind
        if not new:
            return
        try:
            self._ahead = ear.offer(self._worker, new) - time.clock_gettime(CLOCK)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """None stands any more, as far as we go: who takes one from now on is not heard."""
        self.at = None
        self.ended += self._standing
        self._standing.clear()

    def withdraw(self, store: Store) -> list[str]:
        """Have those that ended taken by nobody. Returns the fences of others: what was claimed under them is ours."""
        untaken = store.withdraw_offers(self.ended)
        taken = [fence for fence in self.ended if fence not in untaken]
        self.ended = []
        return taken
