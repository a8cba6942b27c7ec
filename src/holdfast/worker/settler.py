"""Keeps adopted tables and their jobs in step: settles what others wrote, keeps the tables' heartbeats fresh, walks
along their rows for what no trigger told, and sees to it that a table which can't be worked is left alone.

It has a thread of its own: a table of the user's may be locked, slow or gone, and neither leases nor native jobs may
wait for that. Any number of workers may do all this, for any table: what they do is decided by rows and locks."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from holdfast import events
from holdfast.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.model.mapping import Mapping
from holdfast.model.peers import LATE
from holdfast.model.table import Problem
from holdfast.settings import Settings
from holdfast.store.adopted import Source, rare_beats
from holdfast.store.base import Store
from holdfast.tasks.manifest import TaskInfo
from holdfast.worker.desk import Desk
from holdfast.worker.loop import LONGEST, Loop
from holdfast.worker.mandate import Mandate

ROUND = 60.0  # seconds between two looks at everything, if nothing asks for one
SWEEP_EVERY = 1.0  # seconds between two steps along a table, until its end
BATCH = 200  # rows that are settled at once
AWAKE = 0.25  # seconds after rows were settled for which more are expected: the triggers tell nobody meanwhile
SOON = 0.003  # seconds between two looks then
AGAIN = 0.5  # seconds after which rows that were locked, or an error, are tried again
RECHECK = 5.0  # seconds between two looks at a table that can't be worked, to see whether it was mended
GLANCE = 10.0  # seconds between two looks whether something happened to a table


def settle(store: Store, woke: Callable[[Mapping], None] = lambda mapping: None) -> bool:
    """Settle everything that there is now, for a caller that can't wait for a worker. Returns whether there was
    something."""
    found = False
    for source in store.adopted.installed():
        while not source.suspended and (done := store.adopted.settle(source.name, BATCH)).settled:
            found = True
            if done.woke:
                woke(source.mapping)
    return found


class Inspection:
    """Which of the tables that this application maps can't be worked as it says. Their jobs are not claimed here."""

    def __init__(self, store: Store, mappings: Iterable[Mapping], mandate: Mandate, heartbeat: float) -> None:
        self._store = store
        self._mappings = list(mappings)
        self._mandate = mandate
        self._heartbeat = heartbeat
        self._said: dict[str, list[str]] = {}  # the problems of each that were reported last

    def __bool__(self) -> bool:
        return bool(self._mappings)

    @property
    def refused(self) -> frozenset[str]:
        return self._mandate.refused

    def look(self) -> bool:
        """Look at all of them. True: one that was refused is served again."""
        before = self.refused
        refused = {mapping.name for mapping in self._mappings if self._is_refused(mapping)}
        self._mandate.refused = frozenset(refused)
        for name in sorted(before - refused):
            events.emit("table_served", source=name)
        return bool(before - refused)

    def _is_refused(self, mapping: Mapping) -> bool:
        try:
            problems = [*self._store.adopted.check(mapping), *rare_beats(mapping, self._heartbeat)]
        except StoreUnavailable:
            raise
        except HoldfastError as error:  # there is no such table, say
            problems = [Problem(what=error.message, fix=f"holdfast adopt {mapping.table} shows what is there")]
        fatal = any(problem.fatal for problem in problems)
        said = [str(problem) for problem in problems]
        if said != self._said.get(mapping.name, []):
            self._said[mapping.name] = said
            if said:
                event = "table_refused" if fatal else "table_doubtful"
                events.emit(event, source=mapping.name, error="; ".join(said))
        return fatal


@dataclass(slots=True)
class Walk:
    """Where the sweep along one table is. Instants are monotonic."""

    next_at: float = 0.0
    after: str | None = None


