"""What a worker and its desk tell each other: a mandate one way, counts the other."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from holdfast.model.polling import Polling, PollMeter


@dataclass(slots=True)
class Mandate:
    """Whether to claim, how much, and when everything must be over. The worker sets it, also from a signal handler;
    every part of the desk reads it."""

    claiming: bool = True
    budget: int | None = None  # how many more jobs may be claimed (a drain may have a limit); None: any number
    exhaustive: bool = False  # an empty claim must prove that nothing is due, whatever that costs (a drain)
    refused: frozenset[str] = frozenset()  # tasks whose adopted table can't be worked
    end_by: float = math.inf  # monotonic: when a shutdown must be over

    def spend(self, jobs: int) -> None:
        if self.budget is not None:
            self.budget = max(0, self.budget - jobs)

    def refund(self, jobs: int) -> None:
        """These were claimed and given back without having begun."""
        if self.budget is not None:
            self.budget += jobs


BREATH = 10.0  # seconds that the desk waits at most before it looks around, without a statement: so others see it lives
STUCK = 3 * BREATH  # seconds after which a desk that did not look around counts as stuck


@dataclass(slots=True)
class Meters:
    """What the desk counts: for health checks, drains and tests."""

    polls: int = 0
    attempts: int = 0  # ended, other than given back
    jobs: int = 0  # finished: succeeded, failed or cancelled
    failed: int = 0  # of those
    recorded: int = 0
    lost: int = 0
    consecutive_errors: int = 0
    poll_meter: PollMeter = field(default_factory=lambda: PollMeter(time.monotonic()))
    turned: float = field(default_factory=time.monotonic)  # when the desk last looked around

    def polling(self, *, looking: bool = False) -> Polling:
        """What its polls did in the last minute. `looking`: count one that is about to be made."""
        return self.poll_meter.window(time.monotonic(), self.consecutive_errors, looking=looking)

    @property
    def desk_lives(self) -> bool:
        return time.monotonic() - self.turned < STUCK
