"""What a worker's log says is so: nothing of a success reads like a failure, and a failure is told."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from holdfast.runners.child_setup import ChildSetup
from holdfast.runners.wire import Configure, Run, frame
from tests.crash.commands import Commands
from tests.crash.fleet import wait_until
from tests.factories import new_job
from tests.work.scripted import held

APP = """
import asyncio, sqlite3, time
import psycopg
from holdfast import Holdfast, JobContext

hf = Holdfast()

def pay(ctx: JobContext) -> None:
    with ctx.transaction() as tx:
        tx.set_result("paid")

async def apay(ctx: JobContext) -> None:
    async with ctx.transaction() as tx:
        tx.set_result("paid")

def linger(ctx: JobContext) -> None:
    pay(ctx)
    ctx.checkpoint({"too": "late"})
    time.sleep(1.5)

def raise_after(ctx: JobContext) -> None:
    pay(ctx)
    raise ValueError("after the commit")

def roll_back(ctx: JobContext) -> None:
    if hf.settings.url.startswith("sqlite"):
        connection = sqlite3.connect(hf.settings.url.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(hf.settings.url)
    ctx.succeed("paid", conn=connection)
    connection.rollback()
    connection.close()

for function in (pay, apay, linger, raise_after, roll_back):
    hf.task(max_attempts=1)(function)
    hf.task(name=f"lone_{function.__name__}", max_attempts=1, isolation="process", database=True)(function)
"""

FALSE = ("NOT_COMMITTED", "taken over", "Traceback", "BrokenPipe", "did not stop")


def run(commands: Commands, counts: dict[str, int], state: State) -> str:
    """The log of a worker that ran so many jobs of each task."""
    commands.app(APP)
    for task, count in counts.items():
        list(commands.store.enqueue_many([new_job(task, max_attempts=1)] * count))
    worker = commands.start_and_wait(lease=2, heartbeat=0.1)
    wanted = Counter({state: sum(counts.values())})
    wait_until(
        lambda: Counter(job.state for job in commands.store.reads.jobs(limit=1000)) == wanted, what=lambda: worker.log
    )
    worker.stop()
    assert worker.returncode == 0, worker.log
    return worker.log


def false_lines(log: str) -> list[str]:
    return [line for line in log.splitlines() if any(text in line for text in FALSE)]


def test_a_transactional_success_reads_like_no_failure(commands: Commands) -> None:
    log = run(
        commands, {"pay": 60, "apay": 2, "linger": 3, "lone_pay": 3, "lone_apay": 1, "lone_linger": 1}, State.SUCCEEDED
    )
    assert false_lines(log) == []


def test_an_error_after_a_committed_success_is_told_as_that(commands: Commands) -> None:
    log = run(commands, {"raise_after": 2, "lone_raise_after": 1}, State.SUCCEEDED)
    assert false_lines(log) == []
    assert "of 1 failed" not in log
    assert log.count("had succeeded when its handler raised: after the commit") == 3


@pytest.mark.parametrize("task", ["roll_back", "lone_roll_back"])
def test_a_success_that_was_rolled_back_is_told(commands: Commands, task: str) -> None:
    log = run(commands, {task: 1}, State.FAILED)
    [line] = false_lines(log)
    assert re.search(r"attempt 1 of 1 failed.*: NOT_COMMITTED", line)


@pytest.mark.parametrize("program", ["holdfast.pooled_main", "holdfast.isolated_main"])
def test_a_runner_whose_worker_is_gone_says_nothing(tmp_path: Path, program: str) -> None:
    """It notices when it has something to say: here that it can't find its application."""
    ours, theirs = socket.socketpair()
    run = Run("nowhere.py", [], {}, held(1), None, None, "w", True)
    ours.sendall(frame(Configure("nowhere.py") if program == "holdfast.pooled_main" else run))
    ours.close()
    arguments = [str(theirs.fileno()), str(ChildSetup(parent=0))]
    with theirs:
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments], cwd=tmp_path, pass_fds=[theirs.fileno()], timeout=60,
            capture_output=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"")
