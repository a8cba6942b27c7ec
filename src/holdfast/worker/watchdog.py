"""Looks at the database once a lease or sooner, and does what it finds due: takes back jobs whose worker went silent,
fires crons, cancels expired jobs, releases what a pause held that is over, deletes old jobs, carries on what operators
do to many jobs. Any number of watchdogs may run: each of these things is done only once.

A lease that expired does not always mean a dead worker: see rescuer.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from random import SystemRandom

from holdfast import events
from holdfast.errors import OutcomeUnknown, SchemaOutdated, StoreError
from holdfast.model.job import DEFAULT_GRACE, Look, StopRequest
from holdfast.model.peers import Place
from holdfast.runners.linux import memory
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.bulk_calls import SILENT
from holdfast.store.rollups import BATCH as FOLDED
from holdfast.worker.bulk_calls import CarryOn
from holdfast.worker.cron import Crons
from holdfast.worker.judge import Judge
from holdfast.worker.loop import Loop
from holdfast.worker.mandate import Meters
from holdfast.worker.neighbours import Neighbours, NeighbourWatch
from holdfast.worker.outbox import expire
from holdfast.worker.rescuer import Rescuer, Trust, now
from holdfast.worker.retention import Retention, tidy
from holdfast.worker.wakeups import Wakeups


def catch_up(store: Store, rescuer: Rescuer, retention: Retention) -> None:
    """Do all that the database's clock says is due, at once: for a caller that knows that no other worker lives."""
    rescuer.rescue_expired()
    expire(store)
    while store.pauses.let_go():
        pass
    retention.walk()


# A worker's row in the database: it exists, what it serves, and whether it can take more work.


class Presence:
    def __init__(
        self, store: Store, id: str, *, name: str, host: str, queues: tuple[str, ...] | None, tasks: tuple[str, ...],
        crons: Sequence[str] = (), lease: float, slots: Callable[[], int],
        is_open: Callable[[], bool], grace: float = DEFAULT_GRACE, timeouts: Mapping[str, float] | None = None,
        runners: Callable[[], Sequence[tuple[int, Sequence[str]]]] = tuple,
        meters: Meters | None = None,
    ) -> None:  # fmt: skip
        """`slots`: how many there are; `runners`: for which tasks. `is_open`: the desk hears wake-ups and has a free
        slot."""
        self._store = store
        self.id = id
        self._name = name
        self._host = host
        self._queues = queues
        self._tasks = tasks
        self._crons = tuple(crons)
        self._lease = lease
        self._grace = grace
        self._timeouts = timeouts
        self._meters = meters or Meters()
        self._is_open = is_open
        self._slots = slots
        self._runners = runners
        self._lost_claims = 0  # as of the last count
        self._announced = False  # the other workers know that there is one more to wake
        self.place = Place()  # among its peers, as of the last look
        self.leaving = False  # the worker stops: its row is about to be deleted, so it is not written again

    def register(self) -> None:
        if not self.leaving:
            self._store.workers.register(
                id=self.id, name=self._name, host=self._host, pid=os.getpid(), queues=self._queues, tasks=self._tasks,
                slots=self._slots(), crons=self._crons, lease=self._lease,
                grace=self._grace, timeouts=self._timeouts, runners=self._runners(),
            )  # fmt: skip

    def look(self) -> Look:
        """Mark the worker present, and read what concerns it. This is a poll, too: it tells when the next job falls
        due, and the desk, if it lives, acts on that."""
        is_open, meters = self._is_open(), self._meters
        lives = meters.desk_lives
        polling = meters.polling(looking=lives)
        look = self._store.look(
            self.id, self._tasks, self._queues, self._crons, open=is_open, polling=polling, memory=memory()
        )
        if lives:
            meters.poll_meter.began(time.monotonic())
            meters.poll_meter.succeeded(time.monotonic())
        if not look.known:
            # A failover lost the row, or another worker took us for dead. Whoever lists workers would miss us.
            self.register()
            self._announced = False
        if is_open and not self._announced:
            self._announced = True
            self._store.wakeups.notify(workers=True)
        self.place = look.place
        return look

    def new_lost_claims(self) -> int:
        """Claims that others won, since this was asked the last time."""
        before, self._lost_claims = self._lost_claims, self._meters.poll_meter.lost_claims
        return self._lost_claims - before

    def unregister(self) -> None:
        self._store.workers.unregister(self.id)


