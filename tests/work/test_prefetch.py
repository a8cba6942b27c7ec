"""How far ahead of its free slots the desk claims, and what it does with what did not begin in time: turned by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, RowLocked, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.job import Claimed, Wants
from holdfast.model.outcome import returned
from holdfast.tasks.attempt import Attempt
from holdfast.worker.intake import TOO_LATE
from holdfast.worker.outbox import BATCH
from holdfast.worker.runner_slots import FARTHEST, FIRST, HEAVIEST, SOON
from tests.work.scripted import Backlog, Bench, held

MakeBench = Callable[..., Bench]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> MakeBench:
    def bench(slots: int = 2, **settings: float) -> Bench:
        bench = Bench(monkeypatch, slots, **settings)
        bench.store.always = Backlog()
        return bench

    return bench


@pytest.fixture
def bench(make: MakeBench) -> Bench:
    return make()


def measured(bench: Bench, seconds: float = 0.001, times: int = 3) -> Bench:
    """With so many batches of such jobs behind it; what it claimed last is in flight, and nothing has ended since."""
    bench.desk.turn()
    for _ in range(times):
        bench.run_all(seconds)
        bench.desk.turn()
    bench.desk.turn()
    return bench


# -- how far -----------------------------------------------------------------------------------------------------------


def test_nothing_is_claimed_ahead_while_nothing_is_measured(bench: Bench) -> None:
    for _ in range(5):
        bench.desk.wakeups.wake()
        bench.desk.turn()
    assert bench.store.asked == [(2, 0)]


def test_what_ended_without_having_begun_measures_nothing(make: MakeBench) -> None:
    bench = make(10)
    measured(bench, seconds=0.05, times=12)
    counts = len(bench.desk.in_flight.attempts())
    for _ in range(5):
        for attempt in bench.runner.running[10:]:
            bench.runner.running.remove(attempt)
            bench.desk.ended.finished(attempt, None)  # cancelled before it began
        bench.desk.turn()
        bench.desk.turn()
    assert len(bench.desk.in_flight.attempts()) == counts > 10


def test_short_attempts_make_it_claim_farther_and_farther_ahead(make: MakeBench) -> None:
    bench = make(10)
    bench.desk.turn()
    most = 0
    for _ in range(20):
        bench.run_all(0.0005)
        bench.desk.turn()
        bench.desk.turn()
        most = max(most, len(bench.desk.in_flight.attempts()))
    ahead = [ahead for _, ahead in bench.store.asked]
    assert ahead[0] == 0
    assert 0 < ahead[1] <= 20 * FIRST, "not to thousands without a look in between"
    assert max(limit + ahead for limit, ahead in bench.store.asked) == BATCH
    assert BATCH < most <= FARTHEST + 10


@pytest.mark.parametrize(("slots", "seconds", "most"), [(2, 0.3, 1), (2, 1.0, 0), (100, 5.0, 4), (100, 60.0, 0)])
def test_of_long_jobs_it_claims_no_more_than_will_start_soon(
    make: MakeBench, slots: int, seconds: float, most: int
) -> None:
    bench = make(slots)
    bench.desk.turn()
    for _ in range(8):
        bench.run_all(seconds)
        bench.desk.turn()
    assert all(ahead <= most for _, ahead in bench.store.asked)
    assert bench.store.asked[-1] == (slots, int(SOON * slots / seconds))


def test_of_long_jobs_it_claims_none_ahead_from_the_first_on(make: MakeBench) -> None:
    """The first time measured counts as it is, not halved by a time before that there was not."""
    bench = make(2)
    bench.desk.turn()
    bench.run_all(0.15)
    bench.desk.turn()
    assert bench.store.asked == [(2, 0), (2, 1)]
    bench = make(2)
    bench.desk.turn()
    bench.run_all(0.3)
    bench.desk.turn()
    assert bench.store.asked == [(2, 0), (2, 0)]


def test_it_claims_as_many_ahead_as_the_slots_get_through_in_a_moment(make: MakeBench) -> None:
    bench = measured(make(10), seconds=0.05, times=12)
    assert bench.store.asked[-1] in ((0, 20), (10, 20))
    assert len(bench.desk.in_flight.attempts()) == 10 + 20


def test_it_claims_less_far_ahead_when_the_attempts_before_waited_long(make: MakeBench) -> None:
    """Many slots may share one processor: the run times alone would not tell."""
    bench = measured(make(10), seconds=0.0005, times=6)
    counts = [len(bench.desk.in_flight.attempts())]
    for _ in range(12):
        bench.run_all(0.0005, waited=3 * SOON)
        bench.desk.turn()
        bench.desk.turn()
        counts.append(len(bench.desk.in_flight.attempts()))
    assert counts[0] > BATCH
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] <= 10 + 1
    for _ in range(12):
        bench.run_all(0.0005)
        bench.desk.turn()
        bench.desk.turn()
    assert len(bench.desk.in_flight.attempts()) > BATCH, "as far as before, once they start soon again"


def test_with_a_delay_after_each_job_nothing_is_claimed_ahead(make: MakeBench) -> None:
    bench = make(after_job_delay=0.5)
    bench.desk.turn()
    for _ in range(5):
        bench.run_all(0.001)
        bench.rounds_until(len(bench.store.polls) + 1)
    assert len(bench.store.asked) == 6
    assert {ahead for _, ahead in bench.store.asked} == {0}
    assert max(limit for limit, _ in bench.store.asked) == 2


def test_what_is_claimed_ahead_counts_for_the_size_of_a_claim(make: MakeBench) -> None:
    bench = measured(make(10, claim_size=25), seconds=0.001)
    assert max(limit + ahead for limit, ahead in bench.store.asked) == 25
    assert max(ahead for _, ahead in bench.store.asked) > 10


@pytest.mark.parametrize("budget", [1, 7, 150, 5000])
def test_a_budget_of_jobs_bounds_what_is_claimed(make: MakeBench, budget: int) -> None:
    bench = make(10)
    bench.desk.mandate.budget = budget
    for _ in range(40):
        bench.desk.turn()
        bench.run_all(0.0005)
    backlog = bench.store.always
    assert isinstance(backlog, Backlog)
    assert backlog.taken == budget
    assert len(bench.store.recorded) == budget


def test_what_is_given_back_is_not_taken_from_a_budget_of_jobs(make: MakeBench) -> None:
    bench = make(10)
    bench.desk.mandate.budget = 300
    measured(bench, times=1)
    assert bench.desk.mandate.budget == 0
    bench.time.now += TOO_LATE
    bench.desk.turn()
    given_back = [outcome for outcome in bench.store.recorded if outcome.verb == "release"]
    assert given_back
    for _ in range(20):
        bench.run_all(0.0005)
        bench.desk.turn()
        bench.desk.turn()
    assert len(bench.store.recorded) - len(given_back) == 300
    assert bench.desk.idle()


def test_a_budget_of_jobs_counts_a_claim_whose_reply_was_lost(bench: Bench) -> None:
    bench.desk.mandate.budget = 2
    bench.store.answers = [OutcomeUnknown("the connection broke")]
    bench.desk.turn()
    wants = bench.store.made[0][2]
    assert wants is not None
    bench.store.claims[wants.fence] = Claimed([held(7, wants.fence), held(8, wants.fence)])
    for _ in range(6):
        bench.desk.turn()
        bench.run_all(0.001)
    assert sorted(outcome.id for outcome in bench.store.recorded) == [7, 8]


# -- jobs that may only be taken by a free slot ------------------------------------------------------------------------


def test_what_was_passed_over_gets_the_next_slot_before_anything_is_claimed_ahead(bench: Bench) -> None:
    measured(bench)
    bench.run_all(0.001)
    bench.store.answers = [Claimed([held(9001), held(9002)], passed=True)]
    bench.desk.turn()
    asked = len(bench.store.asked)
    for _ in range(3):
        bench.desk.wakeups.wake()
        bench.desk.turn()
    assert bench.store.asked[asked:] == [], "no slot is free, and others wait for one"
    bench.time.now += 0.001
    bench.finish(bench.runner.running[0])
    bench.desk.turn()
    assert bench.store.asked[asked:] == [(1, 0)]
    bench.desk.turn()
    limit, ahead = bench.store.asked[-1]
    assert (limit, ahead > 0) == (0, True), "they got their slot: ahead as before"


# -- what did not begin in time ----------------------------------------------------------------------------------------


def test_what_was_claimed_ahead_and_did_not_begin_goes_back_and_nothing_follows(bench: Bench) -> None:
    measured(bench)
    running, waiting = bench.runner.running[:2], bench.runner.running[2:]
    assert len(waiting) >= 50
    taken = waiting[0].taken
    trips = len(bench.store.made)
    at, outcomes, wants = bench.next_trip()
    assert at == pytest.approx(taken + TOO_LATE)
    assert {(outcome.verb, outcome.attempt, outcome.delay) for outcome in outcomes} == {("release", None, 0.0)}
    assert {outcome.id for outcome in outcomes} == {attempt.held.id for attempt in waiting}
    assert wants is None, "they are left to others: not claimed again by the very round trip that gives them back"
    assert bench.runner.running == bench.desk.in_flight.attempts() == running
    assert bench.runner.busy == 2
    for _ in range(5):
        bench.desk.wakeups.wake()
        bench.desk.turn()
    assert len(bench.store.made) == trips + 1


def test_after_a_stall_it_claims_ahead_again_once_attempts_are_short_again(bench: Bench) -> None:
    measured(bench)
    bench.time.now += TOO_LATE
    bench.desk.turn()
    assert len(bench.runner.running) == 2
    for _ in range(10):
        bench.run_all(0.001)
        bench.desk.turn()
        bench.desk.turn()
    assert len(bench.runner.running) > 50


def test_what_has_a_slot_is_never_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it may not have begun: a busy loop is late with everything. Nothing is to be done about it."""
    bench.desk.turn()
    taken = bench.runner.running[0].taken
    monkeypatch.setattr(bench.runner, "waiting_since", lambda: taken)
    bench.time.now += 100 * TOO_LATE
    for _ in range(3):
        bench.desk.turn()
    assert len(bench.runner.running) == 2
    assert bench.store.recorded == []
    with pytest.raises(AssertionError, match="would sleep until someone wakes it"):
        bench.desk.wait()


