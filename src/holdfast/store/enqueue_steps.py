"""An enqueue described apart from its execution: a generator yields statements with their parameters and is sent the
rows, so that the same steps run on our connection or a caller's, synchronous or asynchronous."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from holdfast.errors import StoreError
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.store.columns import Row, parameters
from holdfast.store.engine import Database

T = TypeVar("T")
Steps = Generator[tuple[str, dict[str, Any]], list[Row], Enqueued]


def enqueue_steps(db: Database, job: NewJob, *, may_raise: bool = True) -> Steps:
    """`may_raise`: a job that already waits under the same key gets the priority of this one, if that is higher."""
    if job.key is not None:
        return (yield from _keyed_steps(db, job, may_raise))
    rows = yield db.statements["enqueue"], parameters(job, db.codec)
    return Enqueued(str(rows[0]["id"]), True)


def _keyed_steps(db: Database, job: NewJob, may_raise: bool) -> Steps:
    """Enqueue under a key: a finished job gives the key up, the unique index decides who takes it, and whoever comes
    second finds the first. A failed job that is to be retried keeps the key. Another writer may come between the steps,
    so they are repeated until one of these holds."""
    statements, name = db.statements, {"task": job.task, "key": job.key}
    reuse = min(job.reuse or 0.0, 1e10)
    for _ in range(20):
        yield statements["key_given_up"], {**name, "minus_reuse": -reuse, "failed": job.after_failure == "new"}
        rows = yield statements["enqueue_keyed"], parameters(job, db.codec)
        if rows:
            return Enqueued(str(rows[0]["id"]), True)
        rows = yield statements["key_held"], dict(name)
        if not rows:
            continue
        [held] = rows
        if job.after_failure == "retry" and held["state"] in (State.FAILED, State.CANCELLED):
            if (yield from _retry_steps(db, job, held)):
                return Enqueued(str(held["id"]), False, retried=True)
            continue  # somebody else retried it, or took its key
        if may_raise and asks_for_more(job, held):
            yield statements["raise_priority"], {**name, "id": held["id"], "priority": job.priority}
        if held["state"] == State.SUCCEEDED:
            yield statements["cache_hit"], {"queue": held["queue"], "task": job.task, "n": 1}
        return Enqueued(str(held["id"]), False, State(held["state"]))
    raise StoreError(
        f"the key {job.key!r} of task {job.task} changed hands 20 times while enqueuing, or a job has it that this "
        "user may not see; try again, or choose another key",
        number="HF3102",
    )


def _retry_steps(db: Database, job: NewJob, held: Row) -> Generator[tuple[str, dict[str, Any]], list[Row], bool]:
    """Begin another life of the job that has the key: due when this enqueue says, and as it was otherwise."""
    first, *others = db.retry_holder
    given = {**parameters(job, db.codec), "ids": [held["id"]]}
    if not (yield db.statements[first], dict(given)):
        return False
    for name in others:
        yield db.statements[name], dict(given)
    return True


def asks_for_more(job: NewJob, held: Row) -> bool:
    """Does the job that waits under the same key get this one's priority?"""
    return held["priority"] < job.priority and held["state"] in (State.QUEUED, State.PAUSED)


def run_steps(
    steps: Generator[tuple[str, dict[str, Any]], list[Row], T], execute: Callable[[str, dict[str, Any]], list[Row]]
) -> T:
    """Run the steps on a synchronous connection."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun_steps(
    steps: Generator[tuple[str, dict[str, Any]], list[Row], T],
    execute: Callable[[str, dict[str, Any]], Awaitable[list[Row]]],
) -> T:
    """Run the steps on an asynchronous connection."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(*statement))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
