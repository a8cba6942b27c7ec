"""Coroutines and threads of one process at SQLite's gate."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from holdfast import Holdfast, JobContext, Refused, State
from holdfast.store.sqlite.connect import path_of
from holdfast.store.sqlite.gate import holder_of
from holdfast.tasks import handler_transaction, offload
from holdfast.tasks.offload import at_once, in_thread
from tests.running import Heard, working
from tests.waiting import wait_until

only_sqlite = pytest.mark.parametrize("engine", ["sqlite"])
LIVE = 120.0  # seconds: far more than it takes; a standstill is for ever


@only_sqlite
@pytest.mark.parametrize("seed", range(3))
def test_random_schedules_of_threads_and_coroutines_come_to_an_end(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """With fewer threads than waiters; some are cancelled wherever they are, and offload writes of their own."""
    monkeypatch.setattr(offload, "THREADS", 2)
    chance = random.Random(seed)
    app = make_app(concurrency=100, threads=8)
    with closing(sqlite3.connect(path_of(app.settings), timeout=60, isolation_level=None)) as db:
        db.execute("create table paid (n integer)")

    @app.task
    async def pay(ctx: JobContext, pause: float) -> None:
        async with ctx.transaction() as tx:
            tx.conn.execute("insert into paid values (?)", (int(ctx.job.id),))
            await asyncio.sleep(pause)

    @app.task
    async def save(ctx: JobContext, pause: float) -> None:
        for page in range(4):
            await ctx.acheckpoint(page)
            await asyncio.to_thread(later.enqueue)
            await ctx.astep(f"step {page}", asyncio.sleep, pause)

    @app.task
    def sync(ctx: JobContext, pause: float) -> None:
        ctx.checkpoint(1)
        time.sleep(pause)
        with ctx.transaction() as tx:
            tx.conn.execute("insert into paid values (?)", (int(ctx.job.id),))

    @app.task(queue="later")
    def later() -> None: ...

    tasks: list[Any] = [pay, save, sync]
    jobs = app.enqueue_many(chance.choice(tasks).bind(chance.uniform(0.0, 0.02)) for _ in range(120))
    with working(app, ["default"]):
        for job in chance.sample(jobs, 20):
            time.sleep(chance.uniform(0.0, 0.05))
            with suppress(Refused):  # it has finished
                job.cancel()
        wait_until(lambda: all(one.finished for one in app.jobs(queue="default", limit=500)), timeout=LIVE)
    ended = {int(one.id): one for one in app.jobs(queue="default", limit=500)}
    with closing(sqlite3.connect(path_of(app.settings), timeout=60, isolation_level=None)) as db:
        paid = [n for (n,) in db.execute("select n from paid order by n")]
    assert paid == sorted(
        n for n, one in ended.items() if one.task != "save" and one.refresh().state is State.SUCCEEDED
    )
    assert all(one.refresh().state in (State.SUCCEEDED, State.CANCELLED) for one in ended.values())
    assert holder_of(path_of(app.settings)) is None


def test_a_call_that_is_cancelled_before_it_began_leaves_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "THREADS", 1)
    go_on = threading.Event()
    called: list[int] = []

    class Place: ...

    async def wait_in_line() -> None:
        place = Place()
        first = asyncio.ensure_future(in_thread(place, go_on.wait, 10))
        second, third = (asyncio.ensure_future(in_thread(place, called.append, n)) for n in (2, 3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        go_on.set()
        await asyncio.gather(first, third)

    asyncio.run(wait_in_line())
    assert called == [3]


def test_the_end_of_a_transaction_waits_for_no_thread_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However full the threads are, and whatever becomes of who waits for it meanwhile."""
    monkeypatch.setattr(offload, "THREADS", 1)
    go_on = threading.Event()
    ended: list[bool] = []

    class Place: ...

    def end() -> None:
        time.sleep(0.05)
        ended.append(True)

    async def fill_and_end() -> None:
        place = Place()
        full = [asyncio.ensure_future(in_thread(place, go_on.wait, 10)) for _ in range(3)]
        full += [asyncio.ensure_future(asyncio.to_thread(go_on.wait, 10)) for _ in range(100)]
        await asyncio.sleep(0)
        ending = asyncio.ensure_future(at_once(end))
        await asyncio.sleep(0.01)
        ending.cancel()
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert ended == [True]
        with pytest.raises(ZeroDivisionError):
            await at_once(lambda: 1 / 0)
        go_on.set()
        await asyncio.gather(*full)

    asyncio.run(fill_and_end())


def test_an_end_without_a_thread_to_spare_is_made_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def end() -> int:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", none_left)
            return await at_once(int, "5")

    assert asyncio.run(end()) == 5


@only_sqlite
def test_a_long_transaction_is_warned_of(
    make_app: Callable[..., Holdfast], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_transaction, "LONG", 0.05)
    app = make_app()

    @app.task
    async def pay(ctx: JobContext, seconds: float) -> None:
        async with ctx.transaction():
            await asyncio.sleep(seconds)

    slow, quick = pay.enqueue(0.1), pay.enqueue(0.0)
    app.drain()
    assert slow.refresh().state is quick.refresh().state is State.SUCCEEDED
    [told] = heard.of("writers_waited")
    assert (told["job"], told["task"]) == (slow.id, "pay")
    assert told["seconds"] >= 0.1
