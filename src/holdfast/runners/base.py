"""What a runner is, and where it reports how attempts ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model.outcome import Crash, Outcome
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest

Finished = Callable[[Attempt, Outcome | None], None]  # an attempt ended; None: it was not run, or its lease was lost
Succeeded = Callable[[Attempt], None]  # it succeeded without a result


class Outcomes(Protocol):
    """Takes the outcomes of attempts, wherever they ran. Called from any thread."""

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        """It ended in any way. None: it was not run, or its lease was lost."""

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """Many succeeded, none of which recorded that itself."""


class Runner(Protocol):
    """Where attempts run. It announces what it has handlers for, and returns decided outcomes. `busy` counts the slots
    that the desk has filled."""

    busy: int
    manifest: Manifest
    may_wait: bool  # attempts may be claimed ahead of its free slots
    many: bool  # its slots are in several processes: attempts may wait in one while another has free slots

    @property
    def slots(self) -> int: ...

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Run these as slots become free."""

    def waiting_since(self) -> float | None:
        """When the oldest attempt that has not begun was claimed (monotonic)."""

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """Take back what has not begun, the newest first."""

    def close(self, timeout: float) -> None: ...
