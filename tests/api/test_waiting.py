"""Waiting for a job: by `wait` or `await`, woken rather than polling, and never in a handler."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    Fail,
    Holdfast,
    HoldfastError,
    Job,
    JobContext,
    JobFailed,
    JobNotFound,
    NotFinished,
    State,
    WaitTimeout,
    job,
    waiters,
)
from holdfast.model.job import JobRecord
from tests.running import MakeApp, await_state, working
from tests.waiting import wait_until


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits looks at once, and then not again for an hour, unless woken."""
    monkeypatch.setattr(job, "FIRST_WAIT", 3600.0)
    monkeypatch.setattr(waiters, "LONGEST_WAIT", 3600.0)


def test_wait_returns_the_result(hf: Holdfast) -> None:
    @hf.task
    def add(a: int, b: int) -> int:
        return a + b

    with working(hf):
        assert add.enqueue(1, 2).wait(timeout=10) == 3
        assert asyncio.run(_awaited(add.enqueue(3, 4))) == 7


def test_a_process_may_fork_once_the_application_is_closed(hf: Holdfast) -> None:
    @hf.task
    def never() -> None: ...

    with pytest.raises(WaitTimeout):
        never.enqueue().wait(timeout=0.2)
    hf.close()
    assert "holdfast-waiting" not in {thread.name for thread in threading.enumerate()}


async def _awaited(job: Job[Any]) -> Any:
    return await job


@pytest.mark.usefixtures("only_woken")
def test_who_waits_is_woken_by_the_finish(hf: Holdfast) -> None:
    let_go = threading.Event()

    @hf.task
    def held() -> str:
        let_go.wait(10)
        return "done"

    looks: list[str] = []

    class Watched(Job[str]):
        def _read(self) -> JobRecord:
            record = super()._read()
            looks.append(record.state)
            return record

    with working(hf):
        job = Watched(hf, held.enqueue().id, "held")
        await_state(hf.job(job.id), State.RUNNING)
        got: list[str] = []
        waiting = threading.Thread(target=lambda: got.append(job.wait(timeout=60)), daemon=True)
        waiting.start()
        # It listens first and then looks again: from here on only the finish can wake it.
        wait_until(lambda: len(looks) >= 2)
        let_go.set()
        waiting.join(20)
    assert got == ["done"]


@pytest.mark.usefixtures("only_woken")
def test_awaiting_is_woken_too_and_keeps_no_thread(hf: Holdfast) -> None:
    let_go = threading.Event()

    @hf.task
    async def held(n: int) -> int:
        await asyncio.to_thread(let_go.wait, 20)
        return n

    async def wait_for_all(jobs: list[Job[int]]) -> list[int]:
        waiting = [asyncio.ensure_future(job.await_(timeout=60)) for job in jobs]
        await asyncio.to_thread(wait_until, lambda: hf.job(jobs[-1].id).state is State.RUNNING)
        let_go.set()
        async with asyncio.timeout(20):
            return list(await asyncio.gather(*waiting))

    with working(hf):
        jobs = [held.enqueue(n) for n in range(60)]  # more than a default executor has threads
        assert asyncio.run(wait_for_all(jobs)) == list(range(60))


def test_a_wait_that_was_given_up_does_not_keep_the_program(hf: Holdfast) -> None:
    @hf.task
    def never_run() -> None: ...

    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await waited

    waited = never_run.enqueue()
    began = time.monotonic()
    asyncio.run(impatient())  # joins the threads of its executor
    assert time.monotonic() - began < 20


