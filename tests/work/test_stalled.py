"""Progress says that the work moves: an attempt that makes none for too long is stopped."""

from __future__ import annotations

import threading

import pytest

from holdfast import Holdfast, JobContext, State
from tests.running import await_state, working
from tests.waiting import wait_until


@pytest.mark.parametrize("how", ["async", "sync"])
def test_an_attempt_without_progress_is_stopped_and_says_why(hasty: Holdfast, how: str) -> None:
    if how == "async":

        @hasty.task(max_attempts=1, progress_timeout=0.5)
        async def idle(ctx: JobContext) -> None:
            import asyncio

            ctx.progress(1)
            await asyncio.sleep(60)
    else:

        @hasty.task(max_attempts=1, progress_timeout=0.5)
        def idle(ctx: JobContext) -> None:
            wait_until(ctx.should_stop)

    job = hasty.find_task("idle").enqueue()
    with working(hasty):
        await_state(job, State.FAILED)
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "STALLED")
    assert attempt.error_message == "it made no progress for 0.5 s"


def test_an_attempt_that_reports_or_saves_progress_goes_on(hasty: Holdfast) -> None:
    ticks = threading.Event()

    @hasty.task(progress_timeout=1.5)
    def moving(ctx: JobContext, saves: bool) -> str:
        for done in range(30):  # twice as long as it may go without
            ticks.wait(0.1)
            if saves:
                ctx.checkpoint({"done": done})
            else:
                ctx.progress(done)
        return "done"

    jobs = [moving.enqueue(saves=saves) for saves in (False, True)]
    with working(hasty):
        assert [job.wait(timeout=20) for job in jobs] == ["done", "done"]
