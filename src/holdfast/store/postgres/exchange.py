"""A worker's connection for exchanges. One message holds the claim and the outcomes, each a transaction of its own. The
claim comes first, and its jobs are handed out while the server still records the outcomes. So no job waits until others
are on disk, and neither of the two fails because of the other. Where exchanges overlap, they use two connections."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, cast

import psycopg
from msgspec.structs import replace

from holdfast.errors import StoreError
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.outcome import Outcome
from holdfast.store.columns import CLAIMED
from holdfast.store.exchange import Exchanged, by_fence, by_verb, goes_on, may_be_lost, with_output, with_progress
from holdfast.store.pool import ConnectionPool
from holdfast.store.postgres.claim_floors import SLACK, ClaimFloors, LaneFloors, NarrowLook
from holdfast.store.postgres.codec import numbers
from holdfast.store.postgres.connect import Connection, translate, translated
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.pipeline import Pipeline, Statement
from holdfast.store.statements import source

ENDINGS = ("fail", "reschedule", "release", "park", "stop")
SUCCESSES = ("progress", "succeed", "succeed_with", "output", "drop_leases")
CLAIMS = ("claim", "claim_lane", "floors")

Numbered = tuple[bytes, tuple[str, ...]]  # a statement with its parameters by number, and their names in that order
Recording = list[tuple[list[Outcome], Statement]]  # which outcomes each statement records


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as it is sent. `look`: it goes by these floors, and a second statement reports the next ones."""

    wants: Wants
    floors: LaneFloors
    look: NarrowLook | None
    began: float
    statements: list[Statement]


@dataclass(slots=True)
class UnderWay:
    """A trip whose answers have not all been read. `again`: its claim took nothing, as others have many jobs locked,
    and is to be made once more from all lanes."""

    claim: Claim | None
    recording: Recording
    line: Pipeline  # where that is sent
    done: Exchanged
    again: bool = False


