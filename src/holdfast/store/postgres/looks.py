"""Where to look while looking everywhere takes long (docs/decisions/0013).

A claimed job leaves a dead entry in the claim's index. While a transaction elsewhere keeps an old snapshot none of them
can be cleaned away, and whoever reads a lane from its head reads them all. So where looks everywhere took long, a
worker remembers how far each lane was emptied and looks from there on; a survey, now and then, finds what came to stand
before that: jobs given back, or committed late. As long as looks are quick, nothing is remembered or done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast.model.job import Claimed, Wants

SLOW = 0.01  # seconds: a look everywhere that takes longer takes long; a survey, half the work, from half of it on
PER_LANE = 0.00005  # seconds that a survey may take besides for each lane
IN_A_ROW = 3  # of such looks: one or two may be a machine's hiccup. Then a survey tells whether it is the lanes
AGAIN = 10.0  # seconds after which a survey that was quick may be repeated, should looks still take long
REST = 400.0  # times as long as a slow survey took nobody surveys again: of ten claims a second, few meet one
SOONER = 20.0  # the same, when we have given back a job: it waits in its old place
LONGEST = 60.0  # seconds without a survey
SLACK = 2.0  # seconds before a floor that are looked at all the same: for what is committed a little late
MANY = 200  # lanes; beyond, one look at all of them is as good
NONE_NEW = 2**63 - 1  # no job has a newer id

LaneName = tuple[str, str, int]  # queue, task, priority
Ages = list[tuple[str, str, int, float]]  # lanes, and the age of the first job there


@dataclass(frozen=True)
class Recent:
    """One look at some lanes, each from its floor on; floors are instants, as `at` is, when the look began. Lanes found
    by ids above `newest` are looked at from `since` on."""

    at: float
    floors: dict[LaneName, float]
    since: float
    newest: int

    def age(self, lane: LaneName | None = None) -> float:
        floor = self.since if lane is None else self.floors[lane]
        return max(0.0, self.at - floor) + SLACK


class Looks:
    """What is remembered of looks for the same tasks in the same queues. Several threads may share it: a floor is
    raised only by a look from that very floor on, so that none passes over what another's survey has found."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._slow_ones = 0  # looks everywhere in a row that took long
        self._narrow = False  # look from floors on
        self._surveyed_at = 0.0
        self._took = 0.0
        self._survey_at = float("-inf")
        self._since = 0.0  # lanes that no survey found, and nobody told of, were empty then
        self._floors: dict[LaneName, float] = {}
        self._newest = NONE_NEW
        self._everywhere_at = float("-inf")

    def owes_survey(self, wants: Wants) -> bool:
        doubtful = self._narrow or self._slow_ones >= IN_A_ROW
        rests = self._surveyed_at <= self._now() < self._survey_at  # (a clock may be set back)
        return doubtful and not wants.told and not rests

    def surveyed(self, began: float, lanes: Ages, newest: int, took: float) -> None:
        self._slow_ones = 0
        self._took = took
        self._surveyed_at = self._now()
        self._narrow = took > SLOW / 2 + PER_LANE * len(lanes) and len(lanes) <= MANY
        self._survey_at = self._surveyed_at + (min(REST * took, LONGEST) if self._narrow else AGAIN)
        self._since = began
        self._floors = {(queue, task, priority): began - max(0.0, age) for queue, task, priority, age in lanes}
        self._newest = newest

    def given_back(self) -> None:
        self._survey_at = min(self._survey_at, self._surveyed_at + SOONER * self._took)

    def next(self, wants: Wants) -> Recent | None:
        """How to look now. None: without floors."""
        if not self._narrow:
            return None
        if wants.told:
            floors = {lane: self._floors.get(lane, self._since) for lane in wants.told}
            return Recent(self._now(), floors, self._since, NONE_NEW)
        if len(self._floors) > MANY:
            return None
        return Recent(self._now(), dict(self._floors), self._since, self._newest)

    def looked(self, look: Recent, seen: Iterable[tuple[str, str, int, float | None]], newest: int) -> None:
        """`seen`: the age of the first job left in each lane; None: it was not to be taken from."""
        if look.newest != NONE_NEW:
            self._newest = newest
        for queue, task, priority, age in seen:
            lane = (queue, task, priority)
            floor = look.floors.get(lane, look.since)
            if self._floors.setdefault(lane, floor) == floor and age is not None:
                self._floors[lane] = look.at - max(0.0, age)

    def needs_everywhere(self, claimed: Claimed) -> bool:
        """Only a look without floors tells who runs what beside a suspect, and gets past however many jobs that others
        have locked: the latter now and then."""
        return claimed.alone or (claimed.more and not claimed.jobs and self._now() >= self._everywhere_at)

    def looked_everywhere(self, began: float) -> None:
        took = self._now() - began
        self._slow_ones = self._slow_ones + 1 if took > SLOW else 0
        self._everywhere_at = self._now() + SOONER * took


class Memory:
    """The looks of one store, by what they are for."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._looks: dict[object, Looks] = {}

    def of(self, wants: Wants) -> Looks:
        scope = (wants.tasks, wants.queues)
        return self._looks.get(scope) or self._looks.setdefault(scope, Looks(self.now))

    def forget(self) -> None:
        """The server may be another, or have lost its last claims: jobs may stand where we had emptied a lane."""
        self._looks.clear()

    def given_back(self) -> None:
        """A job waits again where it stood before."""
        for looks in list(self._looks.values()):
            looks.given_back()
