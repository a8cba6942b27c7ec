"""Resources: opened once before the first job, injected, closed in reverse order after the last. And hooks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    BadSettings,
    Cancel,
    Crashed,
    Fail,
    Holdfast,
    HoldfastError,
    JobContext,
    JobInfo,
    LeaseLost,
    Retry,
    Snooze,
    State,
    StoreError,
    events,
)
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Error, Outcome
from holdfast.tasks import hooks
from holdfast.tasks.attempt import emit_errored, emit_lost
from holdfast.tasks.current import info_of
from holdfast.tasks.hooks import Hooks
from tests.running import Heard, troubled, working
from tests.waiting import wait_until


class Pool:
    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.thread = threading.current_thread().name


class Browser(Pool): ...


def test_resources_are_opened_once_injected_and_closed_in_reverse_order(hf: Holdfast) -> None:
    told: list[str] = []

    @hf.resource
    def settings() -> dict[str, int]:
        told.append("open settings")
        return {"size": 3}

    @hf.resource
    def pool(given: dict[str, int] = settings.injected) -> Iterator[Pool]:
        told.append(f"open pool of {given['size']}")
        yield Pool()
        told.append("close pool")

    @hf.resource
    async def browser(pool: Pool = pool.injected) -> AsyncIterator[Browser]:
        told.append(f"open browser with {pool.name}")
        yield Browser("browser")
        told.append("close browser")

    @hf.resource
    async def session() -> str:
        await asyncio.sleep(0)
        told.append("open session")
        return "session"

    @hf.resource
    def unused() -> None:
        told.append("nobody asked for it")

    @hf.task(aliases=["sync_before"])
    def sync(n: int, pool: Pool = pool.injected) -> str:
        told.append(f"run {n}")
        return pool.name

    @hf.task
    async def coroutine(
        ctx: JobContext, n: int, *, browser: Browser = browser.injected, pool: Pool = pool.injected, word: str = "x",
        session: str = session.injected,
    ) -> str:  # fmt: skip
        told.append(f"run {n}")
        return f"{ctx.attempt} {browser.name} {browser.thread} {pool.name} {word} {session}"

    @hf.task
    def without(n: int) -> int:
        return n

    first, second = sync.enqueue(1), coroutine.enqueue(2, word="y")
    third = without.enqueue(3)
    assert told == [], "nothing is opened where jobs are only enqueued"
    assert hf.drain() == 3
    assert (first.refresh().result, third.refresh().result) == ("pool", 3)
    assert second.refresh().result == "1 browser holdfast-loop pool y session"
    assert first.refresh().record.args == b'{"n":1}'
    opened = [line for line in told if line.startswith("open")]
    assert sorted(opened) == ["open browser with pool", "open pool of 3", "open session", "open settings"]
    assert told.index("open settings") < told.index("open pool of 3") < told.index("open browser with pool")
    assert told[-2:] == ["close browser", "close pool"]
    told.clear()
    with working(hf):
        for n in range(20):
            sync.enqueue(n).wait(timeout=20)
    assert len([line for line in told if line.startswith("open")]) == 4, "once, however many jobs"
    assert told[-2:] == ["close browser", "close pool"]


def test_an_asynchronous_resource_is_closed_in_the_task_that_opened_it(hf: Holdfast) -> None:
    """What is entered in one task and left in another breaks: time limits, task groups, cancel scopes."""
    closed: list[bool] = []

    @hf.resource
    async def group() -> AsyncIterator[asyncio.TaskGroup]:
        opened = asyncio.current_task()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            yield group
        closed.append(asyncio.current_task() is opened)

    @hf.task
    async def task(group: asyncio.TaskGroup = group.injected) -> str:
        return await group.create_task(asyncio.sleep(0, "done"))

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == "done"
    assert closed == [True]


def test_without_naming_one_the_annotation_says_which(hf: Holdfast) -> None:
    @hf.task
    def task(pool: Pool = hf.injected) -> str:
        return pool.name

    @hf.resource
    def open_pool() -> Iterator[Pool]:
        yield Pool("by annotation")

    @hf.resource
    def open_browser() -> Browser:
        raise AssertionError("a subclass is another type")

    job = task.enqueue()
    hf.drain()
    assert job.refresh().result == "by annotation"


# -- what is refused before anything is claimed ------------------------------------------------------------------------


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Holdfast]:
    """Nothing here reaches a database."""
    with Holdfast(f"sqlite:///{tmp_path}/lite.db") as app:
        yield app


def test_a_resource_that_is_missing_or_not_clear_is_refused_at_start(lite: Holdfast) -> None:
    @lite.task
    def task(pool: Pool = lite.injected) -> None: ...

    with pytest.raises(BadSettings, match=r"task task: .* looks for a Pool, and no resource gives it; name one"):
        lite.worker()
    lite.resource(_a_pool)
    lite.worker()

    @lite.resource
    def another() -> Pool:
        return Pool()

    with pytest.raises(BadSettings, match="_a_pool and another both give it; name one, as in"):
        lite.drain()


def _a_pool() -> Pool:
    return Pool()


def test_a_synchronous_handler_is_not_given_what_lives_on_the_loop(lite: Holdfast) -> None:
    @lite.resource
    async def pool() -> Pool:
        return Pool()

    @lite.task
    def task(pool: Pool = pool.injected) -> None: ...

    with pytest.raises(BadSettings, match="task task is synchronous and uses pool, which lives on the event loop"):
        lite.worker()


def test_resources_that_use_each_other_are_refused(lite: Holdfast) -> None:
    @lite.resource
    def pool(browser: Browser = lite.injected) -> Pool:
        return browser

    @lite.resource
    def browser(pool: Pool = pool.injected) -> Browser:
        return Browser()

    @lite.task
    def task(pool: Pool = pool.injected) -> None: ...

    with pytest.raises(BadSettings, match="resource pool uses itself, by way of browser"):
        lite.worker()


def test_what_can_not_be_a_resource_is_refused_where_it_is_declared(lite: Holdfast) -> None:
    def needs(url: str) -> str:
        return url

    with pytest.raises(BadSettings, match="resource needs: nobody would pass url"):
        lite.resource(needs)
    with pytest.raises(BadSettings, match="leave @contextmanager out"):
        lite.resource(contextmanager(_generator))
    with pytest.raises(BadSettings, match="leave @asynccontextmanager out"):
        lite.resource(asynccontextmanager(_agenerator))

    def positional(pool: str = lite.resource(_generator).injected, /) -> None: ...

    with pytest.raises(BadSettings, match="pool is injected by its name, so it can't be positional-only"):
        lite.task(positional)

    def unannotated(pool=lite.injected) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(BadSettings, match="goes by the annotation, and pool has none"):
        lite.task(unannotated)


def _generator() -> Iterator[str]:
    yield "x"


async def _agenerator() -> AsyncIterator[str]:
    yield "x"


def test_a_resource_is_no_argument_of_the_job(lite: Holdfast) -> None:
    pool = lite.resource(_a_pool)

    @lite.task
    def task(n: int, pool: Pool = pool.injected) -> str:
        return f"{n} {pool.name}"

    with pytest.raises(BadArguments, match="got an unexpected keyword argument 'pool'"):
        task.enqueue(1, pool=Pool())
    with pytest.raises(BadArguments, match="a direct call opens no resources; pass it by name, as in pool=…"):
        task(1)
    assert task(1, pool=Pool("mine")) == "1 mine"
    with pytest.raises(HoldfastError, match=r"task asks for resources \(pool\): a worker opens them"):
        task._run(JobContext.detached("task"), b'{"n":1}')

    @lite.task(cron="0 0 * * *")
    def may_be_a_cron(pool: Pool = pool.injected) -> None: ...


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async", "hook"])
def test_a_worker_whose_resource_can_not_be_opened_says_so_and_takes_no_job(hf: Holdfast, kind: str) -> None:
    closed: list[str] = []

    @hf.resource
    def before() -> Iterator[str]:
        yield "before"
        closed.append("before")

    @hf.resource
    def broken(before: str = before.injected) -> Pool:
        raise ConnectionRefusedError("nobody there")

    @hf.resource
    async def abroken(before: str = before.injected) -> AsyncIterator[Pool]:
        raise ConnectionRefusedError("nobody there")
        yield Pool()

    if kind == "hook":

        @hf.on_start
        async def check() -> None:
            raise ConnectionRefusedError("nobody there")

    @hf.task
    async def task(before: str = before.injected) -> None: ...

    if kind != "hook":

        @hf.task
        async def other(pool: Pool = (broken if kind == "sync" else abroken).injected) -> None: ...

    @hf.on_stop
    def stopped() -> None:
        closed.append("stop hook of a worker that never started")

    job = task.enqueue()
    named = {"sync": "resource broken could", "async": "resource abroken could", "hook": "start hook .*check failed"}
    for act in (hf.drain, hf.worker().run):
        with pytest.raises(HoldfastError, match=f"the {named[kind]}.*they stay queued.*ConnectionRefusedError: nobody"):
            act()
    assert closed == ["before"] * 2, "what was opened by then is closed"
    assert (job.refresh().state, job.refresh().record.attempt) == (State.QUEUED, 0)
    assert hf.store.workers.all() == []


def test_a_resource_that_can_not_be_closed_is_told_and_the_others_are_closed(hf: Holdfast, heard: Heard) -> None:
    closed: list[str] = []

    @hf.resource
    def first() -> Iterator[str]:
        yield "first"
        closed.append("first")

    @hf.resource
    def second() -> Iterator[str]:
        yield "second"
        raise OSError("it is stuck")

    @hf.resource
    async def third() -> AsyncIterator[str]:
        yield "third"
        raise OSError("it is stuck, too")

    @hf.task
    async def task(a: str = first.injected, b: str = second.injected, c: str = third.injected) -> str:
        return a + b + c

    job = task.enqueue()
    assert hf.drain() == 1
    assert job.refresh().result == "firstsecondthird"
    assert closed == ["first"]
    assert [fields["resource"] for fields in heard.of("resource_stuck")] == ["third", "second"]


def test_resources_stay_open_until_the_last_handler_has_ended(hf: Holdfast) -> None:
    open_now = threading.Event()
    seen: list[bool] = []

    @hf.resource
    def pool() -> Iterator[Pool]:
        open_now.set()
        yield Pool()
        open_now.clear()

    began = threading.Event()

    @hf.task
    def slow(ctx: JobContext, pool: Pool = pool.injected) -> None:
        began.set()
        while not ctx.should_stop():
            time.sleep(0.005)
        seen.append(open_now.is_set())

    slow.enqueue()
    worker = hf.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    assert began.wait(20)
    worker.stop()
    thread.join(20)
    assert seen == [True]
    assert not open_now.is_set()


# -- hooks -------------------------------------------------------------------------------------------------------------


def test_start_and_stop_hooks_run_around_everything_else(hf: Holdfast, heard: Heard) -> None:
    told: list[str] = []

    @hf.resource
    def pool() -> Iterator[Pool]:
        told.append("open")
        yield Pool()
        told.append("close")

    @hf.on_start
    def first() -> None:
        told.append("start 1")

    @hf.on_start
    async def second() -> None:
        told.append(f"start 2 on {threading.current_thread().name}")

    @hf.on_stop
    async def third() -> None:
        told.append("stop 1")

    @hf.on_stop
    def fourth() -> None:
        told.append("stop 2")
        raise OSError("no")

    @hf.task
    async def task(pool: Pool = pool.injected) -> None:
        told.append("run")

    task.enqueue()
    assert hf.drain() == 1
    assert told == ["open", "start 1", "start 2 on holdfast-loop", "run", "stop 2", "stop 1", "close"]
    [failed] = heard.of("hook_failed")
    assert failed["hook"].endswith("fourth")
    assert first is not None, "a hook stays the function it was"


def test_asynchronous_hooks_also_run_where_no_task_is(hf: Holdfast) -> None:
    told: list[str] = []

    @hf.on_start
    async def hook() -> None:
        told.append("start")

    @hf.task
    def task() -> None: ...

    hf.drain()
    assert told == ["start"]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise OSError("not even that")


@pytest.mark.parametrize("broken", [OSError, SystemExit, Unspeakable])
@pytest.mark.parametrize("is_async", [True, False])
def test_the_error_hook_hears_of_every_errored_attempt_and_of_nothing_else(
    make_app: Callable[..., Holdfast], heard: Heard, is_async: bool, broken: type[BaseException]
) -> None:
    app = make_app(heartbeat=0.05, lease=5.0)
    told: list[tuple[str, int, str, str]] = []

    @app.on_error
    def breaks(job: JobInfo | None, error: BaseException) -> None:
        raise broken("the tracker is down")

    @app.on_error
    def report(job: JobInfo | None, error: BaseException) -> None:
        assert job is not None
        told.append((job.id, job.attempt, type(error).__name__, str(error)))

    def act(ctx: JobContext, how: str) -> object:
        match how:
            case "retry":
                if ctx.attempt == 1:
                    raise Retry("later", after=0)
            case "value":
                raise ValueError("boom")
            case "fail":
                raise Fail("no", code="NO")
            case "unfit":
                return object()
            case "snooze":
                raise Snooze(3600)
            case "cancel":
                raise Cancel("no")
        return None

    if is_async:

        @app.task(retry=0, max_attempts=2)
        async def act_async(ctx: JobContext, how: str) -> object:
            return act(ctx, how)

        task = act_async
    else:
        task = app.task(retry=0, max_attempts=2)(act)  # type: ignore[assignment]
    names = ("retry", "value", "fail", "unfit", "snooze", "cancel", "fine")
    jobs = {how: task.enqueue(how) for how in names}
    app.drain()
    by_job = {
        how: [(number, kind, said) for id, number, kind, said in told if id == job.id] for how, job in jobs.items()
    }
    unfit = by_job.pop("unfit")
    assert by_job == {
        "retry": [(1, "Retry", "later")],
        "value": [(1, "ValueError", "boom"), (2, "ValueError", "boom")],
        "fail": [(1, "Fail", "no")],
        "snooze": [], "cancel": [], "fine": [],
    }  # fmt: skip
    assert [(number, kind) for number, kind, _ in unfit] == [(1, "HoldfastError")]
    assert len(heard.of("hook_failed")) == len(told), "the hook that failed cost nobody anything"
    assert [jobs[how].refresh().state for how in ("retry", "value", "fine")] == [
        State.SUCCEEDED,
        State.FAILED,
        State.SUCCEEDED,
    ]


def test_the_error_hook_hears_of_a_timeout(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(heartbeat=0.05, lease=5.0)
    told: list[BaseException] = []
    app.on_error(lambda job, error: told.append(error))

    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(60)

    slow.enqueue()
    app.drain()
    wait_until(lambda: told)
    assert isinstance(told[0], TimeoutError)
    assert "timeout of 0.05 s" in str(told[0])


def test_an_asynchronous_error_hook_is_refused(lite: Holdfast) -> None:
    async def hook(job: JobInfo | None, error: BaseException) -> None: ...

    with pytest.raises(BadSettings, match=r"on_error: .*hook must be a plain function"):
        lite.on_error(hook)


def test_an_error_hook_that_takes_something_else_is_refused(lite: Holdfast) -> None:
    with pytest.raises(BadSettings, match=r"on_error: .* must take the job and the exception"):
        lite.on_error(lambda error: None)  # type: ignore[type-var]


def told_of(worker: str, *events_of_it: tuple[str, dict[str, Any]]) -> list[tuple[Any, BaseException]]:
    """What error hooks of this worker's application get to hear."""
    told: list[tuple[Any, BaseException]] = []
    end = Hooks(error=[lambda job, error: told.append((job, error))]).listen(worker)
    try:
        for name, fields in events_of_it:
            events.emit(name, **fields)
    finally:
        end(20.0)
    return told


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("CRASHED", Crashed), ("LOST", Crashed), ("QUARANTINED", Crashed), ("TIMED_OUT", TimeoutError),
        ("STALLED", TimeoutError), ("NOT_BEGUN", HoldfastError),
    ],
)  # fmt: skip
def test_the_error_hook_hears_of_an_attempt_that_its_worker_ended(code: str, kind: type[BaseException]) -> None:
    held = ClaimedJob(
        id="7", fence="f", task="work", queue="default", args=b"{}", attempt=2, max_attempts=3, priority=7
    )
    outcome = Outcome("fail", held.id, held.fence, "errored", error=Error(code, "so it was"))
    heard: list[tuple[str, dict[str, Any]]] = []
    unsubscribe = events.subscribe(lambda name, fields: heard.append((name, fields)))
    emit_errored(held, outcome, worker="w1")
    emit_errored(held, outcome)  # by the handler itself: the hooks were called where it was raised
    emit_lost(held, "w1")
    unsubscribe()
    assert told_of("w2", *heard) == [], "another worker's"
    (job, error), (again, lost) = told_of("w1", *heard)
    assert job == again == info_of(held)
    assert type(error) is kind
    assert str(error).endswith("so it was")
    assert getattr(error, "code", code) == code
    assert isinstance(lost, LeaseLost)


