"""What a worker does with a wake-up that concerns only a few workers, by its place among them."""

from __future__ import annotations

import pytest

from holdfast.model.job import Claimed
from holdfast.model.peers import LATE, Place
from holdfast.worker.poller import ONCE_MORE
from tests.work.scripted import Bench, held, listening

HERE = ("default", "greet", 0)
TEXT = '["default", "greet", 0]'


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Idle: it looked everywhere and found nothing, and hears what happens."""
    bench = Bench(monkeypatch, slots=2)
    listening(bench)
    bench.until_idle()
    return bench


def looks(bench: Bench) -> list[tuple[float, tuple[tuple[str, str, int], ...]]]:
    """When it looked since it became idle, and where."""
    return [(at, wants.told) for at, _, wants in bench.store.made[1:] if wants is not None]


def sleeps(bench: Bench) -> None:
    """It has nothing else in mind."""
    bench.until_idle()
    with pytest.raises(AssertionError, match="would sleep until someone wakes it"):
        bench.desk.wait()


def test_the_first_in_line_looks_at_once(bench: Bench) -> None:
    now = bench.time.now
    bench.heard("lane", TEXT, 0)
    bench.until_idle()
    assert looks(bench) == [(now, (HERE,))]


def test_the_second_in_line_looks_a_moment_later_and_once(bench: Bench) -> None:
    now = bench.time.now
    bench.heard("lane", TEXT, 1)
    bench.until_idle()
    assert looks(bench) == []
    bench.next_trip()
    sleeps(bench)
    assert [(round(at - now, 3), where) for at, where in looks(bench)] == [(LATE, (HERE,))]


def test_a_job_that_the_second_finds_is_run_and_followed_by_a_look_everywhere(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1)])]
    bench.heard("lane", TEXT, 1)
    found = bench.next_trip()[0]
    assert len(bench.runner.running) == 1
    at, _, wants = bench.next_trip()
    assert (round(at - found, 3), wants and wants.told) == (ONCE_MORE, ())


def test_several_are_looked_for_at_once(bench: Bench) -> None:
    for priority in range(3):
        bench.heard("lane", f'["default", "greet", {priority}]', 1)
        bench.time.now += LATE / 10
    bench.next_trip()
    sleeps(bench)
    assert [len(where) for _, where in looks(bench)] == [3]


def test_without_a_free_slot_it_leaves_them_until_it_has_one(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.desk.wakeups.wake()
    bench.until_idle()
    made = len(bench.store.made)
    bench.heard("lane", TEXT, 1)
    for _ in range(5):
        bench.desk.turn()
        bench.desk.wait(1.0)
    assert len(bench.store.made) == made
    bench.finish(bench.runner.running[0])
    bench.until_idle()
    assert len(bench.store.made) > made


@pytest.mark.parametrize(("turn", "count", "told"), [(0, 4, [""]), (1, 4, []), (0, 1, [])])
@pytest.mark.parametrize("wakeup", [("lane", TEXT), ("queue", "default")])
def test_the_first_in_line_tells_all_if_it_has_no_free_slot(
    bench: Bench, wakeup: tuple[str, str], turn: int, count: int, told: list[str]
) -> None:
    """What is known of peers may be older than what fills it. Those whom nobody told would not look for seconds."""
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.desk.wakeups.wake()
    bench.until_idle()
    bench.desk.wakeups.peers_changed(Place(0, count))
    for _ in range(3):
        bench.heard(*wakeup, turn)
    until = bench.time.now + 3 * LATE
    while bench.time.now < until:
        bench.desk.turn()
        bench.desk.wait(LATE)
    assert bench.store.told_all == told, "once for all that came meanwhile"


@pytest.mark.parametrize(("turn", "after"), [(None, 0.0), (0, 0.0), (1, LATE)])
def test_a_wake_up_that_names_no_lane_asks_for_a_look_everywhere(bench: Bench, turn: int | None, after: float) -> None:
    now = bench.time.now
    bench.heard("queue", "default", turn)
    at, _, wants = bench.next_trip()
    assert (round(at - now, 3), wants and wants.told) == (after, ())


@pytest.mark.parametrize(("turn", "after"), [(0, 30.0), (1, 30.0 + LATE)])
def test_told_when_a_job_falls_due_it_looks_then_and_not_before(bench: Bench, turn: int, after: float) -> None:
    now = bench.time.now
    bench.heard("due", "30.000", turn)
    bench.until_idle()
    assert looks(bench) == []
    assert bench.next_trip()[0] - now == pytest.approx(after)


def test_of_two_due_times_the_earlier_counts(bench: Bench) -> None:
    now = bench.time.now
    bench.heard("due", "10.000", 0)
    bench.heard("due", "30.000", 0)
    assert bench.next_trip()[0] - now == pytest.approx(10.0)


@pytest.mark.parametrize("what", ["", "soon", "nan", "inf", "-1", "1e300", "0x10"])
def test_a_due_time_that_makes_no_sense_is_ignored(bench: Bench, what: str) -> None:
    bench.heard("due", what, 0)
    bench.until_idle()
    bench.desk.wait(1.0)
    assert looks(bench) == []


@pytest.mark.parametrize(("rank", "after"), [(0, 7.0), (1, 7.0 + LATE), (2, None), (3, None)])
def test_few_keep_in_mind_when_the_next_job_falls_due(bench: Bench, rank: int, after: float | None) -> None:
    bench.desk.wakeups.peers_changed(Place(rank, 4))
    bench.store.answers = [Claimed(next_due=7.0)]
    bench.desk.wakeups.wake()
    bench.until_idle()
    now = bench.time.now
    if after is None:
        bench.desk.wait(60.0)
        bench.desk.turn()
        assert len(looks(bench)) == 1
    else:
        assert bench.next_trip()[0] - now == pytest.approx(after)
    assert bench.store.hints == [], "everyone was woken: those who keep it know"


def test_who_keeps_no_time_tells_those_who_do(bench: Bench) -> None:
    """It alone was told of a job by someone who does not know its due time, such as a plain INSERT."""
    bench.desk.wakeups.peers_changed(Place(3, 4))
    bench.store.answers = [Claimed(next_due=7.0)]
    bench.heard("queue", "", 0)
    bench.until_idle()
    assert bench.store.hints == [("", None, 7.0)]


def test_who_has_no_free_slot_when_a_job_falls_due_tells_others(bench: Bench) -> None:
    bench.desk.wakeups.peers_changed(Place(0, 4))
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.desk.wakeups.wake()
    bench.until_idle()
    made = len(bench.store.made)
    bench.heard("due", "5.000", 0)
    now = bench.time.now
    while not bench.desk.turn() and not bench.store.hints:
        bench.desk.wait()
    assert bench.time.now - now == pytest.approx(5.0)
    sleeps(bench)
    assert (bench.store.hints, len(bench.store.made)) == ([("", None, 0.0)], made)


def test_a_worker_that_polls_keeps_its_own_time(bench: Bench) -> None:
    bench.desk.wakeups.peers_changed(Place(3, 4))
    bench.desk.poller.listening = False
    bench.store.answers = [Claimed(next_due=2.0)]
    bench.desk.wakeups.wake()
    bench.until_idle()
    now = bench.time.now
    assert bench.next_trip()[0] - now == pytest.approx(2.0)


@pytest.mark.parametrize(("count", "told"), [(1, []), (4, ["default"])])
def test_an_idle_worker_that_is_full_at_once_wakes_all(bench: Bench, count: int, told: list[str]) -> None:
    """One wake-up may stand for many jobs."""
    bench.desk.wakeups.peers_changed(Place(0, count))
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.heard("queue", "", 0)
    bench.until_idle()
    assert len(bench.runner.running) == 2
    assert bench.store.told_all == told
    bench.store.answers = [Claimed([held(3), held(4)])]
    for attempt in list(bench.runner.running):
        bench.finish(attempt)
    bench.until_idle()
    assert bench.store.told_all == told, "one that is busy tells nobody: whoever could help was woken before"


def test_a_worker_that_a_single_job_fills_wakes_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, slots=1)
    listening(bench)
    bench.until_idle()
    bench.desk.wakeups.peers_changed(Place(0, 4))
    bench.store.answers = [Claimed([held(1)])]
    bench.heard("lane", TEXT, 0)
    bench.until_idle()
    assert (bench.store.hints, bench.store.told_all) == ([("default", ("greet", 0), 0.0)], [])


def test_where_all_were_woken_nobody_wakes_them_again(bench: Bench) -> None:
    bench.desk.wakeups.peers_changed(Place(0, 4))
    bench.store.answers = [Claimed([held(1), held(2)])]
    bench.heard("queue", "", None)
    bench.until_idle()
    assert len(bench.runner.running) == 2
    assert (bench.store.hints, bench.store.told_all) == ([], [])


def test_whoever_listens_elsewhere_looks_after_that(bench: Bench) -> None:
    """Something may have been said there before."""
    made = len(bench.store.made)
    bench.heard("moved", "")
    bench.until_idle()
    [(_, _, wants)] = bench.store.made[made:]
    assert wants is not None
    assert wants.told == ()
