"""Which workers act on a wake-up, by what each knows of its peers."""

from __future__ import annotations

import pytest

from holdfast.model.peers import CHANNELS, IN_LINE, LATE, TIMES, Place

COUNTS = [1, 2, 3, 5, 24, CHANNELS, CHANNELS + 7]


def peers(count: int) -> list[Place]:
    return [Place(rank, count) for rank in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_each_channel_has_a_first_and_a_second_worker(count: int) -> None:
    for channel in range(CHANNELS):
        turns = sorted(place.turn(channel) for place in peers(count) if channel in place.channels())
        assert turns == list(range(min(count, IN_LINE)))


@pytest.mark.parametrize("count", COUNTS)
def test_no_worker_is_first_much_more_often_than_another(count: int) -> None:
    first = [sum(place.turn(channel) == 0 for channel in range(CHANNELS)) for place in peers(count)]
    assert max(first) - min(first) <= 1


def test_a_worker_that_knows_of_no_peers_acts_on_everything() -> None:
    assert Place().channels() == set(range(CHANNELS))
    assert {Place().turn(channel) for channel in range(CHANNELS)} == {0}


@pytest.mark.parametrize("count", COUNTS)
def test_few_workers_keep_the_time(count: int) -> None:
    due = [place.due(10.0) for place in peers(count)]
    assert due == ([10.0, 10.0 + LATE] + [None] * count)[:count]
    assert [place.turn(TIMES) for place in peers(count)][:IN_LINE] == list(range(min(count, IN_LINE)))


@pytest.mark.parametrize("place", peers(5))
def test_what_is_overdue_is_for_whoever_sees_it(place: Place) -> None:
    assert place.due(0.0) == place.due(-3.0) == 0.0
