"""A worker's runners, opened and closed together. There are three kinds: handlers in the worker's own process
(`inprocess_group`), in pooled processes (`process_pool`), and either of them with a process for each attempt of tasks
that ask for isolation (`isolating_group`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.runners.base import Outcomes, Runner
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import TaskInfo


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
