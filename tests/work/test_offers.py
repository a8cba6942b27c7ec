"""A worker with nothing to do offers to take the next job of a kind that came alone; what it is given starts without
another trip, and what it may not have heard of is looked up (docs/decisions/0022)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.model.job import Claimed, Held, Wants
from holdfast.store.base import JobId
from holdfast.work.offers import MOST, QUIET
from tests.work.scripted import AHEAD, Bench, Idle, ScriptedEar, held, listening

GREET = ("default", "greet")


class Offering:
    """A desk with an ear, that runs suspects in a place of their own, as a worker with processes does."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, solo: bool = True, slots: int = 5, can_offer: bool = True,
        **settings: Any,
    ) -> None:  # fmt: skip
        self.bench = Bench(monkeypatch, slots=slots, **settings)
        self.time, self.store, self.desk = self.bench.time, self.bench.store, self.bench.desk
        self.runner = self.bench.runner
        if solo:
            self.desk.add_solo(Idle(1, "suspects"))
        listening(self.bench)
        self.ear = ScriptedEar(self.store)
        self.ear.can_offer = can_offer
        self.desk.attend(self.ear)
        self._ids = 0
        self.bench.until_idle()

    def tell(self, queue: str = "default", jobs: int = 1) -> None:
        """It is told of a lane and finds so many jobs there."""

        def found(wants: Wants | None) -> Claimed:
            assert wants is not None
            return Claimed([self.job(wants.fence, queue) for _ in range(jobs)])

        self.store.answers = [found]
        self.desk.told(queue, "greet", 0)
        self.bench.until_idle()

    def job(self, fence: str, queue: str = "default") -> Held:
        self._ids += 1
        return Held(self._ids, fence, "greet", queue, b"{}", 1, 3)

    def give(self, fence: str, queue: str = "default", *, ago: float = 0.0) -> Held:
        """Somebody takes the offer, or did so long ago."""
        job = self.job(fence, queue)
        about = [self.time.now + AHEAD - ago, fence, job.id, queue, "greet", 0, 3, None]
        self.ear.said.append(("given", json.dumps(about) + "\n{}"))
        self.bench.until_idle()
        return job

    def finish_all(self) -> None:
        for attempt in list(self.runner.running):
            self.bench.finish(attempt)
        self.bench.until_idle()

    def rest(self, seconds: float = 2 * QUIET) -> None:
        """Nothing happens for so long."""
        until = self.time.now + seconds
        while self.time.now < until:
            if not self.desk.turn():
                self.desk.wait(until - self.time.now)
        self.bench.until_idle()

    @property
    def offered(self) -> list[list[tuple[str, str]]]:
        """The kinds of each time it offered something."""
        return [list(kinds.values()) for _, kinds in self.ear.offers]

    @property
    def fence(self) -> str:
        """Of the newest offer."""
        return list(self.ear.offers[-1][1])[-1]

    @property
    def running(self) -> list[JobId]:
        return [attempt.held.id for attempt in self.runner.running]


@pytest.fixture
def offering(monkeypatch: pytest.MonkeyPatch) -> Offering:
    """One job came alone, was done, and the same is offered for."""
    offering = Offering(monkeypatch)
    offering.tell()
    offering.finish_all()
    offering.rest()
    assert offering.offered == [[GREET]]
    return offering


def test_who_never_had_a_job_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    offering.rest(100.0)
    assert offering.offered == []


def test_it_offers_when_it_was_quiet_for_a_moment_and_then_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    offering.tell()
    offering.finish_all()
    ended_at = offering.time.now
    offering.rest(100.0)
    [(at, kinds)] = offering.ear.offers
    assert at == pytest.approx(ended_at + QUIET)
    assert list(kinds.values()) == [GREET]


def test_it_offers_nothing_while_jobs_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    for _ in range(20):
        offering.tell()
        offering.finish_all()
        offering.rest(QUIET / 2)
    assert offering.offered == []


def test_what_it_is_given_starts_without_a_trip_and_is_offered_for_again(offering: Offering) -> None:
    offering.rest(1.0)  # the look that follows a claim is behind it
    trips = len(offering.store.made)
    first = offering.give(offering.fence)
    assert offering.running == [first.id]
    assert len(offering.store.made) == trips
    offering.finish_all()
    assert [outcome.id for outcome in offering.store.recorded][-1] == first.id
    assert offering.store.drained[-1] == [first.fence], "its lease is dropped with it: there is no look to wait for"
    offering.rest()
    assert offering.offered == [[GREET], [GREET]]
    assert len({fence for _, kinds in offering.ear.offers for fence in kinds}) == 2, "each has a fence of its own"


