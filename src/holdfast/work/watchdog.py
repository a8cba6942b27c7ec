"""Gives back jobs whose worker went silent. Any number of watchdogs may run: each lease is taken back only once.

Nobody is punished for an outage: a watchdog that just started, that lost the database, or that itself was held up, lets
one lease pass before it rescues by expiry, so that every live holder has renewed by then. A neighbour on the same host
whose lock is free is dead beyond doubt and is rescued at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast import events
from holdfast.errors import OutcomeUnknown, SchemaOutdated, StoreError
from holdfast.model.job import Look
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.work.cron import Crons
from holdfast.work.loop import Loop
from holdfast.work.neighbours import Neighbours
from holdfast.work.retention import Retention
from holdfast.work.telling import tell_rescued

NEIGHBOURS_EVERY = 0.5  # seconds; costs no statement
AGAIN = 1.0  # seconds after which a look that failed, or left something to do, is repeated
SLOW = 1.0  # seconds a look may take before we doubt that leases could be renewed meanwhile
MARGIN = 0.05  # seconds after a lease's end to look: its holder may be renewing just now


class Watchdog:
    def __init__(
        self, worker: str, store: Store, settings: Settings, neighbours: Neighbours, *,
        tasks: tuple[str, ...], queues: tuple[str, ...] | None, due_in: Callable[[float], None],
        crons: Crons | None = None,
    ) -> None:  # fmt: skip
        self._worker = worker
        self._store = store
        self._settings = settings
        self._neighbours = neighbours
        self._tasks = tasks
        self._queues = queues
        self._due_in = due_in
        self._retention = Retention(store, finished=settings.keep_finished, failed=settings.keep_failed)
        self._crons = crons or Crons(store, (), due_in)
        self._trust_after = _now() + settings.lease
        self._look_at = 0.0
        self._tick_at: float | None = 0.0  # when the next tick of a cron falls due
        self._planned = _now()
        self._loop = Loop("watchdog", self._step)
        self.start = self._loop.start
        self.stop = self._loop.stop
        self.misfit: Callable[[StoreError], None] = lambda error: None  # the database changed under us
        self.rescued = 0
        self.looked = False  # at least once
        self.owes_a_look = True  # not looked yet, or seen leases that ran out and may be rescued only later

    def distrust(self) -> None:
        """The database was away, or may have been: give every holder one lease to be heard again."""
        self._trust_after = _now() + self._settings.lease

    def catch_up(self) -> None:
        """Do all that the database's clock says is due, at once: for who knows that no other worker is alive."""
        self._rescue(by_expiry=True)
        self._expire()
        self._free()
        self._retention.walk()

    def _step(self) -> float:
        now = _now()
        if now - self._planned > self._settings.lease / 2:
            self.distrust()  # we slept, or were stopped: others may have been, too
        if not self._patiently(self._rescue_neighbours):
            self._look_at = min(self._look_at, now)  # is the database away? Then nobody is to be rescued by expiry
        if self._tick_at is not None and now >= self._tick_at:
            self._tick_at = now + AGAIN
            self._patiently(self._fire)
        if now >= self._look_at:
            self._look_at = now + AGAIN
            self._patiently(self._look)
            self._patiently(self._retention.step)
        next_at = self._look_at if self._tick_at is None else min(self._look_at, self._tick_at)
        wait = max(0.0, min(NEIGHBOURS_EVERY, next_at - _now()))
        self._planned = _now() + wait
        return wait

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
        self._tick_at = None if wait is None else _now() + wait

    def _look(self) -> None:
        """Look, rescue what is due, and plan the next look."""
        began = _now()
        try:
            look = self._store.look(self._worker, self._tasks, self._queues, self._crons.names)
        except SchemaOutdated as error:  # it is gone
            self.misfit(error)
            raise
        except StoreError:
            self.distrust()
            raise
        if _now() - began > min(SLOW, self._settings.lease / 8):
            self.distrust()  # the database was held up: so was everyone who would have renewed
        if look.next_due is not None:
            self._due_in(look.next_due)
        if look.misfit is not None:
            self.misfit(look.misfit)
        trusted = _now() >= self._trust_after
        if look.expired_leases and trusted:
            self._rescue(by_expiry=True)
        owes_ticks = not self._crons.declared
        if not owes_ticks:
            self._plan_tick(look.next_tick)  # another worker may have declared, or people resumed, an earlier one
        self.owes_a_look = owes_ticks or (look.expired_leases and not trusted)
        if look.expired_jobs:
            self._expire()
        self._look_at = _now() + self._next_look(look)
        if look.freed:
            self._free(_now() + AGAIN)
        if look.switched and self._store.clear_heads():
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
                tell_rescued(job)
            self._store.notify({job.queue for job in rescued})
            self._due_in(0.0)

    def _free(self, until: float = float("inf")) -> None:
        """Let go of what is set aside by a pause that is over. As long as that takes is too long not to look."""
        while self._store.free():
            self._due_in(0.0)
            if _now() > until:
                self._look_at = _now() + MARGIN
                return

    def _expire(self) -> None:
        while expired := self._store.expire():
            events.emit("expired", count=len(expired))
            self._store.notify(finished=[row["id"] for row in expired if row["awaited"]])


def _now() -> float:
    """A clock that also counts the time a machine was asleep, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
