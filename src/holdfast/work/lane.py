"""A runner as the desk sees it, and what the desk counts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.work.attempt import Attempt
from holdfast.work.manifest import Manifest


class Runner(Protocol):
    """Where attempts run. It announces what it has handlers for, and returns decided outcomes. `busy` counts the slots
    taken, by whichever desk."""

    slots: int
    busy: int
    manifest: Manifest

    def start(self, attempts: Sequence[Attempt]) -> None: ...

    def close(self, timeout: float) -> None: ...


@dataclass(slots=True)
class Lane:
    """A runner with the names of the tasks it runs, and whether to look for work for it now. `look` is set by whoever
    wakes us, so it is cleared before the look it asks for."""

    runner: Runner
    tasks: tuple[str, ...]
    look: bool = True
    holds_back: bool = False  # a suspect waits for us to have nothing in hand

    @property
    def free(self) -> int:
        return self.runner.slots - self.runner.busy


@dataclass(slots=True)
class Meters:
    """What the desk has done: for health, drains and tests."""

    polls: int = 0
    processed: int = 0
    recorded: int = 0
    lost: int = 0
    consecutive_errors: int = 0
    last_poll: float = field(default_factory=time.monotonic)