def test_what_waits_is_given_back_at_shutdown_and_what_runs_goes_on(bench: Bench) -> None:
    measured(bench)
    running, waiting = bench.runner.running[:2], bench.runner.running[2:]
    assert waiting
    bench.desk.mandate.claiming = False
    bench.desk.intake.withdraw()
    assert bench.desk.undecided() == running
    bench.desk.turn()
    _, outcomes, wants = bench.store.made[-1]
    assert wants is None
    assert {(outcome.verb, outcome.attempt) for outcome in outcomes} == {("release", None)}
    assert {outcome.id for outcome in outcomes} == {attempt.held.id for attempt in waiting}
    assert bench.runner.busy == 2


# -- many outcomes -----------------------------------------------------------------------------------------------------


def test_outcomes_beyond_one_trip_wait_for_the_next_and_none_is_lost(make: MakeBench) -> None:
    bench = make(5_000)
    for _ in range(4):
        bench.desk.turn()
    assert len(bench.runner.running) == 5_000
    assert bench.store.asked == [(BATCH, 0), (BATCH, 0), (5_000 - 2 * BATCH, 0)]
    trips = len(bench.store.made)
    bench.desk.mandate.claiming = False
    bench.run_all(0.001)
    bench.until_idle()
    assert [len(outcomes) for _, outcomes, _ in bench.store.made[trips:]] == [BATCH, BATCH, 1_000]
    assert Counter(outcome.id for outcome in bench.store.recorded) == Counter(range(1, 5_001))
    assert bench.desk.idle()
    dropped = [fence for drained in bench.store.drained for fence in drained]
    assert len(dropped) == len(set(dropped)) == 3, "each lease goes with the last of its outcomes"


