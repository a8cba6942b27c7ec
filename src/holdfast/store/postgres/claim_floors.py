"""Where to look while looking everywhere takes long (docs/decisions/0013).

A claimed job leaves a dead entry in the claim's index. While a transaction elsewhere keeps an old snapshot none of them
can be cleaned away, and whoever reads a lane from its head reads them all. So where there are very many, a worker
remembers how far each lane was emptied and looks from there on; a survey, again and again, finds what came to stand
before that: jobs given back, or committed late. Where there are few, nothing is remembered or done otherwise, however
slow looks may be.

Floors are instants as the database tells them, in seconds; how long something takes is told by our own clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from holdfast.model.job import Claimed, Wants

SLOW = 0.01  # seconds: looks everywhere that take longer, in a row, call for a survey
IN_A_ROW = 3
MANY_ENTRIES = 5_000  # that a survey walked over, beside those of the lanes it met: then looks are narrow,
MANY_PAGES = 200  # and stay so until it reads fewer, as vacuum has taken away what is marked as dead by then
PER_LANE = 5  # pages that are read to find the next one
MANY_LANES = 200  # beyond, one look at all of them is as good
REST = 20.0  # times as long as a survey took until the next one
LEAST_REST = 2.0  # seconds
SLACK = 2.0  # seconds before a floor that are looked at all the same: for what is committed a little late
MOMENT = 0.05  # seconds, the fewest after which to look again for what a survey finds
NONE_NEW = 2**63 - 1  # no job has a newer id

LaneName = tuple[str, str, int]  # queue, task, priority
Tasks = tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """Each lane with the due time of its first job, as it was at this instant; the newest job then; how many `entries`
    and `pages` of the index were walked over, and how many lanes of whomever were met."""

    lanes: list[tuple[str, str, int, float]]
    at: float
    newest: int
    met: int
    entries: int
    pages: int


@dataclass(frozen=True)
class Recent:
    """One look at some lanes, each from its floor on, and from `since` on at those that jobs newer than `newest` stand
    in."""

    floors: dict[LaneName, float]
    since: float
    newest: int


class ClaimFloors:
    """What is remembered of looks in the same queues. Several threads may share it: a floor is raised only by a look
    from that very floor on, so that none passes over what a survey found meanwhile."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._slow_ones = 0  # looks everywhere in a row that took long
        self._everywhere_at = 0.0
        self._askers: set[Tasks] = set()
        self.narrow = False  # look from floors on
        self._floors: dict[LaneName, float] = {}
        self._since = 0.0  # lanes that no survey found, and nobody told of, were empty then
        self._newest: dict[Tasks, int] = {}  # the newest job seen by those who look for these tasks
        self._began: float | None = None  # the survey under way
        self._surveying: frozenset[Tasks] = frozenset()
        self._ended = float("-inf")  # the last one
        self._took = 0.0
        self._hurry = False  # a job waits in its old place

    # -- looks -------------------------------------------------------------------------------------------------------

    def next(self, wants: Wants) -> Recent | None:
        """How to look now. None: without floors."""
        with self._lock:
            newest = self._newest.get(wants.tasks)
            if not self.narrow or newest is None:
                return None
            if wants.told:
                told = {lane: self._floors.get(lane, self._since) for lane in wants.told}
                return Recent(told, self._since, NONE_NEW)
            known = {lane: floor for lane, floor in self._floors.items() if lane[1] in wants.tasks}
            return Recent(known, self._since, newest) if len(known) <= MANY_LANES else None

    def looked(
        self, wants: Wants, look: Recent, seen: Iterable[tuple[str, str, int, float | None]], newest: int
    ) -> None:
        """`seen`: the first due time left in each lane; None: it was not to be taken from."""
        with self._lock:
            if self._newest.get(wants.tasks) == look.newest:
                self._newest[wants.tasks] = newest
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
        """Only a look without floors gets past however many jobs others have locked. It is worth one now and then."""
        return claimed.more and not claimed.jobs and monotonic() >= self._everywhere_at

    # -- surveys -----------------------------------------------------------------------------------------------------

    def begin_survey(self) -> Tasks:
        """The tasks to survey for. None: it is not the time."""
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
        """None: it failed. Then nobody knows what stands before a floor, and looks are without them."""
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
        """A job waits again where it stood before: so we survey at once, if we rest."""
        self._hurry = self.narrow or self._began is not None

    def wait(self, look: Recent) -> float:
        """Seconds after which another look may find what this one could not: when the survey under way has ended, or
        when the next one is to begin; or now, as one has ended since."""
        with self._lock:
            if look.since != self._since:
                return MOMENT
            until = self._survey_at() if self._began is None else self._began + self._took
            return max(MOMENT, until - monotonic())

    def _survey_at(self) -> float:
        return self._ended + (self._took if self._hurry else max(LEAST_REST, REST * self._took))
