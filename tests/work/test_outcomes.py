"""What a handler does decides what becomes of its job: the verb, the charge, the row of history."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Cancel, Exponential, Fail, Holdfast, Job, JobContext, Retry, Snooze, State
from holdfast.model.job import AttemptRecord
from tests.running import Heard, await_state, working

Handler = Callable[..., Any]


def run(app: Holdfast, handler: Handler, **options: Any) -> Job[Any]:
    """Run the handler once, as a job of its own."""
    job: Job[Any] = app.task(name="task", **options)(handler).enqueue()
    app.drain(jobs=1)
    return job


def only_attempt(job: Job[Any]) -> AttemptRecord:
    [attempt] = job.attempts()
    return attempt


def both_colours(function: Handler) -> dict[str, Handler]:
    """The handler as it is, and as a coroutine function."""

    async def coroutine(ctx: JobContext) -> Any:
        return function(ctx)

    def plain(ctx: JobContext) -> Any:
        return function(ctx)

    return {"sync": plain, "async": coroutine}


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def raising(error: BaseException, colour: str) -> Handler:
    def handler(ctx: JobContext) -> Any:
        raise error

    return both_colours(handler)[colour]


def test_a_return_succeeds_and_leaves_no_history(hf: Holdfast, colour: str) -> None:
    job = run(hf, both_colours(lambda ctx: {"attempt": ctx.attempt})[colour])
    record = job.refresh().record
    assert record.state is State.SUCCEEDED
    assert record.result == b'{"attempt":1}'
    assert record.attempt == 1
    assert record.worker is not None
    assert record.started_at is not None
    assert record.finished_at is not None
    assert record.started_at <= record.finished_at
    assert job.attempts() == []


def test_an_error_is_rescheduled_by_the_policy_and_told(hf: Holdfast, colour: str, heard: Heard) -> None:
    job = run(hf, raising(ZeroDivisionError("nothing to divide by"), colour), retry=3600)
    record, attempt = job.refresh().record, only_attempt(job)
    assert (record.state, record.attempt) == (State.QUEUED, 1)
    assert (record.error_code, record.error_message) == ("ZeroDivisionError", "nothing to divide by")
    assert (record.run_at - attempt.ended_at).total_seconds() == pytest.approx(3600, abs=5)
    assert (attempt.number, attempt.life, attempt.outcome, attempt.worker) == (1, 1, "errored", record.worker)
    assert attempt.started_at is not None
    assert attempt.started_at <= attempt.ended_at
    assert attempt.traceback is not None
    assert attempt.traceback.rstrip().endswith("ZeroDivisionError: nothing to divide by")
    assert "test_outcomes.py" in attempt.traceback
    assert "runners" not in attempt.traceback, "it begins in the handler"
    [told] = heard.of("errored")
    assert (told["job"], told["task"], told["attempt"], told["verb"]) == (job.id, "task", 1, "reschedule")
    assert heard.of("failed") == []


def test_the_last_attempt_fails_the_job(hf: Holdfast, heard: Heard) -> None:
    @hf.task(max_attempts=3, retry=None)
    def task(ctx: JobContext) -> None:
        raise ZeroDivisionError(f"attempt {ctx.attempt}")

    job = task.enqueue()
    assert hf.drain().attempts == 3
    record = job.refresh().record
    assert (record.state, record.attempt, record.error_message) == (State.FAILED, 3, "attempt 3")
    assert record.failed_at is not None
    assert [(a.number, a.outcome, a.error_message) for a in job.attempts()] == [
        (n, "errored", f"attempt {n}") for n in (1, 2, 3)
    ]
    assert len({a.fence for a in job.attempts()}) == 3
    assert [told["job"] for told in heard.of("failed")] == [job.id]


def test_an_error_is_told_with_its_traceback_until_the_job_succeeds(hf: Holdfast) -> None:
    def handler(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            raise ZeroDivisionError("once")

    job = run(hf, handler, retry=None)
    job.refresh()
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("ZeroDivisionError", "once")
    assert (job.attempts()[-1].traceback or "").rstrip().endswith("ZeroDivisionError: once")
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    assert hf.job(job.id).error is None


def test_retry_after_overrules_the_policy_and_is_charged(hf: Holdfast, colour: str) -> None:
    job = run(hf, raising(Retry("busy", after=timedelta(hours=2)), colour), retry=1)
    record, attempt = job.refresh().record, only_attempt(job)
    assert (record.state, record.attempt) == (State.QUEUED, 1)
    assert (record.run_at - attempt.ended_at).total_seconds() == pytest.approx(7200, abs=5)
    assert (attempt.outcome, attempt.error_code, attempt.error_message) == ("errored", "RETRY", "busy")


def test_retry_without_a_time_follows_the_policy_and_the_last_one_fails(hf: Holdfast) -> None:
    job = run(hf, raising(Retry(), "sync"), retry=3600)
    record = job.refresh().record
    assert (record.run_at - only_attempt(job).ended_at).total_seconds() == pytest.approx(3600, abs=5)
    other = run_other(hf, raising(Retry(after=5), "sync"), max_attempts=1)
    assert other.refresh().state is State.FAILED


def run_other(app: Holdfast, handler: Handler, **options: Any) -> Job[Any]:
    job: Job[Any] = app.task(name="other", **options)(handler).enqueue()
    app.drain(jobs=1)
    return job


def test_fail_needs_no_reason(hf: Holdfast) -> None:
    def give_up() -> None:
        raise Fail

    job = run(hf, give_up, max_attempts=5)
    record = job.refresh().record
    assert (record.state, record.attempt, record.error_code) == (State.FAILED, 1, "FAILED")
    assert record.error_message == "the handler failed the job, and gave no reason"


def test_fail_fails_at_once_with_its_code(hf: Holdfast, colour: str) -> None:
    job = run(hf, raising(Fail("still invalid", code="SCHEMA_VALIDATION_FAILED"), colour), max_attempts=5)
    record, attempt = job.refresh().record, only_attempt(job)
    assert (record.state, record.attempt) == (State.FAILED, 1)
    assert (record.error_code, record.error_message) == ("SCHEMA_VALIDATION_FAILED", "still invalid")
    assert (attempt.outcome, attempt.error_code) == ("errored", "SCHEMA_VALIDATION_FAILED")


def test_snooze_gives_back_uncharged(hf: Holdfast, colour: str) -> None:
    job = run(hf, raising(Snooze(3600), colour), max_attempts=1)
    record, attempt = job.refresh().record, only_attempt(job)
    assert (record.state, record.attempt) == (State.QUEUED, 0)
    assert (record.run_at - attempt.ended_at).total_seconds() == pytest.approx(3600, abs=5)
    assert attempt.outcome == "snoozed"
    assert record.error_code is None


def test_cancel_ends_the_job(hf: Holdfast, colour: str) -> None:
    job = run(hf, raising(Cancel("nobody is subscribed"), colour))
    record = job.refresh().record
    assert record.state is State.CANCELLED
    assert (record.error_code, record.error_message) == ("CANCELLED", "nobody is subscribed")
    assert only_attempt(job).outcome == "cancelled"


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), StopIteration()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_is_its_own_errored_attempt(hf: Holdfast, colour: str, error: BaseException) -> None:
    job = run(hf, raising(error, colour), retry=3600)
    after = run_other(hf, both_colours(lambda ctx: "the worker lives")[colour])
    assert job.refresh().state is State.QUEUED
    assert only_attempt(job).outcome == "errored"
    # A coroutine can't raise StopIteration: Python itself turns it into a RuntimeError.
    assert only_attempt(job).error_code in (type(error).__name__, "RuntimeError")
    assert after.refresh().result == "the worker lives"


def test_system_exit_in_a_task_that_the_handler_started_leaves_the_loop_running(hf: Holdfast) -> None:
    reached: list[str] = []

    @hf.task(max_attempts=1)
    async def exits() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(sys.exit, 3))

    @hf.task(max_attempts=1)
    async def exits_in_a_task() -> None:
        async def child() -> None:
            sys.exit(4)

        await asyncio.create_task(child())

    @hf.task
    async def bystander() -> None:
        await asyncio.sleep(0.05)
        reached.append("the end")

    jobs: list[Job[Any]] = [exits.enqueue(), exits_in_a_task.enqueue(), bystander.enqueue()]
    with working(hf):
        await_state(jobs[0], State.FAILED)
        await_state(jobs[1], State.FAILED)
        await_state(jobs[2], State.SUCCEEDED)
        assert bystander.enqueue().wait(timeout=10) is None
    assert reached == ["the end", "the end"]


def test_groups_of_errors(hf: Holdfast, colour: str) -> None:
    many = ExceptionGroup("two", [ZeroDivisionError("a"), ValueError("b")])
    assert only_attempt(run(hf, raising(many, colour), retry=3600)).error_code == "ExceptionGroup"
    odd = BaseExceptionGroup("odd", [SystemExit(1), ValueError("b")])
    assert only_attempt(run_other(hf, raising(odd, colour), retry=3600)).error_code == "BaseExceptionGroup"


def test_what_steers_a_job_does_so_out_of_a_task_group_too(hf: Holdfast) -> None:
    async def child() -> None:
        raise Fail("from within", code="INNER")

    async def handler() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    job = run(hf, handler)
    assert (job.refresh().state, job.error and job.error.code) == (State.FAILED, "INNER")


def test_a_handler_that_cancels_itself_costs_no_slot(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(concurrency=1)

    @app.task
    async def cancels_itself(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return n

    jobs = [cancels_itself.enqueue(n) for n in range(5)]
    assert app.drain() == 5
    assert [job.refresh().result for job in jobs] == list(range(5))


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (None, [0, 0]),
        (7, [7, 7]),
        ([60, 300], [60, 300]),
        ([60], [60, 60]),
        (Exponential(base=10, factor=3, jitter=False), [10, 30]),
        (lambda attempt, error: attempt * 100, [100, 200]),
        (lambda attempt, error: timedelta(minutes=attempt), [60, 120]),
        (lambda attempt, error: -5, [0, 0]),
    ],
)
def test_retry_policies_say_when(hf: Holdfast, retry: Any, delays: list[float]) -> None:
    @hf.task(max_attempts=3, retry=retry)
    def task() -> None:
        raise ZeroDivisionError

    job = task.enqueue()
    waited = []
    for number in (1, 2):
        hf.drain(jobs=1)
        waited.append((job.refresh().record.run_at - job.attempts()[number - 1].ended_at).total_seconds())
        job.change(delay=0)
    assert waited == pytest.approx(delays, abs=3)


def test_a_policy_that_is_asked_gets_attempt_and_error_and_may_give_up(hf: Holdfast) -> None:
    asked: list[tuple[int, str]] = []

    def policy(attempt: int, error: BaseException) -> float | None:
        asked.append((attempt, str(error)))
        return 0 if attempt < 2 else None

    @hf.task(max_attempts=10, retry=policy)
    def task(ctx: JobContext) -> None:
        raise ZeroDivisionError(f"attempt {ctx.attempt}")

    job = task.enqueue()
    assert hf.drain().attempts == 2
    assert asked == [(1, "attempt 1"), (2, "attempt 2")]
    assert job.refresh().state is State.FAILED


@pytest.mark.parametrize("answer", ["soon", float("nan"), float("inf"), [1]])
def test_a_policy_that_raises_or_answers_nonsense_does_not_cost_the_job(hf: Holdfast, answer: Any) -> None:
    job = run(hf, raising(ZeroDivisionError("no"), "sync"), retry=lambda attempt, error: answer)
    assert job.refresh().state is State.QUEUED
    assert only_attempt(job).error_code == "ZeroDivisionError"


def test_a_policy_that_raises_is_told_in_the_message(hf: Holdfast) -> None:
    def policy(attempt: int, error: BaseException) -> float:
        raise KeyError("no such delay")

    job = run(hf, raising(ZeroDivisionError("no"), "async"), retry=policy)
    assert job.refresh().state is State.QUEUED
    assert job.error is not None
    assert job.error.message == "no (and its retry policy raised KeyError: 'no such delay')"


# -- time limits -------------------------------------------------------------------------------------------------------


def test_a_coroutine_is_stopped_at_its_timeout(hf: Holdfast) -> None:
    cleaned_up: list[bool] = []

    async def handler() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned_up.append(True)

    job = run(hf, handler, timeout=0.1, retry=3600)
    attempt = only_attempt(job)
    assert job.refresh().record.attempt == 1
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "TIMED_OUT")
    assert attempt.error_message == "it ran longer than its timeout of 0.1 s"
    assert cleaned_up == [True]


def test_a_synchronous_handler_is_told_at_its_timeout(hasty: Holdfast) -> None:
    def handler(ctx: JobContext) -> None:
        while not ctx.should_stop():
            pass

    job = run(hasty, handler, timeout=0.1, max_attempts=1)
    assert job.refresh().state is State.FAILED
    assert only_attempt(job).outcome == "timed_out"


def test_what_is_done_in_time_is_not_timed_out(hf: Holdfast, colour: str) -> None:
    job = run(hf, both_colours(lambda ctx: "in time")[colour], timeout=30)
    assert job.refresh().result == "in time"


def test_a_coroutine_that_ends_well_after_all_succeeds(hf: Holdfast) -> None:
    async def handler() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "saved what there was"
        return "never"

    assert run(hf, handler, timeout=0.05).refresh().result == "saved what there was"


def test_a_coroutine_that_swallows_its_cancellation_and_returns_nothing_timed_out(hf: Holdfast) -> None:
    async def handler() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return

    assert only_attempt(run(hf, handler, timeout=0.05, retry=3600)).outcome == "timed_out"


# -- values nobody can keep --------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


class Size(BaseModel):
    width: int


def test_a_result_that_contradicts_its_hint_fails_its_job(hf: Holdfast, colour: str) -> None:
    def enqueued(hint: Any, value: Any) -> Job[Any]:
        handler = both_colours(lambda ctx: value)[colour]
        handler.__annotations__["return"] = hint
        return hf.task(name=f"task{len(hf.tasks)}")(handler).enqueue()

    wrong = [(int, "text"), (list[int], [1, "b"]), (date, "soon"), (Size, {"width": "wide"}), (str | None, 7)]
    right: list[tuple[Any, Any]] = [
        (int, 7),
        (float, 7),
        (list[int], [1]),
        (date, "2030-01-31"),
        (Size, Size(width=3)),
        (int, None),
    ]
    right += [(None, "kept"), (Any, {"a": [1]})]
    refused = [enqueued(*one) for one in wrong]
    fine = [enqueued(*one) for one in right]
    hf.drain()
    for job in refused:
        assert job.refresh().state is State.FAILED
        assert job.error is not None
        assert job.error.code == "RESULT_UNFIT"
        assert "its result can't be kept: it is not what the return hint says: " in job.error.message
    assert "Expected `int`, got `str`" in str(refused[0].error)
    assert [job.refresh().result for job in fine] == [
        7, 7, [1], date(2030, 1, 31), Size(width=3), None, "kept", {"a": [1]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "value", "why"),
    [
        ("NUL", "a\x00b", "NUL"),
        ("NaN", [float("nan")], "not finite"),
        ("an object", object(), "not JSON"),
        ("deep", nested(100), "nested"),
        ("endless", nested(50_000), "nested"),
        ("huge", "x" * (1024 * 1024), "1,048,576 are allowed"),
        ("a surrogate", "\udc80", "surrogate"),
    ],
)
def test_a_result_that_can_not_be_kept_fails_only_its_own_job(
    hf: Holdfast, colour: str, what: str, value: Any, why: str, heard: Heard
) -> None:
    hf.task(name="task")(both_colours(lambda ctx: value)[colour])
    hf.task(name="other")(both_colours(lambda ctx: "fine")[colour])
    poison, fine = hf.find_task("task").enqueue(), hf.find_task("other").enqueue()
    assert hf.drain() == 2
    assert fine.refresh().result == "fine"
    assert poison.refresh().state is State.FAILED
    assert poison.error is not None
    assert poison.error.code == "RESULT_UNFIT"
    assert why in poison.error.message
    assert [told["job"] for told in heard.of("failed")] == [poison.id]


def test_an_error_that_can_not_be_shown_is_kept_as_far_as_it_can(hf: Holdfast, colour: str) -> None:
    class Unshowable(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert only_attempt(run(hf, raising(Unshowable(), colour))).error_code == "Unshowable"
    nasty = ValueError("\x00\ud800" + "x" * 100_000)
    attempt = only_attempt(run_other(hf, raising(nasty, colour)))
    assert attempt.error_code == "ValueError"
    assert attempt.error_message is not None
    assert attempt.error_message.startswith("\N{SYMBOL FOR NULL}?xxx")
    assert len(attempt.error_message) == 4_000


@pytest.mark.parametrize("colour", ["plain", "coroutine"])
def test_a_transaction_within_a_transaction_is_refused_at_once(hf: Holdfast, colour: str) -> None:
    """On SQLite it would wait for itself; on PostgreSQL the job would succeed without what the outer one wrote."""

    def plain(ctx: JobContext) -> None:
        with ctx.transaction(), ctx.transaction():
            raise AssertionError("two transactions are open")

    async def coroutine(ctx: JobContext) -> None:
        async with ctx.transaction(), ctx.transaction():
            raise AssertionError("two transactions are open")

    job = run(hf, {"plain": plain, "coroutine": coroutine}[colour], max_attempts=1)
    assert (job.refresh().state, only_attempt(job).error_code) == (State.FAILED, "BadSettings")


def test_a_success_recorded_twice_in_one_transaction_fails(hf: Holdfast) -> None:
    """It looks like a lost lease, for which a job is given back uncharged: it would run for ever."""

    def twice(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            ctx.succeed("done", conn=tx.conn)

    job = run(hf, twice, max_attempts=1)
    assert job.refresh().state is State.FAILED
    assert "record it once" in (only_attempt(job).error_message or "")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_transaction_that_would_block_the_loop_is_refused(hf: Holdfast) -> None:
    async def careless(ctx: JobContext) -> None:
        with ctx.transaction():
            raise AssertionError("the loop may wait for another coroutine's transaction now")

    job = run(hf, careless, max_attempts=1)
    error = only_attempt(job)
    assert job.refresh().state is State.FAILED
    assert "async with ctx.transaction()" in (error.error_message or "")
