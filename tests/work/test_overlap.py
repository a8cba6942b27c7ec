"""Round trips that overlap: the next one departs when the claim of the last one is answered, before its outcomes are
recorded and its jobs are started. Turned by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, RowLocked, StoreUnavailable, ValueRefused
from holdfast.model.job import Claimed, Wants
from holdfast.tasks.attempt import Attempt
from holdfast.worker.exchange import LONGEST
from holdfast.worker.outbox import BATCH
from holdfast.worker.runner_slots import FARTHEST
from tests.work.scripted import Backlog, Bench, held

SLOTS = 100


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Claims as far ahead as it may. What it had in flight has ended, and nothing of that is recorded."""
    bench = Bench(monkeypatch, SLOTS)
    bench.desk.poller.listening = True
    bench.store.always = Backlog()
    bench.desk.turn()
    for _ in range(5):
        bench.run_all(0.0001)
        bench.until_idle()
    assert len(bench.desk.in_flight.attempts()) == FARTHEST + SLOTS
    bench.run_all(0.0001)
    bench.store.overlaps = True
    forget_what_was(bench)
    start = bench.runner.start

    def logged(attempts: Sequence[Attempt]) -> None:
        bench.store.log.append("started")
        start(attempts)

    monkeypatch.setattr(bench.runner, "start", logged)
    return bench


def forget_what_was(bench: Bench) -> None:
    bench.store.log.clear()
    bench.store.made.clear()
    bench.store.drained.clear()


def until_all_is_recorded(bench: Bench) -> None:
    for _ in range(20_000):
        if bench.desk.idle():
            return
        bench.run_all(0.0001)
        bench.round()
    raise AssertionError("something is left")


def the_second_can_not_depart(bench: Bench, trouble: Exception) -> None:
    backlog = Backlog()

    def then_fail(wants: Wants | None) -> Claimed:
        bench.store.early = [trouble]
        bench.store.always = backlog
        return backlog(wants)

    bench.store.always = then_fail


def none_left(bench: Bench) -> None:
    bench.store.always = Claimed()


def test_the_next_trip_departs_before_the_last_is_handed_out_and_recorded(bench: Bench) -> None:
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded", "started", "recorded"]
    assert [len(outcomes) for _, outcomes, _ in bench.store.made] == [BATCH, BATCH]
    assert bench.store.asked == [(SLOTS, BATCH - SLOTS), (0, BATCH)]
    assert len(bench.runner.running) == 2 * BATCH


def test_where_a_pause_holds_all_that_was_claimed_nothing_is_started(bench: Bench) -> None:
    backlog = Backlog()
    bench.store.filters = ["task:greet"]
    bench.store.answers = [lambda wants: replace(backlog(wants), filter_version=2)] * 2
    none_left(bench)
    bench.desk.turn()
    assert bench.store.log[:2] == ["departed", "departed"], "they overlapped"
    assert "started" not in bench.store.log
    until_all_is_recorded(bench)
    held_back = [outcome for outcome in bench.store.recorded if outcome.held_by == "pause:task:greet"]
    assert len(held_back) == backlog.taken > SLOTS


def test_no_outcome_is_sent_twice(bench: Bench) -> None:
    while len(bench.store.made) < 10:
        bench.desk.turn()
        bench.run_all(0.0001)
    none_left(bench)
    until_all_is_recorded(bench)
    ids = [int(outcome.id) for outcome in bench.store.recorded]
    assert sorted(ids) == list(range(min(ids), max(ids) + 1)), "each once, and none is missing"
    assert len(ids) > 10 * BATCH


def test_where_trips_can_not_overlap_each_is_recorded_first(bench: Bench) -> None:
    bench.store.overlaps = False
    bench.desk.turn()
    assert bench.store.log == ["departed", "started", "recorded"]


def test_a_claim_that_brought_less_than_all_is_handed_out_first(bench: Bench) -> None:
    bench.store.answers = [lambda wants: Claimed([held(n, fence_of(wants)) for n in range(10**6, 10**6 + 1_000)])]
    bench.desk.turn()
    assert bench.store.log == ["departed", "started", "recorded"]


def fence_of(wants: Wants | None) -> str:
    assert wants is not None
    return wants.fence


def test_it_looks_around_now_and_then(bench: Bench) -> None:
    """Somebody may have a budget of time."""
    backlog = Backlog()

    def slow(wants: Wants | None) -> Claimed:
        bench.run_all(0.0001)
        bench.time.now += LONGEST / 4
        return backlog(wants)

    bench.store.always = slow
    began = bench.time.now
    bench.desk.turn()
    assert LONGEST <= bench.time.now - began <= 2 * LONGEST
    assert len(bench.store.made) > 2


def test_who_is_asked_to_stop_sends_no_other_trip(bench: Bench) -> None:
    backlog = Backlog()

    def stopping(wants: Wants | None) -> Claimed:
        bench.desk.mandate.claiming = False
        return backlog(wants)

    bench.store.always = stopping
    bench.desk.turn()
    assert bench.store.log == ["departed", "started", "recorded"]


@pytest.mark.parametrize("trouble", [RowLocked("locked"), ValueRefused("poison")])
def test_what_is_refused_goes_on_one_by_one_while_the_next_trip_is_under_way(bench: Bench, trouble: Exception) -> None:
    bench.store.late = [trouble]
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded", "started", "recorded"]
    refused, recorded = ([outcome.id for outcome in outcomes] for _, outcomes, _ in bench.store.made)
    assert len(bench.runner.running) == 2 * BATCH, "both claims were answered"
    forget_what_was(bench)
    bench.desk.turn()
    assert [[outcome.id for outcome in outcomes] for _, outcomes, _ in bench.store.made] == [refused[:1]]
    none_left(bench)
    until_all_is_recorded(bench)
    sent = Counter(outcome.id for outcome in bench.store.recorded)
    assert {sent[id] for id in refused} == {1}
    assert not set(sent) & set(recorded)


