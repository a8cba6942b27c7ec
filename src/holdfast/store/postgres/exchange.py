"""A worker's connection. One message holds the claim and the outcomes, each a transaction of its own: the claim comes
first, and what it brought is handed out while the server still records the outcomes. So no job waits until others are
on disk, and neither of the two fails for something in the other. Where trips overlap they go by two connections."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, cast

import psycopg
from msgspec.structs import replace

from holdfast.errors import StoreError
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.outcome import Outcome
from holdfast.store.exchange import Exchanged, by_fence, by_verb, goes_on, may_be_lost, with_output, with_progress
from holdfast.store.postgres.claim_floors import SLACK, ClaimFloors, Recent
from holdfast.store.postgres.codec import numbers
from holdfast.store.postgres.connect import Connection, translate, translated
from holdfast.store.postgres.floor_surveys import Surveys
from holdfast.store.postgres.pipeline import Pipeline, Statement

ENDINGS = ("fail", "reschedule", "release", "park", "stop")
SUCCESSES = ("progress", "succeed", "succeed_with", "output", "drop_leases")
CLAIMS = ("claim", "claim_lane", "claim_from", "claim_recent")

Numbered = tuple[bytes, tuple[str, ...]]  # a statement with its parameters by number, and their names in that order
Recording = list[tuple[list[Outcome], Statement]]  # which outcomes each statement records


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is sent. `look`: from these floors on."""

    wants: Wants
    looks: ClaimFloors
    look: Recent | None
    began: float
    statement: Statement


@dataclass(slots=True)
class UnderWay:
    """A trip whose answers were not all read yet. `again`: its claim took nothing, and is to be made once more."""

    claim: Claim | None
    recording: Recording
    line: Pipeline  # where that is sent
    done: Exchanged
    again: bool = False


