"""A worker's connection. One message holds the claim and the outcomes, each a transaction of its own: the claim comes
first, and what it brought is handed out while the server still records the outcomes. So no job waits until others are
on disk, and neither of the two fails for something in the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import psycopg

from holdfast.model.job import Claimed, Held, Wants
from holdfast.model.outcome import Outcome
from holdfast.store.base import Exchanged, HandOut, by_fence, by_verb, may_be_lost, with_output
from holdfast.store.postgres.connect import Connection, translate
from holdfast.store.postgres.line import Line, Statement

ENDINGS = ("fail", "reschedule", "release", "park", "stop")
OTHERS = (
    "claim", "claim_switched", "claim_from", "claim_from_switched", "succeed", "succeed_with", "output", "drop_leases",
    "recorded",
)  # fmt: skip

Numbered = tuple[bytes, tuple[str, ...]]  # a statement with its parameters by number, and their names in that order
Recording = list[tuple[list[Outcome], Statement]]  # which outcomes each statement records


class Trip(Line):
    def __init__(
        self, connection: Connection, statements: Mapping[str, Numbered], *, where: str, prepare: bool,
        clock: Callable[[], datetime] | None,
    ) -> None:  # fmt: skip
        super().__init__(connection, {name: text for name, (text, _) in statements.items()}, prepare=prepare)
        self._names_of = {name: names for name, (_, names) in statements.items()}
        self._where = where
        self._clock = clock
        self._switched = False  # pauses by filter stood when we last looked

    def exchange(
        self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str], hand_out: HandOut | None
    ) -> Exchanged:
        done = Exchanged()
        past_pauses = self._switched
        # All of it is made before any of it is sent: a value that can't be sent stops nothing half-way.
        claim = [] if wants is None or wants.limit + wants.ahead <= 0 else [self._claim(wants)]
        recording = [*self._recording(finished), *self._dropping(drained)]
        if claim:
            self.send(claim)
        if recording:
            self.send(statement for _, statement in recording)
        self.flush()
        if claim and wants is not None:
            try:
                done.claimed = claimed(wants.fence, self.rows(self.answer()[0]))
            except psycopg.Error as error:
                if not recording or not self.in_step(error):
                    raise
                done.refused = translate(self._where, error)
            else:
                self._switched = done.claimed.switched
                if hand_out is not None and (past_pauses or not self._switched):
                    hand_out(done.claimed)
        if recording:
            self._recorded(recording, done)
        if wants is not None and self._switched and not past_pauses:
            self._claim_past_pauses(wants, done, hand_out)
        return done

    def _claim_past_pauses(self, wants: Wants, done: Exchanged, hand_out: HandOut | None) -> None:
        """Pauses by filter stand, as the claim found that took nothing for them."""
        self.send([self._claim(wants)])
        self.flush()
        try:
            done.claimed = claimed(wants.fence, self.rows(self.answer()[0]))
        except psycopg.Error as error:
            if not self.in_step(error):
                raise
            done.refused = translate(self._where, error)
        else:
            self._switched = done.claimed.switched
            if hand_out is not None:
                hand_out(done.claimed)

    def _statement(self, name: str, **parameters: Any) -> Statement:
        if self._clock is not None:
            parameters["now"] = self._clock()
        return name, self.encoded(parameters[parameter] for parameter in self._names_of[name])

    def _claim(self, wants: Wants) -> Statement:
        name = ("claim_from" if wants.told else "claim") + "_switched" * self._switched
        return self._statement(name, **wanted(wants))

    def _recording(self, finished: Sequence[Outcome]) -> Iterator[tuple[list[Outcome], Statement]]:
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

    def _recorded(self, recording: Recording, done: Exchanged) -> None:
        doubtful: list[Outcome] = []
        for (outcomes, (name, _)), result in zip(recording, self.answer(), strict=True):
            rows = self.rows(result)
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
            done.requeued.add(queue)
        elif awaited and state != "paused":
            done.awaited.append(outcome.id)

    def _look_up(self, doubtful: Sequence[Outcome], done: Exchanged) -> None:
        """Not changed is not always lost: it may have been recorded before, and the reply was lost."""
        if doubtful:
            self.send(self._statement("recorded", id=outcome.id, fence=outcome.fence) for outcome in doubtful)
            self.flush()
            for outcome, result in zip(doubtful, self.answer(), strict=True):
                (done.already if result.ntuples else done.lost).append(outcome)


def wanted(wants: Wants) -> dict[str, Any]:
    """The parameters of claim and claim_from."""
    n = wants.limit + wants.ahead
    queues, tasks, priorities = zip(*wants.told, strict=True) if wants.told else ((), (), ())
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
    }


def claimed(fence: str, rows: list[tuple[Any, ...]]) -> Claimed:
    next_due, more, passed, alone, hold_back, switched = rows.pop()[9:]
    return Claimed([held(fence, row) for row in rows], next_due, more, passed, alone, hold_back, switched)


def held(fence: str, row: tuple[Any, ...]) -> Held:
    id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id = row[:9]
    return Held(id, fence, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id)


def numbers(values: Iterable[Any]) -> str:
    """An array of numbers or UUIDs as PostgreSQL writes it: one parameter of one type, whatever its length."""
    return "{" + ",".join(map(str, values)) + "}"


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
    }
