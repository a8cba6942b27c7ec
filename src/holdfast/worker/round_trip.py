"""One round trip to the database: what it takes there."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.model.job import Wants
from holdfast.model.outcome import Outcome
from holdfast.worker.runner_slots import RunnerSlots


@dataclass(slots=True, frozen=True)
class RunnerClaim:
    """What to claim, and for which runner."""

    wants: Wants
    slots: RunnerSlots


@dataclass(slots=True)
class RoundTrip:
    """A round trip under way: outcomes to record, what to claim, and leases to delete."""

    outcomes: list[Outcome]
    claim: RunnerClaim | None
    spent_leases: list[str]
    departed: float = field(default_factory=time.monotonic)
    claim_unknown: bool = field(init=False)  # what it claimed has not been answered

    def __post_init__(self) -> None:
        self.claim_unknown = self.claim is not None

    def failed(self, error: StoreError) -> None:
        """It claimed nothing, unless the reply was lost: then it may have."""
        self.claim_unknown = self.claim_unknown and isinstance(error, OutcomeUnknown)
