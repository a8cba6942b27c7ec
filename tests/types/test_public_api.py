"""What a type checker sees of the public API. Read by mypy and pyright; running it checks nothing more than that it can
be imported. Lines that must be errors carry an ignore: a checker that finds nothing to ignore complains."""
# ruff: noqa: B018

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_type

from holdfast import (
    AsyncTask,
    AttemptRecord,
    AuditRecord,
    Bound,
    Changed,
    Exponential,
    Holdfast,
    Job,
    JobContext,
    JobRecord,
    LastError,
    Pause,
    Processed,
    QueueSummary,
    Reason,
    State,
    SyncTask,
)
from holdfast import Page as PageOf

hf = Holdfast("sqlite:///unused.db")


@dataclass
class Page:
    url: str
    words: int = 0


@hf.task
def plain(url: str, depth: int = 1) -> Page:
    return Page(url, depth)


@hf.task
def with_context(ctx: JobContext, url: str, *, deep: bool = False) -> int:
    return len(url)


@hf.task
async def asynchronous(url: str) -> list[str]:
    return [url]


@hf.task
async def asynchronous_with_context(ctx: JobContext, n: int) -> None: ...


@hf.task(queue="audits", max_attempts=3, timeout=300, retry=[60, 300, 900], aliases=["audit_v1"], tags=["slow"])
def with_options(url: str) -> dict[str, int]:
    return {url: 1}


@hf.task(name="other", retry=Exponential(base=1), priority=5, reuse="forever", timeout=timedelta(minutes=5))
def with_options_and_context(ctx: JobContext, n: int) -> float:
    return n / 2


@hf.task(retry=lambda attempt, error: None if attempt > 3 else timedelta(seconds=attempt))
async def asynchronous_with_options(n: int) -> float:
    return n / 2


@hf.task(retry=None)
async def asynchronous_with_options_and_context(ctx: JobContext, n: int, /) -> str:
    return str(n)