class Trip(Pipeline):
    """Trips of one worker, one after the other: the next may depart as soon as the claim of the last one is answered,
    so that the server need not wait for us."""

    overlaps = True

    def __init__(
        self, connection: Connection, statements: Mapping[str, Numbered], *, where: str, prepare: bool,
        clock: Callable[[], datetime] | None, surveys: Surveys, is_recorded: Callable[[Outcome], bool],
        open_aside: Callable[[Mapping[str, bytes]], Pipeline],
    ) -> None:  # fmt: skip
        texts = {name: text for name, (text, _) in statements.items()}
        super().__init__(connection, texts, prepare=prepare)
        self._open_aside: Callable[[], Pipeline] = lambda: open_aside(
            {name: texts[name] for name in (*ENDINGS, *SUCCESSES)}
        )
        self._aside: Pipeline | None = None
        self._names_of = {name: names for name, (_, names) in statements.items()}
        self._where = where
        self._clock = clock
        self._surveys = surveys
        self._is_recorded = is_recorded
        self._under_way: deque[UnderWay] = deque()

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        # All of it is made before any of it is sent: a value that can't be sent stops nothing half-way.
        claim = None if wants is None or wants.limit + wants.ahead <= 0 else self._claim(wants)
        recording = [*self._recording(finished), *self._dropping(drained)]
        line = self._where_to_record() if self._under_way and recording else self
        with translated(self._where, self.connection):
            self._under_way.append(UnderWay(claim, recording, line, Exchanged()))
            if claim is not None:
                self.send([claim.statement])
            if recording:
                line.send(statement for _, statement in recording)
            self.flush()
        if line is not self:
            with translated(self._where, line.connection):
                line.flush()

    def _where_to_record(self) -> Pipeline:
        """Where trips overlap, outcomes have a connection to themselves: the server records them while it serves the
        claim. A worker opens it when it is that busy for the first time, and keeps it."""
        if not any(trip.line is self._aside for trip in self._under_way):
            self._close_aside()
        if self._aside is None:
            try:
                self._aside = self._open_aside()
            except StoreError:
                return self  # as long as there are no more to be had
        return self._aside

    def _close_aside(self) -> None:
        """Unless it is in order, and owes no answers."""
        if self._aside is not None and not self._aside.usable():
            self._aside.close()
            self._aside = None

    def claimed(self) -> Claimed | None:
        trip = self._under_way[0]
        if trip.claim is None:
            return Claimed()
        with translated(self._where, self.connection):
            trip.again = self._claimed(trip.claim, trip.done, only=not trip.recording)
        return None if trip.again or trip.done.refused is not None else trip.done.claimed

    def recorded(self) -> Exchanged:
        trip = self._under_way.popleft()
        done = trip.done
        if trip.recording:
            with translated(self._where, trip.line.connection):
                self._recorded(trip.line, trip.recording, done)
        with translated(self._where, self.connection):
            if trip.claim is not None and trip.again:
                assert not self._under_way, "nothing follows a claim that took nothing"
                claim = self._claim(trip.claim.wants, everywhere=done.claimed.more)
                self.send([claim.statement])
                self.flush()
                self._claimed(claim, done)
        return done

    def abandon(self) -> None:
        """Nobody waits for what is under way any more."""
        if self._under_way:
            self._under_way.clear()
            self._close_aside()

    def close(self) -> None:
        if self._aside is not None:
            self._aside.close()
        super().close()

    def _claimed(self, claim: Claim, done: Exchanged, *, only: bool = False) -> bool:
        """Read what a claim brought. True: it took nothing because others have many jobs locked, and is to be made once
        more without floors. What the server refuses is noted beside what else was sent, or raised if this is the only
        thing."""
        try:
            rows = self.rows(self.answer()[0])
        except psycopg.Error as error:
            if only or not self.in_step(error):
                raise
            done.refused = translate(self._where, error)
            return False
        newest, lanes = rows[-1][0], rows[-1][3]
        done.claimed = claimed(claim.wants.fence, rows)
        if claim.look is not None:
            claim.looks.looked(claim.wants, claim.look, json.loads(lanes or b"[]"), newest)
            due, wait = done.claimed.next_due, claim.looks.wait(claim.look)
            done.claimed = replace(done.claimed, next_due=wait if due is None else min(due, wait))
        elif not claim.wants.told and not claim.wants.thorough:
            claim.looks.looked_everywhere(claim.wants, monotonic() - claim.began)
        return claim.look is not None and not claim.wants.told and claim.looks.needs_everywhere(done.claimed)

    def _statement(self, name: str, **parameters: Any) -> Statement:
        if self._clock is not None:
            parameters["now"] = self._clock()
        return name, self.encoded(parameters[parameter] for parameter in self._names_of[name])

    def _claim(self, wants: Wants, *, everywhere: bool = False) -> Claim:
        looks = self._surveys.looks(wants)
        look = None if wants.thorough or (everywhere and not wants.told) else looks.next(wants)
        name = "claim_recent" if look else ("claim", "claim_lane", "claim_from")[min(2, len(wants.told))]
        statement = self._statement(name, **(lane_wanted(wants) if name == "claim_lane" else wanted(wants, look)))
        return Claim(wants, looks, look, monotonic(), statement)

    def _recording(self, finished: Sequence[Outcome]) -> Iterator[tuple[list[Outcome], Statement]]:
        for reached in with_progress(finished):
            yield [], self._statement("progress", **reached)
        for verb, outcomes in by_verb(finished).items():
            if verb != "succeed":
                yield from (([outcome], self._statement(verb, **_ending(outcome))) for outcome in outcomes)
                continue
            for fence, plain, results in by_fence(outcomes):
                if plain:
                    yield plain, self._statement("succeed", ids=numbers(o.id for o in plain), fence=fence)
                if results:
                    texts = [cast(bytes, o.result).decode() for o in results]
                    ids = numbers(o.id for o in results)
                    yield results, self._statement("succeed_with", ids=ids, results=texts, fence=fence)
            for outcome in with_output(outcomes):
                yield [], self._statement("output", id=outcome.id, fence=outcome.fence, output=outcome.output)

    def _dropping(self, fences: Sequence[str]) -> Recording:
        return [([], self._statement("drop_leases", fences=numbers(fences)))] if fences else []

    def _recorded(self, line: Pipeline, recording: Recording, done: Exchanged) -> None:
        doubtful: list[Outcome] = []
        for (outcomes, (name, _)), result in zip(recording, line.answer(), strict=True):
            rows = line.rows(result)
            if name in ENDINGS:
                self._ended(outcomes[0], rows, done, doubtful)
            elif outcomes:
                [(count, awaited)] = rows
                done.awaited += awaited or ()
                if count != len(outcomes):
                    doubtful += outcomes
        self._look_up([outcome for outcome in doubtful if may_be_lost(outcome)], done)

    def _ended(self, outcome: Outcome, rows: list[tuple[Any, ...]], done: Exchanged, doubtful: list[Outcome]) -> None:
        if not rows:
            doubtful.append(outcome)
            return
        [(state, queue, awaited)] = rows
        if state == "queued":
            if queue is not None:  # else it is held
                done.requeued.add(queue)
                if outcome.verb == "release" and not outcome.delay:
                    self._surveys.given_back()
        elif state != "paused":
            done.cancelled += goes_on(outcome)
            if awaited:
                done.awaited.append(outcome.id)

    def _look_up(self, doubtful: Sequence[Outcome], done: Exchanged) -> None:
        """Not changed is not always lost: it may have been recorded before, and the reply was lost."""
        for outcome in doubtful:
            (done.already if self._is_recorded(outcome) else done.lost).append(outcome)


