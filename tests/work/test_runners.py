"""Where attempts run: coroutines on a loop, synchronous handlers on threads, none in another's way."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from holdfast import Holdfast, JobContext, State, events
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome
from holdfast.runners.event_loop import LoopRunner
from holdfast.runners.inprocess import ThreadRunner
from holdfast.tasks.attempt import Attempt
from holdfast.worker.desk import Desk
from tests.running import Heard, await_state, working
from tests.waiting import wait_until

left_behind: ContextVar[str] = ContextVar("left_behind", default="nothing")


def test_a_thousand_coroutines_share_a_hundred_slots(hf: Holdfast) -> None:
    running, most, ran = [0], [0], Counter[int]()

    @hf.task
    async def task(n: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        ran[n] += 1
        running[0] -= 1

    hf.enqueue_many(task.bind(n) for n in range(1000))
    assert hf.drain() == 1000
    assert ran == Counter(range(1000))
    assert 2 <= most[0] <= 100
    assert len(hf.jobs(state=State.SUCCEEDED, limit=2000)) == 1000


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_context_variables_do_not_leak_from_one_handler_to_the_next(
    make_app: Callable[..., Holdfast], colour: str
) -> None:
    app = make_app(concurrency=1, threads=1)
    found: list[str] = []

    def handler(n: int) -> None:
        found.append(left_behind.get())
        left_behind.set(f"by {n}")

    async def coroutine(n: int) -> None:
        handler(n)

    task: Any = app.task(name="task")(handler if colour == "sync" else coroutine)
    for n in range(5):
        task.enqueue(n)
    assert app.drain() == 5
    assert found == ["nothing"] * 5


def test_handlers_of_both_colours_run_together(hf: Holdfast) -> None:
    where: dict[str, str] = {}

    @hf.task
    def on_a_thread() -> None:
        where["sync"] = threading.current_thread().name

    @hf.task
    async def on_the_loop() -> None:
        where["async"] = threading.current_thread().name

    on_a_thread.enqueue()
    on_the_loop.enqueue()
    assert hf.drain() == 2
    assert where["sync"].startswith("holdfast-thread-")
    assert where["async"] == "holdfast-loop"


@pytest.mark.parametrize("full", ["sync", "async"])
def test_a_full_runner_never_blocks_the_other(make_app: Callable[..., Holdfast], full: str) -> None:
    app = make_app(concurrency=2, threads=2)
    let_go, started = threading.Event(), threading.Semaphore(0)

    def blocked() -> None:
        started.release()
        let_go.wait(20)

    async def ablocked() -> None:
        started.release()
        await asyncio.to_thread(let_go.wait, 20)

    @app.task
    def quick() -> str:
        return "done"

    @app.task
    async def aquick() -> str:
        return "done"

    slow: Any = app.task(name="slow", priority=50)(blocked if full == "sync" else ablocked)
    free: Any = aquick if full == "sync" else quick
    jobs = [slow.enqueue() for _ in range(6)]  # more urgent than the rest, and more than there are slots for
    with working(app):
        for _ in range(2):
            started.acquire(timeout=20)
        for _ in range(3):  # one after the other: each needs a poll of its own
            assert free.enqueue().wait(timeout=10) == "done"
        assert Counter(job.refresh().state for job in jobs) == {State.RUNNING: 2, State.QUEUED: 4}
        let_go.set()
        for job in jobs:
            job.wait(timeout=20)


@pytest.mark.parametrize("listen", [True, False])
def test_a_slow_job_never_blocks_the_polling_of_free_slots(make_app: Callable[..., Holdfast], listen: bool) -> None:
    app = make_app(threads=2, listen=listen, poll_base=0.02, poll_max=0.05)
    let_go, started = threading.Event(), threading.Event()

    @app.task
    def slow() -> None:
        started.set()
        let_go.wait(20)

    @app.task
    def quick(n: int) -> int:
        return n

    with working(app):
        held = slow.enqueue()
        started.wait(20)
        for n in range(5):
            assert quick.enqueue(n).wait(timeout=10) == n
        assert held.refresh().state is State.RUNNING
        let_go.set()
        held.wait(timeout=20)


def test_no_more_is_claimed_than_can_start_now(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(threads=2)
    let_go, started = threading.Event(), threading.Semaphore(0)

    @app.task
    def slow() -> None:
        started.release()
        let_go.wait(20)

    jobs = [slow.enqueue() for _ in range(8)]
    with working(app) as worker:
        for _ in range(2):
            started.acquire(timeout=20)
        worker.desk.wakeups.wake()
        assert Counter(job.refresh().state for job in jobs) == {State.RUNNING: 2, State.QUEUED: 6}
        assert {job.refresh().record.attempt for job in jobs} == {0, 1}
        let_go.set()
        for job in jobs:
            job.wait(timeout=20)
    assert {job.refresh().record.attempt for job in jobs} == {1}


def test_one_jobs_failure_never_touches_the_others_of_its_batch(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    async def task(n: int) -> int:
        if n % 3 == 0:
            raise ZeroDivisionError
        return n

    jobs = [task.enqueue(n) for n in range(30)]
    assert hf.drain() == 30
    assert [job.refresh().state for job in jobs] == [State.SUCCEEDED if n % 3 else State.FAILED for n in range(30)]


def test_a_coroutine_that_blocks_its_loop_does_not_stop_the_heartbeat(hasty: Holdfast) -> None:
    let_go, started = threading.Event(), threading.Event()

    @hasty.task
    async def blocks() -> str:
        started.set()
        let_go.wait(20)
        return "done"

    job = blocks.enqueue()
    with working(hasty):
        started.wait(20)
        before = lease_end(hasty)
        wait_until(lambda: lease_end(hasty) > before)
        let_go.set()
        assert job.wait(timeout=20) == "done"
    assert job.refresh().record.attempt == 1


def lease_end(app: Holdfast) -> Any:
    table = "holdfast_leases" if app.settings.url.startswith("sqlite") else f"{app.settings.schema}.leases"
    with app.store.user_connections.transaction() as connection:
        [(end,)] = connection.execute(f"select expires_at from {table}").fetchall()
    return end


def test_leases_are_renewed_for_as_long_as_a_handler_runs(hasty: Holdfast) -> None:
    """A second worker watches all the time, and finds nothing to rescue."""
    renewals: list[Any] = []

    @hasty.task
    def slow() -> str:
        while len(renewals) < 5:
            wait_until(lambda: lease_end(hasty) not in renewals)
            renewals.append(lease_end(hasty))
        return "done"

    job = slow.enqueue()
    with working(hasty), working(hasty):
        assert job.wait(timeout=30) == "done"
    assert job.attempts() == []
    assert renewals == sorted(renewals)


def test_a_runner_that_closes_leaves_no_unfinished_coroutine(
    make_app: Callable[..., Holdfast], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(grace=0.05)

    @app.task
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if app.job(job.id).state is State.QUEUED:
                    raise

    job = stubborn.enqueue()
    with working(app):
        await_state(job, State.RUNNING)
    gc.collect()
    assert job.refresh().state is State.QUEUED
    assert [record for record in caplog.records if record.name == "asyncio"] == []


class AskedAsItBegins(Attempt, kw_only=True, eq=False, gc=False):
    asked: Any

    def begin(self) -> None:
        super().begin()
        self.ask(self.asked)  # as another thread may, between the last look at that and the beginning


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
@pytest.mark.parametrize(("reason", "verb"), [("shutdown", "succeed"), ("cancel", "stop")])
def test_what_is_asked_at_the_moment_it_begins_counts_as_asked_later(hf: Holdfast, reason: str, verb: str) -> None:
    """A shutdown leaves it its grace: it is not cancelled, and never charged for that."""
    outcomes: list[Outcome | None] = []

    async def coroutine() -> int:
        await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        return 1

    task: Any = hf.task(name="task")(coroutine)
    runner = LoopRunner(1, [task], hf.store, hf.settings)
    runner.open("w", lambda attempt, outcome: outcomes.append(outcome))
    runner.start([AskedAsItBegins(ClaimedJob(1, "f", "task", "default", b"{}", 1, 3), asked=reason)])
    [outcome] = wait_until(lambda: outcomes)
    runner.close(5.0)
    assert outcome is not None
    assert (outcome.verb, outcome.error) == (verb, None)


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
def test_a_loop_ends_in_good_order_when_its_last_slot_ends_in_the_same_moment(hf: Holdfast) -> None:
    ended = threading.Event()

    async def coroutine() -> None:
        runner._closing = True  # as `close` does, from another thread
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)
        await asyncio.sleep(0)

    task: Any = hf.task(name="task")(coroutine)
    runner = LoopRunner(1, [task], hf.store, hf.settings)
    runner.open("w", lambda attempt, outcome: ended.set())
    runner.start([Attempt(ClaimedJob(1, "f", "task", "default", b"{}", 1, 3))])
    assert ended.wait(20)
    runner._thread.join(20)
    assert not runner._thread.is_alive()
    assert runner.loop.is_closed()


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
def test_who_comes_too_late_to_stop_a_coroutine_meets_no_error(hf: Holdfast) -> None:
    """The thread that listens to the worker may be told so while the loop is put away, and must go on listening."""
    began = threading.Event()
    slots: list[Any] = []

    async def coroutine() -> None:
        slots.extend(runner._open_slots.values())
        began.set()

    task: Any = hf.task(name="task")(coroutine)
    runner = LoopRunner(1, [task], hf.store, hf.settings)
    runner.open("w", lambda attempt, outcome: None)
    attempt = Attempt(ClaimedJob(1, "f", "task", "default", b"{}", 1, 3))
    runner.start([attempt])
    assert began.wait(20)
    runner.close(20.0)
    [slot] = slots
    slot.interrupt(attempt)
    assert runner.loop.is_closed()


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
def test_what_was_asked_of_an_attempt_is_not_asked_of_the_next_in_its_slot(hf: Holdfast) -> None:
    began, ended = threading.Event(), threading.Event()
    tasks: list[asyncio.Task[Any] | None] = []
    asked: list[int] = []

    async def coroutine(n: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        asked.append(task.cancelling())
        if n == 1:
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    task: Any = hf.task(name="task")(coroutine)
    runner = LoopRunner(1, [task], hf.store, hf.settings)
    runner.open("w", lambda attempt, outcome: ended.set() if attempt.held.id == 2 else None)
    first, second = (Attempt(ClaimedJob(n, "f", "task", "default", b'{"n":%d}' % n, 1, 3)) for n in (1, 2))
    try:
        runner.start([first, second])
        assert began.wait(20)
        first.ask("cancel")
        assert ended.wait(20)
    finally:
        runner.close(2.0)
    assert (tasks[0] is tasks[1], asked) == (True, [0, 0])


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
@pytest.mark.parametrize("is_async", [True, False])
def test_a_worker_that_ended_leaves_nothing_behind(hf: Holdfast, is_async: bool) -> None:
    """Attempts are not looked at by the garbage collector: what they refer to must not lead back to them."""

    def handler(ctx: JobContext) -> None:
        ctx.progress(1, note="half")

    async def coroutine(ctx: JobContext) -> None:
        ctx.progress(1, note="half")
        await asyncio.sleep(0)

    def alive() -> set[int]:
        gc.collect()
        ours = (Desk, LoopRunner, ThreadRunner, JobContext)  # by type: some objects, asked what they are, import things
        return {id(one) for one in gc.get_objects() if issubclass(type(one), ours)}

    task: Any = hf.task(name="task")(coroutine if is_async else handler)
    before = alive()
    jobs = [task.enqueue() for _ in range(3)]
    assert hf.drain() == 3
    wait_until(lambda: alive() <= before, "threads to end, and all to be collected")
    assert [job.refresh().state for job in jobs] == [State.SUCCEEDED] * 3


def test_a_listener_to_events_that_raises_hurts_nobody(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    def broken(name: str, fields: dict[str, Any]) -> None:
        raise ZeroDivisionError(name)

    @hf.task(max_attempts=1)
    def fails(ctx: JobContext) -> None:
        raise ValueError("no")

    @hf.task
    async def succeeds() -> str:
        return "done"

    unsubscribe = events.subscribe(broken)
    try:
        jobs = [fails.enqueue(), succeeds.enqueue()]
        assert hf.drain() == 2
    finally:
        unsubscribe()
    assert [job.refresh().state for job in jobs] == [State.FAILED, State.SUCCEEDED]
    assert [text for text in caplog.messages if text.startswith("a listener failed at event")] == [
        "a listener failed at event enqueued; further failures of it are not logged"
    ]


def test_who_unsubscribed_hears_nothing_more(hf: Holdfast, heard: Heard) -> None:
    more: list[str] = []
    unsubscribe = events.subscribe(lambda name, fields: more.append(name))
    unsubscribe()
    unsubscribe()
    hf.task(name="task")(lambda: None).enqueue()
    hf.drain()
    assert [told["count"] for told in heard.of("claimed")] == [1]
    assert more == []


@pytest.mark.parametrize("engine", ["sqlite"])  # it is not asked
@pytest.mark.parametrize("kind", [LoopRunner, ThreadRunner])
def test_each_attempt_is_run_or_withdrawn_exactly_once(
    kind: type[LoopRunner] | type[ThreadRunner], hf: Holdfast
) -> None:
    """Slots and the desk reach for the same attempts, some thousand times."""
    jobs, batch = 6000, 50
    ran: Counter[int] = Counter()
    ended: list[int] = []

    def handler(n: int) -> None:
        ran[n] += 1

    async def coroutine(n: int) -> None:
        ran[n] += 1

    task: Any = hf.task(name="task")(coroutine if kind is LoopRunner else handler)
    runner = kind(4, [task], hf.store, hf.settings)
    runner.open("w", lambda attempt, outcome: ended.append(int(attempt.held.id)))
    withdrawn: list[int] = []
    chance = random.Random(1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for first in range(0, jobs, batch):
            held = [ClaimedJob(n, "f", "task", "default", b'{"n":%d}' % n, 1, 3) for n in range(first, first + batch)]
            before = len(ended)
            runner.start([Attempt(one) for one in held])
            enough, deadline = before + chance.randint(1, batch // 2), time.monotonic() + 20
            while len(ended) < enough:
                assert time.monotonic() < deadline, "the slots stand still"
                time.sleep(0)  # no longer: while they are at it
            while back := runner.withdraw(chance.choice((1, 2, 7, None))):
                withdrawn += [int(attempt.held.id) for attempt in back]
        wait_until(lambda: len(ended) + len(withdrawn) >= jobs, "each to be run or withdrawn")
    finally:
        sys.setswitchinterval(interval)
        runner.close(2.0)
    assert Counter(ended + withdrawn) == Counter(range(jobs))
    assert ran == Counter(ended)
    assert runner.waiting_since() is None
    assert ended, "slots were at it"
    assert withdrawn, "and so was the desk"
