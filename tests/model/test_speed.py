from __future__ import annotations

import pytest

from holdfast.tasks.attempt import WINDOW, Speed


def test_the_first_count_says_nothing_and_from_then_on_it_is_items_a_second() -> None:
    speed = Speed(100.0, 40)
    assert speed.now(100.0, 40) is None
    assert speed.now(101.0, 50) == 10
    assert speed.now(110.0, 140) == 10
    assert speed.now(120.0, 140) == 5


def test_what_was_long_ago_is_forgotten() -> None:
    speed = Speed(0.0, 0)
    for second in range(1, 601):
        rate = speed.now(float(second), second * 1000 if second <= 300 else 300_000 + second - 300)
    assert rate == pytest.approx(1.0, rel=0.01), "of late, not since it began"


def test_it_tells_of_no_less_than_half_a_minute_once_it_can() -> None:
    speed = Speed(0.0, 0)
    for second in range(1, 600):
        speed.now(float(second), second)
        began, _ = speed._from
        assert second - began >= min(second, WINDOW - 1)
        assert second - began <= 2 * WINDOW


def test_a_count_that_begins_anew_begins_anew() -> None:
    speed = Speed(0.0, 50)
    assert speed.now(5.0, 3) is None
    assert speed.now(6.0, 5) == 2
