"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    jobs: int = 20_000  # in a drain
    rounds: int = 3
    steady_rate: float = 500.0  # jobs a second
    steady_seconds: float = 10.0
    idle_seconds: float = 30.0
    long: bool = False  # the readings below, too
    crowd: int = 1_000_000  # rows
    pinned_seconds: float = 600.0
    recovery_seconds: float = 60.0

    @property
    def singles(self) -> int:
        """Jobs enqueued one at a time."""
        return max(50, self.jobs // 10)

    @property
    def looks(self) -> int:
        """At each page of the dashboard."""
        return max(1, min(20, self.jobs // 1000))

    @property
    def requests(self) -> int:
        """HTTP requests, one at a time."""
        return max(20, self.jobs // 20)

    @property
    def bulk(self) -> int:
        """Jobs enqueued together."""
        return self.jobs * 5 // 2

    @property
    def compared(self) -> int:
        """In drains that are compared with each other: in a third of a second, one that begins or ends a bit later
        than another makes more of a difference than what is measured."""
        return self.jobs * 3

    @property
    def isolated(self) -> int:
        """Jobs with a process of their own."""
        return max(1, min(20, self.jobs // 1000))

    @property
    def pickups(self) -> int:
        return max(20, min(100, self.jobs // 100))
