"""When suspects that find no process come again."""

from __future__ import annotations

import pytest

from holdfast.worker.suspects import FIRST_PACE, LONGEST, Delays


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
