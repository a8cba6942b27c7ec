"""How long to wait before the next poll, and how often to retry a failed one."""

from __future__ import annotations

import msgspec


class PollBackoff(msgspec.Struct, frozen=True):
    """The wait after the n-th consecutive empty poll: the base for `grace` polls, then growing to the maximum."""

    base: float = 1.0
    maximum: float = 15.0
    multiplier: float = 1.5
    grace: int = 2

    def wait(self, empty_polls: int) -> float:
        try:
            grown = self.base * float(self.multiplier) ** max(0, empty_polls - self.grace)
        except OverflowError:  # past some hundred polls; by then the maximum has long been reached
            return float(self.maximum)
        return float(min(self.maximum, grown))


POLL_TRIES = 3


def error_delay(attempt: int) -> float:
    """Seconds to wait after the `attempt`-th failed try (from 1) of one poll: 2, 4, … at most 10."""
    return float(min(2 ** min(attempt, 10), 10))


def outcome_delay(attempt: int) -> float:
    """Seconds before an outcome that could not be written is tried again: 2, 4, then 4 for as long as it takes."""
    return error_delay(min(attempt, POLL_TRIES - 1))
