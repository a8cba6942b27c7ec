"""Verbs described apart from their execution: a generator yields statements with their parameters and is sent the rows,
so that the same steps run on our connection or a caller's, synchronous or not."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from holdfast.errors import StoreError
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State

Row = dict[str, Any]
Steps = Generator[tuple[str, dict[str, Any]], list[Row], Any]


def keyed_steps(statements: Any, job: NewJob, parameters: dict[str, Any], *, may_raise: bool = True) -> Steps:
    """Enqueue under a key: a finished job gives the key up, the unique index decides who takes it, and whoever comes
    second finds the first. Another writer may come between the steps, so they are repeated until one of both holds.
    `may_raise`: the job that is found gets the priority of the one that asks for more."""
    reuse = min(job.reuse or 0.0, 1e10)
    for _ in range(20):
        yield statements["key_given_up"], {"task": job.task, "key": job.key, "minus_reuse": -reuse}
        rows = yield statements["enqueue_keyed"], parameters
        if rows:
            return Enqueued(str(rows[0]["id"]), True)
        rows = yield statements["key_held"], {"task": job.task, "key": job.key}
        if rows:
            [held] = rows
            if may_raise and asks_for_more(job, held):
                name = {"id": held["id"], "task": job.task, "key": job.key}
                yield statements["raise_priority"], {**name, "priority": job.priority}
            return Enqueued(str(held["id"]), False, State(held["state"]))
    raise StoreError(
        f"the key {job.key!r} of task {job.task} changed hands 20 times while enqueuing, or a job has it that this "
        "user may not see; try again, or choose another key",
        number="HF3102",
    )


def asks_for_more(job: NewJob, held: Row) -> bool:
    """Does the job that waits under the same key get this one's priority?"""
    return held["priority"] < job.priority and held["state"] in (State.QUEUED, State.PAUSED)


def run_steps(steps: Steps, execute: Callable[[str, dict[str, Any]], list[Row]]) -> Any:
    """Run a verb's steps on a synchronous connection."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(*statement))
    except StopIteration as end:
        return end.value


async def arun_steps(steps: Steps, execute: Callable[[str, dict[str, Any]], Any]) -> Any:
    """Run a verb's steps on an asynchronous connection."""
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(*statement))
    except StopIteration as end:
        return end.value
