"""The desk and its poller, turned by hand."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.job import Claimed, Wants
from holdfast.worker.intake import SUSPECT_TOO_LATE
from holdfast.worker.poller import Poller
from tests.running import Heard
from tests.work.scripted import Bench, Idle, held, suspect


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


# -- when to look -----------------------------------------------------------------------------------------


def empty(poller: Poller, next_due: float | None = None) -> float | None:
    """The wait after a look that found nothing."""
    poller.begin([])
    return poller.wait(next_due)


def test_the_poller_backs_off_as_the_table_says_and_starts_anew_after_a_job(bench: Bench) -> None:
    poller = bench.desk.poller
    assert [empty(poller) for _ in range(8)] == [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30]
    assert poller.empty_polls == 8
    bench.store.answers = [Claimed([held(1)])]
    bench.desk.turn()
    assert (poller.empty_polls, empty(poller)) == (0, 5)


def test_the_poller_never_sleeps_past_the_next_due_time(bench: Bench) -> None:
    poller = bench.desk.poller
    assert [empty(poller, due) for due in (2.5, 0.0, -3.0, 60)] == [2.5, 0.0, 0.0, 11.25]


def test_a_poller_that_listens_sleeps_until_it_is_woken_or_something_falls_due(bench: Bench) -> None:
    poller = bench.desk.poller
    poller.listening = True
    assert [empty(poller), empty(poller, 120.0)] == [None, 120.0]


def test_the_desk_polls_by_the_table(bench: Bench) -> None:
    assert bench.waits(9) == pytest.approx([5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30])
    bench.store.answers = [Claimed([held(1)])]
    bench.rounds_until(10)
    [attempt] = bench.runner.running
    # polling again at once while there is room, and from the start of the table
    assert bench.waits(3) == pytest.approx([0, 5, 5])
    bench.finish(attempt)
    assert bench.desk.meters.polls == len(bench.store.polls) == 13


def test_empty_polls_are_counted_and_logged_with_the_next_wait(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast"):
        bench.rounds_until(3)
    assert caplog.messages == [
        "polled: nothing due (1 in a row), next look in 5 s",
        "polled: nothing due (2 in a row), next look in 5 s",
        "polled: nothing due (3 in a row), next look in 7.5 s",
    ]
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_one_look_for_several_runners_is_one_poll(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.desk.add(Idle(2, "other"))
    with caplog.at_level(logging.DEBUG, "holdfast"):
        waits = bench.waits(10)
    assert waits[1::2] == pytest.approx([5, 5, 7.5, 11.25])
    assert set(waits[::2]) == {0}  # the second claim of each look
    assert len(caplog.messages) == bench.desk.poller.empty_polls == 5
    bench.store.answers = [Claimed([held(1)])]
    bench.rounds_until(12)
    assert bench.desk.poller.empty_polls == 0  # one of them found something


def test_a_wake_up_is_followed_by_a_look_at_once(bench: Bench) -> None:
    bench.desk.poller.listening = True
    bench.round()
    with pytest.raises(AssertionError, match="would sleep until someone wakes it"):
        bench.round()
    bench.desk.wakeups.wake()
    bench.round()
    bench.round()
    assert bench.store.polls == [1000.0, 1000.0]


def test_the_next_due_time_ends_the_wait(bench: Bench) -> None:
    bench.desk.poller.listening = True
    bench.store.answers = [Claimed(next_due=12.5)]
    assert bench.waits(2) == pytest.approx([12.5])
    bench.desk.wakeups.due_in(3.0)  # the watchdog saw it
    assert bench.waits(1) == pytest.approx([3.0])


def test_after_job_delay_puts_the_next_look_off(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, after_job_delay=0.5)
    bench.store.answers = [Claimed([held(1)])]
    bench.rounds_until(2)
    bench.finish(bench.runner.running[0])
    at = bench.time.now
    bench.rounds_until(3)
    assert bench.store.polls[-1] - at == pytest.approx(0.5)


def test_after_job_delay_does_not_make_a_listening_worker_forget_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, after_job_delay=0.5)
    bench.desk.poller.listening = True
    bench.store.answers = [Claimed([held(1), held(2)])]  # all it asked for: there may be more
    bench.rounds_until(1)
    bench.finish(bench.runner.running[0])
    assert bench.waits(1) == pytest.approx([0.5])


# -- slots -------------------------------------------------------------------------------------------------------------


def test_a_claim_asks_for_no_more_than_free_slots(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1)])]
    bench.round()
    bench.round()
    assert [wants.limit for _, _, wants in bench.store.made if wants] == [2, 1]


def test_a_claim_asks_for_no_more_than_its_size_and_the_next_follows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, 5, claim_size=2)
    bench.desk.poller.listening = True
    bench.store.answers = [Claimed([held(1), held(2)]), Claimed([held(3), held(4)]), Claimed([held(5)])]
    bench.rounds_until(3)
    assert [wants.limit for _, _, wants in bench.store.made if wants] == [2, 2, 1]
    assert len(set(bench.store.polls)) == 1


def test_a_full_runner_is_not_polled_for_and_does_not_hide_a_free_one(bench: Bench) -> None:
    bench.desk.add(bench.other)
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.rounds_until(4)
    asked = [wants.tasks for _, _, wants in bench.store.made if wants]
    assert asked[0] == ("greet",)
    assert set(asked[1:]) == {("other",)}
    bench.finish(bench.runner.running[0])
    bench.round()
    assert bench.store.made[-1][2] is not None
    assert ("greet",) in [wants.tasks for _, _, wants in bench.store.made[4:] if wants]


def test_an_outcome_is_recorded_with_the_next_claim_in_one_trip(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.round()
    for attempt in list(bench.runner.running):
        bench.finish(attempt)
    bench.round()
    _, outcomes, wants = bench.store.made[-1]
    assert [outcome.id for outcome in outcomes] == [1, 2]
    assert wants is not None
    assert bench.desk.meters.attempts == 2


def test_suspects_get_a_process_each_and_keep_nobody_waiting(bench: Bench) -> None:
    bench.desk.add_isolated(bench.other)
    bench.store.answers = [Claimed([suspect(1), held(2), suspect(3)])]
    bench.round()
    assert [attempt.held.id for attempt in bench.other.running] == [1, 3]
    assert [attempt.held.id for attempt in bench.runner.running] == [2]
    assert (bench.runner.busy, bench.other.busy) == (1, 2), "they take no slot of the others"


def test_as_many_suspects_wait_as_can_run_and_more_come_again_in_order(bench: Bench) -> None:
    processes = Idle(2, "suspects")
    bench.desk.add_isolated(processes)
    bench.store.answers = [Claimed([suspect(number) for number in range(1, 8)])]
    bench.rounds_until(2)
    assert [attempt.held.id for attempt in processes.running] == [1, 2, 3, 4]
    released = {outcome.id: outcome.delay for _, outcomes, _ in bench.store.made for outcome in outcomes}
    assert released == {5: 1.0, 6: 2.0, 7: 3.0}


def test_more_suspects_come_behind_those_that_were_put_off_before(bench: Bench) -> None:
    bench.desk.add_isolated(Idle(1, "suspects"))
    bench.store.answers = [Claimed([suspect(number) for number in (1, 2, 3, 4)]), Claimed([suspect(5)])]
    bench.rounds_until(3)
    released = {outcome.id: outcome.delay for _, outcomes, _ in bench.store.made for outcome in outcomes}
    assert released == {3: 1.0, 4: 2.0, 5: pytest.approx(3.0)}


def test_a_suspect_that_waited_too_long_for_a_process_is_left_to_others(bench: Bench) -> None:
    processes = Idle(1, "suspects")
    bench.desk.add_isolated(processes)
    bench.store.answers = [Claimed([suspect(1), suspect(2)])]
    bench.round()
    assert [attempt.held.id for attempt in processes.running] == [1, 2]
    bench.time.now += SUSPECT_TOO_LATE
    bench.round()
    assert [attempt.held.id for attempt in processes.running] == [1]


def test_a_suspect_on_its_last_attempt_does_not_wait_for_a_process(bench: Bench) -> None:
    """If the worker died meanwhile, it would fail without having begun."""
    processes = Idle(1, "suspects")
    bench.desk.add_isolated(processes)
    bench.store.answers = [Claimed([replace(suspect(number), max_attempts=1) for number in (1, 2)])]
    bench.rounds_until(2)
    assert [attempt.held.id for attempt in processes.running] == [1]


def test_a_drain_waits_for_suspects_that_it_put_off(bench: Bench) -> None:
    bench.desk.add_isolated(Idle(1, "suspects"))
    bench.store.answers = [Claimed([suspect(number) for number in (1, 2, 3)])]
    bench.rounds_until(2)
    assert not bench.desk.found_all
    bench.time.now += 1.1
    bench.rounds_until(3)
    assert bench.desk.found_all


def test_a_worker_without_processes_runs_one_suspect_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, slots=4)
    bench.store.answers = [Claimed([suspect(1), held(2), suspect(3)])]
    bench.round()
    assert [attempt.held.id for attempt in bench.runner.running] == [2]
    bench.round()
    released = {outcome.id: outcome.delay for _, outcomes, _ in bench.store.made for outcome in outcomes}
    assert released == {1: 0.0, 3: 1.0}, "they come one after the other"
    bench.store.answers = [Claimed([suspect(1)]), Claimed([suspect(3)])]
    bench.desk.wakeups.wake()
    bench.round()
    assert [attempt.held.id for attempt in bench.runner.running] == [2, 1]
    bench.desk.wakeups.wake()
    while bench.store.answers:
        bench.round()
    assert [attempt.held.id for attempt in bench.runner.running] == [2, 1]


def test_a_worker_that_shuts_down_claims_nothing_more(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1)])]
    bench.round()
    bench.desk.mandate.claiming = False
    bench.desk.wakeups.wake()
    bench.finish(bench.runner.running[0])
    bench.desk.turn()
    assert bench.store.made[-1][2] is None
    assert bench.desk.idle()


# -- errors in a poll --------------------------------------------------------------------------------


def test_a_transient_error_is_retried_and_then_counts_as_one_failed_poll(bench: Bench, heard: Heard) -> None:
    bench.store.answers = [StoreUnavailable("connection refused")] * 3
    assert bench.waits(4) == pytest.approx([2, 4, 5])
    assert [told["wait"] for told in heard.of("unavailable")] == [2, 4]
    assert [told["consecutive_errors"] for told in heard.of("poll_failed")] == [1]


def test_transient_errors_are_warnings_and_any_other_is_fatal_for_one_poll(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.store.answers = [StoreUnavailable("timed out"), StoreError("permission denied")]
    bench.rounds_until(3)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "HF3002 timed out; trying again in 2 s"),
        ("ERROR", "a poll failed (1 in a row): HF3001 permission denied"),
        ("WARNING", "a script answers again"),
    ]


@pytest.mark.parametrize("error", [StoreError("permission denied"), RuntimeError("a bug"), OSError("no descriptors")])
def test_no_error_in_polling_ends_the_worker(bench: Bench, heard: Heard, error: Exception) -> None:
    bench.store.always = error
    assert bench.waits(4) == pytest.approx([5, 5, 5])
    assert [told["consecutive_errors"] for told in heard.of("poll_failed")] == [1, 2, 3, 4]
    assert bench.desk.meters.consecutive_errors == 4
    bench.store.always = Claimed([held(1)])
    bench.rounds_until(5)
    assert bench.runner.running


def test_consecutive_errors_are_reset_by_an_empty_poll_too(bench: Bench) -> None:
    bench.store.answers = [StoreError("no"), StoreError("no")]
    bench.rounds_until(2)
    assert bench.desk.meters.consecutive_errors == 2
    bench.rounds_until(3)
    assert bench.desk.meters.consecutive_errors == 0


def test_polls_are_counted(bench: Bench) -> None:
    bench.rounds_until(7)
    assert bench.desk.meters.polls == 7


# -- outcomes survive ------------------------------------------------------------------------------------------


def test_outcomes_wait_for_the_database_and_nothing_is_claimed_meanwhile(bench: Bench, heard: Heard) -> None:
    bench.store.answers = [Claimed([held(1), held(2)]), *[StoreUnavailable("away")] * 6]
    bench.round()
    for attempt in list(bench.runner.running):
        bench.finish(attempt)
    while not bench.desk.idle():
        bench.round()
    trips = bench.store.made[1:]
    waited = [later[0] - earlier[0] for earlier, later in pairwise(trips)][:6]
    assert waited == pytest.approx([2, 4, 4, 4, 4, 4])
    assert all(wants is None for _, _, wants in trips[1:7])
    assert {outcome.id for _, outcomes, _ in trips for outcome in outcomes} == {1, 2}
    assert bench.desk.meters.attempts == 2
    assert bench.desk.meters.consecutive_errors == 0
    assert heard.of("outcomes_wait")


def test_a_value_the_database_refuses_hurts_only_its_own_job(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.store.refuse = lambda outcomes: any(outcome.result == b"poison" for outcome in outcomes)
    bench.round()
    first, second = bench.runner.running
    bench.finish(first, b"poison")
    bench.finish(second, b"fine")
    while not bench.desk.idle():
        bench.round()
    accepted = {o.id: o for _, outcomes, _ in bench.store.made if not bench.store.refuse(outcomes) for o in outcomes}
    assert (accepted[2].verb, accepted[2].result) == ("succeed", b"fine")
    assert accepted[1].verb == "fail"
    assert accepted[1].error is not None
    assert accepted[1].error.code == "UNRECORDABLE"
    assert "invalid value" in accepted[1].error.message


def test_after_an_unknown_commit_the_fence_is_looked_up_and_its_jobs_are_run(bench: Bench) -> None:
    bench.store.answers = [OutcomeUnknown("the connection broke")]
    bench.desk.turn()
    wants = bench.store.made[0][2]
    assert wants is not None
    bench.store.claims[wants.fence] = Claimed([held(7, wants.fence)])
    bench.round()
    assert [(attempt.held.id, attempt.leased) for attempt in bench.runner.running] == [(7, 0.0)], (
        "an old lease, to renew"
    )


@pytest.mark.parametrize("isolated", [True, False], ids=["in a process of its own", "by the worker"])
def test_a_suspect_whose_claim_had_an_unknown_outcome_is_known_for_one(bench: Bench, isolated: bool) -> None:
    if isolated:
        bench.desk.add_isolated(bench.other)
    bench.store.answers = [OutcomeUnknown("the connection broke")]
    bench.desk.turn()
    wants = bench.store.made[0][2]
    assert wants is not None
    bench.store.claims[wants.fence] = Claimed([suspect(7, wants.fence)])
    bench.desk.turn()
    assert [attempt.held.id for attempt in (bench.other if isolated else bench.runner).running] == [7]


# -- pauses by filter ------------------------------------------------------------------------------------


def test_what_a_pause_by_filter_means_is_given_back_as_held_before_it_starts(bench: Bench) -> None:
    bench.store.filters = ["args.n:42"]
    theirs, other = replace(held(1), args=b'{"n":42}'), replace(held(2), args=b'{"n":7}')
    bench.store.answers = [Claimed([theirs, other], filter_version=1)]
    bench.desk.turn()
    assert [attempt.held.id for attempt in bench.runner.running] == [2]
    bench.desk.turn()
    [outcome] = bench.store.recorded
    assert (outcome.verb, outcome.id, outcome.held_by, outcome.attempt) == ("release", 1, "pause:args.n:42", None)


def test_jobs_given_back_as_held_do_not_count_for_a_budget(bench: Bench) -> None:
    bench.store.filters = ["args.n:42"]
    bench.desk.mandate.budget = 2
    bench.store.answers = [Claimed([replace(held(1), args=b'{"n":42}'), held(2)], filter_version=1)]
    bench.desk.turn()
    assert bench.desk.mandate.budget == 1


@pytest.mark.parametrize("repeated", [False, True], ids=["at once", "by a repeated claim"])
@pytest.mark.parametrize("kind", [StoreUnavailable, StoreError, ValueRefused])
def test_while_the_pauses_can_t_be_read_nothing_starts_and_nothing_is_lost(
    bench: Bench, kind: type[StoreError], repeated: bool
) -> None:
    bench.store.filters = ["args.n:42"]
    theirs, other = replace(held(1, "f1"), args=b'{"n":42}'), held(2, "f1")
    bench.store.unreadable = [kind("gone"), kind("gone")]

    def answer(wants: Wants | None) -> Claimed:
        assert wants is not None
        found = Claimed([theirs, other])
        bench.store.claims[wants.fence] = found
        return replace(found, filter_version=1)

    if repeated:
        bench.store.repeated = [answer]
    else:
        bench.store.answers = [answer]
    bench.desk.turn()
    assert bench.runner.running == []
    while bench.store.unreadable or not bench.store.recorded:
        bench.desk.turn()
    assert [attempt.held.id for attempt in bench.runner.running] == [2]
    assert [(outcome.id, outcome.held_by) for outcome in bench.store.recorded] == [(1, "pause:args.n:42")]


def test_outcomes_are_recorded_though_the_claim_beside_them_is_unknown(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1, "f0")])]
    bench.desk.turn()
    bench.run_all(0.1)
    bench.store.filters, bench.store.unreadable = ["args.n:42"], [StoreUnavailable("gone")]
    bench.store.repeated = [Claimed([held(2)], filter_version=2)]
    bench.desk.wakeups.wake()
    bench.desk.turn()
    assert [outcome.id for outcome in bench.store.recorded] == [1]
    assert not bench.desk.in_flight
    assert bench.desk.claims.unknown


# -- what its polls did ------------------------------------------------------------------------------


def test_the_window_of_polls_counts_what_the_desk_does(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1)]), Claimed(more=True), StoreError("no"), Claimed()]
    bench.rounds_until(5)
    window = bench.desk.meters.polling()
    assert window.polls_per_minute == 5
    assert window.jobs_found_per_poll == 0.2
    assert (window.claims_tried, window.claims_won, window.claim_success_rate) == (2, 1, 0.5)
    assert window.consecutive_errors == 0, "an empty poll ends a row of errors"
    assert window.healthy()


def test_a_poll_that_finds_no_connection_is_one(bench: Bench) -> None:
    bench.store.unreachable = [StoreUnavailable("connection refused")] * 3
    bench.waits(1)
    assert bench.desk.meters.polls == bench.desk.meters.polling().polls_per_minute == 4
    assert not bench.store.unreachable


def test_a_worker_whose_polls_fail_is_unhealthy_at_the_fifth(bench: Bench) -> None:
    bench.store.always = StoreError("permission denied")
    bench.rounds_until(4)
    assert bench.desk.meters.polling().healthy()
    bench.rounds_until(5)
    assert not bench.desk.meters.polling().healthy()
    bench.store.always = Claimed()
    bench.rounds_until(6)
    bench.until_idle()
    assert bench.desk.meters.polling().healthy()
