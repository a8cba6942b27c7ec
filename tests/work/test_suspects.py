"""Where suspects run, and when those come again that find no process. Pure decisions."""

from __future__ import annotations

import pytest

from holdfast.worker.intake import FIRST_PACE, LONGEST, Delays, Suspects
from tests.work.scripted import Idle, held, suspect

NOW = 100.0


def nobody() -> bool:
    return False


def test_jobs_that_are_not_suspected_stay_as_they_are() -> None:
    jobs = [held(1), held(2)]
    routed = Suspects().route(jobs, Idle(1, "suspects"), nobody, NOW)
    assert routed.shared is jobs
    assert not routed.isolated
    assert not routed.given_back


def test_each_suspect_gets_a_process_or_waits_for_one_or_is_given_back() -> None:
    processes = Idle(2, "suspects")
    processes.busy = 1
    routed = Suspects().route([suspect(1), held(2), *map(suspect, range(3, 7))], processes, nobody, NOW)
    assert [job.id for job in routed.shared] == [2]
    assert [job.id for job in routed.isolated] == [1, 3, 4], "one runs, and as many wait as can run"
    assert [(job.id, delay) for job, delay in routed.given_back] == [(5, FIRST_PACE), (6, 2 * FIRST_PACE)]


@pytest.mark.parametrize(("in_flight", "shared"), [(False, [1, 2]), (True, [2])])
def test_without_processes_one_suspect_at_a_time_runs_among_the_others(in_flight: bool, shared: list[int]) -> None:
    routed = Suspects().route([suspect(1), held(2)], None, lambda: in_flight, NOW)
    assert [job.id for job in routed.shared] == shared
    assert [(job.id, delay) for job, delay in routed.given_back] == ([(1, 0.0)] if in_flight else [])


def test_they_come_again_one_after_the_other() -> None:
    delays = Delays()
    assert delays.take(3, 100.0) == pytest.approx([FIRST_PACE, 2 * FIRST_PACE, 3 * FIRST_PACE])
    assert delays.take(1, 101.0) == pytest.approx([3 * FIRST_PACE]), "behind those that were put off before"
    assert delays.until == pytest.approx(100.0 + 4 * FIRST_PACE)


def test_the_pace_is_that_of_processes_that_were_freed() -> None:
    delays = Delays()
    for second in range(20):
        delays.freed(100.0 + 5 * second, all_busy=True)
    assert delays.take(2, 300.0) == pytest.approx([5.0, 10.0], abs=0.01)


def test_a_rest_while_a_process_was_free_says_nothing_about_the_pace() -> None:
    delays = Delays()
    delays.freed(100.0, all_busy=True)
    delays.freed(101.0, all_busy=False)
    delays.freed(900.0, all_busy=True)
    assert delays.take(1, 1000.0) == [FIRST_PACE]


def test_none_is_put_off_for_long() -> None:
    assert max(Delays().take(500, 0.0)) == LONGEST
    assert Delays().take(0, 0.0) == []
