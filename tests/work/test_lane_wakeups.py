"""What a worker does when it is told where a job was enqueued: it looks there alone, and everywhere a moment later."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.job import Claimed, Wants
from holdfast.worker.poller import NOT_THERE, ONCE_MORE
from holdfast.worker.runner_slots import FEW
from tests.work.scripted import Bench, held

HERE = ("default", "greet", 0)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Idle: it looked everywhere and found nothing, and hears what happens."""
    bench = Bench(monkeypatch, slots=5)
    bench.desk.poller.listening = True
    bench.until_idle()
    assert asked(bench) == [()]
    return bench


def asked(bench: Bench) -> list[tuple[tuple[str, str, int], ...]]:
    return [wants.told for _, _, wants in bench.store.made if wants is not None]


def one_job(wants: Wants | None) -> Claimed:
    return Claimed([held(1, wants.fence)]) if wants is not None else Claimed()


def test_it_looks_where_it_was_told_and_everywhere_a_moment_later(bench: Bench) -> None:
    bench.store.answers = [one_job]
    bench.desk.wakeups.job_in_lane(*HERE)
    told_at = bench.time.now
    bench.until_idle()
    assert asked(bench)[1:] == [(HERE,)]
    assert len(bench.runner.running) == 1
    assert bench.next_trip()[2].told == ()  # type: ignore[union-attr]
    assert bench.time.now == pytest.approx(told_at + ONCE_MORE)


def test_it_looks_everywhere_even_if_there_was_nothing_where_it_was_told(bench: Bench) -> None:
    """And soon: whoever calls `wait` right after an enqueue locks the job for a moment."""
    bench.desk.wakeups.job_in_lane(*HERE)
    told_at = bench.time.now
    bench.until_idle()
    assert not bench.desk.poller.nothing_due, "it has not looked everywhere"
    bench.next_trip()
    assert asked(bench)[1:] == [(HERE,), ()]
    assert bench.time.now == pytest.approx(told_at + NOT_THERE)
    assert bench.desk.poller.nothing_due


def test_a_plain_wake_up_asks_for_a_look_everywhere_whatever_else_it_was_told(bench: Bench) -> None:
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.wakeups.wake()
    bench.desk.turn()
    assert asked(bench)[1:] == [()]
    bench.until_idle()
    assert asked(bench)[1:] == [()], "that look was enough"


def test_tasks_it_has_no_handler_for_are_no_reason_to_look(bench: Bench) -> None:
    bench.desk.wakeups.job_in_lane("default", "stranger", 0)
    assert not bench.desk.turn()


def test_who_records_looks_where_the_last_job_came_from(bench: Bench) -> None:
    bench.store.answers = [one_job]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.turn()
    bench.finish(bench.runner.running[0])
    bench.desk.turn()
    assert asked(bench)[-1] == (HERE,)
    assert len(bench.store.recorded) == 1


def test_outcomes_go_with_the_look_for_a_job_it_was_told_of(bench: Bench) -> None:
    bench.store.answers = [one_job]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.turn()
    bench.finish(bench.runner.running[0])
    bench.desk.wakeups.job_in_lane("default", "greet", 7)
    bench.desk.turn()
    assert set(asked(bench)[-1]) == {HERE, ("default", "greet", 7)}
    assert len(bench.store.recorded) == 1


def test_leases_with_nothing_left_are_dropped_by_the_next_look_everywhere(bench: Bench) -> None:
    bench.store.answers = [one_job]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.turn()
    attempt = bench.runner.running[0]
    bench.finish(attempt)
    bench.until_idle()
    assert attempt.held.fence not in bench.store.drained[-1]
    bench.next_trip()
    assert asked(bench)[-1] == ()
    assert bench.store.drained[-1] == [attempt.held.fence]
    assert bench.desk.idle()


def test_leases_with_nothing_left_are_dropped_before_it_stops(bench: Bench) -> None:
    bench.store.answers = [one_job]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.turn()
    attempt = bench.runner.running[0]
    bench.finish(attempt)
    bench.until_idle()
    bench.desk.mandate.claiming = False
    assert not bench.desk.idle()
    bench.until_idle()
    assert bench.store.drained[-1] == [attempt.held.fence]
    assert bench.desk.idle()


def test_after_a_trip_that_failed_it_looks_everywhere(bench: Bench) -> None:
    bench.store.answers = [StoreUnavailable("away")]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.desk.turn()
    bench.desk.turn()
    assert asked(bench)[1:] == [(HERE,), ()]


def test_told_of_very_many_lanes_it_looks_everywhere(bench: Bench) -> None:
    for n in range(FEW + 1):
        bench.desk.wakeups.job_in_lane(f"queue {n}", "greet", 0)
    bench.desk.turn()
    assert asked(bench)[1:] == [()]


def test_told_while_it_has_no_room_it_looks_when_it_has(bench: Bench) -> None:
    def full(wants: Wants | None) -> Claimed:
        return Claimed([held(n, wants.fence) for n in range(5)]) if wants is not None else Claimed()

    bench.store.answers = [full]
    bench.desk.wakeups.job_in_lane(*HERE)
    bench.until_idle()
    bench.desk.wakeups.job_in_lane("default", "greet", 7)
    assert not bench.desk.turn()
    bench.finish(bench.runner.running[0])
    bench.desk.turn()
    assert asked(bench)[-1] == (), "the last look brought all it wanted: there may be more anywhere"


def test_what_it_is_told_while_it_has_no_room_does_not_pile_up(bench: Bench) -> None:
    bench.runner.busy = bench.runner.slots
    for _ in range(10 * FEW):
        bench.desk.wakeups.job_in_lane(*HERE)
    assert len(bench.desk.slots[0].lanes) <= FEW
    bench.runner.busy = 0
    bench.desk.turn()
    assert asked(bench)[1:] == [()]