def test_a_lease_is_dropped_with_its_last_outcome_and_not_before(make: MakeBench) -> None:
    bench = make(BATCH)
    bench.desk.turn()
    bench.desk.mandate.claiming = False
    [wants] = [wants for _, _, wants in bench.store.made if wants]
    last = bench.runner.running.pop()
    bench.run_all(0.001)
    bench.desk.turn()
    assert bench.store.drained[-1] == []
    bench.desk.ended.finished(last, returned(last.held, None))
    bench.desk.turn()
    assert bench.store.drained[-1] == [wants.fence]


def test_what_waits_to_be_recorded_takes_room_from_what_is_claimed(make: MakeBench) -> None:
    """Else a worker whose handlers are quicker than the database would have more and more in flight."""
    bench = measured(make(100), seconds=0.0005, times=10)
    bench.until_idle()
    assert len(bench.desk.in_flight.attempts()) == 100 + FARTHEST
    bench.run_all(0.0005, waited=3 * SOON)
    bench.desk.turn()
    _, outcomes, wants = bench.store.made[-1]
    assert (len(outcomes), wants) == (BATCH, None), "more than that still wait, and half as far ahead is far enough"


# -- started while the database works --------------------------------------------------------------------------------


def an_outcome_and_a_new_job(bench: Bench) -> tuple[int, int]:
    """One of those in flight has ended; the next claim brings a new one."""
    bench.desk.turn()
    ended = bench.runner.running[0]
    bench.finish(ended)
    bench.store.answers = [lambda wants: Claimed([held(90_001, wants.fence)]) if wants is not None else Claimed()]
    bench.store.always = Claimed()
    bench.desk.wakeups.wake()
    return int(ended.held.id), 90_001


