"""Where a running handler is, told by the worker that runs it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Holdfast, Job, Refused, Secret, State, WaitTimeout
from holdfast.model.stack import Stack, taken
from tests.contract.places import raw
from tests.contract.test_workers import register
from tests.factories import a_running_job
from tests.running import MakeApp, working
from tests.waiting import wait_until


class ClaimedJob:
    """Handlers that stay where they are until they are let go."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.door = threading.Event()

    def wait_in_thread(self) -> None:
        self.started.release()
        self.door.wait(30)

    async def wait_awaiting(self) -> None:
        asyncio.get_running_loop().call_soon(self.started.release)  # once this and those that began with it await
        while not self.door.is_set():  # noqa: ASYNC110 - it is opened by another thread
            await asyncio.sleep(0.25)


@pytest.fixture
def held() -> Iterator[ClaimedJob]:
    held = ClaimedJob()
    yield held
    held.door.set()


def functions(text: str) -> list[str]:
    """The functions of a stack, the outermost first, without where they are defined."""
    return [name.rpartition(".")[2] for name in re.findall(r"^  File .*, in (.+)$", text, re.MULTILINE)]


@contextmanager
def stack_of(
    app: Holdfast, held: ClaimedJob, handler: Callable[..., Any], *args: Any
) -> Iterator[tuple[Job[Any], Stack]]:
    job: Job[Any] = app.task(name="handler")(handler).enqueue(*args)
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        assert held.started.acquire(timeout=20)
        yield job, job.stack(timeout=20)
        held.door.set()
        job.wait(timeout=20)


def test_a_synchronous_handler_is_seen_from_itself_inwards(hf: Holdfast, held: ClaimedJob) -> None:
    def inner() -> None:
        held.wait_in_thread()

    def handler() -> None:
        inner()

    with stack_of(hf, held, handler) as (job, stack):
        assert functions(stack.text)[:3] == ["handler", "inner", "wait_in_thread"]
        assert "self.door.wait(30)" in stack.text
        assert (stack.job, stack.task, stack.attempt) == (job.id, "handler", 1)
        assert stack.thread.startswith("holdfast-thread")
        assert stack.worker == job.refresh().record.worker


def test_a_coroutine_is_followed_to_its_innermost_await(hf: Holdfast, held: ClaimedJob) -> None:
    async def inner() -> None:
        await held.wait_awaiting()

    async def handler() -> None:
        await inner()

    with stack_of(hf, held, handler) as (_, stack):
        assert functions(stack.text) == ["handler", "inner", "wait_awaiting", "sleep"]
        assert stack.text.endswith("The loop waits for events.\n")
        assert stack.thread == "holdfast-loop"


def test_awaits_are_followed_through_generators_and_awaitables(hf: Holdfast, held: ClaimedJob) -> None:
    class Awaitable:
        def __await__(self) -> Any:
            return held.wait_awaiting().__await__()

    class Yielding:
        def __await__(self) -> Any:
            yield from Awaitable().__await__()

    async def numbers() -> AsyncIterator[int]:
        await Yielding()
        yield 1

    async def handler() -> None:
        async for _ in numbers():
            pass

    with stack_of(hf, held, handler) as (_, stack):
        assert functions(stack.text) == ["handler", "numbers", "__await__", "wait_awaiting", "sleep"]


@pytest.mark.parametrize("way", ["group", "gather", "wait_for"])
def test_the_tasks_a_handler_started_are_seen_too(hf: Holdfast, held: ClaimedJob, way: str) -> None:
    async def child() -> None:
        await held.wait_awaiting()

    async def handler() -> None:
        if way == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(child(), name="first")
                group.create_task(child(), name="second")
        elif way == "gather":
            await asyncio.gather(*(asyncio.create_task(child(), name=name) for name in ("first", "second")))
        else:
            await asyncio.wait_for(asyncio.create_task(child(), name="first"), 30)

    with stack_of(hf, held, handler) as (_, stack):
        own, *children = stack.text.split("its task ")
        assert functions(own)[0] == "handler"
        assert [(part.partition(":")[0], functions(part)) for part in children] == [
            (name, ["child", "wait_awaiting", "sleep"])
            for name in (["first"] if way == "wait_for" else ["first", "second"])
        ]


