"""A running job is paused, cancelled, or lost: it reaches the handler, and what was asked takes effect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Job, JobContext, State
from holdfast.store.base import Ref
from tests.running import HASTY, Heard, MakeApp, await_state, take_over, working
from tests.waiting import wait_until

Handler = Callable[..., Any]


class Stage:
    """Handlers that go on until they are told to stop, one for each way of being told."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.stopped: list[str] = []
        self.again = False  # the second attempt ends by itself

    def handlers(self) -> dict[str, Handler]:
        return {
            "async": self.coroutine,
            "async group": self.task_group,
            "async checkpoint": self.acheckpoint,
            "track": self.track,
            "checkpoint": self.checkpoint,
            "should_stop": self.should_stop,
        }

    def begin(self, ctx: JobContext) -> bool:
        if not self.again:
            ctx.checkpoint("saved")
        self.started.release()
        return self.again

    async def coroutine(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.stopped.append("coroutine")
            raise

    async def task_group(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved

        async def child() -> None:
            while True:
                await ctx.acheckpoint("saved")
                await asyncio.sleep(0.01)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(child())
                group.create_task(asyncio.sleep(3600))
        finally:
            self.stopped.append("task group")

    async def acheckpoint(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved
        try:
            while True:
                await ctx.acheckpoint("saved")
                await asyncio.sleep(0.01)
        finally:
            self.stopped.append("acheckpoint")

    def track(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved
        try:
            for _ in ctx.track(range(10_000)):
                threading.Event().wait(0.01)
        except Exception:
            self.stopped.append("an `except Exception` of the handler's own caught it")
            raise
        finally:
            self.stopped.append("track")

    def checkpoint(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved
        try:
            while True:
                ctx.checkpoint("saved")
                threading.Event().wait(0.01)
        finally:
            self.stopped.append("checkpoint")

    def should_stop(self, ctx: JobContext) -> Any:
        if self.begin(ctx):
            return ctx.saved
        while not ctx.should_stop():
            threading.Event().wait(0.01)
        self.stopped.append("should_stop")
        ctx.checkpoint("saved on the way out")


WAYS = list(Stage().handlers())


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("way", WAYS)
def test_a_cancel_reaches_a_running_job(hasty: Holdfast, stage: Stage, way: str) -> None:
    job: Job[Any] = hasty.task(name="task")(stage.handlers()[way]).enqueue()
    with working(hasty):
        stage.started.acquire(timeout=20)
        assert job.cancel() is State.RUNNING  # a request, until it takes effect
        await_state(job, State.CANCELLED)
    record = job.refresh().record
    assert (record.error_code, record.error_message) == ("CANCELLED", "cancelled on request")
    assert [attempt.outcome for attempt in job.attempts()] == ["cancelled"]
    assert len(stage.stopped) == 1


@pytest.mark.parametrize("way", WAYS)
def test_a_pause_parks_a_running_job_and_resume_goes_on_from_the_checkpoint(
    hasty: Holdfast, stage: Stage, way: str
) -> None:
    job: Job[Any] = hasty.task(name="task", max_attempts=1)(stage.handlers()[way]).enqueue()
    with working(hasty):
        stage.started.acquire(timeout=20)
        assert job.pause() is State.RUNNING
        await_state(job, State.PAUSED)
        assert job.refresh().record.attempt == 0  # not charged
        assert [attempt.outcome for attempt in job.attempts()] == ["parked"]
        stage.again = True
        job.resume()
        assert job.wait(timeout=20) == ("saved on the way out" if way == "should_stop" else "saved")
    assert len(stage.stopped) == 1


def test_a_request_reaches_a_worker_at_once_without_waiting_for_its_beat(make_app: MakeApp, stage: Stage) -> None:
    """That would come after a minute."""
    hf = make_app(lease=240.0)
    job: Job[Any] = hf.task(name="task")(stage.coroutine).enqueue()
    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        stage.started.acquire(timeout=20)
        job.cancel()
        await_state(job, State.CANCELLED)
    assert stage.stopped == ["coroutine"]


def test_a_job_that_ends_by_itself_first_is_succeeded(hasty: Holdfast) -> None:
    started, let_go = threading.Event(), threading.Event()

    @hasty.task
    def deaf() -> str:
        started.set()
        let_go.wait(20)
        return "done"

    job = deaf.enqueue()
    with working(hasty):
        started.wait(20)
        job.cancel()
        let_go.set()
        assert job.wait(timeout=20) == "done"


def test_a_cancel_outlives_an_attempt_that_errors(hasty: Holdfast) -> None:
    started, let_go = threading.Event(), threading.Event()

    @hasty.task(retry=None)
    def deaf() -> None:
        started.set()
        let_go.wait(20)
        raise ZeroDivisionError("by itself")

    job = deaf.enqueue()
    with working(hasty):
        started.wait(20)
        job.cancel()
        let_go.set()
        await_state(job, State.CANCELLED)
    assert [attempt.error_code for attempt in job.attempts()] == ["ZeroDivisionError"]


# -- the lease is lost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_who_lost_the_lease_is_stopped_and_its_result_dropped(
    hasty: Holdfast, stage: Stage, way: str, heard: Heard
) -> None:
    job: Job[Any] = hasty.task(name="task")(stage.handlers()[way]).enqueue()
    with working(hasty) as worker:
        stage.started.acquire(timeout=20)
        take_over(hasty, job.id)
        wait_until(lambda: stage.stopped)
        wait_until(lambda: worker.desk.idle())
        assert worker.desk.meters.lost == 1
        assert worker.desk.meters.attempts == 0
    assert [told["job"] for told in heard.of("lease_lost")] == [job.id]
    assert heard.of("errored") == []
    assert job.refresh().state is State.QUEUED
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"]  # as the rescue saw it


def test_a_result_that_comes_after_the_lease_is_lost_is_dropped(hf: Holdfast, heard: Heard) -> None:
    started, let_go = threading.Event(), threading.Event()

    @hf.task
    def deaf() -> str:
        started.set()
        let_go.wait(20)
        return "too late"

    job = deaf.enqueue()
    with working(hf) as worker:
        started.wait(20)
        take_over(hf, job.id)
        let_go.set()
        wait_until(lambda: worker.desk.meters.lost == 1)
    assert job.refresh().state is State.QUEUED
    assert job.refresh().record.result is None
    assert [told["job"] for told in heard.of("lease_lost")] == [job.id]


def test_the_handler_of_a_job_finished_elsewhere_is_stopped(make_app: Callable[..., Holdfast], stage: Stage) -> None:
    app = make_app(**HASTY)
    job: Job[Any] = app.task(name="task")(stage.coroutine).enqueue()
    with working(app) as worker:
        stage.started.acquire(timeout=20)
        record = job.refresh().record
        assert record.fence is not None
        app.store.attempts.succeed(Ref(int(job.id), record.fence), b'"by someone else"')
        wait_until(lambda: worker.desk.idle())
    assert job.refresh().result == "by someone else"