if TYPE_CHECKING:
    # a task has the signature of its handler, less the context
    assert_type(plain("x"), Page)
    assert_type(plain("x", depth=2), Page)
    assert_type(with_context("x", deep=True), int)
    one = assert_type(asynchronous("x"), Coroutine[Any, Any, list[str]])
    assert_type(with_options("x"), dict[str, int])
    assert_type(with_options_and_context(1), float)
    other = assert_type(asynchronous_with_options(1), Coroutine[Any, Any, float])
    plain(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with_context()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    # enqueue
    assert_type(plain.enqueue("x"), Job[Page])
    assert_type(plain.enqueue(url="x", depth=2), Job[Page])
    assert_type(with_context.enqueue("x"), Job[int])
    assert_type(asynchronous.enqueue("x"), Job[list[str]])
    assert_type(asynchronous_with_context.enqueue(1), Job[None])
    assert_type(with_options.enqueue("x"), Job[dict[str, int]])
    assert_type(with_options_and_context.enqueue(1), Job[float])
    assert_type(asynchronous_with_options.enqueue(1), Job[float])
    assert_type(asynchronous_with_options_and_context.enqueue(1), Job[str])
    plain.enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    plain.enqueue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain.enqueue("x", depth="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain.enqueue("x", dept=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with_context.enqueue("x", True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with_context.enqueue(JobContext.detached("x"), "x")  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportCallIssue]
    asynchronous_with_context.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with_options.enqueue(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    asynchronous_with_options_and_context.enqueue(n=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    # run now; with a deadline, arguments are checked when it is called
    assert_type(plain.run_now("x", depth=2), Job[Page])
    assert_type(plain.run_now("x", deadline=0.5), Job[Page])
    assert_type(plain.using(key="x").run_now("x"), Job[Page])
    plain.run_now(1)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    plain.run_now("x", dept=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

    # bind, and many of them
    assert_type(plain.bind("x"), Bound[Page])
    assert_type(hf.enqueue_many(plain.bind(url) for url in "abc"), list[Job[Page]])
    assert_type(hf.enqueue_many([asynchronous_with_options.bind(1)]), list[Job[float]])
    plain.bind(depth=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hf.enqueue_many([plain])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # options keep the signature
    some_time = datetime(2030, 1, 1, tzinfo=UTC)
    assert_type(plain.using(priority=5, delay=60, key="x").enqueue("x"), Job[Page])
    assert_type(plain.using(run_at=some_time, expires=60, tags=["a"]).using(queue="b").enqueue("x", depth=3), Job[Page])
    assert_type(asynchronous.using(delay=timedelta(hours=1), key="x", reuse="forever").bind("x"), Bound[list[str]])
    assert_type(with_options_and_context.using(conn=object(), correlation_id="c").enqueue(2), Job[float])
    plain.using(priority=5).enqueue(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain.using(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    plain.using(prioritee=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    plain.using(key="x", reuse=[1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # the decorator's own options
    hf.task(queue=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    hf.task(no_such_option=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

    # a job knows what it returns
    job = plain.enqueue("x")
    assert_type(job.wait(), Page)
    assert_type(job.wait(timeout=3), Page)
    assert_type(job.refresh(), Job[Page])
    assert_type(job.result, Page)
    assert_type(job.record, JobRecord)
    assert_type(job.error, LastError | None)
    for update in job.updates():
        assert_type(update, Job[Page])
    assert_type(job.state, State)
    assert_type(job.id, str)
    assert_type(hf.job("1"), Job[Any])
    job.wait().nonsense  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

    async def in_async_code() -> None:
        assert_type(await plain.aenqueue("x"), Job[Page])
        assert_type(await with_context.using(delay=1).aenqueue("x", deep=True), Job[int])
        assert_type(await (await asynchronous.aenqueue("x")), list[str])
        assert_type(await plain.enqueue("x"), Page)
        assert_type(await asynchronous("x"), list[str])
        assert_type(await asynchronous_with_context(1), None)
        assert_type(await hf.aenqueue_many(plain.bind(url) for url in "abc"), list[Job[Page]])
        assert_type(await job.arefresh(), Job[Page])
        assert_type(await job.acancel("why", by="me"), State)
        assert_type(await job.aattempts(), list[AttemptRecord])
        assert_type(await job.await_(3), Page)
        assert_type(await hf.ajob("1"), Job[Any])
        assert_type(await hf.ajobs("state:failed", limit=3), PageOf[Job[Any]])
        assert_type(await hf.aqueues(), list[QueueSummary])
        assert_type(await hf.adrain(jobs=3), Processed)
        async for update in job.updates(timeout=3):
            assert_type(update, Job[Page])
        await job.acancel(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await job.acancel(whom="me")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        await hf.ajobs(limit="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await asynchronous.aenqueue(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    # what a job promises is at least what it is asked for
    wider: Job[object] = plain.enqueue("x")
    narrower: Job[str] = plain.enqueue("x")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    # many jobs by one filter, or a queue or a task
    assert_type(hf.count("state:failed"), int)
    assert_type(hf.retry("state:failed"), Changed)
    assert_type(hf.cancel("state:failed", "ordered twice", by="ops"), Changed)
    assert_type(hf.change("queue:mail", queue="slow", priority=5, delay=timedelta(hours=1)), Changed)
    assert_type(hf.pause_jobs("queue:mail"), Changed)
    assert_type(hf.resume_jobs("state:paused"), Changed)
    assert_type(hf.pause_queue("mail", until=timedelta(hours=1), reason="provider down", by="ops"), Pause)
    assert_type(hf.pause_task("send"), Pause)
    assert_type(hf.pause_cron("send"), Pause)
    assert_type(hf.pause_matching("task:send", args={"to": "you"}), Pause)
    assert_type(hf.resume_queue("mail"), bool)
    assert_type(hf.resume_task("send", by="ops"), bool)
    assert_type(hf.resume_cron("send"), bool)
    assert_type(hf.resume_matching(args={"to": "you"}), bool)
    assert_type(hf.audit(limit=5), list[AuditRecord])
    assert_type(hf.run_cron("send", by="ops"), Job[Any])
    assert_type(hf.why("1"), list[Reason])
    hf.pause_queue(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hf.pause_queue("mail", "provider down")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hf.retry()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    hf.retry("state:failed", who="ops")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(hf.jobs("state:failed since:1h").next, str | None)
    assert_type(hf.jobs("state:failed")[0], Job[Any])

    # settings are arguments with types
    Holdfast("sqlite:///unused.db", lease=3.0, sync_in_loop="error", listen=None)
    Holdfast("sqlite:///unused.db", lease="20s", keep_failed=timedelta(days=30))
    Holdfast(leese=3.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Holdfast(lease=[3])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def test_tasks_are_of_the_kind_of_their_handlers() -> None:
    assert isinstance(plain, SyncTask)
    assert isinstance(with_options_and_context, SyncTask)
    assert isinstance(asynchronous, AsyncTask)
    assert isinstance(asynchronous_with_options_and_context, AsyncTask)
