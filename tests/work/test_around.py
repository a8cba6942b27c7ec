"""Around an attempt: entered before the handler, left after it with its outcome, wherever the handler runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from holdfast import AttemptInfo, BadSettings, Cancel, Fail, Holdfast, Job, JobInfo, Retry, Snooze, State, testing
from tests.running import Heard
from tests.waiting import wait_until

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


def raising(error: BaseException | None, colour: str) -> Callable[[], Any]:
    def handler() -> None:
        if error is not None:
            raise error

    async def coroutine() -> None:
        handler()

    return handler if colour == "sync" else coroutine


OUTCOMES: dict[str, tuple[BaseException | None, str]] = {
    "returns": (None, "succeeded"),
    "errs": (ValueError("boom"), "rescheduled"),
    "asks for another attempt": (Retry(after=60), "rescheduled"),
    "fails": (Fail("no"), "failed"),
    "snoozes": (Snooze(60), "snoozed"),
    "cancels": (Cancel("no"), "cancelled"),
}


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("what", OUTCOMES)
def test_a_wrapper_sees_the_job_and_its_outcome(hf: Holdfast, what: str, colour: str) -> None:
    error, outcome = OUTCOMES[what]
    seen: list[Any] = []

    @hf.around_attempt
    def watch(attempt: AttemptInfo) -> Iterator[None]:
        seen.append((attempt.job.task, attempt.job.attempt, attempt.args, attempt.outcome))
        try:
            yield
        except BaseException as raised:
            seen.append(raised)
            raise
        finally:
            seen.append((attempt.outcome, attempt.error))

    job = hf.task(name="t", retry=60)(raising(error, colour)).enqueue()
    hf.drain()
    assert seen == [("t", 1, {}, None), *([] if error is None else [error]), (outcome, error)]
    assert job.refresh().state in (State.SUCCEEDED, State.QUEUED, State.FAILED, State.CANCELLED)


def test_wrappers_nest_and_share_the_handlers_thread_loop_and_context(hf: Holdfast) -> None:
    told: list[str] = []

    def tell(what: str) -> None:
        told.append(f"{what} {tenant.get()} {threading.current_thread().name.rstrip('-0123456789')}")

    @hf.around_attempt
    def outer(attempt: AttemptInfo) -> Iterator[None]:
        token = tenant.set(attempt.args["owner"])
        tell("outer in")
        yield
        tell("outer out")
        tenant.reset(token)

    @hf.around_attempt
    async def middle(attempt: AttemptInfo) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        token = tenant.set(f"{tenant.get()}+")
        tell("middle in")
        yield
        await asyncio.sleep(0)
        tell("middle out")
        tenant.reset(token)

    @hf.around_attempt
    def inner(attempt: AttemptInfo) -> Iterator[None]:
        tell("inner in")
        yield
        tell("inner out")

    @hf.task
    def sync(owner: str) -> None:
        tell("handler")

    @hf.task
    async def coroutine(owner: str) -> None:
        await asyncio.sleep(0)
        tell("handler")

    sync.enqueue("a")
    assert hf.drain() == 1
    assert told == [
        f"{what} a holdfast-thread" for what in ("outer in", "inner in", "handler", "inner out", "outer out")
    ]
    told.clear()
    coroutine.enqueue("b")
    assert hf.drain() == 1
    assert told == [
        "outer in b holdfast-loop", "middle in b+ holdfast-loop", "inner in b+ holdfast-loop",
        "handler b+ holdfast-loop",
        "inner out b+ holdfast-loop", "middle out b+ holdfast-loop", "outer out b holdfast-loop",
    ]  # fmt: skip
    told.clear()
    with testing.store(hf, inline=True):
        sync.enqueue("c")
        coroutine.enqueue("d")
    names = [line.rsplit(" ", 1)[0] for line in told]
    assert names == [
        "outer in c", "inner in c", "handler c", "inner out c", "outer out c",
        "outer in d", "middle in d+", "inner in d+", "handler d+", "inner out d+", "middle out d+", "outer out d",
    ]  # fmt: skip


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_wrapper_that_raises_before_the_yield_is_an_errored_attempt(hf: Holdfast, colour: str) -> None:
    left: list[Any] = []
    ran: list[int] = []
    ready = False

    @hf.around_attempt
    def outer(attempt: AttemptInfo) -> Iterator[None]:
        try:
            yield
        finally:
            left.append(attempt.outcome)

    @hf.around_attempt
    def connect(attempt: AttemptInfo) -> Iterator[None]:
        nonlocal ready
        if not ready:
            ready = True
            raise ConnectionError("refused")
        yield

    def handler() -> None:
        ran.append(1)

    async def coroutine() -> None:
        ran.append(1)

    job = hf.task(name="t", retry=0)(handler if colour == "sync" else coroutine).enqueue()
    hf.drain()
    assert (job.refresh().state, ran, left) == (State.SUCCEEDED, [1], ["rescheduled", "succeeded"])
    [errored] = job.attempts()
    assert (errored.error_code, errored.error_message) == ("ConnectionError", "refused")


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("error", [None, Fail("no")])
def test_a_wrapper_that_raises_after_the_yield_is_logged_and_changes_nothing(
    hf: Holdfast, heard: Heard, colour: str, error: BaseException | None
) -> None:
    left: list[str] = []

    @hf.around_attempt
    def outer(attempt: AttemptInfo) -> Iterator[None]:
        try:
            yield
        finally:
            left.append("outer")

    @hf.around_attempt
    def breaks(attempt: AttemptInfo) -> Iterator[None]:
        try:
            yield
        finally:
            raise SystemExit("late")

    @hf.around_attempt
    def swallows(attempt: AttemptInfo) -> Iterator[None]:
        try:
            yield
        except Fail:
            left.append("swallowed")

    job = hf.task(name="t")(raising(error, colour)).enqueue()
    assert hf.drain() == 1
    assert job.refresh().state is (State.SUCCEEDED if error is None else State.FAILED)
    assert left == ([] if error is None else ["swallowed"]) + ["outer"]
    [failed] = heard.of("hook_failed")
    assert "breaks" in failed["hook"]
    assert failed["error"] == "SystemExit: late"


def test_error_hooks_are_called_within(hf: Holdfast) -> None:
    told: list[str] = []

    @hf.around_attempt
    def scope(attempt: AttemptInfo) -> Iterator[None]:
        try:
            yield
        finally:
            told.append("left")

    @hf.on_error
    def report(job: JobInfo | None, error: BaseException) -> None:
        told.append("reported")

    hf.task(name="t")(raising(Fail("no"), "sync")).enqueue()
    hf.drain()
    assert told == ["reported", "left"]


def test_a_cancelled_coroutine_leaves_its_wrappers(hasty: Holdfast) -> None:
    seen: list[Any] = []

    @hasty.around_attempt
    async def watch(attempt: AttemptInfo) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await asyncio.sleep(0)
            seen.append((attempt.outcome, type(attempt.error).__name__))

    @hasty.task(timeout=0.2, max_attempts=1)
    async def hangs() -> None:
        await asyncio.sleep(600)

    job = hangs.enqueue()
    hasty.drain()
    assert job.refresh().state is State.FAILED
    assert seen == [("failed", "CancelledError")]


def test_what_is_no_wrapper_is_refused() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    def plain(attempt: AttemptInfo) -> None: ...

    @contextmanager
    def managed(attempt: AttemptInfo) -> Iterator[None]:
        yield

    with pytest.raises(BadSettings, match=r"around_attempt: .*plain must be a function .* has one `yield`$"):
        app.around_attempt(plain)  # type: ignore[type-var]
    with pytest.raises(BadSettings, match="without @contextmanager"):
        app.around_attempt(managed)  # type: ignore[type-var]


PROGRAM = """
import os, sys
from contextvars import ContextVar
from pathlib import Path
from holdfast import AttemptInfo, Holdfast

