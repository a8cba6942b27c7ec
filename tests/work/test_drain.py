"""Drain: work until nothing is due or a budget is used up, and say how much was done."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

import pytest

from holdfast import Cancel, Fail, Holdfast, JobContext, Retry, Snooze, State
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.worker.neighbours import meeting_place
from tests.contract.places import raw
from tests.factories import wants
from tests.running import working
from tests.waiting import wait_until

DEAD = "dead~0123456789ab"  # a worker


def test_a_drain_returns_the_number_processed(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def task(n: int) -> None:
        if n == 0:
            raise Fail("no")

    assert hf.task(name="nothing")(lambda: None) is not None
    assert hf.drain() == 0
    hf.enqueue_many(task.bind(n) for n in range(50))
    assert hf.drain() == 50
    assert hf.drain() == 0


def test_a_drain_follows_what_becomes_due_meanwhile(hf: Holdfast) -> None:
    @hf.task
    def chain(n: int) -> None:
        if n:
            chain.enqueue(n - 1)

    @hf.task(retry=None)
    def stumbles(ctx: JobContext) -> None:
        if ctx.attempt < 3:
            raise Retry(after=0)

    chain.enqueue(5)
    stumbles.enqueue()
    done = hf.drain()
    assert (done, done.attempts, done.failed) == (6 + 1, 6 + 3, 0)
    assert {job.state for job in hf.jobs()} == {State.SUCCEEDED}


def test_a_drain_counts_jobs_that_finished_and_says_how_many_failed_and_in_how_many_attempts(hf: Holdfast) -> None:
    @hf.task(max_attempts=2, retry=None)
    def task(ctx: JobContext, how: str) -> None:
        if how == "cancel":
            raise Cancel("no longer wanted")
        if how == "cancelled meanwhile":
            hf.job(ctx.job.id).cancel()
        if how == "later":
            raise Retry(after=3600)
        if how in ("fail", "cancelled meanwhile") or (how == "stumble" and ctx.attempt == 1):
            raise ZeroDivisionError

    hf.enqueue_many(task.bind(how) for how in ("well", "stumble", "fail", "cancel", "cancelled meanwhile", "later"))
    done = hf.drain()
    assert done == 5, "all but the one that is tried again later"
    assert (done.attempts, done.failed) == (1 + 2 + 2 + 1 + 1 + 1, 1)


def test_arguments_of_others_that_are_too_deep_fail_their_own_job(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def greet(name: list[object]) -> None: ...

    good = greet.enqueue([])
    deep = b'{"name":' + b"[" * 1900 + b"]" * 1900 + b"}"
    _ = hf.store.enqueue(NewJob(task="greet", args=deep, max_attempts=1))
    hf.drain()
    bad = hf.job("2")
    assert (good.refresh().state, bad.refresh().state) == (State.SUCCEEDED, State.FAILED)
    assert bad.error is not None
    assert bad.error.code == "BAD_ARGUMENTS"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_arguments_that_are_no_text_fail_their_own_job(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def greet(name: str) -> str:
        return name

    bad, *good = [greet.enqueue(name) for name in "abc"]
    with raw(hf.settings) as sql:
        sql("update holdfast_jobs set args = cast(x'7b226e616d65223a22ff227d' as text) where id = ?", bad.id)
    assert hf.drain() == 3
    assert [job.refresh().state for job in good] == [State.SUCCEEDED] * 2
    assert bad.refresh().state is State.FAILED
    assert bad.error is not None
    assert bad.error.code == "BAD_ARGUMENTS"
    assert "utf-8" in bad.error.message
    assert len(hf.jobs()) == 3


def test_what_is_given_back_is_not_counted_as_processed(hf: Holdfast) -> None:
    @hf.task
    def later() -> None:
        raise Snooze(3600)

    later.enqueue()
    assert hf.drain() == 0


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize(("slots", "budget"), [(1, 3), (8, 3), (2, 10)])
def test_a_budget_of_jobs_is_kept(make_app: Callable[..., Holdfast], listen: bool, slots: int, budget: int) -> None:
    app = make_app(threads=slots, concurrency=slots, listen=listen)
    ran: list[int] = []

    @app.task
    def sync(n: int) -> None:
        ran.append(n)

    @app.task
    async def coroutine(n: int) -> None:
        ran.append(n)

    app.enqueue_many((sync if n % 2 else coroutine).bind(n) for n in range(12))
    assert app.drain(jobs=budget) == budget
    assert len(ran) == budget
    assert len(app.jobs(state="queued")) == 12 - budget
    assert {job.record.attempt for job in app.jobs(state="queued")} == {0}
    assert app.drain(jobs=0) == 0
    assert app.drain(jobs=100) == 12 - budget


def test_a_budget_of_seconds_is_kept_and_what_runs_finishes_in_its_grace(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(threads=1)
    began = time.monotonic()

    @app.task
    def slow() -> None:
        threading.Event().wait(0.4)

    app.enqueue_many(slow.bind() for _ in range(50))
    processed = app.drain(seconds=1.0)
    assert 1 <= processed <= 5
    assert time.monotonic() - began < 10
    counts = [len(app.jobs(state=state, limit=100)) for state in ("succeeded", "running", "queued")]
    assert counts == [processed, 0, 50 - processed]


def test_a_drain_and_workers_at_once_share_the_work(hf: Holdfast) -> None:
    ran: list[int] = []

    @hf.task
    async def task(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0.001)

    hf.enqueue_many(task.bind(n) for n in range(300))
    with working(hf), working(hf):
        hf.drain()
        for record in hf.jobs(limit=300):
            hf.job(record.id).wait(timeout=20)
    assert sorted(ran) == list(range(300))


def test_a_drain_leaves_other_queues_alone(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    here, there = task.using(queue="here").enqueue(), task.using(queue="there").enqueue()
    assert hf.drain(["here"]) == 1
    assert [here.refresh().state, there.refresh().state] == [State.SUCCEEDED, State.QUEUED]


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_a_drain_looks_after_the_jobs_of_one_that_died_before_it(make_app: Callable[..., Holdfast], host: str) -> None:
    """Where only drains run, nobody else would: by its free lock on the same host, else when its lease has run out and
    one more has passed."""
    app = make_app(lease=1.0, host="here")

    @app.task
    def task() -> str:
        return "done"

    job = task.enqueue()
    dead = wants(1, tasks=("task",), worker=DEAD, lease=1.0)
    assert len(app.store.attempts.claim(dead).jobs) == 1
    if host == "here":
        place = meeting_place(app.store, "here")
        assert place is not None
        os.close(os.open(DEAD, os.O_CREAT, 0o600, dir_fd=place))  # its lock is free
        os.close(place)
    else:
        wait_until(lambda: app.store.look("w", ["task"], None).expired_leases)
    assert app.drain() == 1
    assert job.refresh().result == "done"
    [lost] = job.attempts()
    assert (lost.outcome, lost.worker) == ("crashed", DEAD)


def test_where_only_drains_run_they_delete_what_is_no_longer_kept(
    make_app: Callable[..., Holdfast], settings: Settings
) -> None:
    """A worker does so a minute after its start, which no drain lives to see."""
    app = make_app(keep_finished=0.0)
    task = app.task(name="task")(lambda: None)
    task.enqueue()
    app.drain()
    app.drain()
    assert app.count() == 1, "not with every drain"
    with raw(settings) as sql:
        sql("insert into {rollups} values ('minute', '2020-01-01 00:00:00.000000', 'q', 'task', 'enqueued', '', 1, 0)")
    app.drain()
    assert app.count() == 0
    with raw(settings) as sql:
        assert sql("select count(*) from {rollups} where at = '2020-01-01 00:00:00.000000'") == [(0,)]
