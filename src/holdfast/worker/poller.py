"""When to look for work next, and how much to claim."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence

from holdfast import events
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.peers import LATE, Place
from holdfast.model.retry import PollBackoff
from holdfast.store.base import Store
from holdfast.worker.in_flight import InFlight
from holdfast.worker.mandate import Mandate
from holdfast.worker.outbox import BATCH, Outbox, RoundTrip, RunnerClaim
from holdfast.worker.runner_slots import RunnerSlots, SlotTable


class Claims:
    """Knows how many jobs a runner can take now, makes claims for them, each with its own fence, and keeps the fences
    of claims whose reply was lost. The worker chooses the fence, so that it can find out later what such a claim took
    (docs/decisions/0006)."""

    def __init__(
        self, worker: str, queues: tuple[str, ...] | None, lease: float, slots: SlotTable, in_flight: InFlight,
        outbox: Outbox, mandate: Mandate, *, prefetch: bool, most: int,
    ) -> None:  # fmt: skip
        """`prefetch`: False with `after_job_delay`, which asks for a pause between two jobs. `most`: jobs that one
        claim may take; 0: any number."""
        self._worker = worker
        self._queues = queues
        self._lease = lease
        self._slots = slots
        self._in_flight = in_flight
        self._outbox = outbox
        self._mandate = mandate
        self._prefetch = prefetch
        self._most = min(most or BATCH, BATCH)
        self.unknown: list[str] = []  # fences of claims whose reply was lost

    def limits(self, slots: RunnerSlots) -> tuple[int, int]:
        """How many jobs to claim for free slots, and how many ahead of them, which will start soon (`RunnerSlots`).
        Fewer if `claim_size` says so, if outcomes pile up, which is the worker's back-pressure, or if a drain's budget
        is nearly spent."""
        room = slots.free
        if self._prefetch:
            room += slots.prefetchable - self._outbox.backlog
        room = min(room, self._most)
        if self._mandate.budget is not None:
            room = min(room, self._mandate.budget)
        limit = max(0, min(slots.free, room))
        return limit, max(0, room - limit)

    def is_full(self, slots: RunnerSlots) -> bool:
        return self.limits(slots) == (0, 0)

    def has_room(self) -> bool:
        """Could any runner take a job?"""
        return any(not self.is_full(slots) for slots in self._slots)

    def make(self, slots: RunnerSlots, at_least: int = 1) -> RunnerClaim | None:
        """For all that this runner can take now; None if that is less than `at_least`."""
        limit, ahead = self.limits(slots)
        tasks = tuple(task for task in slots.tasks if task not in self._mandate.refused)
        if limit + ahead < at_least or not tasks:
            return None
        wants = Wants(
            fence=str(uuid.uuid4()), worker=self._worker, tasks=tasks, queues=self._queues,
            told=slots.take_lanes(), limit=limit, ahead=ahead, lease=self._lease, held=len(self._in_flight),
            thorough=self._mandate.exhaustive,
        )  # fmt: skip
        return RunnerClaim(wants, slots)


# How far a worker trusts wake-ups.

LOOKS = 20  # in vain, one after the other, before the worker checks whether jobs are enqueued at all
APART = 1.0  # seconds between two looks after which the count starts again
SHORTEST, LONGEST = 0.001, 0.1  # seconds of a rest


class VainWakeups:
    """Anyone who can connect to the database can send notifications. A flood of them must not make a worker look for
    work without end, and honest ones must never have to wait.

    A look is in vain if a wake-up asked for it and it found no job. That alone proves nothing: a peer may have been
    quicker, somebody may have the job locked, or it is for a runner that is full. So after LOOKS of them in a row the
    worker reads the newest job's id, and after as many again it compares. Where wake-ups are honest, jobs were enqueued
    meanwhile, about one for each. Where at most one came for every two looks, the worker rests before the next look
    that a wake-up asks for, twice as long after each one that is in vain. Any job found ends this, and so does the
    news that jobs are enqueued, or a quiet second.

    Wake-ups that arrive during a rest lead to one look at its end (`until`). Looks that the worker makes on its own
    account, or later than a peer because of its rank (model/peers.py), are neither counted nor put off."""

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self.asked = False  # a wake-up asked for the next look
        self.until = 0.0  # monotonic: looks that wake-ups ask for wait until then
        self._rest = 0.0  # seconds of the next rest; 0: wake-ups are trusted
        self._newest_before: int | None = None
        self._looks = 0  # in vain, since the newest id was read
        self._last = 0.0
        self._reported = False

    def found(self) -> None:
        """A look found a job, whoever asked for it."""
        self.asked = False
        self.until = self._rest = 0.0
        self._newest_before, self._looks = None, 0

    def in_vain(self, now: float) -> bool:
        """A look that a wake-up asked for found nothing. True: the worker starts to rest, for the first time ever. A
        flood may come and go; one report is enough."""
        if now > self._last + APART:
            self.found()
        self.asked, self._last = False, now
        self._looks += 1
        if self._looks >= LOOKS:
            self._compare()
        if not self._rest:
            return False
        self.until = now + self._rest
        self._rest = min(2 * self._rest, LONGEST)
        first, self._reported = not self._reported, True
        return first

    def _compare(self) -> None:
        before, looks = self._newest_before, self._looks
        newest = self._newest()
        if before is not None and 2 * (newest - before) > looks:
            self.found()
        elif before is not None:
            self._rest = self._rest or SHORTEST
        self._newest_before, self._looks = newest, 0


# What a worker tells its peers: the other workers that serve the same tasks and queues (model/peers.py).
#
# A wake-up for one job reaches two workers only. What they know of each other may be a lease old, so the one that was
# told may be full. Then it has to wake others, or the job would wait although another worker has a free slot.

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


CONTENDED = 0.05  # seconds before the next look if all that is due was locked
ONCE_MORE = 0.1  # seconds before a look that found less than it wanted is repeated, at all lanes
NOT_THERE = 0.01  # the same if it was told of a job and found none: whoever begins to wait for one locks it a moment
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
        self.empty_polls = 0  # in a row; one look is one poll, for however many runners it is
        self._counted = False  # this look, among the empty ones or as one that found something
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
        """A job falls due then. During a rest (`VainWakeups`) that is not believed yet."""
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
        self._counted = False
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
            self.empty_polls, self._counted = 0, True
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
                self.look_within(ONCE_MORE if claimed.jobs else NOT_THERE, now)
        else:
            self._plan_after_full_look(claimed, now)

    def _plan_after_full_look(self, claimed: Claimed, now: float) -> None:
        """All lanes were looked at, and nothing due was left."""
        next_due = claimed.next_due
        if next_due is not None and self.listening:
            next_due = self.peers.due_in(next_due)
        else:
            self.peers.announce_due = False
        first = not self._counted
        wait = self.wait(next_due)
        if claimed.jobs:
            wait = ONCE_MORE if wait is None else min(wait, ONCE_MORE)
        if wait is not None:
            self.look_within(wait, now)
        if first:
            events.emit("polled", empty_polls=self.empty_polls, wait=wait or 0.0)

    def wait(self, next_due: float | None) -> float | None:
        """Seconds until the next look after one that left nothing; None: until a wake-up."""
        if not self._counted:
            self.empty_polls, self._counted = self.empty_polls + 1, True
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
