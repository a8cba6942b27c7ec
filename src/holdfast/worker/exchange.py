"""The desk's round trips to the database."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from holdfast import events
from holdfast.errors import OutcomeUnknown, RowLocked, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.job import Claimed
from holdfast.model.retry import POLL_TRIES, error_delay, outcome_delay
from holdfast.store.base import Store, Trips
from holdfast.worker.intake import EndedAttempts, Intake
from holdfast.worker.loop import Bell
from holdfast.worker.mandate import Mandate, Meters
from holdfast.worker.outbox import Outbox, OutcomeEvents, RoundTrip, RunnerClaim
from holdfast.worker.poller import Claims, Poller
from holdfast.worker.runner_slots import RunnerSlots

MANY = 500  # jobs that a claim must bring for the next round trip to depart right behind it
LONGEST = 0.25  # seconds for which round trips may follow one another before the desk looks around

FollowUp = Callable[[RunnerSlots, int], RunnerClaim | None]


class Exchange:
    """Takes outcomes to the database and brings claimed jobs back, both in one round trip: two transactions in one
    message on PostgreSQL, one transaction on SQLite. What was claimed starts while the outcomes are being recorded.

    Under great load round trips overlap. If a claim brought all it asked for, and much, the next round trip departs as
    soon as that claim is answered: before its jobs are started, and before the outcomes that travelled with it are
    recorded. So the database, the desk and the handlers work at the same time instead of waiting for each other. This
    is all in `_overlap`; without it there is never more than one round trip under way.

    If one fails, the outcomes of all that are under way go back into the outbox, and the fences of claims that were not
    answered are kept: if such a claim did happen, its jobs are ours to run."""

    def __init__(
        self, store: Store, outbox: Outbox, claims: Claims, intake: Intake, ended: EndedAttempts, poller: Poller,
        mandate: Mandate, meters: Meters, outcome_events: OutcomeEvents,
    ) -> None:  # fmt: skip
        self._store = store
        self._outbox = outbox
        self._claims = claims
        self._intake = intake
        self._ended = ended
        self._poller = poller
        self._mandate = mandate
        self._meters = meters
        self._events = outcome_events

    def run(self, claim: RunnerClaim | None = None, follow_up: FollowUp | None = None) -> None:
        """Make one round trip, or several that overlap. `follow_up(slots, at_least)`: the next claim, if the desk would
        look for this runner now, and for at least so many jobs."""
        self._polls(claim)
        until = time.monotonic() + LONGEST
        under_way: deque[RoundTrip] = deque()
        try:
            with self._store.trips() as trips:
                self._depart(trips, under_way, claim)
                while under_way:
                    self._arrive(trips, under_way, follow_up, until)
        except BaseException:
            # Either a reply was lost or nobody knows how far it got.
            self._claims.unknown += [trip.claim.wants.fence for trip in under_way if trip.claim and trip.claim_unknown]
            for trip in reversed(under_way):
                self._outbox.put_back(trip)
            raise

    def _depart(self, trips: Trips, under_way: deque[RoundTrip], claim: RunnerClaim | None) -> None:
        patient = self._mandate.claiming and self._poller.look_follows(claim, time.monotonic())
        trip = self._outbox.load(claim, patient=patient)
        under_way.append(trip)
        try:
            trips.depart(trip.outcomes, None if claim is None else claim.wants, trip.spent_leases)
        except ValueRefused as error:
            under_way.pop()
            self._refused(trip, error)
        except StoreError as error:
            trip.failed(error)
            raise

    def _arrive(
        self, trips: Trips, under_way: deque[RoundTrip], follow_up: FollowUp | None, overlap_until: float
    ) -> None:
        """The oldest round trip comes back."""
        trip = under_way[0]
        try:
            claimed = trips.claimed()
            if claimed is not None and trip.claim is not None:
                self._measure(trip, claimed)
                much = trips.overlaps and _brought_much(trip.claim, claimed)
                if much and follow_up is not None and time.monotonic() < overlap_until:
                    self._overlap(trips, under_way, claimed, follow_up)
                else:
                    self._start(trip, claimed)
                    self._ended.collect()
            done = trips.recorded()
        except (RowLocked, ValueRefused) as error:
            self._refused(under_way.popleft(), error)
            return
        except StoreError as error:
            trip.failed(error)
            raise
        under_way.popleft()
        try:
            if claimed is None and done.refused is None and trip.claim is not None:
                self._measure(trip, done.claimed)
                self._start(trip, done.claimed)
        except BaseException:
            if trip.claim is not None and trip.claim_unknown:
                self._claims.unknown.append(trip.claim.wants.fence)
            raise
        finally:
            self._outbox.recorded(trip, done)
        if done.requeued:
            self._poller.work_came()
        if done.refused is not None:
            raise done.refused

    def _overlap(self, trips: Trips, under_way: deque[RoundTrip], claimed: Claimed, follow_up: FollowUp) -> None:
        """Send the next round trip before the jobs that the last one brought are started."""
        trip = under_way[0]
        assert trip.claim is not None
        attempts = self._intake.take(trip, claimed)
        try:
            self._plan(trip, claimed)
            self._ended.collect()
            if (claim := follow_up(trip.claim.slots, MANY)) is not None:
                self._polls(claim)
                self._depart(trips, under_way, claim)
        finally:
            if attempts:  # a pause by filter may hold all of them
                trip.claim.slots.runner.start(attempts)

    def _start(self, trip: RoundTrip, claimed: Claimed) -> None:
        """Start what was claimed, then see what follows from it: a lone job starts sooner this way."""
        assert trip.claim is not None
        attempts = self._intake.take(trip, claimed)
        if attempts:
            trip.claim.slots.runner.start(attempts)
        self._plan(trip, claimed)

    def _plan(self, trip: RoundTrip, claimed: Claimed) -> None:
        assert trip.claim is not None
        now = time.monotonic()
        if claimed.jobs:
            trip.claim.slots.prefetch.weigh(len(claimed.jobs), sum([len(job.args) for job in claimed.jobs]))
            self._events.claimed(claimed.jobs)
        self._poller.plan(trip, claimed, now)

    def _polls(self, claim: RunnerClaim | None) -> None:
        """A poll begins. It is one, even if there is no connection."""
        if claim is not None:
            self._meters.polls += 1
            self._meters.poll_meter.began(time.monotonic())

    def _measure(self, trip: RoundTrip, claimed: Claimed) -> None:
        """A poll was answered. What is due and locked by others was tried for, and lost."""
        now, found = time.monotonic(), len(claimed.jobs)
        self._meters.poll_meter.succeeded(
            now, found=found, tried=bool(found or claimed.more), seconds=now - trip.departed
        )

    def _refused(self, trip: RoundTrip, error: RowLocked | ValueRefused) -> None:
        """Something among the outcomes is to blame. They go one by one from now on; then the look that this was is
        made up for."""
        self._poller.nothing_due = False
        self._outbox.put_back(trip)
        if trip.claim is not None and trip.claim_unknown:
            trip.claim.slots.look_everywhere = bool(trip.outcomes)
        if isinstance(error, ValueRefused):
            self._outbox.narrow_down(trip.outcomes, error, alone=not trip.claim_unknown)
            return
        self._outbox.set_aside(trip.outcomes, alone=not trip.claim_unknown)
        if not trip.outcomes:
            self._poller.contended(time.monotonic())


def _brought_much(claim: RunnerClaim, claimed: Claimed) -> bool:
    """All that was asked for, and enough to be worth a round trip right behind it."""
    return len(claimed.jobs) >= MANY and len(claimed.jobs) == claim.wants.limit + claim.wants.ahead


# Patience with a database that is away.

RECONNECT = 0.1  # seconds before a broken connection is replaced; if that fails, growing waits follow


class Patience:
    """Makes one attempt at talking to the database. Transient errors are retried, after growing waits; any other is one
    failed poll. No error ends the worker."""

    def __init__(
        self, worker: str, database: str, outbox: Outbox, claims: Claims, poller: Poller, mandate: Mandate,
        meters: Meters, bell: Bell, *, connection_broke: Callable[[], None],
    ) -> None:  # fmt: skip
        """`connection_broke` is called if a connection ended under a request."""
        self._worker = worker
        self._database = database
        self._outbox = outbox
        self._claims = claims
        self._poller = poller
        self._mandate = mandate
        self._meters = meters
        self._bell = bell
        self._connection_broke = connection_broke
        self._broke = False  # so did the last one
        self.failures = 0  # in a row

    def attempt(self, act: Callable[[], None], *, poll: bool = True) -> None:
        """`poll`: success proves that polling works again."""
        try:
            act()
        except StoreUnavailable as error:
            self._wait_out(error)
        except Exception as error:  # noqa: BLE001 - no error in polling ever ends the worker
            self._failed_poll(error)
            if self._outbox.is_waiting or self._claims.unknown:
                self._pause(outcome_delay(POLL_TRIES))
        else:
            if self.failures or (poll and self._meters.consecutive_errors):
                events.emit("available", where=self._database)
            self._broke = False
            self.failures = 0
            if poll:
                self._meters.consecutive_errors = 0

    def _wait_out(self, error: StoreUnavailable) -> None:
        if isinstance(error, OutcomeUnknown):
            self._connection_broke()
            if not self._broke:
                self._broke = True
                events.emit("unavailable", error=str(error), wait=RECONNECT)
                self._pause(RECONNECT)
                return
        self.failures += 1
        waiting = len(self._outbox.outcomes)
        if not waiting and self.failures >= POLL_TRIES:
            self._failed_poll(error)
            return
        delay = outcome_delay(self.failures) if waiting else error_delay(self.failures)
        if waiting:
            events.emit("outcomes_wait", count=waiting, error=str(error))
        events.emit("unavailable", error=str(error), wait=delay)
        self._pause(delay)

    def _failed_poll(self, error: Exception) -> None:
        self.failures = 0
        self._meters.consecutive_errors += 1
        events.emit(
            "poll_failed", consecutive_errors=self._meters.consecutive_errors, error=str(error),
            error_class=type(error).__name__, worker=self._worker,
        )  # fmt: skip
        self._poller.failed(time.monotonic())

    def _pause(self, seconds: float) -> None:
        """Wait. Only an order to stop claiming, or the end of a shutdown, ends it early."""
        until = time.monotonic() + seconds
        claiming = self._mandate.claiming
        while (left := min(until, self._mandate.end_by) - time.monotonic()) > 0 and self._mandate.claiming == claiming:
            self._bell.wait(min(left, 0.2))