def test_a_trip_that_can_not_be_sent_costs_neither_the_one_under_way_nor_an_outcome(bench: Bench) -> None:
    the_second_can_not_depart(bench, ValueRefused("a NUL"))
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded"]
    unsent = [outcome.id for outcome in bench.store.made[1][1]]
    assert len(unsent) == BATCH
    none_left(bench)
    forget_what_was(bench)
    until_all_is_recorded(bench)
    assert {id: n for id, n in Counter(outcome.id for outcome in bench.store.recorded).items() if id in unsent} == (
        dict.fromkeys(unsent, 1)
    )


@pytest.mark.parametrize("trouble", [OutcomeUnknown("it broke"), StoreUnavailable("cancelled"), RuntimeError("a bug")])
def test_where_it_breaks_all_outcomes_are_sent_again_and_what_is_not_known_is_looked_up(
    bench: Bench, trouble: Exception
) -> None:
    bench.store.late = [trouble]
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded"]
    sent = [outcome.id for outcome in bench.store.recorded]
    assert len(sent) == len(set(sent)) == 2 * BATCH
    second = bench.store.made[1][2]
    assert second is not None
    assert bench.desk.claims.unknown == [second.fence], "the first claim was answered"
    bench.store.claims[second.fence] = Claimed([held(10**6, second.fence)])
    none_left(bench)
    forget_what_was(bench)
    until_all_is_recorded(bench)
    again = [outcome.id for outcome in bench.store.recorded]
    assert set(sent) <= set(again)
    assert again[:BATCH] == sent[:BATCH], "in their order"
    assert 10**6 in again
    assert set(Counter(again).values()) == {1}


def test_where_it_breaks_before_the_second_answer_that_claim_alone_is_looked_up(bench: Bench) -> None:
    bench.store.answers = [Backlog(), OutcomeUnknown("it broke")]
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded"]
    second = bench.store.made[1][2]
    assert second is not None
    assert bench.desk.claims.unknown == [second.fence]
    assert len(bench.runner.running) == BATCH, "what was claimed is run, whatever came after"


def test_what_was_claimed_is_run_though_the_next_trip_could_not_depart(bench: Bench) -> None:
    the_second_can_not_depart(bench, OutcomeUnknown("it broke"))
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started"]
    assert len(bench.runner.running) == BATCH
    assert len(bench.desk.claims.unknown) == 1
    assert len(bench.desk.outbox.outcomes) == FARTHEST + SLOTS


def test_where_the_server_says_that_nothing_was_claimed_nothing_is_looked_up(bench: Bench) -> None:
    bench.store.answers = [StoreUnavailable("cancelled")]
    bench.desk.turn()
    assert bench.desk.claims.unknown == []


def test_when_the_second_of_two_finds_nothing_nothing_is_due(bench: Bench) -> None:
    bench.store.answers = [Backlog(), Claimed()]
    bench.desk.turn()
    assert bench.store.log == ["departed", "departed", "started", "recorded", "recorded"]
    assert bench.desk.poller.nothing_due


def test_leases_to_drop_are_kept_where_a_trip_breaks(bench: Bench) -> None:
    bench.desk.outbox.spent_leases.urgent = ["f-1"]
    bench.desk.outbox.spent_leases.waiting = ["f-2"]
    bench.store.late = [StoreUnavailable("cancelled")]
    bench.desk.turn()
    assert {"f-1", "f-2"} <= set(bench.store.drained[0])
    none_left(bench)
    forget_what_was(bench)
    until_all_is_recorded(bench)
    assert {"f-1", "f-2"} <= {fence for fences in bench.store.drained for fence in fences}


def test_a_lease_whose_jobs_end_in_two_trips_is_dropped_once(bench: Bench) -> None:
    while len(bench.store.made) < 10:
        bench.desk.turn()
        bench.run_all(0.0001)
    none_left(bench)
    until_all_is_recorded(bench)
    bench.desk.mandate.claiming = False
    bench.desk.turn()
    ended = {outcome.fence for outcome in bench.store.recorded}
    dropped = Counter(fence for fences in bench.store.drained for fence in fences)
    assert set(dropped) >= ended
    assert set(dropped.values()) == {1}


def test_a_lease_with_jobs_in_flight_is_not_dropped(bench: Bench) -> None:
    bench.desk.turn()
    fences = {attempt.held.fence for attempt in bench.runner.running}
    bench.finish(bench.runner.running[0])
    bench.desk.turn()
    bench.desk.mandate.claiming = False
    bench.until_idle()
    assert fences
    assert not fences & {fence for fences in bench.store.drained for fence in fences}


def test_a_lease_is_not_forgotten_where_only_the_second_of_two_trips_went_well(bench: Bench) -> None:
    bench.store.late = [RowLocked("locked")]
    bench.desk.turn()
    first = {outcome.fence for outcome in bench.store.made[0][1]}
    none_left(bench)
    forget_what_was(bench)
    until_all_is_recorded(bench)
    bench.desk.mandate.claiming = False
    bench.desk.turn()
    assert first <= {fence for fences in bench.store.drained for fence in fences}
