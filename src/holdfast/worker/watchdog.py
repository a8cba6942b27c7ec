"""Gives back jobs whose worker went silent. Any number of watchdogs may run: each lease is taken back only once.

Nobody is punished for an outage: a watchdog that just started, that lost the database, or that itself was held up, lets
one lease pass before it rescues by expiry, so that every live holder has renewed by then. A neighbour on the same host
whose lock is free is dead beyond doubt and is rescued at once, on a thread of its own: a look, a cron or retention that
the database keeps waiting must not hold that up."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import SystemRandom

from holdfast import events
from holdfast.errors import OutcomeUnknown, SchemaOutdated, StoreError
from holdfast.model.job import Look
from holdfast.model.peers import Place
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt_events import emit_rescued
from holdfast.worker.cron import Crons
from holdfast.worker.neighbours import Neighbours
from holdfast.worker.outcome_events import expire
from holdfast.worker.periodic import Loop
from holdfast.worker.retention import Retention

SPREAD = 2.0  # seconds over which workers look again when one came or left
NEIGHBOURS_EVERY = 0.5  # seconds; costs no statement
LONGEST = 0.5  # seconds of one wait: we notice that we were asleep, or stopped, by one that took longer
AGAIN = 1.0  # seconds after which a look that failed, or left something to do, is repeated
SLOW = 1.0  # seconds a look may take before we doubt that leases could be renewed meanwhile
CHANCE = SystemRandom()  # the application may have seeded the common one, and count on what it yields
LOOK_AROUND = 30.0  # seconds between two looks whether another server takes writes
MARGIN = 0.05  # seconds after a lease's end to look: its holder may be renewing just now


class Watchdog:
    def __init__(
        self, worker: str, store: Store, settings: Settings, neighbours: Neighbours, *,
        tasks: tuple[str, ...], queues: tuple[str, ...] | None, due_in: Callable[[float], None],
        crons: Crons | None = None, is_open: Callable[[], bool] = lambda: False,
        placed: Callable[[Place], None] = lambda place: None, register: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._worker = worker
        self._store = store
        self._settings = settings
        self._neighbours = neighbours
        self._tasks = tasks
        self._queues = queues
        self._due_in = due_in
        self._is_open = is_open
        self._placed = placed
        self._register = register
        self._place = Place()
        self._joined = False  # the others know that there is one more to wake
        self._retention = Retention(store, finished=settings.keep_finished, failed=settings.keep_failed)
        self._crons = crons or Crons(store, (), due_in)
        self._trust_after = _now() + settings.lease
        self._look_at = 0.0
        self._tick_at: float | None = 0.0  # when the next tick of a cron falls due
        self._planned = _now()
        self._loop = Loop("watchdog", self._step)
        servers = [Loop("servers", self._look_around)] if store.has_several_hosts else []
        self._loops = [Loop("neighbours", self._see_to_neighbours), *servers, self._loop]
        self._met_neighbours = False
        self.misfit: Callable[[StoreError], None] = lambda error: None  # the database changed under us
        self.rescued = 0
        self.looked = False  # at least once
        self._owes_a_look = True

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self, timeout: float) -> None:
        for loop in self._loops[:-1]:
            loop.stop(0.0)
        self._loop.stop(timeout)

    def join(self, timeout: float) -> None:
        for loop in self._loops:
            loop.join(timeout / len(self._loops))

    @property
    def owes_a_look(self) -> bool:
        """It has not looked yet, or has seen leases that ran out and may be rescued only later."""
        return self._owes_a_look or not self._met_neighbours

    def distrust(self) -> None:
        """The database was away, or may have been: give every holder one lease to be heard again."""
        self._trust_after = _now() + self._settings.lease

    def look_soon(self, within: float = 0.0) -> None:
        """Others should know that this worker hears now, or it should know that others came or left. However often
        that is said, one look is planned for it: of many chances the earliest would be now."""
        if _now() + within >= self._look_at:
            return
        self._look_at = _now() + within * CHANCE.random()
        self._loop.wake()

    def catch_up(self) -> None:
        """Do all that the database's clock says is due, at once: for who knows that no other worker is alive."""
        self._rescue(by_expiry=True)
        expire(self._store)
        self._let_go()
        self._retention.walk()

    def _step(self) -> float:
        now = _now()
        if now - self._planned > self._settings.lease / 2:
            self.distrust()  # we slept, or were stopped: others may have been, too
        if self._tick_at is not None and now >= self._tick_at:
            self._tick_at = now + AGAIN
            self._patiently(self._fire)
        if now >= self._look_at:
            self._look_at = now + AGAIN
            self._patiently(self._look)
            if self._place.rank == 0:
                self._patiently(self._retention.step)
        next_at = self._look_at if self._tick_at is None else min(self._look_at, self._tick_at)
        wait = max(0.0, min(LONGEST, next_at - _now()))
        self._planned = _now() + wait
        return wait

    def _see_to_neighbours(self) -> float:
        if self._patiently(self._rescue_neighbours):
            self._met_neighbours = True
        else:
            self._look_at = 0.0  # is the database away? Then nobody is to be rescued by expiry
            self._loop.wake()
        return NEIGHBOURS_EVERY

    def _look_around(self) -> float:
        self._patiently(self._store.look_around)
        return LOOK_AROUND

    def _patiently(self, do: Callable[[], None]) -> bool:
        try:
            do()
        except StoreError as error:
            if isinstance(error, OutcomeUnknown):
                self.distrust()
            events.emit("unavailable", error=str(error), wait=AGAIN)
            return False
        return True

    def _rescue_neighbours(self) -> None:
        for worker in self._neighbours.dead():
            events.emit("neighbour_died", worker=worker)
            self._rescue(by_expiry=False, dead=[worker])
            self._store.unregister(worker)
            self._neighbours.bury(worker)

    def _fire(self) -> None:
        self._plan_tick(self._crons.step())

    def _plan_tick(self, wait: float | None) -> None:
        mine = None if wait is None else self._place.due(wait)
        self._tick_at = None if mine is None else _now() + mine

    def _look(self) -> None:
        """Look, rescue what is due, and plan the next look."""
        began, is_open = _now(), self._is_open()
        try:
            look = self._store.look(self._worker, self._tasks, self._queues, self._crons.names, open=is_open)
        except SchemaOutdated as error:  # it is gone
            self.misfit(error)
            raise
        except StoreError:
            self.distrust()
            raise
        if _now() - began > min(SLOW, self._settings.lease / 8):
            self.distrust()  # the database was held up: so was everyone who would have renewed
        if not look.known:
            # A failover lost its row, or it was taken for dead: whoever asks for workers would miss it.
            self._register()
            self._joined = False
        if is_open and not self._joined:
            self._joined = True
            self._store.notify(workers=True)
        if look.place != self._place:
            self._place = look.place
            self._placed(look.place)
        if look.next_due is not None and (due := self._place.due(look.next_due)) is not None:
            self._due_in(due)
        if look.misfit is not None:
            self.misfit(look.misfit)
        trusted = _now() >= self._trust_after
        if look.expired_leases and trusted:
            self._rescue(by_expiry=True)
        owes_ticks = not self._crons.declared
        if not owes_ticks:
            self._plan_tick(look.next_tick)  # another worker may have declared, or people resumed, an earlier one
        self._owes_a_look = owes_ticks or (look.expired_leases and not trusted)
        if look.expired_jobs:
            expire(self._store)
        self._look_at = _now() + self._next_look(look)
        if look.ended_holds:
            self._let_go(_now() + AGAIN)
        if look.filter_pauses and self._store.hold_heads():
            self._look_at = min(self._look_at, _now() + AGAIN)
        self.looked = True

    def _next_look(self, look: Look) -> float:
        lease = self._settings.lease
        if look.expired_leases:
            # Taken back just now, or not to be trusted yet, or locked by someone: see soon.
            return max(MARGIN, min(self._trust_after - _now(), lease) if _now() < self._trust_after else AGAIN)
        ends = [at for at in (look.next_lease_end, look.next_pause_end) if at is not None]
        return min([lease, *(max(MARGIN, at + MARGIN) for at in ends)])

    def _rescue(self, *, by_expiry: bool, dead: list[str] | None = None) -> None:
        while rescued := self._store.rescue(
            by_expiry=by_expiry, dead=dead or [], quarantine_after=self._settings.quarantine_after
        ):
            self.rescued += len(rescued)
            for job in rescued:
                emit_rescued(job, self._worker)
            self._store.tell([job.queue for job in rescued])
            self._due_in(0.0)

    def _let_go(self, until: float = float("inf")) -> None:
        """Let go of jobs whose hold has ended. If there are very many, look again in between."""
        while self._store.let_go():
            self._due_in(0.0)
            if _now() > until:
                self._look_at = _now() + MARGIN
                return


def _now() -> float:
    """A clock that also counts the time a machine was asleep, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
