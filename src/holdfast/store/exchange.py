"""A worker's trip to the database: outcomes are recorded and jobs claimed. The values of one, and what both databases
share in recording outcomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.errors import StoreError
from holdfast.model.job import Claimed, Wants
from holdfast.model.outcome import Outcome, Verb
from holdfast.store.columns import JobId


class Ref(NamedTuple):
    """The right to end an attempt: a job and the fence it was claimed with."""

    id: JobId
    fence: str


class Exchanged(msgspec.Struct):
    """The result of one trip: what was claimed; which outcomes were lost, because their lease is gone, and which had
    already been recorded; which of the finished jobs somebody waits for; and in which queues jobs wait again.
    `refused`: why nothing was claimed, though the outcomes were recorded. `cancelled`: how many jobs were to continue
    later, but ended because people had asked for that."""

    claimed: Claimed = msgspec.field(default_factory=Claimed)
    refused: StoreError | None = None
    lost: list[Outcome] = []  # msgspec copies these for each
    already: list[Outcome] = []
    awaited: list[JobId] = []
    requeued: set[str] = msgspec.field(default_factory=set)
    cancelled: int = 0


class Trips(Protocol):
    """Trips of a worker to the database. Each records outcomes, all or none, and claims what is wanted: in one
    transaction, or the claim first, in its own."""

    @property
    def overlaps(self) -> bool:
        """May the next trip depart when the claim of the last one was answered, but its outcomes were not?"""

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        """Send a trip. `drained`: fences without running jobs, whose leases can go."""

    def claimed(self) -> Claimed | None:
        """What the oldest trip in flight has claimed for sure. None: not known yet, it comes with the rest."""

    def recorded(self) -> Exchanged:
        """The rest of the result of the oldest trip in flight, which ends it."""


class Exchange(Protocol):
    def trips(self) -> AbstractContextManager[Trips]:
        """A connection for trips, for the caller alone."""

    def claim_of(self, fence: str) -> Claimed:
        """What a claim took whose reply was lost. If it took nothing, it never will."""

    def close(self) -> None: ...


def exchange(trips: Trips, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> Exchanged:
    """One trip."""
    trips.depart(finished, wants, drained)
    trips.claimed()
    return trips.recorded()


def by_verb(outcomes: Sequence[Outcome]) -> dict[Verb, list[Outcome]]:
    groups: dict[Verb, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.verb, []).append(outcome)
    return groups


def by_fence(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome], list[Outcome]]]:
    """Successes by fence, those without a result apart: they have a shorter statement."""
    groups: dict[str, tuple[list[Outcome], list[Outcome]]] = {}
    for outcome in outcomes:
        group = groups.get(outcome.fence)
        if group is None:
            group = groups[outcome.fence] = ([], [])
        group[outcome.result is not None].append(outcome)
    return ((fence, plain, results) for fence, (plain, results) in groups.items())


def with_progress(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """The parameters of `progress` for outcomes whose handlers reported some: it is written before the outcome."""
    for outcome in outcomes:
        if outcome.progress is not None:
            done, total, note = outcome.progress
            yield {"id": outcome.id, "fence": outcome.fence, "done": done, "total": total, "note": note, "rate": None}


def with_output(succeeded: Sequence[Outcome]) -> list[Outcome]:
    """Those with output to keep."""
    return [outcome for outcome in succeeded if outcome.output is not None]


def goes_on(outcome: Outcome) -> bool:
    """Does the job continue after this, unless people have asked otherwise?"""
    return outcome.verb in ("reschedule", "release", "park")


def may_be_lost(outcome: Outcome) -> bool:
    """Releasing a job that never started loses nothing, whoever has it now: there is no handler to stop, no result to
    drop and, after a lost reply, no history to find it in."""
    return outcome.verb != "release" or outcome.attempt is not None