class Settler:
    def __init__(self, store: Store, settings: Settings, tasks: Iterable[TaskInfo], desk: Desk) -> None:
        self._store = store
        self._beat_every = settings.heartbeat
        self._backoff = settings.backoff
        self._desk = desk
        self._tasks = list(tasks)
        mappings = [task.mapping for task in self._tasks if task.mapping is not None]
        self._inspection = Inspection(store, mappings, desk.mandate, settings.heartbeat)
        self._adopted = False  # any table is, as the watchdog's last look saw it
        self._sources: list[Source] = []  # those that are worked
        self._walks: dict[str, Walk] = {}
        self._round_at = 0.0  # monotonic, as the others
        self._read_at = -math.inf  # when it was last looked at everything
        self._glance_at = 0.0
        self._beat_at = 0.0
        self._settle_at = 0.0
        self._told = False  # to look at all tables, by another thread
        self._written_at = math.inf  # when to look at what somebody wrote, as another thread heard
        self._settled_at = 0.0  # when there was something to settle
        self._quiet = 0  # how often in a row there was not
        self._settling = threading.Lock()  # until the desk knows of the jobs that this made due
        self._loop = Loop("settler", self._step)

    def start(self) -> None:
        """Look at the tables of this application before anything is claimed."""
        if self._inspection:
            self._patiently(self._read)
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop(0.0)

    def join(self, timeout: float) -> None:
        self._loop.join(timeout)

    def noticed(self, adopted: bool) -> None:
        """The watchdog saw whether any table is adopted. From any thread."""
        if adopted != self._adopted:
            self._adopted = self._told = True  # the next step reads which
            self._loop.wake()

    def written(self, turn: int) -> None:
        """Somebody wrote to an adopted table; `turn` workers act on that before this one. From any thread."""
        self._written_at = min(self._written_at, time.monotonic() + (LATE if turn else 0.0))
        self._loop.wake()

    def catch_up(self) -> bool:
        """Settle everything there is, in the caller's thread. Returns whether there was something. What our own thread
        settled meanwhile is known to the desk afterwards."""
        with self._settling:
            return self._adopted and settle(self._store, self._woke)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _step(self) -> float:
        if not self._adopted and not self._inspection:
            return LONGEST
        now = time.monotonic()
        if self._told or now >= self._round_at:
            self._told, self._round_at = False, now + RECHECK
            self._patiently(self._read)
        if now >= self._glance_at:
            self._glance_at = now + GLANCE
            self._patiently(self._glance)
        if now >= min(self._written_at, self._settle_at):
            told = now >= self._written_at
            self._written_at, self._settle_at = math.inf, now + AGAIN
            self._patiently(self._settle)
            if told and self._quiet:  # in vain: the triggers that told may find a column gone
                self._look_soon()
        if now >= self._beat_at and (held := self._held()):
            self._beat_at = now + self._beat_every
            for source in held:
                self._patiently(partial(self._store.adopted.beat, source.name))
        self._sweep(now)
        return max(0.0, self._next_at() - time.monotonic())

    def _next_at(self) -> float:
        """When there is something to do. The beat looks often whether there is one: that costs no statement."""
        sweeps = [walk.next_at for walk in self._walks.values()] if self._leads else []
        beats = [time.monotonic() + self._beat_every / 2] if self._sources else []
        return min([self._round_at, self._glance_at, self._settle_at, self._written_at, *beats, *sweeps])

    def _patiently(self, act: Callable[[], None]) -> None:
        try:
            act()
        except StoreUnavailable as error:
            events.emit("unavailable", error=str(error), wait=AGAIN)
        except StoreError:
            # The table has changed, most likely: the next look says how, and which of them.
            self._round_at = min(self._round_at, time.monotonic() + AGAIN)

    @property
    def _leads(self) -> bool:
        """One worker of those that serve the same walks along the tables."""
        return self._desk.wakeups.place.rank == 0

    # -- what it does --------------------------------------------------------------------------------------------------

    def _glance(self) -> None:
        """In one statement: did somebody who claims find a table that can't be worked, and we don't know yet? Was a
        table rebuilt, so that nobody told us what was written to it meanwhile?"""
        installed = self._store.adopted.installed()
        if any(one.refused and one.name not in self._inspection.refused for one in installed):
            self._look_soon()
        for one in installed:
            walk = self._walks.get(one.name)
            if walk is not None and walk.after is None and one.swept_to is not None:
                walk.next_at = 0.0

    def _look_soon(self) -> None:
        """At everything, but not all the time."""
        self._round_at = min(self._round_at, self._read_at + RECHECK)

    def _read(self) -> None:
        """Which tables there are, and whether they can be worked."""
        self._read_at = time.monotonic()
        mended = self._inspection.look()
        refused = self._inspection.refused
        installed = self._store.adopted.installed()
        self._adopted = bool(installed)
        self._sources = [one for one in installed if not one.suspended and one.name not in refused]
        self._walks = {one.name: self._walks.get(one.name) or Walk() for one in self._sources}
        self._round_at = time.monotonic() + (RECHECK if refused else ROUND)
        if mended:
            self._settle()  # what its rows are owed
            self._desk.wakeups.wake()

    def _settle(self) -> None:
        """Until nothing is left. What is locked is tried again soon. After something was found we look again without
        being told: often at first, then after as long as it has been quiet, since what was written at that time may be
        committed much later."""
        locked = False
        for source in self._sources:
            full = True
            while full:
                with self._settling:
                    done = self._store.adopted.settle(source.name, BATCH, stays=True)
                    if done.woke:
                        self._woke(source.mapping)
                if done.settled:
                    self._settled_at, self._quiet = time.monotonic(), 0
                full = done.settled >= BATCH
                locked = locked or bool(done.waiting)
        self._quiet += 1
        quiet_for = time.monotonic() - self._settled_at
        waits = [SOON if quiet_for < AWAKE else min(ROUND, quiet_for)]
        if locked:
            waits.append(AGAIN)
        if not self._desk.poller.listening:
            waits.append(self._backoff.wait(self._quiet))
        self._settle_at = time.monotonic() + min(waits)

    def _woke(self, mapping: Mapping) -> None:
        """Jobs of this table are due: for our own desk at once, and for the workers beside us."""
        if mapping.name in {task.name for task in self._tasks}:
            self._desk.wakeups.due_in(0.0)
        self._store.wakeups.tell([mapping.queue])

    def _held(self) -> list[Source]:
        """The tables of which this worker holds jobs."""
        held = {attempt.held.task for attempt in self._desk.in_flight.attempts()} if self._sources else set()
        return [source for source in self._sources if source.name in held]

    def _sweep(self, now: float) -> None:
        for source in self._sources if self._leads else ():
            walk = self._walks[source.name]
            if now >= walk.next_at:
                walk.next_at = now + SWEEP_EVERY
                self._patiently(partial(self._walk, source, walk))

    def _walk(self, source: Source, walk: Walk) -> None:
        swept = self._store.adopted.sweep(source.name, walk.after)
        walk.after = swept.reached
        if swept.reached is None:
            walk.next_at = time.monotonic() + ROUND
        if swept.strays:
            self._settle_at = 0.0
