"""What has ended in this worker and is not recorded yet. An outcome, once decided, is never dropped: it is sent until
it is recorded, or the fence is found gone. The desk's alone: no other thread comes here."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.model.job import ClaimedJob, Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import NOT_COMMITTED, Crash, Error, Outcome, given_back
from holdfast.settings import Settings
from holdfast.store.base import Exchanged, Ref, Store, goes_on
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored, emit_lost, emit_rescued
from holdfast.worker.in_flight import InFlight
from holdfast.worker.outcome_events import OutcomeEvents
from holdfast.worker.runner_slots import Meters, RunnerSlots

TRIP = 2_000  # jobs recorded, and jobs claimed, in one trip: what is in hand beyond them runs meanwhile
SPENT = 50  # leases with nothing left under them that may wait to be dropped
LOCKED = 20.0  # seconds before an outcome is tried again whose row someone has locked
CRASH_LOCKED = 1.0  # the same for a crash


@dataclass(slots=True)
class Flight:
    """A trip under way: the outcomes it records, what it claims for which lane, and the leases it drops. `unsure`:
    nobody knows yet what it claimed."""

    outcomes: list[Outcome]
    wants: Wants | None
    lane: RunnerSlots | None
    drained: list[str]
    unsure: bool
    departed: float = field(default_factory=time.monotonic)

    def hear(self, trouble: StoreError) -> None:
        """This is what came of it: nothing, unless the reply was lost."""
        self.unsure = self.unsure and isinstance(trouble, OutcomeUnknown)


class Outbox:
    def __init__(
        self, worker: str, store: Store, settings: Settings, hand: InFlight, telling: OutcomeEvents, meters: Meters
    ) -> None:
        self._worker = worker
        self._store = store
        self._settings = settings
        self._hand = hand
        self._telling = telling
        self._meters = meters
        self.outcomes: list[Outcome] = []  # decided
        self.to_verify: deque[tuple[Attempt, Outcome]] = deque()  # handlers that recorded their success themselves
        self.blocked: list[tuple[float, Outcome]] = []  # outcomes whose row is locked, and when to try them again
        self.crashes: list[tuple[Attempt, Crash]] = []  # attempts that ended with their process
        self.crashes_at = 0.0  # monotonic: when to tell of them, again
        self.emptied: list[str] = []  # fences with nothing left under them, and no outcome to say so
        self.spent: list[str] = []  # the same, recorded by a trip in a hurry: another will drop their leases
        self.one_by_one = False
        self._given_back: set[Ref] = set()  # attempts whose end is decided without them

    def __bool__(self) -> bool:
        """Is something left? (Leases that are spent can wait.)"""
        return self.waiting or bool(self.blocked)

    @property
    def waiting(self) -> bool:
        """For a trip to the database, now."""
        return bool(self.outcomes or self.to_verify or self.crashes or self.emptied)

    def decided(self) -> set[Ref]:
        """The attempts that have ended."""
        outcomes = [*self.outcomes, *(o for _, o in self.blocked), *(o for _, o in self.to_verify)]
        crashed = {Ref(attempt.held.id, attempt.held.fence) for attempt, _ in self.crashes}
        return crashed | {Ref(outcome.id, outcome.fence) for outcome in outcomes}

    def give_back(self, attempt: Attempt) -> None:
        """For an attempt that can't be stopped; whatever it still brings is not taken."""
        outcome = given_back(attempt.held, started=attempt.has_begun, recorded=attempt.has_recorded)
        self._given_back.add(Ref(outcome.id, outcome.fence))
        if outcome.recorded:
            self.to_verify.append((attempt, outcome))
        else:
            self.outcomes.append(outcome)

    def is_given_back(self, held: ClaimedJob) -> bool:
        return bool(self._given_back) and Ref(held.id, held.fence) in self._given_back

    @property
    def any_given_back(self) -> bool:
        return bool(self._given_back)

    def unblock(self, now: float) -> None:
        """Those that were locked come first again when it is time."""
        if any(at <= now for at, _ in self.blocked):
            self.outcomes += [outcome for at, outcome in self.blocked if at <= now]
            self.blocked = [(at, outcome) for at, outcome in self.blocked if at > now]

    def forget(self, held: ClaimedJob) -> None:
        """Let go of an attempt without an outcome."""
        self._hand.drop([held])
        if not self._hand.holds(held.fence):
            self.emptied.append(held.fence)

    # -- by trips of their own -----------------------------------------------------------------------------------------

    def verify(self) -> None:
        """A handler recorded its success itself; was that committed?"""
        attempt, outcome = self.to_verify[0]
        held = attempt.held
        if self._store.read("recorded", id=held.id, fence=held.fence):
            if outcome.output is not None:
                self._store.keep_output(Ref(held.id, held.fence), outcome.output)
            self._meters.attempts += 1
            self._meters.jobs += 1
            self._telling.succeeded(held)
            if outcome.error is not None and outcome.error.code != NOT_COMMITTED:
                events.emit("error_after_success", job=str(held.id), task=held.task, error=outcome.error.message)
            self.forget(held)
            self._store.notify(finished=[held.id])  # its own transaction told nobody
        else:
            outcome = replace(outcome, recorded=False)
            if self._store.holds(held):
                raised = outcome.error is not None and outcome.error.code != NOT_COMMITTED
                emit_errored(held, outcome, worker=None if raised else self._worker)
            self.outcomes.append(outcome)
        self.to_verify.popleft()

    def report_crashes(self) -> None:
        """A process died that we ran attempts in. One whose row somebody has locked just now is told again later."""
        crashes = list(self.crashes)
        refs = [(Ref(attempt.held.id, attempt.held.fence), crash) for attempt, crash in crashes]
        taken = self._store.crashed(refs, self._worker, quarantine_after=self._settings.quarantine_after)
        done = {job.id for job in taken}
        left = [(a, crash) for a, crash in crashes if str(a.held.id) not in done and self._store.holds(a.held)]
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
        self._store.tell([job.queue for job in taken])

    # -- by the exchange ---------------------------------------------------------------------------------------------

    def board(self, wants: Wants | None, lane: RunnerSlots | None, *, patient: bool) -> Flight:
        """What goes with the next trip. `patient`: leases may wait to be dropped, unless there are many."""
        if not (self.outcomes or self.spent or self.emptied):
            return Flight([], wants, lane, [], unsure=wants is not None)
        count = 1 if self.one_by_one else TRIP
        outcomes, self.outcomes = self.outcomes[:count], self.outcomes[count:]
        spent = list(dict.fromkeys([*self.spent, *self._hand.emptied_by(outcomes)]))
        hurried = patient and len(spent) < SPENT
        drained = [*self.emptied, *([] if hurried else spent)]
        self.emptied, self.spent = [], spent if hurried else []
        return Flight(outcomes, wants, lane, drained, unsure=wants is not None)

    def put_back(self, flight: Flight) -> None:
        """Nothing of this was recorded, as far as we know."""
        self.outcomes[:0] = flight.outcomes
        self.emptied[:0] = flight.drained

    def recorded(self, flight: Flight, done: Exchanged) -> None:
        """The outcomes of this trip are recorded, or found their lease gone."""
        outcomes = flight.outcomes
        self.one_by_one = self.one_by_one and bool(self.outcomes)
        lost = [(outcome, self._hand.get(outcome.id, outcome.fence)) for outcome in done.lost]
        others = [outcome for outcome in outcomes if outcome.verb != "succeed"]
        released = sum(1 for outcome in others if outcome.verb == "release")
        self._telling.recorded(outcomes, others, done)
        self._hand.drop(outcomes)
        # A lease whose jobs ended in two trips that were under way at once: neither could tell that it is spent.
        known = {*flight.drained, *self.spent}
        ended = dict.fromkeys(outcome.fence for outcome in outcomes)
        self.spent += [fence for fence in ended if fence not in known and not self._hand.holds(fence)]
        self._meters.recorded += len(outcomes)
        self._meters.attempts += len(outcomes) - released - len(done.lost)
        lost_jobs = sum(1 for outcome in done.lost if not goes_on(outcome))
        self._meters.jobs += len(outcomes) - sum(map(goes_on, others)) - lost_jobs + done.cancelled
        self._meters.failed += sum(1 for outcome in others if outcome.verb == "fail" and outcome not in done.lost)
        for outcome, attempt in lost:
            self._meters.lost += 1
            if attempt is None or attempt.ask("lost"):  # else the heartbeat has told of it
                if attempt is None:
                    events.emit("lease_lost", job=str(outcome.id), worker=self._worker)
                else:
                    emit_lost(attempt.held, self._worker)
        if outcomes:
            events.emit("recorded", count=len(outcomes))
        if done.awaited:
            self._store.notify(finished=done.awaited)
        if done.requeued:
            self._tell_requeued(done.requeued, [outcome.delay for outcome in others if goes_on(outcome)])

    def _tell_requeued(self, queues: set[str], delays: Sequence[float]) -> None:
        later = [delay for delay in delays if delay]
        if len(later) < len(delays):
            self._store.tell(list(queues))
        if later:
            self._store.hint("", due_in=min(later))

    def step_aside(self, outcomes: Sequence[Outcome], *, alone: bool) -> None:
        """Someone's open transaction holds the row of one of these: it is tried again from time to time, still ours,
        and the others don't wait for it. `alone`: nothing else was on that trip."""
        if len(outcomes) == 1 and alone:
            self.blocked.append((time.monotonic() + LOCKED, self.outcomes.pop(0)))
            self.one_by_one = self.one_by_one and bool(self.outcomes)
        elif outcomes:
            self.one_by_one = True

    def narrow_down(self, outcomes: Sequence[Outcome], refused: StoreError, *, alone: bool) -> None:
        """The database refused the whole exchange for something in it: outcome by outcome, so that a poison value
        hurts only its own job."""
        if not outcomes:
            self.emptied.clear()  # if it was these: they go when they run out
            raise refused
        if len(outcomes) > 1 or not alone:
            self.one_by_one = True
            return
        [culprit] = outcomes
        if culprit.error is not None and culprit.error.code == "UNRECORDABLE":
            self.outcomes.append(self.outcomes.pop(0))
            raise refused
        told = Error("UNRECORDABLE", f"the database refused what this attempt left: {refused}")
        self.outcomes[0] = Outcome("fail", culprit.id, culprit.fence, "errored", error=told)
