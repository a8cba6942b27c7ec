"""A checkpoint on a handler's own open transaction: its writes and the checkpoint are one commit."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, JobContext, LeaseLost, State
from tests.running import take_over


def opened(hf: Holdfast) -> Any:
    url = hf.settings.url
    return sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)


@pytest.fixture
def pages(hf: Holdfast) -> Any:
    connection = opened(hf)
    connection.execute("drop table if exists own_pages")
    connection.execute("create table own_pages (number integer)")
    connection.commit()
    yield connection
    connection.rollback()
    connection.execute("drop table own_pages")
    connection.commit()
    connection.close()


def counted(pages: Any) -> int:
    found: int = pages.execute("select count(*) from own_pages").fetchone()[0]
    pages.rollback()
    return found


def test_own_writes_and_the_checkpoint_are_committed_together_or_not_at_all(hf: Holdfast, pages: Any) -> None:
    seen: list[tuple[Any, int]] = []

    @hf.task(max_attempts=2, retry=0)
    def work(ctx: JobContext) -> None:
        own = opened(hf)
        seen.append((ctx.saved, counted(own)))
        own.execute("insert into own_pages values (1)")
        ctx.checkpoint(f"attempt {ctx.attempt}", pending=7, done=1, conn=own)
        own.commit()
        own.execute("insert into own_pages values (2)")
        ctx.checkpoint("never", pending=1, done=2, conn=own)
        own.rollback()
        own.close()
        if ctx.attempt == 1:
            raise RuntimeError("once more")

    job = work.enqueue()
    hf.drain()
    assert seen == [(None, 0), ("attempt 1", 1)]
    assert job.refresh().state is State.SUCCEEDED
    assert (counted(pages), job.record.pending) == (2, 7)


def test_whoever_lost_the_job_can_commit_nothing_with_it(hf: Holdfast, pages: Any) -> None:
    raised: list[str] = []

    @hf.task
    def work(ctx: JobContext) -> None:
        take_over(hf, ctx.job.id)
        own = opened(hf)
        own.execute("insert into own_pages values (1)")
        try:
            ctx.checkpoint(1, pending=3, conn=own)
        except LeaseLost as lost:
            raised.append(str(lost))
            raise
        finally:
            own.close()

    job = work.enqueue()
    hf.drain()
    assert raised == [f"HF1303 job {job.id} was taken over by someone else; roll this transaction back"]
    assert counted(pages) == 0
    assert job.refresh().record.pending is None


@pytest.mark.parametrize("engine", ["postgres"])
def test_an_asynchronous_handler_saves_on_an_asynchronous_connection(hf: Holdfast, pages: Any) -> None:
    @hf.task
    async def work(ctx: JobContext) -> None:
        async with await psycopg.AsyncConnection.connect(hf.settings.url) as own:
            await own.execute("insert into own_pages values (1)")
            await ctx.acheckpoint({"at": 1}, pending=2, done=1, conn=own)

    job = work.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    assert (counted(pages), job.record.pending) == (1, 2)


def test_a_checkpoint_does_not_go_into_a_transaction_that_ends_with_success(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def work(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            ctx.checkpoint(1, conn=tx.conn)

    job = work.enqueue()
    hf.drain()
    assert "HF1112 ctx.transaction() ends with success" in str(job.refresh().error)
