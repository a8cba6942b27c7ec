"""The one loop of a worker: collect the attempts that ended, go to the database once (record their outcomes, claim as
many jobs as there are free slots), start those, wait. Batch sizes follow from load: an idle worker records a lone
outcome at once, a busy one records what piled up while the database was working.

A decided outcome is never dropped: it is sent until it is recorded, or its fence turns out to be gone. While the
database is away and outcomes wait, nothing new is claimed. After a lost reply the fence of the claim is looked up, and
what it took is run."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from holdfast import events
from holdfast.runners.base import Runner
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.tasks.attempt import Attempt
from holdfast.worker.exchange import Exchange, Patience
from holdfast.worker.in_flight import InFlight
from holdfast.worker.intake import EndedAttempts, FilterPauses, Intake, Suspects
from holdfast.worker.loop import Bell
from holdfast.worker.mandate import Mandate, Meters
from holdfast.worker.outbox import Outbox, OutcomeEvents, RunnerClaim, expire
from holdfast.worker.poller import LONGEST as LONGEST_REST
from holdfast.worker.poller import Claims, Peers, Poller, VainWakeups
from holdfast.worker.runner_slots import RunnerSlots, SlotTable
from holdfast.worker.wakeups import Wakeups

# What the desk does next: a pure decision. The desk takes a snapshot of its parts, asks `next_step`, and does that.
# Instants are monotonic, and `now` is one of the values.


class Do(Enum):
    """Steps that need no details."""

    VERIFY = auto()  # find out whether a success was committed that a handler recorded itself
    REPORT_CRASHES = auto()  # attempts ended with their process
    RECOVER_CLAIM = auto()  # find out what a claim took whose reply was lost
    EXPIRE = auto()  # cancel jobs that were given back because they expired
    RECORD = auto()  # send outcomes, and delete spent leases, without claiming anything
    WAIT = auto()  # nothing to do before `deadline`, or until somebody rings


class LookFor(NamedTuple):
    """Look for work for these runners, by number. Outcomes are recorded with it. How many jobs to claim is decided when
    each claim is made: the first may use up the budget that the second would have had."""

    runners: tuple[int, ...]


NextStep = Do | LookFor


class RunnerState(msgspec.Struct, frozen=True):
    """One runner that jobs are claimed for."""

    number: int
    room: bool = True  # it could take a job now
    wants_look: bool = False  # a look was asked for, and its time has come
    found_jobs: bool = False  # the last look found some


class DeskState(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    runners: tuple[RunnerState, ...] = ()
    # To record
    outcomes: bool = False
    to_verify: bool = False
    crashes_at: float | None = None  # when to report the crashes that there are
    unknown_claims: bool = False
    expired_jobs: bool = False
    urgent_leases: bool = False  # spent leases to delete now
    spent_leases: bool = False  # those that can wait for another round trip
    one_by_one: bool = False  # the database refused one of the outcomes, and we don't know which
    database_away: bool = False  # so it was the last time
    # To claim
    claiming: bool = True
    budget: int | None = None
    not_before: float = 0.0  # a pause between jobs

    @property
    def has_room(self) -> bool:
        return any(runner.room for runner in self.runners)

    @property
    def may_claim(self) -> bool:
        """Whoever can't get rid of outcomes claims nothing new: that is the worker's back-pressure."""
        outcomes_stuck = self.one_by_one or (self.database_away and self.outcomes)
        return self.claiming and self.budget != 0 and not outcomes_stuck


def next_step(state: DeskState) -> NextStep:
    if state.to_verify:
        return Do.VERIFY
    if state.crashes_at is not None and state.crashes_at <= state.now:
        return Do.REPORT_CRASHES
    if state.unknown_claims:
        return Do.RECOVER_CLAIM
    if state.expired_jobs and not state.outcomes:  # those that expired must be in the queue again to be found there
        return Do.EXPIRE
    if runners := _runners_to_look_for(state):
        return LookFor(runners)
    if state.outcomes or state.urgent_leases or (state.spent_leases and not state.claiming):
        return Do.RECORD
    return Do.WAIT


def _runners_to_look_for(state: DeskState) -> tuple[int, ...]:
    if not state.may_claim or state.now < state.not_before:
        return ()
    # If there are outcomes to record, look again where there was work the last time: it costs no round trip of its
    # own, and one of several wake-ups may have been coalesced with another.
    return tuple(
        runner.number
        for runner in state.runners
        if runner.room and (runner.wants_look or (state.outcomes and runner.found_jobs))
    )


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """When the desk has to do something that it need not do yet."""

    look_at: float | None = None  # by its own account
    due_at: float | None = None  # because a job falls due
    reserve_at: float | None = None  # look at lanes that a peer was to look at first
    wake_peers_at: float | None = None
    unblock_at: float | None = None  # send an outcome again whose row was locked
    late_at: float | None = None  # give back jobs that have waited too long for a slot


def deadline(state: DeskState, timers: Timers, *, has_peers: bool) -> float | None:
    """When the desk has to stop waiting; None: only when somebody rings."""
    looks = [at for at in (timers.look_at, timers.due_at) if at is not None]
    if not state.has_room and not has_peers:
        looks = []  # a full worker has nothing to look for, and nobody to tell of it
    looks = [max(at, state.not_before) for at in looks]
    if state.not_before > state.now and any(runner.room and runner.wants_look for runner in state.runners):
        looks.append(state.not_before)  # that look is only put off
    others = (timers.reserve_at, timers.wake_peers_at, timers.unblock_at, timers.late_at, state.crashes_at)
    return min([*looks, *(at for at in others if at is not None)], default=None)


class Desk:
    def __init__(
        self, worker: str, store: Store, settings: Settings, queues: tuple[str, ...] | None, *,
        connection_broke: Callable[[], None] = lambda: None, bell: Bell | None = None,
    ) -> None:  # fmt: skip
        """`connection_broke` is called if a connection ended under a request."""
        self._worker = worker
        self._store = store
        self._bell = bell = bell or Bell()
        self.mandate = mandate = Mandate()
        self.meters = meters = Meters()
        self.slots = slots = SlotTable()
        self.in_flight = InFlight()
        suspects = Suspects()
        self.outbox = outbox = Outbox(worker, store, self.in_flight, meters, quarantine_after=settings.quarantine_after)
        self.claims = claims = Claims(
            worker, queues, settings.lease, slots, self.in_flight, outbox, mandate,
            prefetch=not settings.after_job_delay, most=settings.claim_size,
        )  # fmt: skip
        self.poller = poller = Poller(slots, Peers(store, claims), VainWakeups(store.reads.newest), settings.backoff)
        self.wakeups = Wakeups(poller, slots, bell)
        self.intake = Intake(slots, self.in_flight, outbox, suspects, FilterPauses(store), mandate)
        self.ended = EndedAttempts(
            slots, outbox, suspects, poller, mandate, meters, bell, pause=settings.after_job_delay
        )
        self._exchange = Exchange(
            store, outbox, claims, self.intake, self.ended, poller, mandate, meters,
            OutcomeEvents(worker, self.in_flight),
        )  # fmt: skip
        self._patience = Patience(
            worker, store.shown_url, outbox, claims, poller, mandate, meters, bell,
            connection_broke=connection_broke,
        )  # fmt: skip

    def add(self, runner: Runner) -> None:
        """Claim jobs for this runner."""
        self.slots.add(runner)

    def add_isolated(self, runner: Runner) -> None:
        """Run suspects there, each in a process of its own."""
        self.slots.add_isolated(runner)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """One turn of the loop. False: there was nothing to do, so `wait`."""
        self.wakeups.handle()
        self.ended.collect()
        now = self.meters.turned = time.monotonic()
        self.intake.give_back_late(now)
        self.poller.tick(now)
        step = next_step(self._state(now))
        if isinstance(step, LookFor):
            self._patience.attempt(lambda: self._look([self.slots[number] for number in step.runners]))
        elif step is Do.VERIFY:
            self._patience.attempt(self.outbox.verify)
        elif step is Do.REPORT_CRASHES:
            self._patience.attempt(self._report_crashes, poll=False)
        elif step is Do.RECOVER_CLAIM:
            self._patience.attempt(self._recover_claim, poll=False)
        elif step is Do.EXPIRE:
            self._patience.attempt(self._expire, poll=False)
        elif step is Do.RECORD:
            self._patience.attempt(self._exchange.run)
        return step is not Do.WAIT

    def wait(self, longest: float | None = None) -> None:
        """Until an attempt ends, a wake-up arrives, or it is time for something."""
        now = self.meters.turned = time.monotonic()
        until = deadline(self._state(now), self._timers(), has_peers=self.poller.peers.exist)
        seconds = longest
        if until is not None:
            left = max(0.0, until - now)
            seconds = left if seconds is None else min(seconds, left)
        self._bell.wait(seconds)

    def _state(self, now: float) -> DeskState:
        outbox, leases = self.outbox, self.outbox.spent_leases
        return DeskState(
            now=now,
            runners=tuple([self._runner_state(slots, now) for slots in self.slots]),
            outcomes=bool(outbox.outcomes),
            to_verify=bool(outbox.to_verify),
            crashes_at=outbox.crashes_at if outbox.crashes else None,
            unknown_claims=bool(self.claims.unknown),
            expired_jobs=self.ended.any_expired,
            urgent_leases=bool(leases.urgent),
            spent_leases=bool(leases.waiting),
            one_by_one=outbox.one_by_one,
            database_away=self._patience.failures > 0,
            claiming=self.mandate.claiming,
            budget=self.mandate.budget,
            not_before=self.poller.not_before,
        )

    def _runner_state(self, slots: RunnerSlots, now: float) -> RunnerState:
        return RunnerState(
            number=slots.number,
            room=not self.claims.is_full(slots),
            wants_look=slots.wants_look(now),
            found_jobs=slots.found_jobs,
        )

    def _timers(self) -> Timers:
        reserves = [slots.reserve[0][0] for slots in self.slots if slots.reserve and not self.claims.is_full(slots)]
        return Timers(
            look_at=self.poller.look_at,
            due_at=self.poller.due_at,
            reserve_at=min(reserves, default=None),
            wake_peers_at=self.poller.peers.wake_all_at,
            unblock_at=min([at for at, _ in self.outbox.blocked], default=None),
            late_at=self.intake.next_late_at(),
        )

    # -- the steps -----------------------------------------------------------------------------------------------------

    def _look(self, looking: list[RunnerSlots]) -> None:
        """Claim for each of these runners. The first round trip also records outcomes."""
        self.poller.begin(looking)
        for number, slots in enumerate(looking):
            if number and not self._state(time.monotonic()).may_claim:
                break  # the claim before has used up the budget, or its outcomes were refused
            if (claim := self.claims.make(slots)) is not None:
                try:
                    self._exchange.run(claim, self._follow_up)
                except BaseException:
                    slots.look_everywhere = True
                    self.poller.nothing_due = False
                    raise
        if self.poller.in_vain(time.monotonic()):
            events.emit("woken_in_vain", worker=self._worker, longest=LONGEST_REST)

    def _follow_up(self, slots: RunnerSlots, at_least: int) -> RunnerClaim | None:
        """The next claim, if looking for this runner alone is what we would do next anyway."""
        now = time.monotonic()
        self.poller.tick(now)
        if next_step(self._state(now)) != LookFor((slots.number,)):
            return None
        claim = self.claims.make(slots, at_least)
        if claim is not None:
            self.poller.nothing_due = len(self.slots) == 1
        return claim

    def _report_crashes(self) -> None:
        self.outbox.report_crashes()
        self.poller.work_came()

    def _recover_claim(self) -> None:
        """The reply to a claim was lost. If it did happen, its jobs are ours to run, or to give back."""
        asked_at = time.monotonic()
        claimed = self._store.claim_of(self.claims.unknown[0])
        jobs = self.intake.recover(claimed)
        self.claims.unknown.pop(0)
        self.intake.take_recovered(jobs, asked_at)

    def _expire(self) -> None:
        """Jobs that were given back because they expired are queued again. The database's clock has the last word."""
        expire(self._store)
        self.ended.any_expired = False

    # -- for the worker ------------------------------------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Does it hear wake-ups, and have a free slot?"""
        return self.poller.listening and self.mandate.claiming and self.claims.has_room()

    @property
    def found_all(self) -> bool:
        """The last look found nothing due, and no suspect that this worker put off comes again."""
        return self.poller.nothing_due and time.monotonic() > self.intake.suspects_due_until

    def idle(self) -> bool:
        """Nothing is in flight, and nothing is left to record."""
        if self.in_flight or self.ended or self.outbox or self.ended.any_expired or self.claims.unknown:
            return False
        return self.mandate.claiming or not self.outbox.spent_leases.waiting

    def undecided(self) -> list[Attempt]:
        """The attempts in flight that have not ended."""
        self.ended.collect()
        decided = self.outbox.decided()
        return [a for a in self.in_flight.attempts() if Ref(a.held.id, a.held.fence) not in decided]
