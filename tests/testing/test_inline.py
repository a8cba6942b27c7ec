"""Inline mode: enqueue runs at once, where it is called, and raises what the handler raises."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Fail, Holdfast, JobContext, State, testing
from holdfast.logs import job_fields
from holdfast.store.sqlite.connect import path_of
from holdfast.testing import Kit

hf = Holdfast("sqlite:///never-made.db")
where: list[threading.Thread] = []


@hf.task(retry=None)
def double(n: int) -> int:
    where.append(threading.current_thread())
    return 2 * n


@hf.task
async def adouble(n: int) -> int:
    await asyncio.sleep(0)
    where.append(threading.current_thread())
    return 2 * n


@hf.task(max_attempts=2, retry=5)
def fails(what: str) -> None:
    raise LookupError(what)


@hf.task
async def afails(what: str) -> None:
    raise Fail(what, code="NO")


@hf.task
def parent(ctx: JobContext) -> dict[str, Any]:
    child = double.enqueue(4)
    return {"child": child.refresh().result, "still": job_fields()["task"], "id": ctx.job.id}


@hf.task
def charge(ctx: JobContext) -> None:
    with ctx.transaction() as tx:
        tx.conn.execute("create table charges (job text)")
        tx.conn.execute("insert into charges values (?)", (ctx.job.id,))
        tx.set_result("charged")


@pytest.fixture
def kit() -> Iterator[Kit]:
    where.clear()
    with testing.store(hf, inline=True) as kit:
        yield kit


def test_a_job_has_run_in_the_callers_thread_when_enqueue_returns(kit: Kit) -> None:
    job = double.enqueue(21)
    assert (job.refresh().state, job.refresh().result) == (State.SUCCEEDED, 42)
    assert where == [threading.current_thread()]
    assert job.refresh().record.worker == "inline"
    kit.assert_enqueued(double, n=21)


def test_what_the_handler_raises_is_raised_and_the_outcome_recorded(kit: Kit) -> None:
    with pytest.raises(LookupError, match="gone"):
        fails.enqueue("gone")
    [job] = kit.jobs(fails)
    assert job.refresh().state is State.QUEUED  # one attempt, not all of them
    assert [attempt.error_code for attempt in job.attempts()] == ["LookupError"]
    kit.advance("5s")
    kit.run_due(expect="failed")
    with pytest.raises(Fail, match="never"):
        afails.enqueue("never")
    assert kit.jobs(afails)[0].state is State.FAILED


def test_one_attempt_is_made_even_if_the_next_is_due_at_once(kit: Kit) -> None:
    with kit.failing(double, ConnectionError), pytest.raises(ConnectionError):
        double.using(max_attempts=5).enqueue(1)
    [job] = kit.jobs(double)
    assert (job.refresh().state, job.refresh().record.attempt) == (State.QUEUED, 1)
    assert job.refresh().record.run_at == kit.now


def test_asynchronous_tasks_and_tests(kit: Kit) -> None:
    assert adouble.enqueue(1).result == 2
    assert where == [threading.current_thread()]

    async def test() -> None:
        assert (await adouble.aenqueue(2)).result == 4
        assert (await double.aenqueue(3)).result == 6
        assert adouble.enqueue(4).result == 8  # a synchronous enqueue while this loop runs
        with pytest.raises(Fail, match="no"):
            await afails.aenqueue("no")
        with pytest.raises(Fail, match="no"):
            afails.enqueue("no")

    asyncio.run(test())


def test_a_handler_that_enqueues_finds_its_child_done(kit: Kit) -> None:
    job = parent.enqueue()
    assert job.refresh().result == {"child": 8, "still": "parent", "id": job.id}
    assert job_fields()["task"] is None


def test_many_are_run_in_order_and_the_first_error_is_raised(kit: Kit) -> None:
    assert [job.refresh().result for job in hf.enqueue_many(double.bind(n) for n in range(3))] == [0, 2, 4]
    with pytest.raises(LookupError, match="first"):
        hf.enqueue_many([double.bind(1), fails.bind("first"), double.bind(2), fails.bind("second")])
    assert {job.state for job in kit.jobs(double)} == {State.SUCCEEDED}
    assert hf.enqueue_stream(double.bind(n) for n in range(3)) == 3
    assert asyncio.run(hf.aenqueue_many([double.bind(9)]))[0].refresh().result == 18


def test_what_is_not_due_waits(kit: Kit) -> None:
    later = double.using(delay=60).enqueue(1)
    assert later.refresh().state is State.QUEUED
    hf.pause_task("adouble")
    assert adouble.enqueue(1).refresh().state is State.QUEUED
    connection = sqlite3.connect(path_of(hf.settings))
    with connection:
        mine = double.using(conn=connection).enqueue(5)
    connection.close()
    assert mine.refresh().state is State.QUEUED
    kit.advance("1m")
    assert {one.id for one in kit.run_due()} == {later.id, mine.id}


def test_a_second_enqueue_of_a_key_runs_nothing(kit: Kit) -> None:
    first = double.using(key="k", reuse="forever").enqueue(1)
    again = double.using(key="k", reuse="forever").enqueue(1)
    assert (again.id, again.created, len(where)) == (first.id, False, 1)


def test_a_success_recorded_by_the_handler_itself_counts(kit: Kit) -> None:
    job = charge.enqueue()
    assert job.refresh().state is State.SUCCEEDED
    assert job.refresh().record.result == b'"charged"'


def test_it_ends_with_its_block() -> None:
    with testing.store(hf) as kit:
        with kit.inline():
            with kit.inline():
                assert double.enqueue(1).refresh().state is State.SUCCEEDED
            assert double.enqueue(1).refresh().state is State.SUCCEEDED
        assert double.enqueue(1).refresh().state is State.QUEUED


def test_a_failed_job_that_an_enqueue_retries_runs_again() -> None:
    app = Holdfast("sqlite:///never-opened.db")
    runs: list[int] = []

    @app.task(after_failure="retry")
    def flaky(n: int) -> None:
        runs.append(n)
        if len(runs) < 3:
            raise Fail("no")

    with testing.store(app, inline=True):
        enqueuer = flaky.using(key="k")
        with pytest.raises(Fail):
            enqueuer.enqueue(1)
        with pytest.raises(Fail):
            enqueuer.enqueue(1)
        [job] = app.enqueue_many([enqueuer.bind(1)])
        assert app.store.reads.get(job.id).state.value == "succeeded"
    assert runs == [1, 1, 1]
