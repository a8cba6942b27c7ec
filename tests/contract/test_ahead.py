"""Claims ahead of free slots: beyond `limit` only jobs that were never tried and may be tried again. And one
lane alone, where PostgreSQL takes a shorter way than through several: the answers must be the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.model.outcome import given_back
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import at_once, everything, raw
from tests.factories import BOOM, HOUR, Clock, a_queued_job, claim, new_job, ref

TASKS = ("greet", "scan", "ship")
ONLY_POSTGRES = pytest.mark.parametrize("engine", ["postgres"])  # where others can hold single rows locked
# One lane, and two that are due: the same jobs must be taken in the same order.
PLACES = pytest.mark.parametrize("queues", [("default",), ("default", "other")], ids=["one lane", "two lanes"])


def ids(jobs: list[ClaimedJob]) -> list[str]:
    return [str(job.id) for job in jobs]


def a_tried_job(store: Store, **options: Any) -> str:
    """A queued job with an attempt behind it, another before it."""
    id = a_queued_job(store, priority=100, **options)
    [held] = claim(store).jobs
    assert str(held.id) == id
    store.attempts.reschedule(ref(held), 0, BOOM)
    store.operator.change(id, priority=0)
    return id


# -- what is taken ahead --------------------------------------------------------------------------------------------


@PLACES
def test_a_claim_takes_for_free_slots_and_ahead_of_them(store: Store, queues: tuple[str, ...]) -> None:
    made = [a_queued_job(store, queue=queues[n % len(queues)]) for n in range(7)]
    claimed = claim(store, 2, ahead=3)
    assert ids(claimed.jobs) == made[:5]
    assert (claimed.passed, claimed.more) == (False, False)
    assert {job.attempt for job in claimed.jobs} == {1}
    assert [store.reads.get(id).state for id in made] == [State.RUNNING] * 5 + [State.QUEUED] * 2
    assert ids(claim(store, 2, ahead=3).jobs) == made[5:]


@PLACES
def test_jobs_that_may_not_wait_in_hand_are_passed_over_until_there_is_a_slot(
    store: Store, stores: Callable[..., Store], clock: Clock, queues: tuple[str, ...]
) -> None:
    other = stores(clock=clock)
    tried = a_tried_job(store, queue=queues[-1])
    once = a_queued_job(store, max_attempts=1)
    fresh = [a_queued_job(store, queue=queues[n % len(queues)], max_attempts=2) for n in range(3)]
    before = everything(store, tried), everything(store, once)
    claimed = claim(store, 0, ahead=4, held=5)
    assert ids(claimed.jobs) == fresh[:2], "four were looked at, in order"
    assert claimed.passed
    assert not claimed.more, "nobody has them locked"
    assert (everything(store, tried), everything(store, once)) == before, "queued, held by nobody, uncharged"
    claimed = claim(other, 2, ahead=4, held=5)
    assert ids(claimed.jobs) == [tried, once, fresh[2]]
    assert [job.attempt for job in claimed.jobs] == [2, 1, 1]
    assert not claimed.passed


@PLACES
def test_a_free_slot_takes_any_job(store: Store, queues: tuple[str, ...]) -> None:
    made = [a_tried_job(store, queue=queues[-1]), a_queued_job(store, max_attempts=1), a_queued_job(store)]
    claimed = claim(store, 2, ahead=1)
    assert ids(claimed.jobs) == made
    assert not claimed.passed


def test_what_is_passed_over_counts_against_what_is_taken_ahead(store: Store) -> None:
    """Else a claim would read through a backlog of jobs it may not take."""
    for _ in range(10):
        a_queued_job(store, max_attempts=1)
    fresh = a_queued_job(store)
    claimed = claim(store, 1, ahead=5)
    assert len(claimed.jobs) == 1
    assert claimed.passed
    assert store.reads.get(fresh).state is State.QUEUED


@PLACES
def test_a_claim_that_only_passed_over_leaves_no_trace(
    store: Store, settings: Settings, queues: tuple[str, ...]
) -> None:
    made = [a_queued_job(store, queue=queues[n % len(queues)], max_attempts=1) for n in range(2)]
    before = [everything(store, id) for id in made]
    claimed = claim(store, 0, ahead=5, held=2)
    assert (claimed.jobs, claimed.passed, claimed.more) == ([], True, False)
    assert [everything(store, id) for id in made] == before
    with raw(settings) as sql:
        assert sql("select count(*) from {leases}") == [(0,)]


def test_the_lease_names_what_was_taken_and_not_what_was_passed_over(store: Store, settings: Settings) -> None:
    a_queued_job(store, max_attempts=1)
    fresh = a_queued_job(store)
    claimed = claim(store, 0, ahead=5, held=2)
    assert ids(claimed.jobs) == [fresh]
    assert ids(store.claim_of(claimed.jobs[0].fence).jobs) == [fresh]
    with raw(settings) as sql:
        [(held, job_ids)] = sql("select held, job_ids from {leases}")
    assert held == 3
    assert ids_in(job_ids) == [int(fresh)]


def ids_in(stored: Any) -> list[int]:
    return [int(id) for id in stored.strip("[]").split(",")] if isinstance(stored, str) else list(stored)


def test_nothing_ahead_and_no_slot_is_no_claim(store: Store) -> None:
    id = a_queued_job(store)
    assert claim(store, 0, ahead=0).jobs == []
    assert store.reads.get(id).state is State.QUEUED


def test_what_was_claimed_ahead_can_be_given_back_unstarted(store: Store) -> None:  # uncharged, no history
    made = [a_queued_job(store) for _ in range(3)]
    _, *waiting = claim(store, 1, ahead=2).jobs
    done = store.exchange([given_back(held, started=False) for held in waiting], None)
    assert (done.lost, done.requeued) == ([], {"default"})
    assert [store.reads.get(id).attempt for id in made] == [1, 0, 0]
    assert [store.reads.attempts(id) for id in made] == [[], [], []]
    assert ids(claim(store, 0, ahead=2, held=1).jobs) == made[1:], "fresh as before"


# -- the same as a plain reading of the rule -------------------------------------------------------------------------


@dataclass
class Waiting:
    id: str
    priority: int
    due: float
    tried: bool
    once: bool  # no other attempt is allowed
    expires: float | None

    @property
    def fresh(self) -> bool:
        return not self.tried and not self.once

    @property
    def urgency(self) -> tuple[int, float, int]:
        return (-self.priority, self.due, int(self.id))


def expected(waiting: list[Waiting], now: float, limit: int, ahead: int) -> tuple[list[str], bool]:
    """Which jobs a claim takes, and whether it passes some over."""
    due = [job for job in waiting if job.due <= now and (job.expires is None or job.tried or job.expires > now)]
    first = sorted(due, key=lambda job: job.urgency)[: limit + ahead]
    taken = [job.id for rank, job in enumerate(first) if rank < limit or job.fresh]
    return taken, len(taken) < len(first)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_one_lane_or_several_answer_as_the_rule_says(store: Store, clock: Clock, lanes: int) -> None:
    chance = random.Random(lanes)
    start = clock.now
    places = [("greet", "default", 0), ("scan", "default", 0), ("greet", "other", 1)][:lanes]
    waiting: list[Waiting] = []

    def now() -> float:
        return (clock.now - start).total_seconds()

    def enqueue(tried: bool) -> None:
        task, queue, priority = chance.choice(places)
        delay = chance.choice((0, 0, 0, 1, 5))
        expires_in = chance.choice((None, None, None, 2, 7))
        once = not tried and chance.random() < 0.2
        id = a_queued_job(
            store, task=task, queue=queue, priority=100 if tried else priority, delay=0 if tried else delay,
            expires_in=expires_in, max_attempts=1 if once else 3,
        )  # fmt: skip
        if tried:
            [held] = claim(store, tasks=TASKS).jobs
            assert str(held.id) == id
            store.attempts.reschedule(ref(held), delay, BOOM)
            store.operator.change(id, priority=priority)
        expires = None if expires_in is None else now() + expires_in
        waiting.append(Waiting(id, priority, now() + delay, tried, once, expires))

    claims = 0
    for _ in range(30):
        for _ in range(chance.randint(0, 6)):
            enqueue(tried=chance.random() < 0.2)
        clock.advance(chance.choice((0, 1, 2)))
        limit, ahead = chance.choice(((1, 0), (2, 3), (0, 4), (1, 2), (3, 1), (0, 1)))
        claimed = claim(store, limit, ahead=ahead, tasks=TASKS, held=1)
        assert (ids(claimed.jobs), claimed.passed) == expected(waiting, now(), limit, ahead)
        assert not claimed.more
        waiting = [job for job in waiting if job.id not in ids(claimed.jobs)]
        claims += len(claimed.jobs)
    assert claims > 30, "there was something to compare"


# -- one lane: what a claim has to leave -----------------------------------------------------------------------------


def test_one_lane_leaves_what_is_not_due_yet(store: Store, clock: Clock) -> None:
    later, due = a_queued_job(store, delay=30), a_queued_job(store)
    claimed = claim(store, 2, ahead=3)
    assert ids(claimed.jobs) == [due]
    assert claimed.next_due == pytest.approx(30)
    assert not claimed.more
    clock.advance(30)
    assert ids(claim(store, 2, ahead=3).jobs) == [later]


def test_one_lane_leaves_what_expired(store: Store, clock: Clock) -> None:
    late = [a_queued_job(store, expires_in=10) for _ in range(40)]
    fine = [a_queued_job(store, expires_in=100) for _ in range(3)]
    clock.advance(11)
    claimed = claim(store, 1, ahead=3)
    assert ids(claimed.jobs) == fine
    assert not claimed.more
    assert {store.reads.get(id).state for id in late} == {State.QUEUED}
    assert len(store.retention.expire()) == 40


def test_one_lane_keeps_later_attempts_of_what_began_in_time(store: Store, clock: Clock) -> None:
    id = a_tried_job(store, expires_in=10)
    clock.advance(11)
    assert ids(claim(store, 1, ahead=3).jobs) == [id]


@pytest.mark.parametrize(("kind", "name"), [("queue", "mail"), ("task", "scan")])
def test_one_lane_open_beside_a_paused_one(store: Store, kind: str, name: str) -> None:
    held_up = a_queued_job(store, queue="mail", task="scan", priority=50)
    due = [a_queued_job(store) for _ in range(2)]
    store.pauses.add(kind, name)
    assert ids(claim(store, 1, ahead=5, tasks=TASKS).jobs) == due
    claimed = claim(store, 1, ahead=5, tasks=TASKS)
    assert (claimed.jobs, claimed.passed, claimed.more) == ([], False, False)
    store.pauses.drop(kind, name)
    assert ids(claim(store, 1, ahead=5, tasks=TASKS).jobs) == [held_up]


# -- others at it ----------------------------------------------------------------------------------------------------


def lock(sql: Any, ids: list[str]) -> None:
    assert len(sql("select 1 from {jobs} where id = any(?) for update", [int(id) for id in ids])) == len(ids)


@ONLY_POSTGRES
@PLACES
def test_jobs_that_others_have_locked_are_told_of_and_not_waited_for(
    store: Store, settings: Settings, queues: tuple[str, ...]
) -> None:
    made = [a_queued_job(store, queue=queues[n % len(queues)]) for n in range(6)]
    with raw(settings) as sql:
        lock(sql, made[:2])
        assert not claim(store, 1).more, "it got all it wanted"
        claimed = claim(store, 1, ahead=1, held=1)
        assert (ids(claimed.jobs), claimed.more) == (made[3:5], False)
        claimed = claim(store, 1, ahead=4, held=3)
        assert (ids(claimed.jobs), claimed.more) == (made[5:], True)
        claimed = claim(store, 1, ahead=4, held=4)
        assert (claimed.jobs, claimed.more, claimed.passed) == ([], True, False)
    claimed = claim(store, 1, ahead=4, held=4)
    assert (ids(claimed.jobs), claimed.more) == (made[:2], False)
    claimed = claim(store, 1, ahead=4, held=6)
    assert (claimed.jobs, claimed.more) == ([], False)


@ONLY_POSTGRES
def test_what_waits_in_other_queues_or_later_is_nothing_that_could_not_be_locked(
    store: Store, settings: Settings, clock: Clock
) -> None:
    """Else the worker would look again and again for what it may not take."""
    a_queued_job(store, delay=HOUR)
    a_queued_job(store, queue="other")
    late = a_queued_job(store, expires_in=1)
    mine = a_queued_job(store)
    clock.advance(2)
    with raw(settings) as sql:
        lock(sql, [late])
        claimed = claim(store, 2, ahead=3, queues=("default",))
    assert (ids(claimed.jobs), claimed.more, claimed.passed) == ([mine], False, False)


def test_claims_at_once_in_one_lane_take_different_jobs(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    jobs = 300
    made = [done.id for chunk in store.enqueue_many(new_job() for _ in range(jobs)) for done in chunk]
    own = [stores(clock=clock) for _ in range(4)]

    def drain(number: int) -> list[str]:
        mine: list[str] = []
        while True:
            claimed = claim(own[number], 2, ahead=5, worker=f"w{number}", held=1)
            assert len(claimed.jobs) <= 7
            mine += ids(claimed.jobs)
            if not claimed.jobs and not claimed.more:
                return mine

    taken = [id for mine in at_once(4, drain) for id in mine]
    taken += ids(claim(store, jobs).jobs)  # an empty claim is no proof that none is left
    assert sorted(taken, key=int) == made, "none lost, none twice"
    assert {job.attempt for job in store.reads.jobs(limit=jobs)} == {1}