def test_a_coroutine_that_blocks_the_loop_is_caught_at_it(hf: Holdfast, held: ClaimedJob) -> None:
    def blocks() -> None:
        held.wait_in_thread()

    async def handler() -> None:
        await asyncio.sleep(0)
        blocks()

    with stack_of(hf, held, handler) as (_, stack):
        assert functions(stack.text)[:3] == ["handler", "blocks", "wait_in_thread"]
        assert "It runs just now, and the loop with all else on it waits." in stack.text


def test_a_coroutine_that_waits_for_the_loop_says_who_has_it(hf: Holdfast, held: ClaimedJob) -> None:
    async def hog() -> None:
        held.wait_in_thread()

    job: Job[Any] = hf.task(name="handler")(held.wait_awaiting).enqueue()
    hogs = hf.task(hog)
    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        assert held.started.acquire(timeout=20)
        hogs.enqueue()
        assert held.started.acquire(timeout=20)
        text = job.stack(timeout=20).text
        assert functions(text)[:2] == ["wait_awaiting", "sleep"]
        assert re.search(r"The loop runs job \d+ \(hog\) just now:\n  File .*, in .*hog\n", text)
        held.door.set()


def test_no_value_and_no_secret_is_in_it(hf: Holdfast, held: ClaimedJob) -> None:
    def handler(card: Secret[str], note: str) -> None:
        local = f"{card} and {note}"
        assert local
        held.wait_in_thread() if True else print("token=tr0ub4dor-and-3")

    with stack_of(hf, held, handler, "4111-1111", "plainly-visible") as (_, stack):
        assert "held.wait_in_thread()" in stack.text
        for hidden in ("4111", "plainly-visible", "tr0ub4dor"):
            assert hidden not in stack.text


def test_a_deep_recursion_is_told_from_both_ends(hf: Holdfast, held: ClaimedJob) -> None:
    def even(n: int) -> None:
        odd(n - 1) if n else held.wait_in_thread()

    def odd(n: int) -> None:
        even(n - 1)

    def handler() -> None:
        even(600)

    with stack_of(hf, held, handler) as (_, stack):
        names = functions(stack.text)
        assert (names[0], names[1], "wait_in_thread" in names) == ("handler", "even", True)
        assert len(names) <= 200
        assert "more calls" in stack.text


def test_a_job_that_waits_in_its_worker_for_a_slot_says_so(make_app: MakeApp, held: ClaimedJob) -> None:
    app = make_app(threads=1, concurrency=1)

    @app.task
    async def quick(n: int) -> None:
        if n == 40:
            held.wait_in_thread()

    jobs = app.enqueue_many(quick.bind(n) for n in range(400))
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        assert held.started.acquire(timeout=20)
        # Claimed ahead for a slot that seemed about to be free; after a second they are given back.
        waiting = next(job for job in jobs[41:] if job.refresh().state is State.RUNNING)
        try:
            assert waiting.stack(timeout=20).text == "It has not begun: it waits in its worker for a free slot.\n"
        except Refused as refused:
            assert "is queued" in str(refused)  # noqa: PT017 - given back in that moment
        held.door.set()


def test_a_worker_that_is_not_notified_answers_with_its_next_beat(make_app: MakeApp, held: ClaimedJob) -> None:
    app = make_app(listen=False, lease=10.0, heartbeat=0.3)
    job: Job[Any] = app.task(name="handler")(held.wait_in_thread).enqueue()
    with working(app):
        assert held.started.acquire(timeout=20)
        assert functions(job.stack(timeout=20).text)[0] == "wait_in_thread"
        held.door.set()
        job.wait(timeout=20)


def test_an_answer_comes_at_once(make_app: MakeApp, held: ClaimedJob) -> None:
    """The next beat would come after a minute."""
    hf = make_app(lease=240.0)
    job: Job[Any] = hf.task(name="handler")(held.wait_in_thread).enqueue()
    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        assert held.started.acquire(timeout=20)
        job.stack(timeout=20)
        held.door.set()


@pytest.mark.parametrize("state", ["queued", "succeeded"])
def test_a_job_that_does_not_run_has_no_stack(hf: Holdfast, state: str) -> None:
    job = hf.task(name="handler")(lambda: None).enqueue()
    if state == "succeeded":
        hf.drain()
    with pytest.raises(Refused, match=rf"HF1321 job {job.id} is {state}: only the handler of a running job"):
        job.stack()