def test_its_lease_is_renewed_at_the_next_beat_whenever_that_was_taken(offering: Offering) -> None:
    """It may have been heard of late."""
    offering.give(offering.fence)
    assert [attempt.leased for attempt in offering.desk.in_hand()] == [0.0]


@pytest.mark.parametrize("ours", [False, True])
def test_what_it_hears_of_late_is_looked_up_first(offering: Offering, ours: bool) -> None:
    """It was stopped, or its machine asleep: others may have rescued and run it since."""
    fence = offering.fence
    if ours:
        offering.store.claims[fence] = Claimed([offering.job(fence)])
    offering.give(fence, ago=6.0)
    assert len(offering.running) == int(ours)


def test_clocks_that_differ_make_no_job_late(offering: Offering) -> None:
    offering.rest(3600.0)
    job = offering.give(offering.fence, ago=1.0)
    assert offering.running == [job.id]


def test_it_offers_for_no_more_than_it_has_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first: else one would wait here while another worker has nothing to do."""
    offering = Offering(monkeypatch, slots=2)
    for n in range(4):
        offering.tell(f"q{n}")
        offering.finish_all()
    offering.rest()
    assert offering.offered == [[("q3", "greet"), ("q2", "greet")]]


def test_a_claim_for_its_last_slot_takes_the_offers_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch, slots=1)
    offering.tell("mail")
    offering.finish_all()
    offering.rest()
    assert offering.offered == [[("mail", "greet")]]
    offering.tell("other")
    assert offering.store.withdrawn == [offering.fence]


def test_after_a_while_without_an_ear_it_offers_again(offering: Offering) -> None:
    offering.ear.broken = True
    offering.tell()
    assert offering.ear.closed
    offering.finish_all()
    offering.rest()
    offering.ear = ScriptedEar(offering.store)
    offering.desk.attend(offering.ear)
    offering.tell()
    offering.finish_all()
    offering.rest()
    assert offering.offered == [[GREET]]


def test_an_offer_is_taken_once(offering: Offering) -> None:
    fence = offering.fence
    first = offering.give(fence)
    offering.give(fence)
    assert offering.running == [first.id]


def test_it_offers_for_as_many_kinds_as_came_of_late(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch, slots=20)
    for n in range(MOST + 2):
        offering.tell(f"q{n}")
        offering.finish_all()
    offering.rest()
    assert [sorted(kinds) for kinds in offering.offered] == [sorted((f"q{n}", "greet") for n in range(2, MOST + 2))]


def test_the_other_offers_stand_while_short_jobs_come(offering: Offering) -> None:
    offering.tell("mail")
    offering.finish_all()
    offering.rest()
    assert offering.offered[1:] == [[("mail", "greet")]]
    for _ in range(3):
        offering.give(offering.fence, "mail")
        offering.finish_all()
        offering.rest()
    assert offering.offered[2:] == [[("mail", "greet")]] * 3
    assert offering.store.withdrawn == []


def test_who_has_something_in_hand_for_longer_takes_its_offers_back(offering: Offering) -> None:
    """Another worker may have nothing to do."""
    offering.tell("mail")
    offering.finish_all()
    offering.rest()
    fences = [fence for _, kinds in offering.ear.offers for fence in kinds]
    offering.give(fences[0])
    offering.rest()
    assert offering.store.withdrawn == [fences[1]]
    offering.rest(100.0)
    assert len(offering.offered) == 2
    offering.finish_all()
    offering.rest()
    assert sorted(offering.offered[-1]) == [GREET, ("mail", "greet")]


def test_jobs_that_come_meanwhile_put_that_off_no_longer(offering: Offering) -> None:
    fence = offering.fence
    for n in range(4):
        offering.tell(f"q{n}")  # and none of them ends
        offering.rest(QUIET / 2)
    assert offering.store.withdrawn == [fence]


def test_who_claims_many_takes_its_offers_back_at_once(offering: Offering) -> None:
    """They would be overtaken, now that there is a line."""
    offering.tell(jobs=2)
    assert offering.store.withdrawn == [offering.fence]


def test_what_was_taken_before_it_was_taken_back_is_found(offering: Offering) -> None:
    fence = offering.fence
    offering.store.claims[fence] = Claimed([job := offering.job(fence)])
    offering.tell(jobs=2)
    assert job.id in offering.running
    before = list(offering.running)
    offering.give(fence)  # that comes a little later
    assert offering.running == before


@pytest.mark.parametrize("taken", [False, True])
def test_when_its_ear_breaks_it_looks_its_offers_up(offering: Offering, taken: bool) -> None:
    fence = offering.fence
    if taken:
        offering.store.claims[fence] = Claimed([offering.job(fence)])
    offering.ear.broken = True
    offering.desk.wake()
    offering.bench.until_idle()
    assert offering.ear.closed
    assert offering.store.withdrawn == [fence]
    assert len(offering.running) == int(taken)
    assert offering.desk.idle() is not taken


def test_an_offer_of_which_nobody_knows_is_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    sent: list[str] = []

    def lose(worker: str, kinds: dict[str, tuple[str, str]]) -> float:
        sent.extend(kinds)
        offering.ear.broken = True
        raise OutcomeUnknown("the connection broke")

    offering.ear.offer = lose  # type: ignore[assignment]
    offering.tell()
    offering.finish_all()
    offering.rest()
    offering.rest(1.0)
    assert offering.store.withdrawn == sent
    assert len(sent) == 1


def test_an_offer_that_was_refused_is_made_again_after_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    sent: list[str] = []
    offer = offering.ear.offer

    def refuse(worker: str, kinds: Mapping[str, tuple[str, str]]) -> float:
        sent.extend(kinds)
        raise StoreError("permission denied")

    offering.ear.offer = refuse  # type: ignore[method-assign]
    offering.tell()
    offering.finish_all()
    offering.rest(100.0)
    assert offering.store.withdrawn == sent
    assert len(sent) == 1
    offering.ear.offer = offer  # type: ignore[method-assign]
    offering.tell()
    offering.finish_all()
    offering.rest(100.0)
    assert offering.offered == [[GREET]]


@pytest.mark.parametrize("taken", [False, True])
def test_who_stops_takes_its_offers_back_and_gives_back_what_it_was_given(offering: Offering, taken: bool) -> None:
    fence = offering.fence
    job = offering.job(fence)
    if taken:
        offering.store.claims[fence] = Claimed([job])
    offering.desk.claiming = False
    offering.desk.withdraw()
    assert not offering.desk.idle()
    offering.bench.until_idle()
    assert offering.store.withdrawn == [fence]
    assert offering.running == []
    back = [(outcome.verb, outcome.id) for outcome in offering.store.recorded if outcome.fence == fence]
    assert back == ([("release", job.id)] if taken else [])


def test_what_is_given_to_who_was_just_asked_to_stop_is_given_back(offering: Offering) -> None:
    offering.desk.claiming = False
    job = offering.give(offering.fence)
    assert offering.running == []
    assert ("release", job.id) in [(outcome.verb, outcome.id) for outcome in offering.store.recorded]


def drains(desk: Any) -> None:
    desk.limit = 10


def drains_all(desk: Any) -> None:
    desk.thorough = True


@pytest.mark.parametrize("prepare", [drains, drains_all])
def test_a_drain_offers_nothing(monkeypatch: pytest.MonkeyPatch, prepare: Callable[[Any], None]) -> None:
    offering = Offering(monkeypatch)
    prepare(offering.desk)
    offering.tell()
    offering.finish_all()
    offering.rest()
    assert offering.offered == []


@pytest.mark.parametrize("how", [{"solo": False}, {"after_job_delay": 0.5}, {"can_offer": False}], ids=str)
def test_who_may_not_take_just_any_job_offers_nothing(monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]) -> None:
    """A suspect would have company; a job would start before its time; its session is not its own."""
    offering = Offering(monkeypatch, **how)
    offering.tell()
    offering.finish_all()
    offering.rest(1.0)
    assert offering.offered == []


def test_a_job_found_by_a_look_everywhere_says_nothing_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    offering = Offering(monkeypatch)
    offering.store.answers = [lambda wants: Claimed([held(1, wants.fence)]) if wants is not None else Claimed()]
    offering.desk.wake()
    offering.bench.until_idle()
    offering.finish_all()
    offering.rest()
    assert offering.offered == []
