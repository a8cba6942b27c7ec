"""The runners of a worker as its desk sees them: slots to fill, and where to look for jobs to fill them with."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.model.job import ClaimedJob
from holdfast.runners.base import Runner
from holdfast.tasks.attempt import Attempt

# How many jobs a runner may claim ahead of its free slots: only as many as will start within a moment, judging by the
# attempts before them. So a worker with short jobs claims thousands at once, and one with long jobs leaves them to
# other workers.

SOON = 0.1  # seconds within which a prefetched job should start
FIRST = 100  # jobs prefetched at first, if they are short enough
HEAVIEST = 32_000_000  # bytes of arguments prefetched
FARTHEST = 4_000  # jobs prefetched at most: more gain nothing (docs/decisions/0007)


class Prefetch:
    """Two bounds apply. The first is slots divided by run time: each slot takes its next job when it is done with one.
    The second is a window that grows and shrinks with how long recent jobs waited for a slot: many slots may share one
    processor, and only the waiting shows that."""

    def __init__(self) -> None:
        self._run_time = 0.0  # seconds an attempt takes
        self._window = FIRST
        self._count = 0
        self._seconds = 0.0
        self._longest_wait = 0.0
        self._weight = 0.0  # bytes of arguments a job has

    def weigh(self, jobs: int, argument_bytes: int) -> None:
        """Note the size of the jobs of one claim."""
        self._weight = max(argument_bytes / jobs, self._weight / 2)

    def ended(self, count: int, seconds: float, longest_wait: float) -> None:
        """Note attempts that ended: how long they ran in total, and the longest that one of them waited for a slot."""
        self._count += count
        self._seconds += seconds
        self._longest_wait = max(longest_wait, self._longest_wait)

    def measure(self) -> None:
        """Adjust both bounds to what ended since the last call."""
        if not self._count:
            return
        newest = self._seconds / self._count
        self._run_time = (self._run_time + newest) / 2 if self._run_time else newest
        if self._longest_wait > SOON:
            self._window = max(1, self._window // 2)
        elif self._longest_wait < SOON / 2:
            # At this rate so many would start soon. But never grow from a few to thousands in a single step.
            soon = int(self._count * SOON / max(self._longest_wait, 0.001))
            self._window = min(FARTHEST, max(self._window, min(soon, self._window * 40)))
        self._count, self._seconds, self._longest_wait = 0, 0.0, 0.0

    def stalled(self) -> None:
        """Prefetched jobs did not start in time: prefetch nothing until the run time is known anew."""
        self._window, self._run_time = FIRST, 0.0

    def ahead(self, slots: int) -> int:
        run_time = self._run_time  # once: another thread may ask while the desk sets it to 0
        if not run_time:
            return 0
        return min(self._window, int(SOON * slots / run_time), int(HEAVIEST / max(1.0, self._weight)))


Lane = tuple[str, str, int]  # queue, task, priority
FEW = 100  # with more lanes than this to look at, or more jobs claimed than this, the next look is at all lanes


@dataclass(slots=True)
class RunnerSlots:
    """One runner, and which look for work has been asked for on its behalf.

    Wake-ups set `look_everywhere` and append to `lanes` from any thread. Both are cleared before the look that they
    ask for, so that a wake-up that arrives during that look leads to another one."""

    runner: Runner
    tasks: tuple[str, ...]
    number: int  # attempts carry it to say whose slot they use
    prefetch: Prefetch = field(default_factory=Prefetch)
    look_everywhere: bool = True
    lanes: deque[Lane] = field(default_factory=deque)  # named by wake-ups since the last look
    # Lanes that another worker was to look at first, and when (monotonic) we look too in case that worker is gone.
    reserve: deque[tuple[float, Lane]] = field(default_factory=deque)
    recent: frozenset[Lane] = frozenset()  # the lanes that the last claim took jobs from
    found_jobs: bool = False  # the last look found jobs, so the next round trip looks again
    only_reserve: bool = False  # the look under way is only at lanes that another worker was to look at first
    may_prefetch: bool = True  # False: jobs are due that only a free slot may claim; prefetching would overtake them

    def take_lanes(self) -> tuple[Lane, ...]:
        """Where to look now: the lanes that wake-ups named, and those where the last claim found something. Empty:
        everywhere. This look is no longer asked for; what comes from here on asks for another."""
        everywhere = self.look_everywhere
        if everywhere:  # else leave it alone: another thread may be setting it just now
            self.look_everywhere = False
        lanes = dict.fromkeys(self.recent)
        while self.lanes:
            lanes[self.lanes.popleft()] = None
        self.only_reserve = not lanes
        while self.reserve:
            lanes[self.reserve.popleft()[1]] = None
        return () if everywhere or len(lanes) > FEW else tuple(lanes)

    def looked(self, jobs: Sequence[ClaimedJob], *, may_prefetch: bool) -> None:
        """A claim for this runner brought these."""
        self.may_prefetch = may_prefetch
        self.found_jobs = bool(jobs)
        few = jobs if len(jobs) <= FEW else ()
        self.recent = frozenset((job.queue, job.task, job.priority) for job in few)

    def wants_look(self, now: float) -> bool:
        """Has a look been asked for, and is it time for it?"""
        return self.look_everywhere or bool(self.lanes) or (bool(self.reserve) and self.reserve[0][0] <= now)

    @property
    def free(self) -> int:
        """Slots without an attempt. Negative: attempts without a slot."""
        return self.runner.slots - self.runner.busy

    @property
    def prefetchable(self) -> int:
        """How many jobs may be claimed ahead of free slots."""
        return self.prefetch.ahead(self.runner.slots) if self.runner.may_wait and self.may_prefetch else 0

    def late_at(self, patience: float) -> float | None:
        """When the oldest attempt that waits for a slot has waited for `patience` seconds (monotonic)."""
        may_wait = self.free < 0 or (self.runner.many and self.runner.busy)
        since = self.runner.waiting_since() if may_wait else None
        return None if since is None else since + patience


class SlotTable:
    """All runners of a worker. Iterating yields those that jobs are claimed for."""

    def __init__(self) -> None:
        self.isolated: RunnerSlots | None = None  # where suspects run, a process each. Nothing is claimed for it
        self.timeouts: dict[str, float | None] = {}  # task -> seconds an attempt may run
        self._claiming: list[RunnerSlots] = []
        self._numbered: list[RunnerSlots] = []
        self._by_task: dict[str, RunnerSlots] = {}

    def add(self, runner: Runner) -> None:
        slots = self._number(runner, runner.manifest.names)
        self._claiming.append(slots)
        self._by_task.update(dict.fromkeys(slots.tasks, slots))
        for task in runner.manifest.tasks:
            self.timeouts.update(dict.fromkeys((task.name, *task.aliases), task.timeout))

    def add_isolated(self, runner: Runner) -> None:
        """Suspects run there: each gets a process of its own, whatever else is in flight."""
        self.isolated = self._number(runner, ())

    def _number(self, runner: Runner, tasks: tuple[str, ...]) -> RunnerSlots:
        slots = RunnerSlots(runner, tasks, len(self._numbered))
        self._numbered.append(slots)
        return slots

    def __iter__(self) -> Iterator[RunnerSlots]:
        return iter(self._claiming)

    def __len__(self) -> int:
        return len(self._claiming)

    def __getitem__(self, number: int) -> RunnerSlots:
        """By its number; isolated slots included."""
        return self._numbered[number]

    def all(self) -> Sequence[RunnerSlots]:
        """Isolated slots included."""
        return self._numbered

    def of(self, attempt: Attempt) -> RunnerSlots:
        return self._numbered[attempt.runner]

    def for_task(self, task: str) -> RunnerSlots | None:
        return self._by_task.get(task)

    def look_everywhere(self) -> None:
        for slots in self._claiming:
            slots.look_everywhere = True
