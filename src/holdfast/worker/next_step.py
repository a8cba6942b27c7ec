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
