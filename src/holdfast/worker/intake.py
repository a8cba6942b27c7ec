"""Claimed jobs become attempts, or go back to the queue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import repeat

from holdfast.model.job import Claimed, ClaimedJob
from holdfast.model.outcome import given_back
from holdfast.model.rescue import runs_isolated
from holdfast.tasks.attempt import Attempt
from holdfast.worker.filter_pauses import FilterPauses
from holdfast.worker.in_flight import InFlight
from holdfast.worker.mandate import Mandate
from holdfast.worker.outbox import Outbox
from holdfast.worker.round_trip import RoundTrip
from holdfast.worker.runner_slots import RunnerSlots, SlotTable
from holdfast.worker.suspects import Suspects

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
