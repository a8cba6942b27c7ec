"""Claims while a snapshot is pinned (docs/decisions/0013).

A claimed job leaves a dead entry at the head of its lane in the claim's index. While a transaction elsewhere keeps an
old snapshot, no dead entry can be cleaned away, and every claim that reads a lane from its head reads all of them:
hundreds of thousands after some minutes. So where there are very many, a worker remembers how far each lane has been
emptied, the lane's *floor*, and claims from there on. What comes to stand before a floor (a job given back, or one
committed late) is found by a *survey*: one walk over all lanes, made again and again on a thread and a connection of
its own, so that no claim waits for it. Where there are few dead entries nothing is remembered and nothing done
differently, however slow claims may be.

`ClaimFloors` is what a store has. A claim asks it for the floors of the queues it looks in (`LaneFloors`) and how to
look (`next`), and reports back what it saw (`looked`, `looked_everywhere`).

Floors are instants by the database's clock, in seconds; how long something takes is measured by our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.job import Claimed, Wants

if TYPE_CHECKING:
    from holdfast.store.base import Transaction

SLOW = 0.01  # seconds: when this many claims in a row from all lanes take longer, a survey is made
IN_A_ROW = 3
MANY_ENTRIES = 5_000  # walked over by a survey beyond one for each lane: from then on claims go by floors,
MANY_PAGES = 200  # until a survey reads fewer pages: by then vacuum has removed what was marked as dead
PER_LANE = 5  # pages that are read to find the next lane
MANY_LANES = 200  # with more lanes than that a claim from all lanes is just as good
REST = 20.0  # the next survey comes after so many times as long as the last one took
LEAST_REST = 2.0  # seconds
SLACK = 2.0  # seconds before a floor that are looked at all the same, for what is committed a little late
MOMENT = 0.05  # seconds after which to look again, at least, for what a survey finds
CLOSING = 2.0  # seconds that a store which closes waits for a survey

LaneName = tuple[str, str, int]  # queue, task, priority
Tasks = tuple[str, ...]
Queues = tuple[str, ...] | None


@dataclass(frozen=True)
class Survey:
    """Each lane with the due time of its first job, as it was at this instant; the newest job then; how many `entries`
    and `pages` of the index were read, and how many lanes were met, whoever serves them."""

    lanes: list[tuple[str, str, int, float]]
    at: float
    newest: int
    met: int
    entries: int
    pages: int


@dataclass(frozen=True)
class NarrowLook:
    """A claim from some lanes, each from its floor on. `since`: when all other lanes were empty."""

    floors: dict[LaneName, float]
    since: float


class LaneFloors:
    """The floors of the lanes in some queues. Threads may share it: a floor is raised only by a look that began at that
    very floor, so none is raised over what a survey has found meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slow_ones = 0  # claims from all lanes in a row that took long
        self._everywhere_at = 0.0  # when a claim from all lanes is affordable again
        self._askers: set[Tasks] = set()
        self.narrow = False  # claims go by floors
        self._floors: dict[LaneName, float] = {}
        self._since = 0.0  # lanes without a floor were empty then
        self._newest: dict[Tasks, int] = {}  # the newest job seen by those who claim for these tasks
        self._began: float | None = None  # when the survey under way began
        self._surveying: frozenset[Tasks] = frozenset()
        self._ended = float("-inf")  # when the last survey did
        self._took = 0.0
        self._hurry = False  # a job was put back in its old place

    # -- looks -------------------------------------------------------------------------------------------------------

    def next(self, wants: Wants) -> NarrowLook | None:
        """How to look now. None: without floors."""
        with self._lock:
            if not self.narrow or wants.tasks not in self._newest:
                return None
            if wants.told:
                return NarrowLook({lane: self._floors.get(lane, self._since) for lane in wants.told}, self._since)
            known = {lane: floor for lane, floor in self._floors.items() if lane[1] in wants.tasks}
            return NarrowLook(known, self._since) if len(known) <= MANY_LANES else None

    def newest(self, wants: Wants) -> int | None:
        """The newest job seen by those who claim for these tasks. None: it doesn't matter for this claim."""
        with self._lock:
            return self._newest.get(wants.tasks) if self.narrow and not wants.told else None

    def met(self, wants: Wants, before: int, lanes: Iterable[LaneName], newest: int) -> None:
        """Jobs newer than `before` were enqueued, in these lanes: those without a floor were empty until then."""
        with self._lock:
            if self._newest.get(wants.tasks) == before:
                self._newest[wants.tasks] = newest
            for lane in lanes:
                self._floors.setdefault(lane, self._since)

    def looked(self, look: NarrowLook, seen: Iterable[tuple[str, str, int, float | None]]) -> None:
        """`seen`: the due time of the first job left in each lane; None: the lane is paused."""
        with self._lock:
            for queue, task, priority, first in seen:
                lane = (queue, task, priority)
                floor = look.floors.get(lane, look.since)
                if self._floors.setdefault(lane, floor) == floor and first is not None:
                    self._floors[lane] = first

    def looked_everywhere(self, wants: Wants, took: float) -> None:
        with self._lock:
            self._askers.add(wants.tasks)
            self._slow_ones = self._slow_ones + 1 if took > SLOW else 0
            self._everywhere_at = monotonic() + REST * took

    def needs_everywhere(self, claimed: Claimed) -> bool:
        """Only a look without floors gets past any number of jobs that others have locked. Now and then it is worth
        its cost."""
        return claimed.more and not claimed.jobs and monotonic() >= self._everywhere_at

    # -- surveys -----------------------------------------------------------------------------------------------------

    def begin_survey(self) -> Tasks:
        """The tasks to survey for. None: it is not time for a survey."""
        if not self.narrow and self._slow_ones < IN_A_ROW:
            return ()
        with self._lock:
            if self._began is not None or not self._askers or monotonic() < self._survey_at():
                return ()
            self._began = monotonic()
            self._slow_ones = 0
            self._hurry = False
            self._surveying = frozenset(self._askers)
            return tuple({task for tasks in self._surveying for task in tasks})

    def end_survey(self, found: Survey | None) -> None:
        """None: it failed. Then nobody knows what stands before a floor, and claims go without them."""
        with self._lock:
            self._ended = monotonic()
            self._took = self._ended - (self._began or self._ended)
            self._began = None
            self.narrow = found is not None and self._many(found)
            if found is not None:
                self._floors = {(queue, task, priority): first for queue, task, priority, first in found.lanes}
                self._since = found.at
                self._newest = dict.fromkeys(self._surveying, found.newest)

    def _many(self, found: Survey) -> bool:
        if self.narrow and found.pages > MANY_PAGES + PER_LANE * found.met:
            return True
        return found.entries > MANY_ENTRIES + found.met

    def given_back(self) -> None:
        """A job waits again in its old place: the next survey begins at once."""
        self._hurry = self.narrow or self._began is not None

    def wait(self, look: NarrowLook) -> float:
        """Seconds after which another look may find what this one could not: when the survey under way has ended, or
        when the next one is to begin; or soon, as one has ended since."""
        with self._lock:
            if look.since != self._since:
                return MOMENT
            until = self._survey_at() if self._began is None else self._began + self._took
            return max(MOMENT, until - monotonic())

    def _survey_at(self) -> float:
        return self._ended + (self._took if self._hurry else max(LEAST_REST, REST * self._took))


