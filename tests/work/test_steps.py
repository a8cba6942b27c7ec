"""`ctx.step`: done once for a job, however many attempts it takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, HoldfastError, Job, JobContext, Snooze, State, testing
from holdfast.errors import BadSettings
from tests.running import Heard, await_state, take_over, working
from tests.waiting import wait_until


@dataclass
class Invoice:
    number: int
    due: date
    lines: tuple[str, ...] = ()


class Calls(list[str]):
    """Functions that note that they were called."""

    def fetch(self, url: str, *, depth: int = 1) -> dict[str, int]:
        self.append(f"fetch {url} {depth}")
        return {url: depth}

    async def afetch(self, url: str) -> Invoice:
        self.append(f"afetch {url}")
        await asyncio.sleep(0)
        return Invoice(7, date(2030, 1, 31), ("a", "b"))


@pytest.fixture
def calls() -> Calls:
    return Calls()


Trouble = Callable[[], Exception]
TROUBLES: dict[str, Trouble] = {"an error": lambda: ZeroDivisionError("later"), "a snooze": lambda: Snooze(0)}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_step_that_is_done_is_not_run_again(hf: Holdfast, calls: Calls, trouble: str) -> None:
    runs: list[int] = []

    @hf.task(retry=None)
    def task(ctx: JobContext) -> Any:
        first = ctx.step("first", calls.fetch, "a", depth=2)
        runs.append(ctx.attempt)
        if len(runs) == 1:
            raise TROUBLES[trouble]()
        second = ctx.step("second", calls.fetch, "b")
        if len(runs) == 2:
            raise TROUBLES[trouble]()
        return [first, second]

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == [{"a": 2}, {"b": 1}]
    assert calls == ["fetch a 2", "fetch b 1"]
    assert [step.name for step in job.steps()] == ["first", "second"]
    assert len(runs) == 3


def test_an_asynchronous_handler_awaits_its_steps(hf: Holdfast, calls: Calls) -> None:
    threads: list[str] = []

    def plain() -> str:
        threads.append(threading.current_thread().name)
        return "plain"

    @hf.task(retry=None)
    async def task(ctx: JobContext) -> Any:
        invoice, word = await asyncio.gather(ctx.astep("a", calls.afetch, "u"), ctx.astep("b", plain))
        assert invoice == Invoice(7, date(2030, 1, 31), ("a", "b"))
        late = await ctx.astep("c", lambda: calls.afetch("v"))  # a lambda that returns a coroutine
        if ctx.attempt == 1:
            raise ZeroDivisionError
        return [invoice.number, word, late]

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == [7, "plain", {"number": 7, "due": "2030-01-31", "lines": ["a", "b"]}]
    assert calls == ["afetch u", "afetch v"]
    assert len(threads) == 1
    assert threads[0] != "holdfast-loop"


def test_what_comes_back_is_what_was_kept_also_the_first_time(hf: Holdfast) -> None:
    """So that a handler which works once works the same after a crash."""
    at = datetime(2030, 1, 31, 12, tzinfo=UTC)

    def hinted() -> tuple[datetime, set[int]]:
        return at, {1, 2}

    def unhinted():  # type: ignore[no-untyped-def]
        return (at, {1: "one"})

    def hinted_as_what_json_is_not() -> threading.Event | None:
        return None

    @hf.task(retry=None)
    def task(ctx: JobContext) -> str:
        assert ctx.step("hinted", hinted) == (at, {1, 2})
        assert ctx.step("unhinted", unhinted) == ["2030-01-31T12:00:00Z", {"1": "one"}]
        assert ctx.step("nothing", lambda: None) is None
        assert ctx.step("odd", hinted_as_what_json_is_not) is None
        assert ctx.step("built in", max, 3, 4) == 4
        if ctx.attempt == 1:
            raise ZeroDivisionError("and the same once more")
        return "done"

    job = task.enqueue()
    hf.drain()
    assert (job.refresh().result, [a.error_code for a in job.attempts()]) == ("done", ["ZeroDivisionError"])


def test_hints_are_found_beneath_partials_and_tasks(hf: Holdfast) -> None:
    @hf.task
    def bill(number: int) -> Invoice:
        return Invoice(number, date(2030, 1, 31))

    @hf.task
    async def abill(number: int) -> Invoice:
        return Invoice(number, date(2030, 1, 31))

    @hf.task
    def plain(ctx: JobContext) -> None:
        assert ctx.step("task", bill, 7) == Invoice(7, date(2030, 1, 31))
        assert ctx.step("partial", partial(partial(bill, 7))) == Invoice(7, date(2030, 1, 31))
        with pytest.raises(HoldfastError, match="is asynchronous: await"):
            _ = ctx.step("colour", partial(abill, 7))

    @hf.task
    async def coroutine(ctx: JobContext) -> None:
        assert await ctx.astep("task", abill, 7) == Invoice(7, date(2030, 1, 31))
        assert await ctx.astep("partial", partial(abill, 7)) == Invoice(7, date(2030, 1, 31))

    jobs = [plain.enqueue(), coroutine.enqueue()]
    hf.drain()
    assert [(job.refresh().state, job.refresh().error) for job in jobs] == [(State.SUCCEEDED, None)] * 2


def test_a_hint_that_changed_since_is_told_as_what_it_is(hf: Holdfast) -> None:
    def count() -> int:
        return "three"  # type: ignore[return-value]

    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> None:
        ctx.step("count", count)

    job = task.enqueue()
    hf.drain()
    assert job.refresh().state is State.FAILED
    assert job.error is not None
    assert "HF1309 what is kept of step 'count' of job 1 is not what the return hint of" in job.error.message


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_name_that_is_used_twice_is_refused_in_words_that_help(hf: Holdfast, calls: Calls, kind: str) -> None:
    @hf.task(name="sync")
    def plain(ctx: JobContext) -> None:
        for n in range(2):
            ctx.step("fetch", calls.fetch, str(n))

    @hf.task(name="async")
    async def coroutine(ctx: JobContext) -> None:
        await asyncio.gather(ctx.astep("fetch", calls.fetch, "0"), ctx.astep("fetch", calls.fetch, "1"))

    job: Job[Any] = hf.find_task(kind).using(max_attempts=1).enqueue()
    hf.drain()
    job.refresh()
    assert job.error is not None
    assert job.error.message.startswith("HF1315 step 'fetch' of job 1 was used before in this attempt: ")
    assert job.error.message.endswith("give each step a name of its own, in a loop f'fetch {n}'")
    assert len(calls) <= 1, "never both"


def test_a_step_that_raised_may_be_tried_again_by_its_handler_and_by_the_next_attempt(hf: Holdfast) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 4:
            raise ConnectionError("down")
        return len(tries)

    @hf.task(retry=None)
    def task(ctx: JobContext) -> int:
        try:
            return ctx.step("flaky", flaky)
        except ConnectionError:
            return ctx.step("flaky", flaky)

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == 4
    assert [attempt.error_code for attempt in job.attempts()] == ["ConnectionError"]


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\x00b", 3, None])
def test_a_step_needs_a_name(hf: Holdfast, calls: Calls, name: Any) -> None:
    with pytest.raises(HoldfastError, match=r"^HF1315 a step needs a name of 1 to 200 characters"):
        JobContext.detached("t").step(name, calls.fetch, "a")


def test_a_step_is_given_a_function_and_not_what_it_returned(calls: Calls) -> None:
    result: Any = calls.fetch("a")
    with pytest.raises(HoldfastError, match=r"needs a function to call, not \{'a': 1\}"):
        JobContext.detached("t").step("fetch", result)


def test_an_asynchronous_function_is_refused_where_nobody_could_await_it(calls: Calls) -> None:
    with pytest.raises(HoldfastError, match=r"Calls.afetch is asynchronous: await ctx.astep\('fetch', …\)"):
        assert JobContext.detached("t").step("fetch", calls.afetch, "a")


def test_what_can_not_be_kept_is_an_error_of_the_handler(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> str:
        for number, value in enumerate([object(), "a\x00", float("nan"), "x" * 2**20]):
            with pytest.raises(HoldfastError, match=f"what step 's{number}' of job 1 returned can't be kept: it"):
                ctx.step(f"s{number}", lambda value=value: value)  # type: ignore[misc]
        return "goes on"

    job = task.enqueue()
    hf.drain()
    assert (job.refresh().result, job.steps()) == ("goes on", [])


def test_a_plain_call_of_the_handler_runs_its_steps_and_keeps_nothing(hf: Holdfast, calls: Calls) -> None:
    @hf.task
    def task(ctx: JobContext) -> Any:
        return ctx.step("fetch", calls.fetch, "a")

    assert task() == {"a": 1}
    assert task() == {"a": 1}
    assert len(calls) == 2


# -- requests, leases, transactions ------------------------------------------------------------------------------------


def test_a_pause_takes_effect_before_a_step_and_resume_goes_on_behind_those_that_are_done(
    hf: Holdfast, calls: Calls
) -> None:
    between, go_on = threading.Event(), threading.Event()

    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> Any:
        ctx.step("first", calls.fetch, "a")
        between.set()
        go_on.wait(20)
        return ctx.step("second", calls.fetch, "b")

    job = task.enqueue()
    with working(hf):
        between.wait(20)
        job.pause("a moment", by="ops")
        go_on.set()
        await_state(job, State.PAUSED)
        assert calls == ["fetch a 1"]
        job.resume()
        assert job.wait(timeout=20) == {"b": 1}
    assert calls == ["fetch a 1", "fetch b 1"]
    assert [attempt.outcome for attempt in job.attempts()] == ["parked"]


def test_a_step_that_was_done_when_the_pause_came_is_kept(hf: Holdfast) -> None:
    """Its handler is cancelled at that very await: what was done is not to be done again."""
    hf.reconfigure(sync_in_loop="allow")
    paused: list[str] = []

    @hf.task(max_attempts=1)
    async def task(ctx: JobContext) -> str:
        async def pay() -> str:
            if not paused:
                paused.append(ctx.job.id)
                hf.job(ctx.job.id).pause()  # no await: there the worker's own request could come before it is done
                # Cancelled in the moment it returns, as if the request had come just then.
                this = asyncio.current_task()
                assert this is not None
                this.cancel()
            paused.append("paid")
            return "paid"

        return await ctx.astep("pay", pay)

    paused_and_resumed(hf, task.enqueue())
    assert paused.count("paid") == 1


def paused_and_resumed(hf: Holdfast, job: Job[str]) -> None:
    """It was paused when its step was done, and goes on from there."""
    with working(hf):
        await_state(job, State.PAUSED)
        assert [step.name for step in job.steps()] == ["pay"]
        job.resume()
        assert job.wait(timeout=20) == "paid"


def test_a_step_that_was_done_is_kept_however_often_its_handler_is_cancelled_meanwhile(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.reconfigure(sync_in_loop="allow")
    asked_twice = threading.Event()
    keep = hf.store.attempts.keep_step
    done: list[str] = []

    def when_it_was_asked_twice(*args: Any) -> Any:
        assert asked_twice.wait(20)
        return keep(*args)

    monkeypatch.setattr(hf.store.attempts, "keep_step", when_it_was_asked_twice)

    @hf.task(max_attempts=1)
    async def task(ctx: JobContext) -> str:
        this, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert this is not None

        def once_more() -> None:
            this.cancel()
            loop.call_later(0.1, asked_twice.set)  # when the handler has had the time to end

        async def pay() -> str:
            done.append("paid")
            hf.job(ctx.job.id).pause()
            this.cancel()
            loop.call_later(0.1, once_more)
            return "paid"

        return await ctx.astep("pay", pay)

    paused_and_resumed(hf, task.enqueue())
    assert done == ["paid"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_who_lost_the_lease_is_stopped_at_the_step_and_nothing_is_kept(
    hasty: Holdfast, heard: Heard, kind: str
) -> None:
    started, go_on, ends = threading.Event(), threading.Event(), []

    def slow() -> str:
        started.set()
        go_on.wait(20)
        return "too late"

    @hasty.task(name="sync")
    def plain(ctx: JobContext) -> None:
        try:
            ctx.step("slow", slow)
        except BaseException as stopped:
            ends.append(type(stopped).__name__)
            raise

    @hasty.task(name="async")
    async def coroutine(ctx: JobContext) -> None:
        try:
            await ctx.astep("slow", slow)
        except BaseException as stopped:
            ends.append(type(stopped).__name__)
            raise

    job: Job[Any] = hasty.find_task(kind).enqueue()
    with working(hasty) as worker:
        started.wait(20)
        take_over(hasty, job.id)
        go_on.set()
        wait_until(lambda: ends)
        wait_until(worker.desk.idle)
    assert ends in (["StopAttempt"], ["CancelledError"])
    assert job.steps() == []
    assert [told["job"] for told in heard.of("lease_lost")] == [job.id]
    assert heard.of("errored") == []


def test_a_step_within_an_open_transaction_is_refused_where_it_would_wait_for_itself(
    hf: Holdfast, engine: str, calls: Calls
) -> None:
    told: list[str] = []

    @hf.task(max_attempts=1)
    def task(ctx: JobContext) -> None:
        with ctx.transaction():
            for act in (lambda: ctx.step("fetch", calls.fetch, "a"), lambda: ctx.checkpoint({"n": 1})):
                try:
                    act()
                except BadSettings as refused:
                    told.append(str(refused))

    job = task.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    if engine == "sqlite":
        assert [words.partition(": ")[2] for words in told] == [
            "a step comes before ctx.transaction()", "a checkpoint comes before ctx.transaction()",
        ]  # fmt: skip
    else:
        assert told == []


def test_steps_work_in_the_testing_kit(tmp_path: Path, calls: Calls) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/never-made.db")

    @app.task(retry=None)
    def task(ctx: JobContext) -> Any:
        found = ctx.step("fetch", calls.fetch, "a")
        if ctx.attempt == 1:
            raise ZeroDivisionError
        return found

    with testing.store(app) as kit:
        job = task.enqueue()
        kit.run_due(expect="succeeded")
        assert (job.refresh().result, len(calls), job.steps()[0].result) == ({"a": 1}, 1, {"a": 1})
        with kit.inline(), pytest.raises(ZeroDivisionError):
            task.enqueue()
        kit.run_due(expect="succeeded")
        assert len(calls) == 2
