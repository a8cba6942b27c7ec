"""What a worker does to one attempt, under its lease. Every write carries the fence of the claim; no row changed means
that the lease was lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.errors import LeaseLost
from holdfast.model.job import Claimed, Request, Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome, Progress
from holdfast.store.columns import Row
from holdfast.store.engine import Database, UserConnections, Wakeups
from holdfast.store.exchange import Exchange, Ref, exchange


class Attempts:
    def __init__(self, db: Database, exchange: Exchange, wakeups: Wakeups, user_connections: UserConnections) -> None:
        self._db = db
        self._exchange = exchange
        self._wakeups = wakeups
        self._user_connections = user_connections

    # -- how one ends: a worker sends many of these in a trip, here it is one at a time ------------------------------

    def claim(self, wants: Wants) -> Claimed:
        with self._exchange.trips() as trips:
            return exchange(trips, [], wants, ()).claimed

    def succeed(self, ref: Ref, result: bytes | None = None) -> None:
        self._end(Outcome("succeed", ref.id, ref.fence, result=result))

    def fail(self, ref: Ref, error: Error) -> None:
        self._end(Outcome("fail", ref.id, ref.fence, "errored", error=error))

    def reschedule(self, ref: Ref, delay: float, error: Error) -> None:
        self._end(Outcome("reschedule", ref.id, ref.fence, "errored", delay=delay, error=error))

    def release(self, ref: Ref, delay: float = 0.0) -> None:
        self._end(Outcome("release", ref.id, ref.fence, "snoozed" if delay else "released", delay=delay))

    def park(self, ref: Ref) -> None:
        self._end(Outcome("park", ref.id, ref.fence, "parked"))

    def stop(self, ref: Ref, reason: str | None = None) -> None:
        """End it as cancelled; without a reason, with that of whoever asked."""
        error = None if reason is None else Error("CANCELLED", reason)
        self._end(Outcome("stop", ref.id, ref.fence, "cancelled", error=error))

    def _end(self, outcome: Outcome) -> None:
        with self._exchange.trips() as trips:
            done = exchange(trips, [outcome], None, [outcome.fence])
        if done.lost:
            raise self._lost(Ref(outcome.id, outcome.fence), outcome.verb)
        for queue in done.requeued:
            self._wakeups.hint(queue, due_in=outcome.delay)
        self._wakeups.notify(finished=done.awaited)

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        """Record success, fence-checked, on the caller's own open transaction: the effect and the outcome are one
        commit."""
        execute = self._user_connections.execute_on(connection)
        _must_hold(ref, execute(self._db.statements["succeed_on"], _success(ref, result, progress)))

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        execute = await self._user_connections.aexecute_on(connection)
        _must_hold(ref, await execute(self._db.statements["succeed_on"], _success(ref, result, progress)))

    # -- while it runs -----------------------------------------------------------------------------------------------

    def renew(self, fences: Sequence[str], held: Sequence[Ref], lease: float) -> tuple[set[str], list[Request]]:
        """Extend these leases. Returns the fences that still stand, and what concerns the jobs in flight."""
        renewed = self._db.write("renew", fences=list(fences), held=len(held), lease=lease)
        concerns = self._db.read("requests", held=json.dumps(held))
        return {str(row["fence"]) for row in renewed}, [_request(row) for row in concerns]

    def asked(self) -> list[Request]:
        """What people have asked of running jobs, whichever worker runs them."""
        return [_request(row) for row in self._db.read("asked")]

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        """Save progress under the lease. Returns (cancel, pause): what people have asked meanwhile."""
        rows = self._db.write("checkpoint", **_saved(ref, state, pending, done))
        return self._asked_of(ref, "checkpoint", rows)

    def checkpoint_on(
        self, connection: Any, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None
    ) -> None:
        """Save progress, fence-checked, on the caller's own open transaction."""
        execute = self._user_connections.execute_on(connection)
        _must_hold(ref, execute(self._db.statements["checkpoint"], _saved(ref, state, pending, done)))

    async def acheckpoint_on(
        self, connection: Any, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None
    ) -> None:
        execute = await self._user_connections.aexecute_on(connection)
        _must_hold(ref, await execute(self._db.statements["checkpoint"], _saved(ref, state, pending, done)))

    def progress(
        self, ref: Ref, done: int | None, total: int | None, note: str | None, rate: float | None = None
    ) -> tuple[bool, bool]:
        """Say how far the work is. Returns (cancel, pause)."""
        rows = self._db.write("progress", id=ref.id, fence=ref.fence, done=done, total=total, note=note, rate=rate)
        return self._asked_of(ref, "progress", rows)

    def step(self, ref: Ref, name: str) -> tuple[bytes | None, bool, bool]:
        """What this step of a running job returned, as JSON (None: it was not run yet); and (cancel, pause)."""
        rows = self._db.read("step", id=ref.id, fence=ref.fence, name=name)
        asked = self._asked_of(ref, "step", rows)
        return self._db.codec.json(rows[0]["result"]), *asked

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        """Keep what a step returned, under the lease. Returns (cancel, pause)."""
        rows = self._db.write("keep_step", id=ref.id, fence=ref.fence, name=name, result=as_text(result))
        return self._asked_of(ref, "step", rows)

    def keep_output(self, ref: Ref, output: str) -> None:
        """What an attempt wrote whose success its handler recorded itself."""
        self._db.write("output", id=ref.id, fence=ref.fence, output=output)

    def _asked_of(self, ref: Ref, verb: str, rows: list[Row]) -> tuple[bool, bool]:
        """What people have asked of this job; LeaseLost if it no longer runs under this lease."""
        if not rows:
            raise self._lost(ref, verb)
        return bool(rows[0]["cancel_requested"]), bool(rows[0]["pause_requested"])

    def _lost(self, ref: Ref, verb: str) -> LeaseLost:
        rows = self._db.read("get", id=ref.id)
        now = "deleted" if not rows else f"{rows[0]['state']}"
        if rows and rows[0]["state"] == State.RUNNING:
            now += f", held by worker {rows[0]['worker']}"
        return LeaseLost(f"job {ref.id} is no longer held under this lease (it is {now}); this {verb} is dropped")


def as_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _saved(ref: Ref, state: bytes | None, pending: int, done: int | None) -> dict[str, Any]:
    return {"id": ref.id, "fence": ref.fence, "checkpoint": as_text(state), "pending": pending, "done": done}


def _success(ref: Ref, result: bytes | None, progress: Progress | None) -> dict[str, Any]:
    done, total, note = progress or (None, None, None)
    return {"id": ref.id, "fence": ref.fence, "result": as_text(result), "done": done, "total": total, "note": note}


def _must_hold(ref: Ref, rows: list[Row]) -> None:
    if not rows:
        raise LeaseLost(f"job {ref.id} was taken over by someone else; roll this transaction back")


def _request(row: Row) -> Request:
    return Request(row["id"], row["fence"], bool(row["lost"]), bool(row["cancel"]), bool(row["pause"]))
