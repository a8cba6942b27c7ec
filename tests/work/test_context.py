"""What a handler is given: checkpoints over attempts, progress, the job it works on."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastError, JobContext, Retry, State
from holdfast.store.attempts import Attempts
from tests.running import await_state, working
from tests.waiting import wait_until


def test_the_context_tells_the_job_the_attempt_and_the_fence(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.task(queue="mail", priority=3, max_attempts=4, retry=None)
    def task(ctx: JobContext) -> None:
        got.append((ctx.job, ctx.attempt, ctx.fence, repr(ctx)))
        if ctx.attempt == 1:
            raise Retry(after=0)

    job = task.using(correlation_id="c-7").enqueue()
    hf.drain()
    (info, first, fence, shown), (_, second, other_fence, _) = got
    assert (info.id, info.task, info.queue, info.priority, info.max_attempts) == (job.id, "task", "mail", 3, 4)
    assert info.correlation_id == "c-7"
    assert (first, second) == (1, 2)
    assert uuid.UUID(fence) != uuid.UUID(other_fence)
    assert [attempt.fence for attempt in job.attempts()] == [fence]
    assert job.refresh().record.fence == other_fence
    assert shown == f"<JobContext of job {job.id}: task, attempt 1>"


def test_a_checkpoint_is_found_by_the_next_attempt(hf: Holdfast) -> None:
    found: list[Any] = []

    @hf.task(retry=None)
    def crawl(ctx: JobContext) -> None:
        found.append(ctx.saved)
        seen = [*(ctx.saved or {"seen": []})["seen"], ctx.attempt]
        ctx.checkpoint({"seen": seen}, pending=10 - ctx.attempt, done=ctx.attempt)
        if ctx.attempt < 3:
            raise ZeroDivisionError

    job = crawl.enqueue()
    assert hf.drain().attempts == 3
    assert found == [None, {"seen": [1]}, {"seen": [1, 2]}]
    record = job.refresh().record
    assert (record.state, record.checkpoint) == (State.SUCCEEDED, b'{"seen":[1,2,3]}')
    assert (record.pending, record.done) == (7, 3)


def test_an_asynchronous_handler_saves_without_blocking_its_loop(hf: Holdfast) -> None:
    threads: list[str] = []
    original = type(hf.store.attempts).checkpoint

    def noted(self: Attempts, *args: Any) -> tuple[bool, bool]:
        threads.append(threading.current_thread().name)
        return original(self, *args)

    @hf.task(retry=None)
    async def crawl(ctx: JobContext) -> Any:
        if ctx.attempt == 1:
            await ctx.acheckpoint([1], pending=2)
            raise ZeroDivisionError
        return ctx.saved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(hf.store.attempts), "checkpoint", noted)
        job = crawl.enqueue()
        hf.drain()
    assert job.refresh().result == [1]
    assert len(threads) == 1
    assert threads[0] != "holdfast-loop"


@pytest.mark.parametrize("state", [{1, 2}, {"seen": (1, 2)}, {"at": datetime(2030, 1, 1)}, {7: "x"}])
def test_a_checkpoint_that_would_come_back_as_something_else_is_refused(hf: Holdfast, state: Any) -> None:
    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> str:
        with pytest.raises(HoldfastError, match=r"would arrive as .*; save plain JSON values"):
            ctx.checkpoint(state)
        return "goes on"

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == "goes on"


@pytest.mark.parametrize("state", ["a\x00", float("nan"), object(), "x" * 2**20])
def test_a_checkpoint_that_can_not_be_kept_is_an_error_of_the_handler(hf: Holdfast, state: Any) -> None:
    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> str:
        with pytest.raises(HoldfastError, match=f"the checkpoint of job {ctx.job.id} can't be kept: it"):
            ctx.checkpoint(state)
        return "goes on"

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == "goes on"
    assert job.refresh().record.checkpoint is None


def test_counts_that_no_column_holds_are_an_error_of_the_handler(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> str:
        bad: Any
        for bad in (-1, 10**15 + 1, "3", 1.5):
            with pytest.raises(HoldfastError, match="pending must be a whole number from 0"):
                ctx.checkpoint(None, pending=bad)
            with pytest.raises(HoldfastError, match="done must be a whole number from 0"):
                ctx.progress(bad)
            with pytest.raises(HoldfastError, match="total must be a whole number from 0"):
                ctx.progress(1, total=bad)
        return "goes on"

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == "goes on"


def test_progress_is_written_while_the_handler_runs_the_newest_only(
    hasty: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    writes: list[Any] = []
    original = hasty.store.attempts.progress

    def noted(*args: Any) -> tuple[bool, bool]:
        writes.append(args[1:])
        return original(*args)

    monkeypatch.setattr(hasty.store.attempts, "progress", noted)

    @hasty.task
    def task(ctx: JobContext) -> None:
        for n in range(10_000):
            ctx.progress(n + 1, total=10_000, note=f"item {n}\x00")
        let_go.wait(20)

    job = task.enqueue()
    with working(hasty):
        wait_until(lambda: job.refresh().record.done == 10_000)
        record = job.refresh().record
        let_go.set()
        await_state(job, State.SUCCEEDED)
    assert (record.state, record.total, record.note) == (State.RUNNING, 10_000, "item 9999\N{SYMBOL FOR NULL}")
    assert 1 <= len(writes) < 100


def test_track_yields_every_item_and_reports_how_far_it_is(hasty: Holdfast) -> None:
    half, let_go = threading.Event(), threading.Event()
    seen: list[int] = []

    @hasty.task
    def task(ctx: JobContext) -> None:
        for n in ctx.track([1, 2, 3, 4]):
            seen.append(n)
            if n == 3:
                half.set()
                let_go.wait(20)
        seen.extend(ctx.track(iter([5, 6]), total=2))

    job = task.enqueue()
    with working(hasty):
        half.wait(20)
        wait_until(lambda: job.refresh().record.done == 2)
        assert job.refresh().record.total == 4
        let_go.set()
        await_state(job, State.SUCCEEDED)
    assert seen == [1, 2, 3, 4, 5, 6]
