"""Suspects: jobs that were running in two processes in a row when those died. Each runs in a process of its own, so
that a poison job shows itself and takes no other job with it (docs/decisions/0003)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.model.job import ClaimedJob
from holdfast.model.rescue import runs_isolated
from holdfast.runners.base import Runner

FIRST_PACE = 1.0  # seconds between two, until it is known how quickly processes become free
LONGEST = 30.0  # seconds after which one comes again at the latest


@dataclass(slots=True)
class Routed:
    """Where the jobs of a claim go."""

    shared: list[ClaimedJob]  # to the runners of their tasks
    isolated: Sequence[ClaimedJob] = ()  # to a process each
    given_back: Sequence[tuple[ClaimedJob, float]] = ()  # and the seconds until each is due again


class Suspects:
    """Decides where suspects run. Instants are monotonic."""

    def __init__(self) -> None:
        self.delays = Delays()

    def route(
        self, jobs: list[ClaimedJob], isolated: Runner | None, suspect_in_flight: Callable[[], bool], now: float
    ) -> Routed:
        suspects = [job for job in jobs if runs_isolated(job.suspicion)]
        if not suspects:
            return Routed(jobs)
        others = [job for job in jobs if not runs_isolated(job.suspicion)]
        if isolated is not None:
            taken = _fitting(suspects, isolated)
            back = [job for job in suspects if job not in taken]
            return Routed(others, taken, list(zip(back, self.delays.take(len(back), now), strict=True)))
        # Without such processes a suspect runs among the other jobs, but one at a time: if the worker dies of it, no
        # other suspect is in flight to be blamed for that.
        if len(suspects) == 1 and not suspect_in_flight():
            return Routed(jobs)
        # The first comes again at once, and alone: the others are not due yet then.
        delays = [0.0, *self.delays.take(len(suspects) - 1, now)]
        return Routed(others, given_back=list(zip(suspects, delays, strict=True)))


def _fitting(suspects: list[ClaimedJob], isolated: Runner) -> list[ClaimedJob]:
    """As many as there are free processes, and as many again as can run at once, to wait for one. A suspect on its last
    attempt does not wait: if this worker died meanwhile, the job would fail without having begun."""
    free = max(0, isolated.slots - isolated.busy)
    room = max(0, 2 * isolated.slots - isolated.busy)
    patient = [job for job in suspects[free:] if job.attempt < job.max_attempts]
    return suspects[:free] + patient[: room - free]


@dataclass(slots=True)
class Delays:
    """When suspects that found no free process are due again. They are given back so that another worker can claim
    them, and spread over time so that they are not claimed and given back in circles here: one after the other, as
    quickly as processes became free of late."""

    until: float = 0.0  # when the last one that was given back is due again
    _pace: float = FIRST_PACE
    _freed_at: float | None = field(default=None)  # when the last process became free, if all were busy until then

    def freed(self, now: float, *, all_busy: bool) -> None:
        """A suspect ended. `all_busy`: no process was free until then."""
        if all_busy and self._freed_at is not None:
            self._pace = (self._pace + min(LONGEST, now - self._freed_at)) / 2
        self._freed_at = now if all_busy else None

    def take(self, count: int, now: float) -> list[float]:
        """Seconds until each of `count` suspects is due again, in their order."""
        first = max(now, self.until)
        delays = [min(LONGEST, first - now + self._pace * turn) for turn in range(1, count + 1)]
        if delays:
            self.until = now + delays[-1]
        return delays
