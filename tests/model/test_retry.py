"""Retry policies: attempt and error in, seconds out."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import BadSettings
from holdfast.model.retry import DEFAULT_RETRY, Custom, Exponential, Fixed, NoDelay, retry_policy

BROKEN = ValueError("broken")


def delays(value: Any, attempts: int = 5) -> list[float | None]:
    policy = retry_policy(value)
    return [policy.delay(n, BROKEN) for n in range(1, attempts + 1)]


def test_none_is_back_into_the_queue_at_once() -> None:
    assert delays(None) == [0, 0, 0, 0, 0]


def test_one_delay_is_the_delay_each_time() -> None:
    assert delays(7) == delays(7.0) == delays(timedelta(seconds=7)) == [7, 7, 7, 7, 7]


def test_a_list_is_one_delay_per_attempt_and_the_last_repeats() -> None:
    assert delays([60, 300, 900]) == delays((60, 300, 900)) == [60, 300, 900, 900, 900]


def test_exponential_growth_stops_at_its_cap() -> None:
    assert delays(Exponential(base=5, factor=2, cap=30, jitter=False)) == [5, 10, 20, 30, 30]


def test_full_jitter_is_anything_up_to_the_ceiling() -> None:
    policy = Exponential(base=8, factor=2, cap=100)
    random.seed(4)
    drawn = [policy.delay(3, BROKEN) for _ in range(500)]
    known = [delay for delay in drawn if delay is not None]
    assert len(known) == 500
    assert 0 <= min(known) < 4
    assert 28 < max(known) <= 32
    assert len(set(known)) > 400


def test_a_large_attempt_number_does_not_overflow() -> None:
    assert Exponential(jitter=False).delay(10**9, BROKEN) == 300


def test_the_default_is_exponential_from_five_seconds_to_five_minutes_with_jitter() -> None:
    assert Exponential(base=5, factor=2, cap=300, jitter=True) == DEFAULT_RETRY


def test_a_function_decides_by_attempt_and_error() -> None:
    def decide(attempt: int, error: BaseException) -> float | timedelta | None:
        assert error is BROKEN
        answers: list[float | timedelta | None] = [2.0, timedelta(minutes=1), None, -5.0]
        return answers[attempt - 1]

    assert delays(decide, 4) == [2, 60, None, 0]


def test_an_object_with_a_delay_method_is_a_policy() -> None:
    class Mine:
        def delay(self, attempt: int, error: BaseException) -> float | None:
            return attempt * 1.5

    assert delays(Mine(), 3) == [1.5, 3.0, 4.5]


@pytest.mark.parametrize("policy", [NoDelay(), Fixed((1.0,)), Exponential(), Custom(lambda attempt, error: 1)])
def test_a_policy_stays_as_it_is(policy: Any) -> None:
    assert retry_policy(policy) is policy


@pytest.mark.parametrize(
    "value", [-1, [], [1, -1], "5", True, False, float("inf"), float("nan"), [float("nan")], {}, 1e12]
)
def test_what_is_no_policy_is_refused(value: Any) -> None:
    with pytest.raises(BadSettings, match="retry"):
        retry_policy(value)
