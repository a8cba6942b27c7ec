"""One asking may be told by several signals: only who asks twice ends the grace."""

from __future__ import annotations

import signal

import pytest

from holdfast.signals import StopRequests

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


@pytest.mark.parametrize(
    ("signals", "times"),
    [
        ([TERM], 1), ([HUP], 1), ([TERM, HUP], 1), ([HUP, TERM], 1), ([HUP, HUP], 1), ([TERM, TERM], 2),
        ([INT, TERM], 2), ([TERM, HUP, TERM], 2), ([HUP, TERM, TERM], 2), ([HUP, HUP, TERM], 1),
    ],
)  # fmt: skip
def test_a_hang_up_with_another_signal_is_one_asking(signals: list[signal.Signals], times: int) -> None:
    asking = StopRequests()
    assert sum(asking.is_new(number) for number in signals) == times
