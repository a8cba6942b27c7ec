"""The window of a worker's polls, and what of it is healthy."""

from __future__ import annotations

import pytest

from holdfast.model.polling import NO_POLLS, Polling, PollMeter, polling_of_all

START = 1000.0


@pytest.fixture
def meter() -> PollMeter:
    return PollMeter(START)


def poll(meter: PollMeter, at: float, *, found: int = 0, tried: bool = False, seconds: float = 0.01) -> None:
    meter.began(at)
    meter.succeeded(at, found=found, tried=tried or found > 0, seconds=seconds)


def test_polls_per_minute_counts_the_polls_of_the_last_minute(meter: PollMeter) -> None:
    assert meter.window(START, 0).polls_per_minute == 0
    for second in range(120):
        poll(meter, START + second)
    assert meter.window(START + 119, 0).polls_per_minute == 60
    assert meter.window(START + 170, 0).polls_per_minute == 9
    assert meter.window(START + 200, 0).polls_per_minute == 0


def test_a_poll_that_failed_is_a_poll_but_no_sign_of_health(meter: PollMeter) -> None:
    meter.began(START + 61)
    window = meter.window(START + 61, 1)
    assert (window.polls_per_minute, window.idle_seconds) == (1, 61)
    assert not window.healthy()


def test_jobs_found_per_poll_and_latency_are_means_over_the_window_not_the_last_poll(meter: PollMeter) -> None:
    poll(meter, START, found=10, seconds=0.030)
    poll(meter, START + 0.5, found=1, seconds=0.020)
    poll(meter, START + 1, found=1, seconds=0.010)
    poll(meter, START + 2, seconds=5.0)  # an empty poll: how long it took is no claim's latency
    window = meter.window(START + 4, 0)
    assert (window.jobs_found_per_poll, window.avg_claim_latency) == (3.0, 20.0)
    assert meter.window(START + 60.5, 0).avg_claim_latency == 10.0, "the first polls are no longer in the window"


def test_claims_that_others_won_count_as_lost(meter: PollMeter) -> None:
    poll(meter, START, found=1)
    poll(meter, START, tried=True)
    poll(meter, START, found=5)
    poll(meter, START)
    window = meter.window(START + 1, 0)
    assert (window.claims_tried, window.claims_won, window.claim_success_rate) == (3, 2, 0.667)
    assert meter.lost_claims == 1


def test_without_polls_or_claims_there_is_no_mean() -> None:
    assert PollMeter(0.0).window(0.0, 0) == NO_POLLS
    assert NO_POLLS.jobs_found_per_poll is NO_POLLS.claim_success_rate is NO_POLLS.avg_claim_latency is None


@pytest.mark.parametrize(
    ("errors", "idle", "age", "healthy"),
    [(0, 0, 0, True), (4, 60, 0, True), (5, 0, 0, False), (0, 61, 0, False), (0, 30, 31, False), (0, 30, 30, True)],
)
def test_healthy_is_who_polled_within_a_minute_without_five_errors_in_a_row(
    errors: int, idle: float, age: float, healthy: bool
) -> None:
    assert Polling(consecutive_errors=errors, idle_seconds=idle).healthy(age) is healthy


def test_workers_together_are_weighted_by_what_each_did() -> None:
    one = Polling(10, 1.0, 4, 4, 1.0, 20.0, 0, 5.0)
    two = Polling(30, 3.0, 4, 2, 0.5, 50.0, 3, 1.0)
    assert polling_of_all([one, two]) == Polling(40, 2.5, 8, 6, 0.75, 30.0, 3, 1.0)
    assert polling_of_all([]) == NO_POLLS
