"""A desk's trips to the database, one behind the other: while the outcomes of one are recorded, what it claimed is
handed out and the next is under way. And patience with it while it is away."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from holdfast import events
from holdfast.errors import OutcomeUnknown, RowLocked, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.backoff import POLL_TRIES, error_delay, outcome_delay
from holdfast.model.job import Claimed, Wants
from holdfast.settings import Settings
from holdfast.store.base import Ear, Store, Trips
from holdfast.tasks.attempt import Attempt
from holdfast.worker.outbox import Flight, Outbox
from holdfast.worker.periodic import Bell
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import LaneName, Meters, RunnerSlots

MANY = 500  # jobs claimed by a trip behind which the next one departs at once
LONGEST = 0.25  # seconds for which one trip may depart behind the other, until we look around
RECONNECT = 0.1  # seconds before a connection that broke is made anew; if that fails, growing waits follow
CONTENDED = 0.05  # seconds before the next look when all that is due was locked
SOON = 0.1  # seconds


class Flights(ABC):
    """The part of a desk that goes to the database. What departs and is not recorded is put back."""

    _worker: str
    _store: Store
    _ear: Ear | None
    ends: Outbox
    meters: Meters
    poller: Poller
    claiming: bool
    end_by: float
    nothing_due: bool
    _look_at: float | None
    _unknown: list[str]
    _settings: Settings
    _wake: Bell
    lanes: list[RunnerSlots]
    broken: Callable[[], None]
    _broke: bool
    _failures: int

    def _exchange(self, wants: Wants | None = None, lane: RunnerSlots | None = None) -> None:
        """One trip. Or several, as long as each claim brings all it asked for: then the next one departs before what
        the last one brought is handed out, so that the database need not wait for us."""
        until = time.monotonic() + LONGEST
        flights: deque[Flight] = deque()
        try:
            with (self._ear or self._store).trips() as trips:
                self._depart(trips, flights, wants, lane)
                while flights:
                    self._arrive(trips, flights, until)
        except BaseException:
            # A lost reply, or nobody knows how far it got: if it did claim, those jobs are ours.
            self._unknown += [flight.wants.fence for flight in flights if flight.wants is not None and flight.unsure]
            for flight in reversed(flights):
                self.ends.put_back(flight)
            raise

    def _depart(self, trips: Trips, flights: deque[Flight], wants: Wants | None, lane: RunnerSlots | None) -> None:
        # Dropping leases can wait for the next look everywhere, if there is one soon, or until there are some.
        soon = self._look_at is not None and self._look_at <= time.monotonic() + SOON
        told = wants is not None and bool(wants.told)  # so such a look follows
        patient = self.claiming and self.poller.listening and (told or (soon and wants is None))
        flight = self.ends.board(wants, lane, patient=patient)
        flights.append(flight)
        self.meters.polls += wants is not None
        try:
            trips.depart(flight.outcomes, wants, flight.drained)
        except ValueRefused as trouble:
            flights.pop()
            self._refused(flight, trouble)
        except StoreError as trouble:
            flight.hear(trouble)
            raise

    def _arrive(self, trips: Trips, flights: deque[Flight], until: float) -> None:
        flight = flights[0]
        try:
            claimed = trips.claimed()
            if claimed is not None and flight.lane is not None:
                self._received(trips, flights, claimed, until)
            done = trips.recorded()
        except (RowLocked, ValueRefused) as trouble:
            self._refused(flights.popleft(), trouble)
            return
        except StoreError as trouble:
            flight.hear(trouble)
            raise
        flights.popleft()
        if claimed is None and done.refused is None:
            self._hand_out(flight, done.claimed)
        self.ends.recorded(flight, done)
        if done.requeued:
            self.nothing_due = False  # when we looked, they were not there yet
            self._look_everywhere()  # to learn when they fall due
        if done.refused is not None:
            raise done.refused

    def _received(self, trips: Trips, flights: deque[Flight], claimed: Claimed, until: float) -> None:
        """The oldest trip has claimed these. They are handed out while its outcomes are recorded, and those of the next
        trip are collected."""
        flight = flights[0]
        assert flight.wants is not None
        full = len(claimed.jobs) == flight.wants.limit + flight.wants.ahead
        if not trips.overlaps or not full or len(claimed.jobs) < MANY or time.monotonic() >= until:
            self._hand_out(flight, claimed)
            self._take_finished()
            return
        lane, attempts = self._take(flight, claimed)
        try:
            self._plan(flight, claimed)
            self._take_finished()
            self._follow(trips, flights)
        finally:
            lane.runner.start(attempts)

    def _follow(self, trips: Trips, flights: deque[Flight]) -> None:
        """Send the next trip behind the one under way, if it is what we would do next anyway."""
        lane = flights[-1].lane
        others = self.ends.to_verify or self.ends.crashes or self._unknown
        if lane is None or others or self._hungry() != [lane]:
            return
        limit, ahead = self._limits(lane)
        if limit + ahead >= MANY:
            self.nothing_due = len(self.lanes) == 1
            self._depart(trips, flights, self._wants(lane, limit, ahead, lane.where()), lane)

    def _refused(self, flight: Flight, trouble: RowLocked | ValueRefused) -> None:
        """Something among the outcomes: they go on one by one, then the look that this was is made up for."""
        self.nothing_due = False
        self.ends.put_back(flight)
        if flight.lane is not None and flight.unsure:
            flight.lane.look = bool(flight.outcomes)
        if isinstance(trouble, ValueRefused):
            self.ends.narrow_down(flight.outcomes, trouble, alone=not flight.unsure)
        else:
            self.ends.step_aside(flight.outcomes, alone=not flight.unsure)
            if not flight.outcomes:
                self._look_at = time.monotonic() + CONTENDED

    def _hand_out(self, flight: Flight, claimed: Claimed) -> None:
        lane, attempts = self._take(flight, claimed)
        if attempts:
            lane.runner.start(attempts)
        self._plan(flight, claimed)

    # -- when the database is away -------------------------------------------------------------------------------------

    def _try(self, trip: Callable[[], None], *, poll: bool = True) -> bool:
        """One trip, with patience: transient trouble is retried, anything else is one failed poll."""
        try:
            trip()
        except StoreUnavailable as error:
            if isinstance(error, OutcomeUnknown):
                self.broken()
                if not self._broke:
                    self._broke = True
                    events.emit("unavailable", error=str(error), wait=RECONNECT)
                    self._pause(RECONNECT)
                    return True
            self._failures += 1
            waiting = len(self.ends.outcomes)
            if not waiting and self._failures >= POLL_TRIES:
                self._failed_poll(error)
                return True
            delay = outcome_delay(self._failures) if waiting else error_delay(self._failures)
            if waiting:
                events.emit("outcomes_wait", count=waiting, error=str(error))
            events.emit("unavailable", error=str(error), wait=delay)
            self._pause(delay)
        except Exception as error:  # noqa: BLE001 - no error in polling ever ends the worker
            self._failed_poll(error)
            if self.ends.waiting or self._unknown:
                self._pause(outcome_delay(POLL_TRIES))
        else:
            if self._failures or (poll and self.meters.consecutive_errors):
                events.emit("available", where=self._store.shown_url)
            self._broke = False
            self._failures = 0
            if poll:
                self.meters.consecutive_errors = 0
        return True

    def _failed_poll(self, error: Exception) -> None:
        self._failures = 0
        self.meters.consecutive_errors += 1
        events.emit(
            "poll_failed", consecutive_errors=self.meters.consecutive_errors, error=str(error),
            error_class=type(error).__name__, worker=self._worker,
        )  # fmt: skip
        for lane in self.lanes:
            lane.look = False
        self._look_at = time.monotonic() + self._settings.backoff.wait(self.poller.empty_polls + 1)

    def _pause(self, seconds: float) -> None:
        """Wait out a trouble: only a change of mind about claiming, or the end of a shutdown, ends it early."""
        until = time.monotonic() + seconds
        claiming = self.claiming
        while (left := min(until, self.end_by) - time.monotonic()) > 0 and self.claiming == claiming:
            self._wake.wait(min(left, 0.2))

    # -- what else the desk does ---------------------------------------------------------------------------------------

    @abstractmethod
    def _take(self, flight: Flight, claimed: Claimed) -> tuple[RunnerSlots, list[Attempt]]: ...

    @abstractmethod
    def _plan(self, flight: Flight, claimed: Claimed) -> None: ...

    @abstractmethod
    def _take_finished(self) -> None: ...

    @abstractmethod
    def _hungry(self) -> list[RunnerSlots]: ...

    @abstractmethod
    def _limits(self, lane: RunnerSlots) -> tuple[int, int]: ...

    @abstractmethod
    def _wants(self, lane: RunnerSlots, limit: int, ahead: int, told: tuple[LaneName, ...]) -> Wants: ...

    @abstractmethod
    def _look_everywhere(self) -> None: ...
