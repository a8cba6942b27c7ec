"""One asking may be told by several signals: only who asks twice ends the grace."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from holdfast.cli.work import stopped_by_signals

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP


class Asked:
    """As far as signals know a worker."""

    grace = 25.0

    def __init__(self) -> None:
        self.times = 0

    def stop(self) -> int:
        self.times += 1
        return self.times


@pytest.mark.usefixtures("a_terminal_to_lose")
@pytest.mark.parametrize(
    ("signals", "times"),
    [
        ([TERM], 1), ([HUP], 1), ([TERM, HUP], 1), ([HUP, TERM], 1), ([HUP, HUP], 1), ([TERM, TERM], 2),
        ([INT, TERM], 2), ([TERM, HUP, TERM], 2), ([HUP, TERM, TERM], 2), ([HUP, HUP, TERM], 1),
    ],
)  # fmt: skip
def test_a_hang_up_with_another_signal_is_one_asking(signals: list[signal.Signals], times: int) -> None:
    worker: Any = Asked()
    before = {number: signal.getsignal(number) for number in (TERM, INT, HUP)}
    with stopped_by_signals(worker):
        for number in signals:
            signal.raise_signal(number)
    assert worker.times == times
    assert {number: signal.getsignal(number) for number in before} == before