def test_a_slow_error_hook_keeps_no_lease_from_being_renewed(make_app: Callable[..., Holdfast], heard: Heard) -> None:
    """An error may be told on the thread that renews leases."""
    app = make_app(heartbeat=0.05, lease=5.0)
    told, go_on = threading.Event(), threading.Event()

    @app.on_error
    def report(job: JobInfo | None, error: BaseException) -> None:
        told.set()
        go_on.wait(60)

    @app.task
    async def wait() -> None:
        await asyncio.sleep(60)

    wait.enqueue()
    with working(app) as worker:

        def tell(name: str, fields: dict[str, Any]) -> None:
            if not told.is_set():
                fail_poll(worker.id)

        unsubscribe = events.subscribe(tell, only=["renewed"])
        try:
            assert told.wait(20), "the hook is called"
            before = len(heard.of("renewed"))
            wait_until(lambda: len(heard.of("renewed")) > before + 2, what="leases are renewed")
        finally:
            unsubscribe()
            go_on.set()


def fail_poll(worker: str) -> None:
    events.emit("poll_failed", worker=worker, consecutive_errors=1, error_class="ValueError", error="a bug")


def test_calls_of_the_error_hook_beyond_those_that_may_wait_are_dropped_and_counted(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "ROOM", 2)
    called, go_on = threading.Event(), threading.Event()

    def report(job: JobInfo | None, error: BaseException) -> None:
        called.set()
        go_on.wait(60)

    end = Hooks(error=[report]).listen("w1")
    fail_poll("w1")
    assert called.wait(20)
    for _ in range(5):
        fail_poll("w1")
    assert [fields["count"] for fields in heard.of("events_dropped")] == [1], "not once for each"
    end(0.0)
    assert sum(fields["count"] for fields in heard.of("events_dropped")) == 6
    go_on.set()


def test_the_error_hook_hears_of_failed_polls(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = make_app(poll_base=0.01, poll_max=0.02)
    errors: list[Exception] = [StoreError("permission denied"), ValueError("a bug")]
    told: list[tuple[object, BaseException]] = []

    @hf.on_error
    def report(job: JobInfo | None, error: BaseException) -> None:
        told.append((job, error))

    @hf.task
    def fine() -> None: ...

    def trouble(outcomes: object) -> None:
        if errors:
            raise errors.pop(0)

    monkeypatch.setattr(hf.store, "trips", troubled(hf.store, trouble))
    with working(hf):
        fine.enqueue().wait(timeout=20)
    assert [job for job, _ in told] == [None, None]
    assert [(type(error), str(error)) for _, error in told] == [
        (StoreError, "HF3001 permission denied"),
        (HoldfastError, "HF1001 ValueError: a bug"),
    ]
