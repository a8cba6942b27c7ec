"""What the desk does next: a pure decision. The desk takes a snapshot of its parts, asks `next_step`, and does that.
Instants are monotonic, and `now` is one of the values."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

import msgspec


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
    reserve_at: float | None = None  # when to look at lanes that a peer was to look at first


class DeskState(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    runners: tuple[RunnerState, ...] = ()
    # To record
    outcomes: bool = False
    to_verify: bool = False
    crashes_at: float | None = None  # when to report the crashes that there are
    blocked_until: float | None = None  # when to send the next outcome again whose row was locked
    unknown_claims: bool = False
    expired_jobs: bool = False
    urgent_leases: bool = False  # spent leases to delete now
    spent_leases: bool = False  # those that can wait for another round trip
    one_by_one: bool = False  # the database refused one of the outcomes, and we don't know which
    database_away: bool = False  # so it was the last time
    # To claim
    claiming: bool = True
    budget: int | None = None
    not_before: float = 0.0
    look_at: float | None = None
    due_at: float | None = None
    has_peers: bool = False
    wake_peers_at: float | None = None
    late_at: float | None = None  # when jobs have waited too long for a slot, and are given back

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


def deadline(state: DeskState) -> float | None:
    """When the desk has to stop waiting; None: only when somebody rings."""
    looks = [at for at in (state.look_at, state.due_at) if at is not None]
    if not state.has_room and not state.has_peers:
        looks = []  # a full worker has nothing to look for, and nobody to tell of it
    looks = [max(at, state.not_before) for at in looks]
    if state.not_before > state.now and any(runner.room and runner.wants_look for runner in state.runners):
        looks.append(state.not_before)  # that look is only put off
    looks += [runner.reserve_at for runner in state.runners if runner.room and runner.reserve_at is not None]
    others = (state.wake_peers_at, state.blocked_until, state.crashes_at, state.late_at)
    return min([*looks, *(at for at in others if at is not None)], default=None)
