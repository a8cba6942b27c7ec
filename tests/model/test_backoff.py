from __future__ import annotations

import pytest

from holdfast.model.retry import POLL_TRIES, PollBackoff, error_delay, outcome_delay


def test_the_waits_between_empty_polls_are_exactly_those_of_the_table() -> None:
    backoff = PollBackoff(base=5, maximum=30, multiplier=1.5, grace=2)
    waits = [backoff.wait(n) for n in range(1, 9)]
    assert waits == [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30]
    assert backoff.wait(0) == 5, "after a job appeared"


def test_without_grace_the_first_empty_poll_lengthens_the_wait() -> None:
    backoff = PollBackoff(base=5, maximum=30, multiplier=1.5, grace=0)
    assert [backoff.wait(n) for n in range(1, 4)] == [7.5, 11.25, 16.875]


def test_a_multiplier_of_one_keeps_the_interval() -> None:
    backoff = PollBackoff(base=15, maximum=15, multiplier=1)
    assert {backoff.wait(n) for n in range(1000)} == {15}


@pytest.mark.parametrize("multiplier", [1.5, 2, 16, 20.0, 1e9])
def test_after_any_number_of_empty_polls_the_wait_is_the_maximum(multiplier: float) -> None:
    backoff = PollBackoff(base=1, maximum=15, multiplier=multiplier)
    for polls in (300, 10_000, 10**9):
        assert backoff.wait(polls) == 15


def test_the_default_waits_grow_from_one_second_to_fifteen() -> None:
    waits = [PollBackoff().wait(n) for n in range(1, 12)]
    assert waits[:3] == [1, 1, 1.5]
    assert waits == sorted(waits)
    assert waits[-1] == 15


def test_a_failed_poll_is_tried_again_after_two_four_eight_then_ten_seconds() -> None:
    assert POLL_TRIES == 3
    assert [error_delay(n) for n in range(1, 8)] == [2, 4, 8, 10, 10, 10, 10]
    assert error_delay(10**6) == 10


def test_an_outcome_that_cannot_be_written_is_tried_for_as_long_as_it_takes() -> None:
    assert [outcome_delay(n) for n in range(1, 6)] == [2, 4, 4, 4, 4]
