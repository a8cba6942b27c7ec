"""What a runner is, and who hears of the attempts it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.model.outcome import Crash, Outcome
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest

Ended = Callable[[Attempt, Outcome | None], None]  # what a runner in this process calls


class Told(Protocol):
    """Who is told how each attempt in this process ended. From any thread."""

    def finished(self, attempt: Attempt, outcome: Outcome | None) -> None: ...


class Ends(Protocol):
    """Who is told how attempts ended, wherever they ran. From any thread."""

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        """In any way. None: it was not run, or its lease was lost."""

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """Many at once, none of which recorded its success itself."""


class Runner(Protocol):
    """Where attempts run. It announces what it has handlers for, and returns decided outcomes. `busy` counts the slots
    taken, by whichever desk."""

    busy: int
    manifest: Manifest
    may_wait: bool  # attempts may be claimed ahead of its free slots
    many: bool  # its slots are in several places: attempts may wait in one while another has some that are free

    @property
    def slots(self) -> int: ...

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Run these as slots are free: beyond them, as others end."""

    def waiting_since(self) -> float | None:
        """When the oldest attempt was claimed that has not begun yet (monotonic)."""

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """Take back what has not begun, the newest first."""

    def close(self, timeout: float) -> None: ...
