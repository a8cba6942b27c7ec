"""What a runner is, and a worker's group of runners. There are three kinds of groups: handlers run in the worker's own
process (`inprocess_group`), in pooled processes (`process_pool`), or in either of these with a process for each attempt
of tasks that ask for isolation (`IsolatingGroup`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.model.outcome import Crash, Outcome
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest, TaskInfo

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


@dataclass(frozen=True, slots=True)
class WorkerLink:
    """What a group of runners needs of its worker. Everything may be called from any thread."""

    worker: str  # its id
    outcomes: Outcomes
    stack_taken: Callable[[Attempt, str], None]  # where the handler of an attempt is, when that was asked
    give_up: Callable[[HoldfastError], None] = lambda error: None  # the group can't go on: the worker stops for that
    slots_changed: Callable[[], None] = lambda: None
    stopping: Callable[[], bool] = lambda: False  # the worker should stop: `open` waits for nothing any more
    lock: int | None = None  # the descriptor that shows neighbours that the worker lives. No process that runs handlers
    # may have it: any copy of it can unlock it


class RunnerGroup(Protocol):
    tasks: tuple[TaskInfo, ...]

    @property
    def runners(self) -> Sequence[Runner]: ...

    @property
    def suspect_runner(self) -> Runner | None:
        """Runs an attempt of any task in a process of its own, if the group can do that."""

    def open(self, link: WorkerLink) -> None:
        """Get ready to run attempts. The worker claims nothing before this returns."""

    def stack(self, attempt: Attempt) -> None:
        """Ask where the handler of this attempt is. `stack_taken` is called now or later, unless its process does not
        respond."""

    def abandon(self, seconds: float) -> None:
        """End what did not stop when it was asked to, where that is possible, and wait this long for it."""

    def close(self, end_by: float) -> None:
        """Stop all handlers, except threads that can't be stopped. Whatever has not ended by itself by then (monotonic)
        is killed."""


# Attempts that wait for a slot. The desk adds them, slots take them, and each is taken exactly once.


class Unstarted(deque[Attempt]):
    """The oldest is taken first (`popleft` raises IndexError when there is none). Safe from any thread."""

    def since(self) -> float | None:
        """When the oldest was claimed (monotonic)."""
        try:
            return self[0].taken
        except IndexError:
            return None

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """Take back what has not begun, the newest first."""
        back: list[Attempt] = []
        with suppress(IndexError):  # none is left
            while most is None or len(back) < most:
                back.append(self.pop())
        return back
