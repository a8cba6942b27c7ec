"""What a type checker sees of crons, resources and hooks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, assert_type

from holdfast import Holdfast, Job, JobContext, JobInfo
from holdfast.model.cron import CronRecord
from holdfast.tasks.resources import Resource

hf = Holdfast("sqlite:///unused.db")


class Pool:
    size = 1


@hf.resource
def plain() -> Pool:
    return Pool()


@hf.resource
def generator(pool: Pool = plain.injected) -> Iterator[Pool]:
    yield pool


@hf.resource
def full_generator() -> Generator[Pool, None, None]:
    yield Pool()


@hf.resource
async def coroutine() -> Pool:
    return Pool()


@hf.resource
async def asynchronous() -> AsyncIterator[Pool]:
    yield Pool()


@hf.resource
async def asynchronous_in_full() -> AsyncGenerator[Pool, None]:
    yield Pool()


@hf.task
async def fetch(ctx: JobContext, url: str, *, pool: Pool = asynchronous.injected, other: Pool = hf.injected) -> int:
    return pool.size + len(url)


@hf.task(cron="*/5 * * * *", timezone="Europe/Berlin", catch_up="none")
def report(ctx: JobContext, pool: Pool = plain.injected) -> datetime | None:
    return ctx.job.tick


@hf.on_start
def started() -> None: ...


@hf.on_stop
async def stopped() -> None: ...


@hf.on_error
def errored(job: JobInfo | None, error: BaseException) -> None: ...


if TYPE_CHECKING:
    for resource in (plain, generator, full_generator, coroutine, asynchronous, asynchronous_in_full):
        assert_type(resource, Resource[Pool])
    assert_type(fetch.enqueue("x"), Job[int])
    assert_type(report.enqueue(), Job[datetime | None])
    assert_type(report(pool=Pool()), datetime | None)
    assert_type(hf.crons(), list[CronRecord])
    assert_type(plain.injected, Pool)
    fetch.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    @hf.task
    def wrong(pool: str = plain.injected) -> None: ...  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]

    hf.task(cron=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    hf.task(cron="* * * * *", catch_up="some")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

    @hf.on_error  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def too_few(job: JobInfo | None) -> None: ...


def test_resources_are_resources() -> None:
    assert isinstance(plain, Resource)
    assert repr(asynchronous) == "<Resource asynchronous>"