hf = Holdfast("sqlite:///jobs.db")
seen = ContextVar("seen")


@hf.around_attempt
def around(attempt: AttemptInfo):
    seen.set("set")
    try:
        yield
    finally:
        with open("told", "a") as told:
            print(os.getpid(), attempt.job.task, attempt.outcome, file=told)


@hf.task
def pooled() -> list:
    return [os.getpid(), seen.get()]


@hf.task(isolation="process")
def isolated() -> list:
    return [os.getpid(), seen.get()]


@hf.task(isolation="process")
async def aisolated() -> list:
    return [os.getpid(), seen.get()]
"""


def test_wrappers_run_where_the_handler_does(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    tasks = ("pooled", "isolated", "aisolated")
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as hf:
        jobs: list[Job[Any]] = [hf.task(name=name)(lambda: None).enqueue() for name in tasks]
        command = [sys.executable, "-m", "holdfast", "worker", "app.py", "-p", "1"]
        worker = subprocess.Popen(command, cwd=tmp_path)
        try:
            wait_until(lambda: all(job.refresh().finished for job in jobs))
        finally:
            worker.terminate()
            worker.wait()
        results = [job.result for job in jobs]
        told = {tuple(line.split()) for line in (tmp_path / "told").read_text().splitlines()}
        assert told == {(str(pid), task, "succeeded") for task, (pid, _) in zip(tasks, results, strict=True)}
        assert {seen for _, seen in results} == {"set"}
        assert len({pid for pid, _ in results} | {worker.pid}) == 4