class ClaimFloors:
    """The floors of one store, by the queues that are looked in, and the surveys that renew them. A thread lives as
    long as its survey; whoever claims next sees whether it is time for another."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Transaction]]) -> None:
        self._transaction = transaction
        self._by_queues: dict[Queues, LaneFloors] = {}
        self._threads: list[threading.Thread] = []

    def of(self, wants: Wants) -> LaneFloors:
        """The floors of the queues it looks in. Begins a survey if it is time for one."""
        floors = self._by_queues.get(wants.queues) or self._by_queues.setdefault(wants.queues, LaneFloors())
        tasks = floors.begin_survey()
        if tasks:
            self._begin(floors, wants.queues, tasks)
        return floors

    def next(self, floors: LaneFloors, wants: Wants) -> NarrowLook | None:
        """How to look now, with the lanes that have come since the last look. None: without floors."""
        before = floors.newest(wants)
        if before is not None:
            queues = None if wants.queues is None else list(wants.queues)
            with self._transaction() as tx:
                [new] = tx.rows("new_lanes", newest=before, tasks=list(wants.tasks), queues=queues)
            if new["newest"] is not None:
                floors.met(wants, before, [(q, t, p) for q, t, p in json.loads(new["lanes"] or b"[]")], new["newest"])
        return floors.next(wants)

    def _begin(self, floors: LaneFloors, queues: Queues, tasks: Tasks) -> None:
        thread = threading.Thread(target=self.make, args=(floors, queues, tasks), name="holdfast-survey", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more
            floors.end_survey(None)
            events.emit("survey_failed", error=str(error))
        else:
            self._threads = [*self.under_way(), thread]

    def make(self, floors: LaneFloors, queues: Queues, tasks: Tasks) -> None:
        found = None
        try:
            found = self._survey(queues, tasks)
        except StoreError as error:
            events.emit("survey_failed", error=str(error))
        except Exception as error:  # noqa: BLE001 - whatever it met, the thread says so before it ends
            events.emit("stumbled", part="holdfast-survey", error=f"{type(error).__name__}: {error}")
        finally:
            floors.end_survey(found)

    def _survey(self, queues: Queues, tasks: Tasks) -> Survey:
        with self._transaction() as tx:
            [before] = tx.rows("walked")
            [found] = tx.rows("survey", queues=None if queues is None else list(queues), tasks=list(tasks))
            [after] = tx.rows("walked")
        lanes = json.loads(found.pop("lanes") or b"[]")
        return Survey(**found, lanes=lanes, **{kind: after[kind] - before[kind] for kind in after})

    def under_way(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def given_back(self) -> None:
        for floors in list(self._by_queues.values()):
            floors.given_back()

    def forget(self) -> None:
        """After a new connection, as the server may be another, or have lost its last claims: jobs may stand where we
        had emptied a lane. And after a fork: the child opens connections of its own, and no survey runs in it."""
        self._by_queues = {}

    def close(self) -> None:
        for thread in self.under_way():
            thread.join(CLOSING)
