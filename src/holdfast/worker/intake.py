"""What comes into a worker and out of its runners: claimed jobs become attempts, or go back to the queue; attempts that
ended are collected."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.model.job import Claimed, ClaimedJob
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.model.pause_filter import PauseFilter, pause_meaning
from holdfast.model.rescue import runs_isolated
from holdfast.runners.base import Runner
from holdfast.store.base import Store
from holdfast.store.pauses import standing_filters
from holdfast.tasks.attempt import Attempt
from holdfast.worker.in_flight import InFlight
from holdfast.worker.loop import Bell
from holdfast.worker.mandate import Mandate, Meters
from holdfast.worker.outbox import Outbox, RoundTrip
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import RunnerSlots, SlotTable

# What a worker knows of pauses by filter. The claim doesn't judge them: it tells their version, and the worker gives
# back what they mean, as held and uncharged, before it starts. Where none stand, that costs comparing one number.

TRUSTED = 1.0  # seconds: then pauses are read again before jobs are held by them, as one may have been deleted by hand


class FilterPauses:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: int | None = 0  # the first version of every database: there has been no such pause
        self._pauses: tuple[PauseFilter, ...] = ()
        self._read_again_at = 0.0  # monotonic

    def split(self, jobs: Sequence[ClaimedJob], version: int | None) -> tuple[list[ClaimedJob], list[Outcome]]:
        """Those of these claimed jobs that may start, and what becomes of the others: they are given back as held.
        `version`: that of the pauses when the jobs were claimed; None: not known.

        Raises OutcomeUnknown if the pauses can't be read: the claim is to be looked up by its fence, so that nothing
        starts that should not and nothing is lost."""
        if jobs and (version is None or version != self._version):
            self._read()
        if not self._pauses:
            return list(jobs), []
        free, held = self._judge(jobs)
        if held and time.monotonic() >= self._read_again_at:
            self._read()
            free, held = self._judge(jobs)
        return free, held

    def _judge(self, jobs: Sequence[ClaimedJob]) -> tuple[list[ClaimedJob], list[Outcome]]:
        free: list[ClaimedJob] = []
        held: list[Outcome] = []
        for job in jobs:
            pause = pause_meaning(job.queue, job.task, job.args, self._pauses)
            if pause is None:
                free.append(job)
            else:
                held.append(replace(given_back(job, started=False), held_by=pause.hold))
        return free, held

    def _read(self) -> None:
        try:
            found = standing_filters(self._store.db)
        except StoreError as error:  # whatever it is, the jobs are claimed already
            raise OutcomeUnknown(f"jobs were claimed, and which are paused could not be read: {error}") from error
        self._version, self._pauses = found.version, found.pauses
        trusted = TRUSTED if found.ends_in is None else min(TRUSTED, found.ends_in)
        self._read_again_at = time.monotonic() + trusted


# Suspects: jobs that were running in two processes in a row when those died. Each runs in a process of its own, so
# that a poison job shows itself and takes no other job with it (docs/decisions/0003).

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


TOO_LATE = 1.0  # seconds after which prefetched jobs that have not begun are given back
SUSPECT_TOO_LATE = 10.0  # the same for suspects that wait for a process: another worker may have a free one


class Intake:
    def __init__(
        self, slots: SlotTable, in_flight: InFlight, outbox: Outbox, suspects: Suspects, pauses: FilterPauses,
        mandate: Mandate,
    ) -> None:  # fmt: skip
        self._slots = slots
        self._in_flight = in_flight
        self._outbox = outbox
        self._suspects = suspects
        self._pauses = pauses
        self._mandate = mandate

    def take(self, trip: RoundTrip, claimed: Claimed) -> list[Attempt]:
        """What a round trip claimed is in flight from now on. Returns the attempts that its runner has to start."""
        assert trip.claim is not None
        jobs = self._not_held(claimed.jobs, claimed.filter_version)
        self._mandate.spend(len(jobs))
        jobs = self._admit(jobs, asked_at=trip.departed, leased_at=trip.departed)
        attempts = self._attempts(trip.claim.slots, jobs, asked_at=trip.departed, leased_at=trip.departed)
        trip.claim_unknown = False
        return attempts

    def recover(self, claimed: Claimed) -> list[ClaimedJob]:
        """What a claim took whose reply was lost, and may start."""
        jobs = [job for job in claimed.jobs if self._in_flight.get(job.id, job.fence) is None]
        return self._not_held(jobs, claimed.filter_version)

    def take_recovered(self, recovered: list[ClaimedJob], asked_at: float) -> None:
        """Run these. If the worker stops, give them back. Nobody knows how old the lease is, so the next heartbeat
        renews it."""
        self._mandate.spend(len(recovered))
        if not self._mandate.claiming:
            self.give_back(recovered)
            return
        for job in self._admit(recovered, asked_at=asked_at, leased_at=0.0):
            slots = self._slots.for_task(job.task)
            assert slots is not None  # it was claimed for one of our tasks
            slots.runner.start(self._attempts(slots, [job], asked_at=asked_at, leased_at=0.0))

    def _not_held(self, jobs: Sequence[ClaimedJob], version: int | None) -> list[ClaimedJob]:
        """Give back, as held, what a pause by filter means; returns the other jobs."""
        free, held = self._pauses.split(jobs, version)
        self._outbox.outcomes += held
        return free

    def _admit(self, jobs: list[ClaimedJob], *, asked_at: float, leased_at: float) -> list[ClaimedJob]:
        """A job that no pause holds passes here before it becomes an attempt. Starts suspects in isolated processes,
        gives back what may not run here now, and returns the other jobs."""
        isolated = self._slots.isolated
        runner = None if isolated is None else isolated.runner
        routed = self._suspects.route(jobs, runner, self._suspect_in_flight, time.monotonic())
        if isolated is not None and routed.isolated:
            isolated.runner.start(self._attempts(isolated, routed.isolated, asked_at=asked_at, leased_at=leased_at))
        if routed.given_back:
            back, delays = zip(*routed.given_back, strict=True)
            self.give_back(back, delays)
        return routed.shared

    def _suspect_in_flight(self) -> bool:
        return any(runs_isolated(attempt.held.suspicion) for attempt in self._in_flight.attempts())

    def _attempts(
        self, slots: RunnerSlots, jobs: Sequence[ClaimedJob], *, asked_at: float, leased_at: float
    ) -> list[Attempt]:
        """`asked_at`: when we asked the database for them (monotonic). It said then or later in how many seconds they
        expire, so this errs on the safe side."""
        now, timeouts = time.monotonic(), self._slots.timeouts
        attempts = [Attempt(held, timeouts[held.task], now, slots.number, leased=leased_at) for held in jobs]
        for attempt in attempts:
            if attempt.held.expires_in is not None:
                attempt.begin_by = asked_at + attempt.held.expires_in
        slots.runner.busy += len(attempts)
        self._in_flight.add(attempts)
        return attempts

    # -- back to the queue ---------------------------------------------------------------------------------------------

    def give_back(self, jobs: Sequence[ClaimedJob], delays: Iterable[float] = repeat(0.0)) -> None:
        """Release jobs that have not begun. That costs them no attempt."""
        self._mandate.refund(len(jobs))
        self._outbox.outcomes += [
            given_back(held, started=False, delay=delay) for held, delay in zip(jobs, delays, strict=False)
        ]

    def withdraw(self) -> None:
        """Give back everything that has not begun."""
        for slots in self._slots.all():
            self._withdraw(slots, slots.runner.withdraw())

    def give_back_late(self, now: float) -> None:
        """Leave prefetched jobs to other workers that found no slot here soon."""
        for slots in self._slots:
            if (late_at := slots.late_at(TOO_LATE)) is not None and late_at <= now:
                self._withdraw(slots, slots.runner.withdraw(-slots.free if slots.free < 0 else None))
                slots.prefetch.stalled()
        isolated = self._slots.isolated
        if isolated is not None and (late_at := isolated.late_at(SUSPECT_TOO_LATE)) is not None and late_at <= now:
            back = isolated.runner.withdraw(-isolated.free)
            self._withdraw(isolated, back[::-1], self._suspects.delays.take(len(back), now))

    @property
    def suspects_due_until(self) -> float:
        """When the last suspect that was given back is due again (monotonic)."""
        return self._suspects.delays.until

    def next_late_at(self) -> float | None:
        """When `give_back_late` will have something to do (monotonic)."""
        times = [slots.late_at(TOO_LATE) for slots in self._slots]
        if self._slots.isolated is not None:
            times.append(self._slots.isolated.late_at(SUSPECT_TOO_LATE))
        return min([at for at in times if at is not None], default=None)

    def _withdraw(self, slots: RunnerSlots, back: Sequence[Attempt], delays: Iterable[float] = repeat(0.0)) -> None:
        slots.runner.busy -= len(back)
        self.give_back([attempt.held for attempt in back], delays)


# Attempts that ended: runners add them from any thread, the desk collects them into its outbox.


class EndedAttempts:
    """Implements `Ends`, by which runners report."""

    def __init__(
        self, slots: SlotTable, outbox: Outbox, suspects: Suspects, poller: Poller, mandate: Mandate, meters: Meters,
        bell: Bell, *, pause: float,
    ) -> None:  # fmt: skip
        """`pause`: seconds to wait after an attempt before the next job is claimed."""
        self._slots = slots
        self._outbox = outbox
        self._suspects = suspects
        self._poller = poller
        self._mandate = mandate
        self._meters = meters
        self._pause = pause
        self._bell = bell
        self._ended: deque[tuple[Attempt, Outcome | Crash | None]] = deque()
        self._succeeded: deque[tuple[list[Attempt], list[Outcome]]] = deque()
        self.any_expired = False  # jobs were given back because they expired before they began

    # -- from any thread -----------------------------------------------------------------------------------------------

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        self._ended.append((attempt, outcome))
        self._bell.ring()

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """Many at once, none of which recorded its success itself."""
        self._succeeded.append((attempts, outcomes))
        self._bell.ring()

    # -- from the desk -------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Is there anything to collect?"""
        return bool(self._ended or self._succeeded)

    def collect(self) -> None:
        """Move what ended into the outbox, and free its slots."""
        now = time.monotonic()
        self._outbox.unblock(now)
        if not self:
            return
        while self._succeeded:
            self._collect_succeeded(*self._succeeded.popleft(), now)
        while self._ended:
            self._collect_one(*self._ended.popleft(), now)
        for slots in self._slots:
            slots.prefetch.measure()
        self._poller.slot_freed(now, self._pause)

    def _collect_succeeded(self, attempts: list[Attempt], outcomes: list[Outcome], now: float) -> None:
        """`_collect_one` for a batch: rare cases are checked once for all of them. This is the drain's hot path."""
        numbers = {attempt.runner for attempt in attempts}
        slots = self._slots[numbers.pop()] if len(numbers) == 1 else None
        if slots is None or slots is self._slots.isolated or self._outbox.any_given_back:
            for attempt, outcome in zip(attempts, outcomes, strict=True):
                self._collect_one(attempt, outcome, now)
            return
        slots.runner.busy -= len(attempts)
        seconds = longest_wait = 0.0
        for n, attempt in enumerate(attempts):
            started = attempt.started
            seconds += attempt.ended - started
            if started - attempt.taken > longest_wait:
                longest_wait = started - attempt.taken
            if (progress := attempt.progress) is not None:
                outcomes[n] = replace(outcomes[n], progress=progress)
        slots.prefetch.ended(len(attempts), seconds, longest_wait)
        self._outbox.outcomes += outcomes

    def _collect_one(self, attempt: Attempt, outcome: Outcome | Crash | None, now: float) -> None:
        self._free_slot(attempt, now)
        if self._outbox.was_given_back(attempt.held):
            return
        if isinstance(outcome, Crash):
            self._outbox.crashes.append((attempt, outcome))
            return
        if outcome is None and attempt.reason != "lost":
            outcome = given_back(attempt.held, started=bool(attempt.started))
            self.any_expired = self.any_expired or (attempt.begin_by is not None and not attempt.started)
        if outcome is None:
            self._meters.lost += 1
            self._outbox.forget(attempt.held)
            return
        if (progress := attempt.progress) is not None:
            outcome = replace(outcome, progress=progress)
        if outcome.verb == "release" and not attempt.started:
            self._mandate.refund(1)
        if outcome.recorded:
            self._outbox.to_verify.append((attempt, outcome))
        else:
            self._outbox.outcomes.append(outcome)

    def _free_slot(self, attempt: Attempt, now: float) -> None:
        slots = self._slots.of(attempt)
        if slots is self._slots.isolated:
            self._suspects.delays.freed(now, all_busy=slots.free <= 0)
        slots.runner.busy -= 1
        if attempt.ended:
            slots.prefetch.ended(1, attempt.ended - attempt.started, attempt.started - attempt.taken)
