"""Whether many enqueue at once, as one of them sees it from its own jobs."""

from __future__ import annotations

import pytest

from holdfast.store.postgres.notify import LONGEST_REST, MANY, WAKEUPS, WINDOW, WakeupRate


def crowd_of(processes: int, *, every: float, commit: float, seconds: float = 10 * WINDOW) -> WakeupRate:
    """What one of so many sees that each enqueue a job every so often, which takes so long to commit."""
    crowd = WakeupRate()
    for n in range(int(seconds / every) + 1):
        crowd.enqueued(1_000_000 + n * processes, commit, 50.0 + n * every)
    return crowd


def test_who_enqueues_alone_rests_never_however_quickly() -> None:
    assert crowd_of(1, every=0.0004, commit=0.0004).rest == 0


def test_sixteen_that_enqueue_as_fast_as_they_can_share_the_wake_ups() -> None:
    crowd = crowd_of(16, every=0.004, commit=0.004)
    assert crowd.rest == pytest.approx(16 / WAKEUPS)
    assert crowd.commit == pytest.approx(0.004)


def test_many_that_seldom_enqueue_do_not_rest() -> None:
    assert crowd_of(100, every=0.1, commit=0.002).rest == 0


def test_a_slow_disk_is_no_crowd() -> None:
    assert crowd_of(int(MANY), every=0.03, commit=0.03).rest == 0


def test_one_commit_that_takes_long_makes_no_crowd() -> None:
    crowd = WakeupRate()
    for n in range(100):
        crowd.enqueued(n, 0.03 if n == 50 else 0.0008, 50.0 + n * 0.002)
        assert crowd.rest == 0


def test_nobody_rests_for_long() -> None:
    assert crowd_of(10_000, every=0.002, commit=0.002).rest == LONGEST_REST


def test_when_the_others_are_gone_it_rests_no_more() -> None:
    crowd = crowd_of(16, every=0.004, commit=0.004)
    for n in range(100):
        crowd.enqueued(9_000_000 + n, 0.0005, 60.0 + n * 0.001)
    assert crowd.rest == 0


def test_ids_that_go_back_are_no_crowd() -> None:  # a restore, or two threads that tell of theirs in another order
    crowd = crowd_of(1, every=0.001, commit=0.001)
    for n in range(100):
        crowd.enqueued(500 - n, 0.001, 60.0 + n * 0.001)
        assert crowd.rest == 0