def started(bench: Bench, id: int) -> list[Attempt]:
    return [attempt for attempt in bench.runner.running if attempt.held.id == id]


TROUBLE = [
    StoreUnavailable("away"), StoreError("no"), OutcomeUnknown("broke"), ValueRefused("what?"), RowLocked("locked"),
    RuntimeError(),
]  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLE, ids=lambda error: type(error).__name__)
def test_what_was_claimed_runs_though_the_outcomes_beside_it_fail(make: MakeBench, trouble: Exception) -> None:
    bench = make(4)
    ended, new = an_outcome_and_a_new_job(bench)
    at = bench.time.now
    bench.store.late = [trouble]
    bench.desk.turn()
    [attempt] = started(bench, new)
    assert attempt.taken == at, "at once, not after the trouble was waited out"
    assert not bench.desk.claims.unknown, "what was started need not be looked up"
    while len(bench.store.recorded) < 2:
        bench.round()
    assert [outcome.id for outcome in bench.store.recorded] == [ended, ended], "it is sent again"
    assert len(started(bench, new)) == 1
    assert ended not in {attempt.held.id for attempt in bench.desk.in_flight.attempts()}


def test_a_claim_that_failed_alone_sends_no_outcome_again(make: MakeBench) -> None:
    bench = make(4)
    ended, new = an_outcome_and_a_new_job(bench)
    bench.store.refused = [StoreUnavailable("cancelled")]
    bench.desk.turn()
    assert [outcome.id for outcome in bench.store.made[-1][1]] == [ended]
    assert ended not in {attempt.held.id for attempt in bench.desk.in_flight.attempts()}
    _, outcomes, looked = bench.next_trip()
    assert (outcomes, looked is None) == ([], False), "a look, once more"
    assert len(started(bench, new)) == 1


