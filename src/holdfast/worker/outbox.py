"""The outbox: what ended in this worker and is not recorded yet. A decided outcome is never dropped. It is sent until
it is recorded or its fence turns out to be gone. Only the desk's thread uses it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import OutcomeUnknown, ResultMisfit, StoreError
from holdfast.model.job import ClaimedJob, Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import NOT_COMMITTED, Crash, Error, Outcome, Verb, given_back, returned
from holdfast.store.base import Exchanged, Ref, Store, by_verb, goes_on
from holdfast.tasks.attempt import Attempt, emit_errored, emit_lost, emit_rescued, ended_fields, job_fields
from holdfast.worker.in_flight import InFlight, SpentLeases
from holdfast.worker.mandate import Meters
from holdfast.worker.runner_slots import RunnerSlots

# One round trip to the database: what it takes there.


@dataclass(slots=True, frozen=True)
class RunnerClaim:
    """What to claim, and for which runner."""

    wants: Wants
    slots: RunnerSlots


@dataclass(slots=True)
class RoundTrip:
    """A round trip under way: outcomes to record, what to claim, and leases to delete."""

    outcomes: list[Outcome]
    claim: RunnerClaim | None
    spent_leases: list[str]
    departed: float = field(default_factory=time.monotonic)
    claim_unknown: bool = field(init=False)  # what it claimed has not been answered

    def __post_init__(self) -> None:
        self.claim_unknown = self.claim is not None

    def failed(self, error: StoreError) -> None:
        """It claimed nothing, unless the reply was lost: then it may have."""
        self.claim_unknown = self.claim_unknown and isinstance(error, OutcomeUnknown)


# The events of what the desk claimed and recorded: one for each verb. Details of jobs are only computed if somebody
# listens.


class OutcomeEvents:
    def __init__(self, worker: str, in_flight: InFlight) -> None:
        self._worker = worker
        self._in_flight = in_flight

    def claimed(self, jobs: Sequence[ClaimedJob]) -> None:
        events.emit("claimed", jobs=lambda: [job_fields(held) for held in jobs], count=len(jobs), worker=self._worker)

    def recorded(self, outcomes: Sequence[Outcome], others: Sequence[Outcome], done: Exchanged) -> None:
        """One event for each verb among these outcomes; for failures, one for each job. Call it while the attempts are
        still in flight. `others`: the outcomes that are not successes."""
        unsure = [*done.lost, *done.already]
        succeeded = len(outcomes) - len(others) - sum(1 for outcome in unsure if outcome.verb == "succeed")
        if succeeded:
            self._emit("succeed", succeeded, outcomes, unsure)
        for verb, of_verb in by_verb([outcome for outcome in others if outcome not in unsure]).items():
            if verb != "fail":
                self._emit(verb, len(of_verb), of_verb)
                continue
            for outcome in of_verb:
                attempt = self._in_flight.get(outcome.id, outcome.fence)
                if attempt and outcome.error is not None and outcome.error.code in (UNRECORDABLE, RESULT_MISFIT):
                    emit_errored(attempt.held, outcome, worker=self._worker)  # its runner thought it a success
                self._emit(verb, 1, [outcome], job=str(outcome.id), logged=False)  # the line of the attempt has said so

    def succeeded(self, held: ClaimedJob) -> None:
        """Its handler recorded the success itself."""
        self._emit("succeed", 1, [returned(held, None)])

    def _emit(
        self, verb: Verb, count: int, outcomes: Sequence[Outcome], but: Sequence[Outcome] = (), **fields: Any
    ) -> None:
        def jobs() -> list[dict[str, Any]]:
            found = [outcome for outcome in outcomes if outcome.verb == verb and outcome not in but]
            return [ended_fields(outcome, self._in_flight.get(outcome.id, outcome.fence)) for outcome in found]

        events.emit(events.VERBS[verb], jobs=jobs, count=count, worker=self._worker, **fields)


def expire(store: Store) -> None:
    """Cancel queued jobs that were not started before they expired, and emit an event."""
    while expired := store.retention.expire():
        events.emit("expired", count=len(expired))
        store.wakeups.notify(finished=[row["id"] for row in expired if row["awaited"]])


BATCH = 2_000  # jobs recorded, and jobs claimed, in one round trip: jobs in flight beyond them run meanwhile
LOCKED = 20.0  # seconds before an outcome is sent again whose row someone has locked
UNRECORDABLE = "UNRECORDABLE"  # the code of an attempt that left a value which the database refused
RESULT_MISFIT = "RESULT_MISFIT"  # the same of a result that doesn't fit its row in an adopted table
CRASH_LOCKED = 1.0  # the same for a crash


class Outbox:
    def __init__(
        self, worker: str, store: Store, in_flight: InFlight, meters: Meters, *, quarantine_after: int
    ) -> None:
        self._worker = worker
        self._store = store
        self._quarantine_after = quarantine_after
        self._in_flight = in_flight
        self._events = OutcomeEvents(worker, in_flight)
        self._meters = meters
        self.outcomes: list[Outcome] = []  # to record
        self.to_verify: deque[tuple[Attempt, Outcome]] = deque()  # handlers that recorded their success themselves
        self.blocked: list[tuple[float, Outcome]] = []  # their row is locked; and when to send them again (monotonic)
        self.crashes: list[tuple[Attempt, Crash]] = []  # attempts whose process died
        self.crashes_at = 0.0  # monotonic: when to report them, or to try again
        self.spent_leases = SpentLeases(in_flight)
        self.one_by_one = False  # one outcome in each round trip, to find the one that the database refuses
        self._given_back: set[Ref] = set()  # attempts that were given back while their handler still runs

    def __bool__(self) -> bool:
        """Is anything left to record? (Deleting spent leases can wait.)"""
        return self.is_waiting or bool(self.blocked)

    @property
    def is_waiting(self) -> bool:
        """Is there something for a round trip to do now?"""
        return bool(self.outcomes or self.to_verify or self.crashes or self.spent_leases.urgent)

    @property
    def backlog(self) -> int:
        """Outcomes beyond those that the next round trip records."""
        return max(0, len(self.outcomes) - BATCH)

    def decided(self) -> set[Ref]:
        """The attempts that have ended."""
        outcomes = [*self.outcomes, *(o for _, o in self.blocked), *(o for _, o in self.to_verify)]
        crashed = {Ref(attempt.held.id, attempt.held.fence) for attempt, _ in self.crashes}
        return crashed | {Ref(outcome.id, outcome.fence) for outcome in outcomes}

    def give_back(self, attempt: Attempt) -> None:
        """Give back an attempt that can't be stopped. Whatever its handler still returns is ignored."""
        outcome = given_back(attempt.held, started=attempt.has_begun, recorded=attempt.has_recorded)
        self._given_back.add(Ref(outcome.id, outcome.fence))
        if outcome.recorded:
            self.to_verify.append((attempt, outcome))
        else:
            self.outcomes.append(outcome)

    def was_given_back(self, held: ClaimedJob) -> bool:
        return bool(self._given_back) and Ref(held.id, held.fence) in self._given_back

    @property
    def any_given_back(self) -> bool:
        return bool(self._given_back)

    def unblock(self, now: float) -> None:
        """Send outcomes whose row was locked again when it is time."""
        if any(at <= now for at, _ in self.blocked):
            self.outcomes += [outcome for at, outcome in self.blocked if at <= now]
            self.blocked = [(at, outcome) for at, outcome in self.blocked if at > now]

    def forget(self, held: ClaimedJob) -> None:
        """Drop an attempt that has no outcome to record."""
        self._in_flight.remove([held])
        self.spent_leases.emptied(held.fence)

    # -- with statements of their own ----------------------------------------------------------------------------------

    def verify(self) -> None:
        """A handler recorded its success in its own transaction. Was that committed?"""
        attempt, outcome = self.to_verify[0]
        held = attempt.held
        if self._store.db.read("recorded", id=held.id, fence=held.fence):
            if outcome.output is not None:
                self._store.attempts.keep_output(Ref(held.id, held.fence), outcome.output)
            self._meters.attempts += 1
            self._meters.jobs += 1
            self._events.succeeded(held)
            if outcome.error is not None and outcome.error.code != NOT_COMMITTED:
                events.emit("error_after_success", job=str(held.id), task=held.task, error=outcome.error.message)
            self.forget(held)
            self._store.wakeups.notify(finished=[held.id])  # the handler's transaction notified nobody
        else:
            outcome = replace(outcome, recorded=False)
            if self._store.rescues.holds(held):
                raised = outcome.error is not None and outcome.error.code != NOT_COMMITTED
                emit_errored(held, outcome, worker=None if raised else self._worker)
            self.outcomes.append(outcome)
        self.to_verify.popleft()

    def report_crashes(self) -> None:
        """A process died in which attempts ran. Those whose row somebody has locked are reported again later."""
        crashes = list(self.crashes)
        refs = [(Ref(attempt.held.id, attempt.held.fence), crash) for attempt, crash in crashes]
        taken = self._store.rescues.crashed(refs, self._worker, quarantine_after=self._quarantine_after)
        done = {job.id for job in taken}
        left = [(a, crash) for a, crash in crashes if str(a.held.id) not in done and self._store.rescues.holds(a.held)]
        self.crashes[: len(crashes)] = left
        self.crashes_at = time.monotonic() + (CRASH_LOCKED if left else 0.0)
        for attempt, crash in crashes:
            if (attempt, crash) not in left:
                self.forget(attempt.held)
        self._meters.attempts += len(crashes) - len(left)
        self._meters.jobs += sum(1 for job in taken if job.state in (State.FAILED, State.CANCELLED))
        self._meters.failed += sum(1 for job in taken if job.state is State.FAILED)
        for job in taken:
            emit_rescued(job, self._worker)
        self._store.wakeups.tell([job.queue for job in taken])

    # -- with round trips ----------------------------------------------------------------------------------------------

    def load(self, claim: RunnerClaim | None, *, patient: bool) -> RoundTrip:
        """The next round trip, with what it takes along. `patient`: spent leases may wait, unless there are many."""
        if not (self.outcomes or self.spent_leases.waiting or self.spent_leases.urgent):
            return RoundTrip([], claim, [])
        count = 1 if self.one_by_one else BATCH
        outcomes, self.outcomes = self.outcomes[:count], self.outcomes[count:]
        return RoundTrip(outcomes, claim, self.spent_leases.take(outcomes, patient=patient))

    def put_back(self, trip: RoundTrip) -> None:
        """Nothing of this was recorded, as far as we know: send it again. The fence makes that safe."""
        self.outcomes[:0] = trip.outcomes
        self.spent_leases.put_back(trip.spent_leases)

    def recorded(self, trip: RoundTrip, done: Exchanged) -> None:
        """The outcomes of this round trip are recorded, or found their lease gone."""
        outcomes = trip.outcomes
        self.one_by_one = self.one_by_one and bool(self.outcomes)
        lost = [(outcome, self._in_flight.get(outcome.id, outcome.fence)) for outcome in done.lost]
        others = [outcome for outcome in outcomes if outcome.verb != "succeed"]
        self._events.recorded(outcomes, others, done)
        self._in_flight.remove(outcomes)
        self.spent_leases.recorded(outcomes, trip.spent_leases)
        self._count(outcomes, others, done)
        for outcome, attempt in lost:
            if attempt is None:
                events.emit("lease_lost", job=str(outcome.id), worker=self._worker)
            elif attempt.ask("lost"):  # else the heartbeat noticed first and has said so
                emit_lost(attempt.held, self._worker)
        if outcomes:
            events.emit("recorded", count=len(outcomes))
        if done.awaited:
            self._store.wakeups.notify(finished=done.awaited)
        if done.requeued:
            self._announce_requeued(done.requeued, [outcome.delay for outcome in others if goes_on(outcome)])

    def _count(self, outcomes: Sequence[Outcome], others: Sequence[Outcome], done: Exchanged) -> None:
        released = sum(1 for outcome in others if outcome.verb == "release")
        lost_jobs = sum(1 for outcome in done.lost if not goes_on(outcome))
        self._meters.recorded += len(outcomes)
        self._meters.attempts += len(outcomes) - released - len(done.lost)
        self._meters.jobs += len(outcomes) - sum(map(goes_on, others)) - lost_jobs + done.cancelled
        self._meters.failed += sum(1 for outcome in others if outcome.verb == "fail" and outcome not in done.lost)
        self._meters.lost += len(done.lost)

    def _announce_requeued(self, queues: set[str], delays: Sequence[float]) -> None:
        later = [delay for delay in delays if delay]
        if len(later) < len(delays):
            self._store.wakeups.tell(list(queues))
        if later:
            self._store.wakeups.hint("", due_in=min(later))

    def set_aside(self, outcomes: Sequence[Outcome], *, alone: bool) -> None:
        """Somebody's open transaction has the row of one of these locked. That outcome is sent again from time to time;
        the others don't wait for it. `alone`: the round trip carried nothing else."""
        if len(outcomes) == 1 and alone:
            self.blocked.append((time.monotonic() + LOCKED, self.outcomes.pop(0)))
            self.one_by_one = self.one_by_one and bool(self.outcomes)
        elif outcomes:
            self.one_by_one = True

    def narrow_down(self, outcomes: Sequence[Outcome], refused: StoreError, *, alone: bool) -> None:
        """The database refused a round trip because of a value in it. Send outcomes one by one, so that a poison value
        fails only its own job."""
        if not outcomes:
            self.spent_leases.clear_urgent()
            raise refused
        if len(outcomes) > 1 or not alone:
            self.one_by_one = True
            return
        [culprit] = outcomes
        if culprit.error is not None and culprit.error.code == UNRECORDABLE:
            self.outcomes.append(self.outcomes.pop(0))
            raise refused
        if isinstance(refused, ResultMisfit):
            error = Error(RESULT_MISFIT, refused.message)
        else:
            error = Error(UNRECORDABLE, f"the database refused what this attempt left: {refused}")
        self.outcomes[0] = Outcome("fail", culprit.id, culprit.fence, "errored", error=error)
