"""When to look for work next."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import events
from holdfast.model.backoff import PollBackoff
from holdfast.model.job import Claimed
from holdfast.worker.peers import Peers
from holdfast.worker.round_trip import RoundTrip, RunnerClaim
from holdfast.worker.runner_slots import RunnerSlots, SlotTable
from holdfast.worker.vain_wakeups import VainWakeups

CONTENDED = 0.05  # seconds before the next look if all that is due was locked
ONCE_MORE = 0.1  # seconds before a look that found less than it wanted is repeated, at all lanes
SOON = 0.1  # seconds before the next look within which spent leases may wait for it


class Poller:
    """While wake-ups arrive, an empty look sets no timer but for the next due time; the watchdog's look, at least once
    a lease, is the fallback. Without wake-ups it polls, backing off while nothing is found.

    It keeps the instants (all monotonic); which runner a look is for stands in its RunnerSlots."""

    def __init__(self, slots: SlotTable, peers: Peers, vain: VainWakeups, backoff: PollBackoff) -> None:
        self._slots = slots
        self._backoff = backoff
        self.peers = peers
        self.vain = vain
        self.listening = False  # wake-ups arrive
        self.empty_polls = 0  # in a row
        self.nothing_due = False  # the last look was for all runners, at all lanes, and found nothing
        self.look_at: float | None = None  # when to look again by our own account
        self.due_at: float | None = None  # when a job falls due that somebody told us of
        self.not_before = 0.0  # a pause between jobs (`after_job_delay`)
        self._due_by_wakeup = False  # the look at `due_at` counts as asked for by a wake-up

    # -- before a look -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Ask for the looks whose time has come."""
        if any(at is not None and at <= now for at in (self.look_at, self.due_at)):
            if self.due_at is not None and self.due_at <= now and self._due_by_wakeup:
                self.vain.asked = True
            self.look_at = self.due_at = None
            self._slots.look_everywhere()
            self.look_at = self.peers.due_now(now)
        self.peers.wake_all_if_time(self._slots, now)

    def look_within(self, seconds: float, now: float) -> None:
        at = now + seconds
        self.look_at = at if self.look_at is None else min(at, self.look_at)

    def job_due_at(self, at: float, *, by_wakeup: bool) -> None:
        """A job falls due then. During a rest (vain_wakeups.py) that is not believed yet."""
        at = max(at, self.vain.until)
        if self.due_at is None or at < self.due_at:
            self.due_at, self._due_by_wakeup = at, by_wakeup

    def work_came(self) -> None:
        """Jobs went back to the queue after the last look: look again, also to learn when they fall due."""
        self.nothing_due = False
        self._slots.look_everywhere()

    def slot_freed(self, now: float, pause: float) -> None:
        """An attempt ended. Who listens would have heard of new work; who polls looks at once. `pause`: seconds to wait
        before the next job."""
        if pause:
            self.not_before = now + pause
        if not self.listening:
            self._slots.look_everywhere()

    # -- around a look -------------------------------------------------------------------------------------------------

    def begin(self, looking: Sequence[RunnerSlots]) -> None:
        """A look begins, for these runners. Wake-ups from here on are about something newer."""
        self.nothing_due = len(looking) == len(self._slots)  # else some runner is full, and nobody looks for it
        if self.nothing_due and all(slots.look_everywhere for slots in looking):
            self.look_at = None  # this is that look

    def look_follows(self, claim: RunnerClaim | None, now: float) -> bool:
        """Will a look at all lanes follow soon? Leases to delete can wait for that."""
        if not self.listening:
            return False
        return bool(claim.wants.told) if claim is not None else self.look_at is not None and self.look_at <= now + SOON

    def plan(self, trip: RoundTrip, claimed: Claimed, now: float) -> None:
        """Schedule the next look from a claim's result."""
        assert trip.claim is not None
        slots, wants = trip.claim.slots, trip.claim.wants
        slots.looked(claimed.jobs, may_prefetch=not claimed.passed)
        if claimed.jobs or claimed.more or claimed.passed or wants.told:
            self.nothing_due = False
        if claimed.jobs:
            self.empty_polls = 0
        if claimed.jobs or claimed.more:
            self.vain.found()
        if claimed.more and not claimed.jobs:
            self.contended(now)
        elif claimed.more or claimed.passed or len(claimed.jobs) == wants.limit + wants.ahead:
            slots.look_everywhere = True  # there may be more, anywhere
            if claimed.jobs and not trip.outcomes:
                self.peers.wake_for_more(claimed.jobs, now)
        elif claimed.jobs and not self.listening:
            slots.look_everywhere = True  # polling: again at once while there is work and room
        elif wants.told:
            if claimed.jobs or not slots.only_reserve:
                self.look_within(ONCE_MORE, now)
        else:
            self._plan_after_full_look(claimed, now)

    def _plan_after_full_look(self, claimed: Claimed, now: float) -> None:
        """All lanes were looked at, and nothing due was left."""
        next_due = claimed.next_due
        if next_due is not None and self.listening:
            next_due = self.peers.due_in(next_due)
        else:
            self.peers.announce_due = False
        wait = self.wait(next_due)
        if claimed.jobs:
            wait = ONCE_MORE if wait is None else min(wait, ONCE_MORE)
        if wait is not None:
            self.look_within(wait, now)
        if not claimed.jobs:
            events.emit("polled", empty_polls=self.empty_polls, wait=wait or 0.0)

    def wait(self, next_due: float | None) -> float | None:
        """Seconds until the next look after one that left nothing; None: until a wake-up."""
        self.empty_polls += 1
        due = None if next_due is None else max(0.0, next_due)
        if self.listening:
            return due
        pause = self._backoff.wait(self.empty_polls)
        return pause if due is None else min(pause, due)

    def contended(self, now: float) -> None:
        """All that is due is locked by others, perhaps for long: look again soon, but not at once."""
        self.look_at = now + CONTENDED

    def failed(self, now: float) -> None:
        """The look failed, and not because the database is away: wait as after one that found nothing."""
        for slots in self._slots:
            slots.look_everywhere = False
        self.look_at = now + self._backoff.wait(self.empty_polls + 1)

    def in_vain(self, now: float) -> bool:
        """Call this after each look. True: wake-ups led to nothing so often that the worker now rests between them;
        said once."""
        return self.vain.asked and self.vain.in_vain(now)