class Trip(Pipeline):
    """The exchanges of one worker, one after the other. The next may be sent as soon as the claim of the last one is
    answered, so that the server doesn't have to wait for us."""

    overlaps = True

    def __init__(
        self, connection: Connection, statements: Mapping[str, Numbered], *, where: str, prepare: bool,
        clock: Callable[[], datetime] | None, floors: ClaimFloors, is_recorded: Callable[[Outcome], bool],
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
        self._floors = floors
        self._is_recorded = is_recorded
        self._under_way: deque[UnderWay] = deque()

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        # Everything is encoded before anything is sent: a value that can't be sent leaves no half-sent message.
        claim = None if wants is None or wants.limit + wants.ahead <= 0 else self._claim(wants)
        recording = [*self._recording(finished), *self._dropping(drained)]
        line = self._where_to_record() if self._under_way and recording else self
        with translated(self._where, self.connection):
            self._under_way.append(UnderWay(claim, recording, line, Exchanged()))
            if claim is not None:
                self.send(claim.statements)
            if recording:
                line.send(statement for _, statement in recording)
            self.flush()
        if line is not self:
            with translated(self._where, line.connection):
                line.flush()

    def _where_to_record(self) -> Pipeline:
        """Where exchanges overlap, outcomes have a connection of their own, so the server records them while it serves
        the claim. A worker opens it when it is that busy for the first time, and keeps it."""
        if not any(trip.line is self._aside for trip in self._under_way):
            self._close_aside()
        if self._aside is None:
            try:
                self._aside = self._open_aside()
            except StoreError:
                return self  # no second connection can be had for now
        return self._aside

    def _close_aside(self) -> None:
        """Close the second connection, unless it is in order and no answers are outstanding."""
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
                claim = self._claim(trip.claim.wants, everywhere=True)
                self.send(claim.statements)
                self.flush()
                self._claimed(claim, done)
        return done

    def abandon(self) -> None:
        """Nobody waits for the exchanges under way any more."""
        if self._under_way:
            self._under_way.clear()
            self._close_aside()

    def close(self) -> None:
        if self._aside is not None:
            self._aside.close()
        super().close()

    def _claimed(self, claim: Claim, done: Exchanged, *, only: bool = False) -> bool:
        """Read what a claim brought. True: it is to be made again. What the server refuses is noted beside what else
        was sent, or raised if this is the only thing."""
        try:
            results = self.answer()
        except psycopg.Error as error:
            if only or not self.in_step(error):
                raise
            done.refused = translate(self._where, error)
            return False
        done.claimed = claimed(claim.wants.fence, self.rows(results[0]))
        if claim.look is not None:
            [(left,)] = self.rows(results[1])
            claim.floors.looked(claim.look, json.loads(left or b"[]"))
            due, wait = done.claimed.next_due, claim.floors.wait(claim.look)
            done.claimed = replace(done.claimed, next_due=wait if due is None else min(due, wait))
            return not claim.wants.told and claim.floors.needs_everywhere(done.claimed)
        if not claim.wants.told and not claim.wants.thorough:
            claim.floors.looked_everywhere(claim.wants, monotonic() - claim.began)
        return False

    def _statement(self, name: str, **parameters: Any) -> Statement:
        if self._clock is not None:
            parameters["now"] = self._clock()
        return name, self.encoded(parameters[parameter] for parameter in self._names_of[name])

    def _claim(self, wants: Wants, *, everywhere: bool = False) -> Claim:
        floors = self._floors.of(wants)
        look = None if wants.thorough or (everywhere and not wants.told) else self._floors.next(floors, wants)
        if look is not None:
            statements = [
                self._statement("claim", **wanted(wants, look)), self._statement("floors", **given_lanes(look)),
            ]  # fmt: skip
        elif len(wants.told) == 1:
            statements = [self._statement("claim_lane", **lane_wanted(wants))]
        else:
            statements = [self._statement("claim", **wanted(wants))]
        return Claim(wants, floors, look, monotonic(), statements)

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
                    self._floors.given_back()
        elif state != "paused":
            done.cancelled += goes_on(outcome)
            if awaited:
                done.awaited.append(outcome.id)

    def _look_up(self, doubtful: Sequence[Outcome], done: Exchanged) -> None:
        """An outcome that changed no row is not always lost: it may have been recorded before, and the reply lost."""
        for outcome in doubtful:
            (done.already if self._is_recorded(outcome) else done.lost).append(outcome)


def lane_wanted(wants: Wants) -> dict[str, Any]:
    """The parameters of a claim from the one lane that a worker was told of."""
    queue, task, priority = wants.told[0]
    return {
        "fence": wants.fence, "worker": wants.worker, "lease": wants.lease, "held": wants.held,
        "limit": wants.limit, "n": wants.limit + wants.ahead, "queue": queue, "task": task, "priority": priority,
    }  # fmt: skip


def wanted(wants: Wants, look: NarrowLook | None = None) -> dict[str, Any]:
    """The parameters of any other claim: from all lanes, from those it was told of, or from floors on."""
    n = wants.limit + wants.ahead
    given = look or NarrowLook(dict.fromkeys(wants.told, -math.inf), 0.0)
    everywhere = look is None and not wants.told
    return {
        "fence": wants.fence,
        "worker": wants.worker,
        "lease": wants.lease,
        "held": wants.held,
        "limit": wants.limit,
        "n": n,
        "reach": n + n // 2 + 16,  # others may lock some of the first in the meantime
        "tasks": list(wants.tasks),
        "queues": (None if wants.queues is None else list(wants.queues)) if everywhere else [],
        **given_lanes(given),
    }


def given_lanes(look: NarrowLook) -> dict[str, Any]:
    """The parameters of given.sql."""
    queues, tasks, priorities = zip(*look.floors, strict=True) if look.floors else ((), (), ())
    return {
        "lane_queues": list(queues),
        "lane_tasks": list(tasks),
        "lane_priorities": numbers(priorities),
        "lane_floors": numbers(floor - SLACK for floor in look.floors.values()),
    }


def claimed(fence: str, rows: list[tuple[Any, ...]]) -> Claimed:
    next_due, more, passed, filter_version = rows.pop()[len(CLAIMED) :]
    return Claimed([claimed_job(fence, row) for row in rows], next_due, more, passed, filter_version)


def claimed_job(fence: str, row: tuple[Any, ...]) -> ClaimedJob:
    return ClaimedJob(row[0], fence, *row[1 : len(CLAIMED)])


def _ending(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "id": outcome.id,
        "fence": outcome.fence,
        "outcome": outcome.attempt,
        "delay": outcome.delay,
        "error_code": error and error.code,
        "error_message": error and error.message,
        "error_fingerprint": error and error.fingerprint,
        "traceback": error and error.traceback,
        "output": outcome.output,
        "held_by": outcome.held_by,
    }


# Opens the connections that workers' trips go by, and keeps those that are free.


class PostgresExchange:
    def __init__(self, db: PostgresDatabase) -> None:
        self._db = db
        self.pool: ConnectionPool[Trip] = ConnectionPool(self._open_trip, Trip.usable, Trip.usable)
        self.floors = ClaimFloors(db.transaction)

    @contextmanager
    def trips(self) -> Iterator[Trip]:
        with self.pool.use() as trip:
            try:
                yield trip
            finally:
                trip.abandon()

    def _is_recorded(self, outcome: Outcome) -> bool:
        return bool(self._db.read("recorded", id=outcome.id, fence=outcome.fence))

    def claim_of(self, fence: str) -> Claimed:
        with self._db.use() as connection:
            lease = {"fence": fence, "lease": self._db.settings.lease}
            if self._db.rows(connection, self._db.statements["burn"], lease):
                return Claimed()
            rows = self._db.execute(connection, self._db.statements["claim_of"], {"fence": fence}).fetchall()
        return Claimed([claimed_job(fence, row) for row in rows])

    def close(self) -> None:
        self.floors.close()
        self.pool.close()

    # -- connections -------------------------------------------------------------------------------------------------

    def _open_trip(self) -> Trip:
        texts = {verb: self.with_history(verb) for verb in ENDINGS} | {
            name: self._db.statements[name] for name in (*CLAIMS, *SUCCESSES)
        }
        statements = {name: self._db.numbered(text) for name, text in texts.items()}
        self.floors.forget()
        return self._db.begin(
            self._db.connect(),
            lambda connection: Trip(
                connection, statements, where=self._db.shown_url, prepare=self._db.settings.prepare,
                clock=self._db.clock, floors=self.floors, is_recorded=self._is_recorded, open_aside=self._open_aside,
            ),
        )  # fmt: skip

    def _open_aside(self, statements: Mapping[str, bytes]) -> Pipeline:
        return self._db.begin(
            self._db.connect(), lambda connection: Pipeline(connection, statements, prepare=self._db.settings.prepare)
        )

    def with_history(self, verb: str) -> str:
        """The verb's update and the row that it adds to the history, as one statement."""
        return self._db.statements.fill(
            f"with ended as ({source('postgres', verb)}), history as ("  # noqa: S608 - our own files
            "insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, error_code, "
            "error_message, traceback, output) select id, :fence::uuid, life, number, worker, :outcome, started_at, "
            "@clock, error_code, error_message, :traceback, :output from ended where :outcome::text is not null "
            "on conflict (job_id, fence) do nothing) select state, queue, awaited from ended"
        )
