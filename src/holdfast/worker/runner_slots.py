"""A runner as the desk sees it, and what the desk counts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.model.job import ClaimedJob
from holdfast.runners.base import Runner
from holdfast.worker.prefetch import Prefetch

LaneName = tuple[str, str, int]  # queue, task, priority
FEW = 100  # jobs after which, and lanes beyond which, the next look is at all lanes


@dataclass(slots=True)
class RunnerSlots:
    """A runner with the names of the tasks it runs, and whether to look for work for it now. `look` is set by whoever
    wakes us, so it is cleared before the look it asks for."""

    runner: Runner
    tasks: tuple[str, ...]
    number: int  # by which attempts know it
    pace: Prefetch = field(default_factory=Prefetch)
    look: bool = True
    again: bool = False  # the last look found something: the next trip looks once more
    passed: bool = False  # jobs wait that may only be claimed for a free slot: nothing is claimed ahead of them
    told: deque[LaneName] = field(
        default_factory=deque
    )  # where due jobs were enqueued, as we were told since we looked
    # The same where other workers look before us: from when on we do, too (monotonic), in case they are gone.
    later: deque[tuple[float, LaneName]] = field(default_factory=deque)
    recent: frozenset[LaneName] = frozenset()  # where the last claim took from
    in_reserve: bool = False  # the look under way is only at what others have looked at

    def where(self) -> tuple[LaneName, ...]:
        """Where to look now: where we were told of something or just found it. Empty: everywhere. That look is no
        longer asked for, then; what comes from here on asks for another."""
        everywhere = self.look
        if everywhere:
            self.look = False
        known = dict.fromkeys(self.recent)
        while self.told:
            known[self.told.popleft()] = None
        self.in_reserve = not known
        while self.later:
            known[self.later.popleft()[1]] = None
        return () if everywhere or len(known) > FEW else tuple(known)

    def found(self, jobs: Sequence[ClaimedJob]) -> None:
        self.again = bool(jobs)
        self.recent = (
            frozenset((job.queue, job.task, job.priority) for job in jobs) if len(jobs) <= FEW else frozenset()
        )

    @property
    def wanted(self) -> bool:
        """Has somebody asked for a look?"""
        return self.look or bool(self.told) or self.overdue

    @property
    def overdue(self) -> bool:
        """Is it time to look where others should have looked?"""
        return bool(self.later) and self.later[0][0] <= time.monotonic()

    @property
    def free(self) -> int:
        """Slots without an attempt; below 0: attempts without a slot."""
        return self.runner.slots - self.runner.busy

    def late_at(self, patience: float) -> float | None:
        """When what was claimed ahead of free slots has waited too long for one."""
        may_wait = self.free < 0 or (self.runner.many and self.runner.busy)
        since = self.runner.waiting_since() if may_wait else None
        return None if since is None else since + patience

    @property
    def room(self) -> int:
        """How many attempts it would take now: for the free slots, and ahead of them."""
        waits = self.runner.may_wait and not self.passed
        return self.free + (self.pace.ahead(self.runner.slots) if waits else 0)


@dataclass(slots=True)
class Meters:
    """What the desk has done: for health, drains and tests."""

    polls: int = 0
    attempts: int = 0  # that ended, other than given back
    jobs: int = 0  # that finished: succeeded, failed or cancelled
    failed: int = 0  # of those
    recorded: int = 0
    lost: int = 0
    consecutive_errors: int = 0
    last_poll: float = field(default_factory=time.monotonic)