def lane_wanted(wants: Wants) -> dict[str, Any]:
    """The parameters of a claim from one lane."""
    queue, task, priority = wants.told[0]
    return {
        "fence": wants.fence, "worker": wants.worker, "lease": wants.lease, "held": wants.held,
        "limit": wants.limit, "n": wants.limit + wants.ahead, "queue": queue, "task": task, "priority": priority,
    }  # fmt: skip


def wanted(wants: Wants, look: Recent | None = None) -> dict[str, Any]:
    """The parameters of any other claim."""
    n = wants.limit + wants.ahead
    lanes = wants.told if look is None else tuple(look.floors)
    queues, tasks, priorities = zip(*lanes, strict=True) if lanes else ((), (), ())
    recent = {} if look is None else {
        "lane_floors": numbers(floor - SLACK for floor in look.floors.values()), "since": look.since - SLACK,
        "newest": look.newest,
    }  # fmt: skip
    return {
        "fence": wants.fence,
        "worker": wants.worker,
        "lease": wants.lease,
        "held": wants.held,
        "limit": wants.limit,
        "n": n,
        "tasks": list(wants.tasks),
        "queues": None if wants.queues is None else list(wants.queues),
        "reach": n + n // 2 + 16,  # others may lock some of the first in the meantime
        "lane_queues": list(queues),
        "lane_tasks": list(tasks),
        "lane_priorities": numbers(priorities),
        **recent,
    }


def claimed(fence: str, rows: list[tuple[Any, ...]]) -> Claimed:
    next_due, more, passed, filter_version = rows[-1][11:]
    if rows[-1][1] is None:  # it is no job
        rows.pop()
    return Claimed([held(fence, row[:11]) for row in rows], next_due, more, passed, filter_version)


def held(fence: str, row: tuple[Any, ...]) -> ClaimedJob:
    id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id, suspicion, expires_in = row
    return ClaimedJob(
        id, fence, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id, suspicion, expires_in
    )


def _ending(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "id": outcome.id,
        "fence": outcome.fence,
        "outcome": outcome.attempt,
        "delay": outcome.delay,
        "error_code": error and error.code,
        "error_message": error and error.message,
        "traceback": error and error.traceback,
        "output": outcome.output,
        "held_by": outcome.held_by,
    }