SPREAD = 2.0  # seconds over which workers look again when one came or left
LONGEST = 0.5  # seconds of one wait: if it takes much longer, we were asleep or stopped
REQUESTS_EVERY = 1.0  # seconds between two reads of whether to stop: on SQLite every commit may be such a request
AGAIN = 1.0  # seconds after which a look that failed, or left something to do, is repeated
SLOW = 1.0  # seconds a look may take before we doubt that leases could be renewed meanwhile
CHANCE = SystemRandom()  # the application may have seeded the common one, and rely on what it yields
FIND_PRIMARY_EVERY = 30.0  # seconds between two checks whether another server takes writes
LOOK_EVERY = 30.0  # seconds, and a lease at most: others shall see within a minute that a worker no longer polls
MARGIN = 0.05  # seconds after a lease's end to look: its holder may be renewing just now


class Watchdog:
    """Instants are those of `rescuer.now`."""

    def __init__(
        self, store: Store, settings: Settings, presence: Presence, rescuer: Rescuer, neighbours: Neighbours,
        crons: Crons, trust: Trust, wakeups: Wakeups, *, misfit: Callable[[StoreError], None],
        stop_requested: Callable[[StopRequest], None], adopted: Callable[[bool], None],
    ) -> None:  # fmt: skip
        """`misfit` is called if the schema no longer serves this code, `stop_requested` if people asked the worker to
        stop, `adopted` with each look: whether any table is."""
        self._store = store
        self._lease = settings.lease
        self._presence = presence
        self._rescuer = rescuer
        self._crons = crons
        self._trust = trust
        self._wakeups = wakeups
        self._misfit = misfit
        self._stop_requested = stop_requested
        self._adopted = adopted
        self._requested = False  # people may have asked for something since the last look
        self._requests_read_at = 0.0
        self._kept = {"finished": settings.keep_finished, "failed": settings.keep_failed}
        self._retention = Retention(store, **self._kept)
        self._carry_on = CarryOn(store)
        self._judge = Judge(store, settings.alert_thresholds, presence.id)
        self._neighbour_watch = NeighbourWatch(store, neighbours, rescuer, trust, failed=self._look_now)
        self._loop = Loop("watchdog", self._step)
        primary = [Loop("servers", self._find_primary)] if store.db.has_several_hosts else []
        self._loops = [self._neighbour_watch.loop, *primary, self._loop]
        self._look_at = 0.0
        self._tick_at: float | None = 0.0  # when the next tick of a cron falls due
        self._step_by = now()  # when the next step was to begin
        self.looked = False  # at least once
        self._owes_look = True

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self, timeout: float) -> None:
        for loop in self._loops[:-1]:
            loop.stop(0.0)
        self._carry_on.stop()
        self._loop.stop(timeout)

    def join(self, timeout: float) -> None:
        for loop in self._loops:
            loop.join(timeout / (len(self._loops) + 1))
        self._carry_on.join(timeout / (len(self._loops) + 1))

    @property
    def owes_look(self) -> bool:
        """It has not looked yet, or has seen expired leases that it may rescue only later."""
        return self._owes_look or not self._neighbour_watch.looked

    def look_soon(self, within: float = 0.0) -> None:
        """Other workers should learn that this one listens now, or this one that others came or left. However often
        this is called, one look is planned for it, at random: the earliest of many random times would be now."""
        if now() + within >= self._look_at:
            return
        self._look_at = now() + within * CHANCE.random()
        self._loop.wake()

    def requested(self) -> None:
        """People may have asked for something: see soon whether it is that the worker stops."""
        self._requested = True

    def tidy(self, until: float) -> None:
        """Before a drain ends: delete what is no longer kept, if no other worker does."""
        self._patiently(lambda: tidy(self._store, **self._kept, until=until))

    def catch_up(self) -> None:
        catch_up(self._store, self._rescuer, self._retention)

    # -- the loops -----------------------------------------------------------------------------------------------------

    def _step(self) -> float:
        began = now()
        if began - self._step_by > self._lease / 2:
            self._trust.revoke()  # we slept, or were stopped: others may have been, too
        if self._tick_at is not None and began >= self._tick_at:
            self._tick_at = began + AGAIN
            self._patiently(self._fire)
        if began >= self._look_at:
            self._look_at = began + AGAIN
            self._patiently(self._look)
            if self._presence.place.rank == 0:
                self._patiently(self._retention.step)
                self._patiently(self._judge.step)
        if self._requested and began >= self._requests_read_at + REQUESTS_EVERY:
            self._requested, self._requests_read_at = False, began
            self._patiently(self._read_requests)
        next_at = self._look_at if self._tick_at is None else min(self._look_at, self._tick_at)
        wait = max(0.0, min(LONGEST, next_at - now()))
        self._step_by = now() + wait
        return wait

    def _read_requests(self) -> None:
        if request := self._store.workers.stop_requested(self._presence.id):
            self._stop_requested(request)

    def _find_primary(self) -> float:
        self._patiently(self._store.db.look_around)
        return FIND_PRIMARY_EVERY

    def _look_now(self) -> None:
        """Is the database away? Then a look finds out, and nobody is rescued by expiry for a while."""
        self._look_at = 0.0
        self._loop.wake()

    def _patiently(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StoreError as error:
            if isinstance(error, OutcomeUnknown):
                self._trust.revoke()
            events.emit("unavailable", error=str(error), wait=AGAIN)

    # -- crons ---------------------------------------------------------------------------------------------------------

    def _fire(self) -> None:
        self._plan_tick(self._crons.step())

    def _plan_tick(self, wait: float | None) -> None:
        """Two workers of all set a timer for a tick (model/peers.py)."""
        ours = None if wait is None else self._presence.place.due(wait)
        self._tick_at = None if ours is None else now() + ours

    # -- the look ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look, do what is due, and plan the next look."""
        look = self._read()
        if look.misfit is not None:
            self._misfit(look.misfit)
        if look.stop_requested:
            self._read_requests()
        self._adopted(look.adopted)
        trusted = self._trust.established
        if look.expired_leases and trusted:
            self._rescuer.rescue_expired()
        if look.bulk_seen is not None and look.bulk_seen <= -SILENT and trusted:
            self._carry_on.begin()
        if self._crons.declared:
            self._plan_tick(look.next_tick)  # another worker may have declared, or people resumed, an earlier one
        self._owes_look = not self._crons.declared or (look.expired_leases and not trusted)
        if look.expired_jobs:
            expire(self._store)
        if look.deltas:
            self._fold(now() + AGAIN)
        if lost := self._presence.new_lost_claims():
            self._store.rollups.lost_claims(lost)
        self._look_at = now() + self._next_look(look)
        if look.ended_holds:
            self._let_go(now() + AGAIN)
        if look.filter_pauses and self._store.pauses.hold_heads():
            self._look_at = min(self._look_at, now() + AGAIN)
        self.looked = True

    def _read(self) -> Look:
        began, place = now(), self._presence.place
        try:
            look = self._presence.look()
        except SchemaOutdated as error:  # our tables are gone
            self._misfit(error)
            raise
        except StoreError:
            self._trust.revoke()
            raise
        if now() - began > min(SLOW, self._lease / 8):
            self._trust.revoke()  # the database was held up, and so was everyone who would have renewed
        if look.place != place:
            self._wakeups.peers_changed(look.place)
        if look.next_due is not None and (due := look.place.due(look.next_due)) is not None:
            self._wakeups.due_in(due)
        return look

    def _next_look(self, look: Look) -> float:
        """In how many seconds to look again."""
        if look.expired_leases:
            # Taken back just now, or not trusted yet, or locked by someone: see soon.
            return max(MARGIN, AGAIN if self._trust.established else self._trust.seconds_left)
        silent = None if look.bulk_seen is None else max(AGAIN, SILENT + look.bulk_seen)
        ends = [at for at in (look.next_lease_end, look.next_pause_end, silent) if at is not None]
        return min([self._lease, LOOK_EVERY, *(max(MARGIN, at + MARGIN) for at in ends)])

    def _fold(self, until: float) -> None:
        """Add up what happened to jobs. If that takes long, the next look goes on with it."""
        while self._store.rollups.fold() >= FOLDED:
            if now() > until:
                self._look_at = min(self._look_at, now() + AGAIN)
                return

    def _let_go(self, until: float) -> None:
        """Let go of jobs whose hold has ended. If that takes long, look again before going on with it."""
        while self._store.pauses.let_go():
            self._wakeups.due_in(0.0)
            if now() > until:
                self._look_at = now() + MARGIN
                return