# -- a claim whose reply was lost --------------------------------------------------------------------------------------


def unknown_claim(bench: Bench, jobs: int) -> list[int]:
    bench.store.answers = [OutcomeUnknown("the connection broke")]
    bench.desk.turn()
    wants = bench.store.made[-1][2]
    assert wants is not None
    ids = list(range(7, 7 + jobs))
    bench.store.claims[wants.fence] = Claimed([held(id, wants.fence) for id in ids])
    return ids


def test_a_claim_that_was_looked_up_takes_its_slots(bench: Bench) -> None:
    ids = unknown_claim(bench, 2)
    bench.desk.turn()
    assert [attempt.held.id for attempt in bench.runner.running] == ids, "the most urgent first, as claimed"
    assert bench.runner.busy == 2
    asked = len(bench.store.asked)
    bench.desk.wakeups.wake()
    bench.desk.turn()
    assert len(bench.store.asked) == asked, "no slot is free"
    bench.run_all(0.001)
    bench.desk.mandate.claiming = False
    bench.desk.turn()
    assert sorted(outcome.id for outcome in bench.store.recorded) == ids
    assert bench.runner.busy == 0
    assert bench.desk.idle()


def test_a_claim_that_was_looked_up_at_shutdown_goes_back(bench: Bench) -> None:
    ids = unknown_claim(bench, 2)
    bench.desk.mandate.claiming = False
    bench.until_idle()
    assert {(outcome.id, outcome.verb, outcome.attempt) for outcome in bench.store.recorded} == {
        (id, "release", None) for id in ids
    }
    assert bench.runner.running == []
    assert bench.runner.busy == 0


def test_a_claim_made_ahead_that_was_looked_up_waits_for_slots_as_others_do(bench: Bench) -> None:
    measured(bench)
    bench.run_all(0.001)
    ids = unknown_claim(bench, 30)
    bench.store.always = Claimed()
    bench.desk.turn()
    bench.desk.turn()
    assert bench.runner.busy == len(bench.runner.running) == 30
    assert [attempt.held.id for attempt in bench.runner.running] == ids
    bench.time.now += TOO_LATE
    bench.desk.turn()
    assert bench.runner.busy == len(bench.runner.running) == 2


# -- trouble in between ------------------------------------------------------------------------------------------------


def test_jobs_with_large_arguments_are_claimed_ahead_by_their_weight(make: MakeBench) -> None:
    bench = make(100)
    heavy = b"x" * 200_000
    backlog = Backlog()

    def answer(wants: Wants | None) -> Claimed:
        claimed = backlog(wants)
        return replace(claimed, jobs=[replace(job, args=heavy) for job in claimed.jobs])

    bench.store.always = answer
    measured(bench, seconds=0.0001, times=10)
    most = max(ahead for _, ahead in bench.store.asked)
    assert 0 < most <= HEAVIEST / len(heavy)


def test_an_error_in_taking_what_was_claimed_loses_no_claim(bench: Bench) -> None:
    """A task nobody knows, say: its claim is committed, and was not started."""
    bench.store.answers = [Claimed([replace(held(7), task="nobody's")])]
    bench.desk.turn()
    wants = bench.store.made[-1][2]
    assert wants is not None
    assert bench.desk.claims.unknown == [wants.fence]


def test_an_error_nobody_expected_loses_no_claim(bench: Bench) -> None:
    """It may have come after the commit: the fence is looked up, and what it took is run."""

    def committed_then_failed(wants: Wants | None) -> Claimed:
        assert wants is not None
        bench.store.claims[wants.fence] = Claimed([held(7, wants.fence)])
        raise RuntimeError("out of luck")

    bench.store.answers = [committed_then_failed]
    bench.desk.turn()
    for _ in range(3):
        bench.round()
    assert 7 in {attempt.held.id for attempt in bench.runner.running}
