"""A plain `holdfast worker app.py`, with its default settings: what handlers report, save and raise reaches their jobs,
wherever they run."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import a_queued_job
from tests.waiting import wait_until

PATIENCE = 60.0
APP = """
import os, time
from collections.abc import AsyncIterator
from pathlib import Path
from holdfast import Holdfast, JobContext

hf = Holdfast()

def end(ctx: JobContext, how: str) -> str | None:
    if how == "transaction":
        with ctx.transaction() as tx:
            tx.set_result(how)
    if how == "error":
        raise ZeroDivisionError
    return how if how == "result" else None

@hf.task
def count(ctx: JobContext, items: int, how: str) -> str | None:
    for _ in ctx.track(range(items)):
        pass
    return end(ctx, how)

@hf.task
async def acount(ctx: JobContext, items: int, how: str) -> str | None:
    async def each() -> AsyncIterator[int]:
        for n in range(items):
            yield n

    async for _ in ctx.track(each(), total=items):
        pass
    if how == "transaction":
        async with ctx.transaction() as tx:
            tx.set_result(how)
        return None
    return end(ctx, how)

@hf.task(isolation="process", database=True)
def count_alone(ctx: JobContext, items: int, how: str) -> str | None:
    for _ in ctx.track(range(items)):
        pass
    return end(ctx, how)

def saves(ctx: JobContext) -> str:
    if ctx.saved is None:
        ctx.checkpoint(bytes(range(256)))
        raise ConnectionError
    return f"{type(ctx.saved).__name__} {ctx.saved == bytes(range(256))} for {ctx.job.correlation_id}"

if Path("slow").exists():
    time.sleep(3)

@hf.task
def where() -> int:
    return os.getpid()

def leave_trace(ctx: JobContext, path: str, again: bool) -> None:
    Path(path).touch()
    if again and ctx.attempt == 1:
        raise ConnectionError

@hf.task(retry=3.5)
def late(ctx: JobContext, path: str, again: bool = False) -> None:
    leave_trace(ctx, path, again)

@hf.task(retry=3.5)
async def alate(ctx: JobContext, path: str, again: bool = False) -> None:
    leave_trace(ctx, path, again)

@hf.task(isolation="process")
def late_alone(ctx: JobContext, path: str) -> None:
    leave_trace(ctx, path, False)

@hf.task(retry=None)
def save(ctx: JobContext) -> str:
    return saves(ctx)

@hf.task(retry=None, isolation="process")
def save_alone(ctx: JobContext) -> str:
    return saves(ctx)
"""


@pytest.fixture
def worker(tmp_path: Path, settings: Settings, kept: Store) -> Iterator[subprocess.Popen[str]]:
    process = Shell(tmp_path, settings, APP).start("worker", "app.py")
    yield process
    process.kill()
    process.communicate()


def enqueue(kept: Store, task: str, max_attempts: int = 3, expires_in: float | None = None, **args: object) -> str:
    data = msgspec.json.encode(args)
    return a_queued_job(kept, task=task, args=data, max_attempts=max_attempts, expires_in=expires_in)


def await_result(kept: Store, id: str) -> bytes:
    await_state(kept, id, State.SUCCEEDED)
    return kept.reads.get(id).result or b""


def await_state(kept: Store, id: str, state: State) -> None:
    wait_until(lambda: kept.reads.get(id).state is state, f"job {id} to be {state}", timeout=PATIENCE)


@pytest.mark.usefixtures("worker")
def test_a_job_that_ended_shows_all_the_progress_that_was_tracked(kept: Store) -> None:
    """Its items take no time at all: all of it is reported since the last beat, if there was one."""
    ends = {
        "nothing": State.SUCCEEDED,
        "result": State.SUCCEEDED,
        "transaction": State.SUCCEEDED,
        "error": State.FAILED,
    }
    jobs = {
        enqueue(kept, task, max_attempts=1, items=30, how=how): (task, how, state)
        for task in ("count", "acount", "count_alone")
        for how, state in ends.items()
    }
    for id, (_, _, state) in jobs.items():
        await_state(kept, id, state)
    told = {(task, how): (job.done, job.total) for id, (task, how, _) in jobs.items() if (job := kept.reads.get(id))}
    assert told == {(task, how): (30, 30) for task, how, _ in jobs.values()}


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("task", ["save", "save_alone"])
def test_a_checkpoint_given_as_bytes_comes_back_as_bytes(kept: Store, task: str) -> None:
    id = enqueue(kept, task)
    await_state(kept, id, State.SUCCEEDED)
    job = kept.reads.get(id)
    assert job.result == f'"bytes True for job-{id}"'.encode()
    assert (job.error_code, job.error_message) == (None, None)
    assert [attempt.error_code for attempt in kept.reads.attempts(id)][:1] == ["ConnectionError"]


@pytest.mark.usefixtures("worker")
def test_a_job_that_was_claimed_in_time_and_could_not_begin_in_time_expires(kept: Store, tmp_path: Path) -> None:
    """Its runner is frozen when the job comes, and the process of another takes too long to import the application."""
    runner = msgspec.json.decode(await_result(kept, enqueue(kept, "where")), type=int)
    os.kill(runner, signal.SIGSTOP)
    try:
        (tmp_path / "slow").touch()
        jobs = {
            enqueue(kept, task, expires_in=1.0, path=str(tmp_path / f"{task}-ran")): task
            for task in ("late", "alate", "late_alone")
        }
        wait_until(
            lambda: all(kept.reads.get(id).state is not State.QUEUED for id in jobs),
            "all to be claimed",
            timeout=PATIENCE,
        )
        claimed = {id for id in jobs if kept.reads.get(id).state is State.RUNNING}
        expiry = max(job.expires_at for id in jobs if (job := kept.reads.get(id)).expires_at)
        wait_until(lambda: kept.reads.now() > expiry, "the jobs to expire")
    finally:
        os.kill(runner, signal.SIGCONT)
    assert claimed == set(jobs), "in time"
    for id, task in jobs.items():
        await_state(kept, id, State.CANCELLED)
        job = kept.reads.get(id)
        assert (job.error_code, job.error_message) == ("EXPIRED", "not started before its expiry"), task
        assert (job.attempt, kept.reads.attempts(id)) == (0, []), "as if it had never been claimed"
        assert not (tmp_path / f"{task}-ran").exists(), task


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("task", ["late", "alate"])
def test_a_job_that_has_begun_in_time_is_tried_again_after_its_expiry(kept: Store, tmp_path: Path, task: str) -> None:
    await_result(kept, enqueue(kept, "where"))  # it is up
    id = enqueue(kept, task, expires_in=3.0, path=str(tmp_path / "ran"), again=True)
    await_state(kept, id, State.SUCCEEDED)
    job = kept.reads.get(id)
    assert job.started_at is not None
    assert job.expires_at is not None
    assert job.attempt == 2
    assert job.started_at > job.expires_at