@pytest.mark.usefixtures("only_woken")
def test_every_ending_wakes_who_waits(hf: Holdfast) -> None:
    @hf.task
    def recorded(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.set_result(3)

    @hf.task(max_attempts=1)
    def fails() -> None:
        raise ZeroDivisionError("no")

    @hf.task
    def never_run() -> None: ...

    ends: dict[str, Any] = {}

    def wait(job: Job[Any]) -> None:
        try:
            ends[job.id] = job.wait(timeout=60)
        except JobFailed as failed:
            ends[job.id] = failed.code

    jobs: list[Job[Any]] = [recorded.enqueue(), fails.enqueue(), never_run.using(delay=3600).enqueue()]
    threads = [threading.Thread(target=wait, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(hf.store.db.read("get", id=int(job.id)) for job in jobs))
    with working(hf):
        for job in jobs[:2]:
            wait_until(lambda job=job: job.refresh().finished)  # type: ignore[misc]
    jobs[2].cancel("not needed")
    for thread in threads:
        thread.join(20)
    assert ends == {jobs[0].id: 3, jobs[1].id: "ZeroDivisionError", jobs[2].id: "CANCELLED"}


def test_a_job_that_failed_or_was_cancelled_raises_what_happened(hf: Holdfast) -> None:
    @hf.task
    def fails() -> None:
        raise Fail("the report is invalid", code="SCHEMA_VALIDATION_FAILED")

    failed, cancelled = fails.enqueue(), fails.using(delay=3600).enqueue()
    hf.drain()
    cancelled.cancel("nobody wants it")
    with pytest.raises(JobFailed, match=f"job {failed.id} failed: the report is invalid") as caught:
        failed.wait()
    assert (caught.value.code, caught.value.job_id) == ("SCHEMA_VALIDATION_FAILED", failed.id)
    with pytest.raises(JobFailed, match=f"job {cancelled.id} cancelled: nobody wants it"):
        asyncio.run(_awaited(cancelled))
    with pytest.raises(JobFailed, match="the report is invalid"):
        _ = failed.refresh().result


def test_a_timeout_says_where_the_job_is_and_leaves_it_alone(hf: Holdfast) -> None:
    @hf.task
    def never_run() -> None: ...

    job = never_run.enqueue()
    with pytest.raises(WaitTimeout, match=f"job {job.id} is queued after 0.05 s: no worker serves queue default"):
        job.wait(timeout=0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(job.await_(timeout=0.05))
    with pytest.raises(WaitTimeout):
        job.wait(timeout=0)
    with pytest.raises(WaitTimeout, match=r"after 0\.01 s"):
        job.wait(timedelta(milliseconds=10))
    wrong: Any
    with pytest.raises(WaitTimeout):
        job.wait(-0.001)
    for wrong in ("5", True, float("nan")):
        with pytest.raises(BadArguments, match="wait: timeout must be seconds"):
            job.wait(wrong)
    with pytest.raises(NotFinished, match=f"job {job.id} was queued when it was last read: it had no result yet"):
        _ = job.refresh().result
    assert job.refresh().state is State.QUEUED


def test_a_timeout_says_how_many_are_before_it(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    hf.store.workers.register(id="w~1", name="w", host="h", pid=1, queues=None, tasks=["task"], slots=5)
    jobs = [task.enqueue() for _ in range(3)]
    with pytest.raises(WaitTimeout, match=r"is queued after 0 s: 2 jobs due before it"):
        jobs[-1].wait(timeout=0)


def test_waiting_for_what_is_not_there(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    job = task.enqueue()
    job.cancel()
    job.delete()
    with pytest.raises(JobNotFound, match=f"there is no job {job.id}"):
        job.wait(timeout=1)
    for id in ("999999999", "abc", "", "-1", "1.5", "9" * 30):
        with pytest.raises(JobNotFound, match="there is no job"):
            hf.job(id)


def test_waiting_in_a_handler_is_refused(hf: Holdfast) -> None:
    @hf.task
    def other() -> None: ...

    @hf.task
    def waits() -> str:
        with pytest.raises(HoldfastError, match="enqueue a follow-up job instead"):
            other.enqueue().wait()
        return "refused"

    @hf.task
    async def awaits() -> str:
        job = await other.aenqueue()
        with pytest.raises(HoldfastError, match="enqueue a follow-up job instead"):
            await job
        with pytest.raises(HoldfastError, match="enqueue a follow-up job instead"):
            await asyncio.create_task(job.await_())
        with pytest.raises(HoldfastError, match="enqueue a follow-up job instead"):
            await asyncio.to_thread(job.wait)
        return "refused"

    jobs = [waits.enqueue(), awaits.enqueue()]
    hf.drain()
    assert [job.wait(timeout=0) for job in jobs] == ["refused", "refused"]


def test_waiting_works_where_there_are_no_notifications(make_app: MakeApp) -> None:
    app = make_app(listen=False, poll_base=0.02, poll_max=0.05)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with working(app):
        assert add.enqueue(1, 2).wait(timeout=10) == 3


def test_a_result_is_read_anew_after_a_retry(hf: Holdfast) -> None:
    fail = [True]

    @hf.task(max_attempts=1)
    def sometimes() -> str:
        if fail[0]:
            raise ZeroDivisionError
        return "done"

    job = sometimes.enqueue()
    hf.drain()
    with pytest.raises(JobFailed):
        job.wait()
    fail[0] = False
    hf.job(job.id).retry()
    hf.drain()
    assert job.refresh().result == "done"
