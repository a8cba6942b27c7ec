"""A task's stored name is its function's, or name=; an alias keeps old jobs running; nobody takes another's name."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from holdfast import BadSettings, Holdfast, JobContext, State, UnknownTask
from holdfast.model.job import NewJob
from holdfast.model.text import BadName
from holdfast.settings import Settings


def test_the_stored_name_is_never_the_modules_path(hf: Holdfast) -> None:
    @hf.task
    def inner() -> None: ...

    @hf.task(name="mail.send")
    def other() -> None: ...

    assert [inner.enqueue().refresh().record.task, other.enqueue().refresh().record.task] == ["inner", "mail.send"]
    assert repr(other) == "<Task mail.send: queue default, 3 attempts>"
    assert repr(other.using(queue="news", key="k")) == "<Task mail.send using queue='news', key='k'>"
    assert repr(other.bind()) == "<Bound mail.send(…)>"


def test_duplicates_are_refused() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task(aliases=["old"])
    def first() -> None: ...

    for options in ({"name": "first"}, {"name": "old"}, {"name": "second", "aliases": ["first"]}):
        with pytest.raises(BadSettings, match=r"the task name '(first|old)' is taken by 'first'"):
            app.task(**options)(lambda: None)
    with pytest.raises(BadSettings, match="is taken"):
        app.task(first.function)
    assert list(app.tasks) == ["first"]


def test_an_alias_runs_jobs_enqueued_under_the_old_name(make_app: Callable[..., Holdfast]) -> None:
    before, after = make_app(), make_app()
    ran: list[int] = []

    @before.task
    def old_name(n: int) -> int:
        raise AssertionError("nobody runs this any more")

    @after.task(aliases=["old_name", "older_name"])
    def new_name(n: int) -> int:
        ran.append(n)
        return n * 2

    old, new = old_name.enqueue(1), new_name.enqueue(2)
    assert after.drain() == 2
    assert sorted(ran) == [1, 2]
    assert [after.job(old.id).result, new.refresh().result] == [2, 4]
    assert old.refresh().record.task == "old_name"
    assert after.find_task("older_name") is after.find_task("new_name")


def test_jobs_of_unknown_tasks_are_never_claimed_and_never_discarded(hf: Holdfast) -> None:
    @hf.task
    def known() -> None: ...

    stranger = hf.store.enqueue(NewJob(task="unknown", args=b"{}")).id
    known.enqueue()
    assert hf.drain() == 1
    assert hf.job(stranger).state is State.QUEUED
    assert hf.job(stranger).refresh().record.attempt == 0
    with pytest.raises(UnknownTask, match="there is no task 'unknown' in this application; declared: known"):
        hf.find_task("unknown")


def test_a_worker_of_an_application_without_tasks_is_refused(hf: Holdfast) -> None:
    with pytest.raises(BadSettings, match=r"declares no tasks.*: import the modules that declare your tasks"):
        hf.worker()


def test_calling_a_task_runs_its_handler_here_and_now() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @app.task
    def contextual(ctx: JobContext, items: list[int]) -> tuple[str, int, int]:
        ctx.checkpoint({"a": 1}, pending=3)
        ctx.progress(1, total=2)
        ctx.succeed(1, conn=None)
        return ctx.job.task, ctx.attempt, sum(ctx.track(items)) + (ctx.saved or 0) + ctx.should_stop()

    @app.task
    async def later(n: int) -> int:
        return n

    assert add(1) == 3
    assert add(b=1, a=1) == 2
    assert contextual([1, 2]) == ("contextual", 1, 3)
    assert asyncio.run(_awaited(later(4))) == 4
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


async def _awaited(coroutine: object) -> object:
    return await coroutine  # type: ignore[misc]


def test_a_generator_or_something_without_a_name_is_no_handler() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    def numbers() -> Iterator[int]:
        yield 1

    async def later_numbers() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, later_numbers):
        with pytest.raises(BadSettings, match="a generator can't be a handler"):
            app.task(function)
    with pytest.raises(BadSettings, match="@task is for functions, not for functools"):
        app.task(functools.partial(print, "x"))
    assert app.tasks == {}


UNSAFE = ["\x1b", "\n", "\r", "\t", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\u2029"]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("char", UNSAFE, ids=ascii)
def test_a_name_has_no_control_characters(hf: Holdfast, char: str) -> None:
    """They would reach terminals and logs of whoever looks after the jobs."""
    bad = f"a{char}b"

    @hf.task
    def task() -> None: ...

    job = task.enqueue()
    entrances: dict[str, Callable[[], object]] = {
        "task": lambda: hf.task(name=bad)(lambda: None),
        "alias": lambda: hf.task(name="t", aliases=[bad])(lambda: None),
        "queue of a task": lambda: hf.task(name="t", queue=bad)(lambda: None),
        "tag of a task": lambda: hf.task(name="t", tags=[bad])(lambda: None),
        "cron": lambda: hf.task(name=bad, cron="0 0 * * *")(lambda: None),
        "queue": lambda: task.using(queue=bad).enqueue(),
        "key": lambda: task.using(key=bad).enqueue(),
        "tag": lambda: task.using(tags=[bad]).enqueue(),
        "correlation id": lambda: task.using(correlation_id=bad).enqueue(),
        "tag of a job": lambda: job.change(tags=[bad]),
        "queue to pause": lambda: hf.pause_queue(bad),
        "task to pause": lambda: hf.pause_task(bad),
        "cron to pause": lambda: hf.pause_cron(bad),
        "who pauses": lambda: hf.pause_queue("q", by=bad),
        "why": lambda: hf.pause_queue("q", reason=bad),
        "who pauses jobs": lambda: hf.pause_jobs("id:1", by=bad),
        "who cancels jobs": lambda: hf.cancel("id:1", by=bad),
        "why jobs": lambda: hf.cancel("id:1", bad),
        "who pauses a job": lambda: job.pause(by=bad),
        "why a job is paused": lambda: job.pause(bad),
        "who cancels a job": lambda: job.cancel(by=bad),
        "why a job is cancelled": lambda: job.cancel(bad),
        "queues of a worker": lambda: hf.worker(queues=[bad]),
        "name of a worker": lambda: Settings(worker_name=bad),
        "host": lambda: Settings(host=bad),
    }
    for what, enter in entrances.items():
        with pytest.raises(BadName, match=r"^HF1204 .* has the control character \\") as refused:
            enter()
        assert bad not in str(refused.value), what
    assert hf.pauses() == []
    assert hf.job(job.id).state is State.QUEUED


@pytest.mark.parametrize("name", ["café 東京", "👩‍👩‍👧", "می‌خواهم", "[red]x[/red]", "a'b; $(c)"])
def test_any_other_name_is_taken(hf: Holdfast, name: str) -> None:
    task = hf.task(name=name)(lambda: None)
    job = task.using(queue=name, key=name, tags=[name], correlation_id=name).enqueue()
    assert (job.refresh().record.queue, job.refresh().record.task) == (name, name)
    assert hf.drain() == 1
