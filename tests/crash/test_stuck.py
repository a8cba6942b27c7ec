"""A handler that can't be stopped costs its neighbours in the same process a bounded time."""

from __future__ import annotations

import time

from holdfast.model.lifecycle import State
from tests.crash.commands import Commands
from tests.crash.fleet import wait_until
from tests.factories import new_job

TIMEOUT, GRACE = 1.0, 2.0
BOUND = TIMEOUT + GRACE + GRACE + 4  # until its neighbours are given back, with time to notice each

APP = """
import asyncio, os, time
from holdfast import Holdfast, JobContext

hf = Holdfast()

def wait_a_minute(attempt: int, error: BaseException) -> float:
    return 60.0

def note(ctx: JobContext) -> None:
    with open("ledger", "a") as ledger:
        ledger.write(f"{ctx.job.task} {ctx.attempt} {os.getpid()}\\n")

@hf.task(timeout=1, max_attempts=2, retry=wait_a_minute)
def stuck(ctx: JobContext) -> None:
    note(ctx)
    while True:
        time.sleep(0.1)

@hf.task
def nap(ctx: JobContext) -> None:
    note(ctx)
    time.sleep(60)

@hf.task
async def anap(ctx: JobContext) -> None:
    note(ctx)
    try:
        await asyncio.sleep(60)
    finally:
        open("cleaned_up", "w").close()

@hf.task
def heed(ctx: JobContext) -> None:
    note(ctx)
    while not ctx.should_stop():
        time.sleep(0.05)
"""


def test_a_stuck_handler_is_ended_and_its_neighbours_are_given_back(commands: Commands) -> None:
    commands.app(APP)
    neighbours = ("nap", "anap", "heed")
    [[enqueued]] = commands.store.enqueue_many([new_job("stuck", max_attempts=2)])
    others = [done for chunk in commands.store.enqueue_many([new_job(task) for task in neighbours]) for done in chunk]
    ledger = commands.home / "ledger"
    worker = commands.start_and_wait(grace=GRACE)

    def starts(task: str) -> list[list[str]]:
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [line.split() for line in lines if line.startswith(f"{task} ")]

    wait_until(lambda: all(starts(task) for task in ("stuck", *neighbours)), what=lambda: worker.log)
    began = time.monotonic()
    wait_until(lambda: commands.store.reads.get(enqueued.id).state is not State.RUNNING, what=lambda: worker.log)
    assert time.monotonic() - began < BOUND, worker.log
    [attempt] = commands.store.reads.attempts(enqueued.id)
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "TIMED_OUT")
    assert "the default wait stands in for its retry policy" in str(attempt.error_message)
    assert "the default wait stands in for its retry policy" in worker.log
    wait_until(lambda: all(len(starts(task)) >= 2 for task in neighbours), what=lambda: worker.log)
    for task in neighbours:
        (_, first, old), (_, second, new) = starts(task)[:2]
        assert (first, second) == ("1", "1"), "its neighbours are not charged"
        assert new != old, "in another process"
    assert (commands.home / "cleaned_up").exists(), "a coroutine is cancelled before its process is ended"
    for done in others:
        job = commands.store.reads.get(done.id)
        assert (job.state, job.attempt, job.crashes) == (State.RUNNING, 1, 0)
        assert {a.outcome for a in commands.store.reads.attempts(done.id)} == {"released"}
    assert "others that run there are given back" in worker.log
