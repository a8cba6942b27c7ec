"""A job handle is a snapshot: its properties never ask the database, its methods do."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from holdfast import (
    Fail,
    Holdfast,
    HoldfastError,
    Job,
    JobContext,
    NotFinished,
    State,
    WaitTimeout,
)
from tests.running import working
from tests.waiting import wait_until

PROPERTIES = sorted(name for name, value in vars(Job).items() if isinstance(value, property))


@pytest.fixture
def done(hf: Holdfast) -> dict[str, Job[Any]]:
    """A job that succeeded, one that failed and one that waits."""

    @hf.task
    def double(n: int) -> int:
        return 2 * n

    @hf.task
    def fails(n: int) -> None:
        raise Fail("no money", code="BROKE")

    jobs: dict[str, Job[Any]] = {"succeeded": double.enqueue(21), "failed": fails.enqueue(1)}
    hf.drain()
    return {**jobs, "queued": double.enqueue(1)}


def test_properties_never_ask_the_database(
    hf: Holdfast, done: dict[str, Job[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = {
        "fresh": list(done.values()),
        "read": [hf.job(job.id) for job in done.values()],
        "listed": list(hf.jobs()),
        "refreshed": [job.refresh() for job in done.values()],
    }
    assert PROPERTIES == ["args", "error", "finished", "progress", "record", "result", "source", "source_id", "state"]

    def asked(app: Holdfast) -> None:
        raise AssertionError("a property asked the database")

    monkeypatch.setattr(Holdfast, "store", property(asked))
    for which, jobs in handles.items():
        for job in jobs:
            for name in PROPERTIES:
                unknown = name == "result" or which == "fresh"
                with suppress(HoldfastError) if unknown else nullcontext():
                    getattr(job, name)
    with pytest.raises(AssertionError, match="asked the database"):
        done["queued"].refresh()


def test_a_handle_shows_the_job_as_it_was_when_it_was_read(hf: Holdfast, done: dict[str, Job[Any]]) -> None:
    job = done["queued"]
    assert (job.state, job.finished, job.created) == (State.QUEUED, False, True)
    assert repr(job) == f"<Job {job.id}: double, queued>"
    before = hf.job(job.id)
    hf.drain()
    assert (job.state, before.state, before.record.state) == (State.QUEUED, State.QUEUED, State.QUEUED)
    with pytest.raises(NotFinished, match=r"^HF1307 job 3 was queued when it was last read: it had no result yet"):
        _ = before.result
    assert before.refresh() is before
    assert (before.state, before.result, before.args) == (State.SUCCEEDED, 2, {"n": 1})
    assert job.wait() == 2
    assert (job.state, job.result) == (State.SUCCEEDED, 2), "a wait leaves it refreshed"


def test_a_handle_from_an_enqueue_says_that_it_has_to_be_read(hf: Holdfast) -> None:
    @hf.task
    def task(n: int) -> int:
        return n

    job = task.enqueue(1)
    for name in ("args", "error", "progress", "record"):
        with pytest.raises(HoldfastError, match=r"HF1316 job 1 has been enqueued, .* call job.refresh\(\) first"):
            getattr(job, name)
    with pytest.raises(NotFinished):
        _ = job.result
    hf.drain()
    again = task.using(key="k", reuse="forever").enqueue(1)
    hf.drain()
    reused = task.using(key="k", reuse="forever").enqueue(1)
    assert (reused.id, reused.created, reused.state) == (again.id, False, State.SUCCEEDED)
    assert reused.refresh().result == 1
    [bulk] = hf.enqueue_many([task.using(key="k", reuse="forever").bind(1)])
    assert bulk.state is State.SUCCEEDED


def test_the_error_has_what_is_known_of_it_and_the_attempt_its_traceback(done: dict[str, Job[Any]]) -> None:
    job = done["failed"].refresh()
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("BROKE", "no money")
    assert "holdfast.errors.Fail: no money" in (job.attempts()[-1].traceback or "")
    assert job.steps() == []
    assert done["succeeded"].refresh().error is None


def test_a_page_of_jobs_is_made_of_handles(hf: Holdfast, done: dict[str, Job[Any]]) -> None:
    [failed] = hf.jobs("state:failed")
    assert isinstance(failed, Job)
    assert (failed.id, failed.created, failed.record.queue) == (done["failed"].id, False, "default")
    page = hf.jobs(limit=2)
    assert [job.id for job in page] == ["3", "2"]
    assert page.next == "2"
    assert failed.retry() is State.QUEUED
    assert (failed.state, failed.refresh().state) == (State.FAILED, State.QUEUED)


def test_updates_tell_state_and_progress_until_the_end(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [threading.Event() for _ in range(2)]

    @hf.task
    def walk(ctx: JobContext) -> str:
        for n, go_on in enumerate(steps):
            ctx.progress(n, total=2, note=f"step {n}")
            go_on.wait(20)
        return "there"

    job = walk.enqueue()
    seen: list[tuple[str, str | None]] = []
    with working(hf):
        for update in job.updates(timeout=60):
            note = update.progress.note if update.progress else None
            seen.append((update.state.value, note))
            if note is not None and not update.finished:
                steps[int(note[-1])].set()
    assert seen[0][0] in ("queued", "running")
    assert [note for _, note in seen if note] == ["step 0", "step 1", "step 1"]
    assert (seen[-1], update.result, job.state) == (("succeeded", "step 1"), "there", State.SUCCEEDED)
    assert update is not job


def test_updates_can_be_awaited_and_end_at_once_for_a_job_that_has_finished(
    hf: Holdfast, done: dict[str, Job[Any]]
) -> None:
    async def states(job: Job[Any]) -> list[State]:
        return [update.state async for update in job.updates(timeout=20)]

    assert asyncio.run(states(done["failed"])) == [State.FAILED]
    assert [update.state for update in done["succeeded"].updates()] == [State.SUCCEEDED]
    with pytest.raises(WaitTimeout, match=r"job 3 is queued after 0\.05 s: no worker serves queue default"):
        list(done["queued"].updates(timeout=0.05))
    with working(hf):
        assert asyncio.run(states(done["queued"]))[-1] is State.SUCCEEDED


def test_who_stops_looking_at_updates_is_forgotten(hf: Holdfast, done: dict[str, Job[Any]]) -> None:
    for _ in done["queued"].updates():
        break
    wait_until(lambda: not hf._hub._waiting)


def test_every_method_that_asks_the_database_has_a_twin(hf: Holdfast, done: dict[str, Job[Any]]) -> None:
    methods = {name for name, value in vars(Job).items() if inspect.isfunction(value) and not name.startswith("_")}
    sync = {name for name in methods if not inspect.iscoroutinefunction(getattr(Job, name))}
    assert {f"a{name}" for name in sync - {"wait", "updates", "as_dict"}} == methods - sync - {"await_"}

    async def use() -> None:
        job = done["queued"]
        assert await job.arefresh() is job
        assert await job.apause("why not", by="me") is State.PAUSED
        assert (await job.awhy())[0].code == "PAUSED"
        assert await job.aresume() is State.QUEUED
        assert await job.achange(priority=3) is State.QUEUED
        assert (await job.acancel(), await job.aretry()) == (State.CANCELLED, State.QUEUED)
        assert len(await done["failed"].aattempts()) == 1
        assert await job.asteps() == []
        with pytest.raises(HoldfastError, match="HF1321"):
            await job.astack(timeout=1)
        await job.acancel()
        await job.adelete()

    asyncio.run(use())
    acancel = vars(Job)["acancel"]
    assert acancel.__name__ == "acancel"
    assert inspect.signature(acancel) == inspect.signature(Job.cancel)
    assert acancel.__doc__.startswith("`cancel` without blocking the event loop. Cancel it.")