def test_a_job_that_ends_meanwhile_is_told_so(hf: Holdfast, held: ClaimedJob) -> None:
    job: Job[Any] = hf.task(name="handler")(held.wait_in_thread).enqueue()
    with working(hf) as worker:
        assert held.started.acquire(timeout=20)
        worker._heartbeat._ask_for_stack = lambda attempt: held.door.set()  # nobody answers, and the handler ends
        with pytest.raises(Refused, match=f"job {job.id} is succeeded"):
            job.stack(timeout=20)


def test_a_worker_that_went_silent_is_not_waited_for(hf: Holdfast) -> None:
    register(hf.store, "w1")  # and never beats
    job = hf.job(str(a_running_job(hf.store, worker="w1").id))
    with raw(hf.settings) as sql:
        sql("update {workers} set seen_at = '2020-01-01 00:00:00.000000'")
    with pytest.raises(Refused, match="was last heard of"):
        job.stack()
    hf.store.workers.unregister("w1")
    with pytest.raises(Refused, match="which has ended"):
        job.stack()


def test_who_gets_no_answer_is_told_what_that_may_mean(hf: Holdfast, held: ClaimedJob) -> None:
    job: Job[Any] = hf.task(name="handler")(held.wait_in_thread).enqueue()
    with working(hf) as worker:
        assert held.started.acquire(timeout=20)
        worker._heartbeat._ask_for_stack = lambda attempt: None
        with pytest.raises(WaitTimeout, match=r"HF1322 no answer from worker .* \(pid \d+ on .*\) within 0.3 s"):
            job.stack(timeout=0.3)
        assert hf.store.stack_requests.unanswered() == []  # nothing is left behind
        held.door.set()


def test_the_heartbeat_goes_on_where_questions_cannot_be_read(hf: Holdfast, held: ClaimedJob) -> None:
    job: Job[Any] = hf.task(name="handler")(held.wait_in_thread).enqueue()
    with working(hf) as worker:
        assert held.started.acquire(timeout=20)
        with raw(hf.settings) as sql:
            name = "holdfast_stacks" if hf.settings.url.startswith("sqlite") else f'"{hf.settings.schema}".stacks'
            sql(f"drop table {name}")
        worker._heartbeat._next = 0.0
        worker._heartbeat.requested()
        job.cancel()
        wait_until(lambda: worker.desk.in_flight.attempts()[0].reason == "cancel")
        held.door.set()


def test_looking_disturbs_nothing_however_busy_it_is(hf: Holdfast, held: ClaimedJob) -> None:
    """From another thread, while calls and tasks come and go: each look finds the handler."""
    seen: Counter[str] = Counter()

    async def child() -> None:
        await asyncio.sleep(0)

    @hf.task
    async def coroutine() -> None:
        held.started.release()
        while not held.door.is_set():
            async with asyncio.TaskGroup() as group:
                for _ in range(5):
                    group.create_task(child())

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    @hf.task
    def thread() -> None:
        held.started.release()
        while not held.door.is_set():
            fibonacci(12)

    jobs = hf.enqueue_many([task.bind() for _ in range(2) for task in (coroutine, thread)])
    with working(hf) as worker:
        for _ in jobs:
            assert held.started.acquire(timeout=20)
        for _ in range(50):
            for attempt in worker.desk.in_flight.attempts():
                told = taken(worker._runners.stack_of(attempt)).text  # type: ignore[attr-defined]
                seen.update([(functions(told) or [told])[0]])
        held.door.set()
        for job in jobs:
            job.wait(timeout=20)
    assert seen == {"coroutine": 100, "thread": 100}


def test_a_stack_that_cannot_be_taken_is_told_and_costs_nothing_else(hf: Holdfast, held: ClaimedJob) -> None:
    job: Job[Any] = hf.task(name="handler")(held.wait_in_thread).enqueue()
    with working(hf) as worker:
        assert held.started.acquire(timeout=20)
        [runner] = worker._runners.runners
        runner._running = None  # type: ignore[attr-defined]
        assert "could not be taken: AttributeError" in job.stack(timeout=20).text
        runner._running = {}  # type: ignore[attr-defined]
        held.door.set()
        job.wait(timeout=20)
