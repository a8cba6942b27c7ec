"""Progress: total, note, rate, time left; reported as often as a handler likes, written about once a second."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch

import pytest

from holdfast import Holdfast, HoldfastError, JobContext, State
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Progress
from holdfast.tasks.attempt import Attempt
from tests.running import MakeApp, await_state, working
from tests.waiting import wait_until


def test_rate_and_time_left_are_told_while_it_runs(hasty: Holdfast) -> None:
    let_go = threading.Event()

    @hasty.task
    def task(ctx: JobContext) -> None:
        for _ in ctx.track(range(100_000), total=100_000):
            if let_go.wait(0.005):
                break

    job = task.enqueue()
    assert job.refresh().progress is None
    with working(hasty):
        progress = wait_until(lambda: (p := job.refresh().progress) and p.rate and p)
        assert progress
        assert progress.done is not None
        assert 0 < progress.done < 100_000
        assert progress.rate is not None
        assert 1 < progress.rate < 1_000  # it waits 5 ms for each: 200 a second, read at two moments of a busy machine
        assert progress.fraction == progress.done / 100_000
        assert progress.seconds_left == (100_000 - progress.done) / progress.rate
        let_go.set()
        await_state(job, State.SUCCEEDED)
    done = job.refresh().progress
    assert done is not None
    assert (done.rate, done.seconds_left, done.total) == (None, None, 100_000)


def test_the_first_progress_is_written_soon_not_at_the_next_beat(make_app: MakeApp) -> None:
    """That comes after a minute."""
    hf = make_app(lease=240.0)
    let_go = threading.Event()

    @hf.task
    def task(ctx: JobContext) -> None:
        ctx.progress(1, total=2)
        let_go.wait(20)

    job = task.enqueue()
    with working(hf):
        wait_until(lambda: job.refresh().progress)
        let_go.set()


def test_progress_is_written_however_often_checkpoints_are_saved(hasty: Holdfast) -> None:
    """A checkpoint shows that the work moves, but not how far it is."""
    let_go = threading.Event()

    @hasty.task
    def task(ctx: JobContext) -> None:
        for done in itertools.count(1):
            ctx.checkpoint(done)
            ctx.progress(done, note=f"page {done}")
            if let_go.wait(0.05):
                return

    job = task.enqueue()
    with working(hasty):
        first = wait_until(lambda: (p := job.refresh().progress) and p.done)
        assert first
        wait_until(lambda: (p := job.refresh().progress) and p.rate and p.done and p.done > first)
        let_go.set()


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_note_alone_is_progress(hasty: Holdfast, colour: str) -> None:
    let_go = threading.Event()

    def task(ctx: JobContext) -> None:
        ctx.progress(note="downloading")
        let_go.wait(20)
        ctx.progress(note="done")

    async def atask(ctx: JobContext) -> None:
        await asyncio.to_thread(task, ctx)

    job = hasty.task(name="t")(task if colour == "sync" else atask).enqueue()
    with working(hasty):
        seen = wait_until(lambda: job.refresh().progress)
        assert seen
        assert (seen.done, seen.total, seen.note, seen.rate, seen.fraction) == (None, None, "downloading", None, None)
        let_go.set()
        await_state(job, State.SUCCEEDED)
    last = job.refresh().progress
    assert last is not None
    assert (last.done, last.note) == (None, "done")


def test_a_note_alone_leaves_the_count_as_it_was(hf: Holdfast) -> None:
    @hf.task(retry=0)
    def task(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            ctx.progress(4, total=10)
            raise ZeroDivisionError
        ctx.progress(note="again")

    job = task.enqueue()
    hf.drain()
    progress = job.refresh().progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (4, 10, "again")


def test_the_first_report_shows_within_a_second_and_later_ones_about_once_a_second(hf: Holdfast) -> None:
    written: list[tuple[float, Any]] = []
    began: list[float] = []
    original = hf.store.attempts.progress

    def progress(*args: Any) -> tuple[bool, bool]:
        written.append((time.monotonic(), args[1]))
        return original(*args)

    @hf.task
    def task(ctx: JobContext) -> None:
        began.append(time.monotonic())
        for n in itertools.count():
            ctx.progress(n)
            if len(written) == 3:
                return
            time.sleep(0.01)

    job = task.enqueue()
    with patch.object(hf.store.attempts, "progress", progress), working(hf):
        await_state(job, State.SUCCEEDED)
    first, second, third = (at for at, _ in written)
    assert first - began[0] < 1.0
    assert second - first >= 0.95
    assert third - second >= 0.95


def test_what_one_call_says_another_does_not_take_back(hasty: Holdfast) -> None:
    """Total and note stay until others are given, though only the newest call is written."""
    let_go = threading.Event()

    @hasty.task
    def task(ctx: JobContext) -> None:
        ctx.progress(0, total=10, note="begins")
        for _ in ctx.track(iter(range(5))):
            pass
        ctx.progress(6)
        let_go.wait(20)

    job = task.enqueue()
    with working(hasty):
        progress = wait_until(lambda: (p := job.refresh().progress) and p.done == 6 and p)
        let_go.set()
    assert progress
    assert (progress.total, progress.note) == (10, "begins")


def test_a_paused_job_shows_how_far_it_came_and_goes_on_counting_there(hf: Holdfast) -> None:
    reached = threading.Event()

    @hf.task
    def task(ctx: JobContext) -> None:
        start = ctx.saved or 0
        for n in ctx.track(range(start, 1000), total=1000, done=start):
            if n == 412:
                ctx.checkpoint(n)
                reached.set()
            while n == 412 and not ctx._attempt.reason:  # type: ignore[union-attr]
                threading.Event().wait(0.001)

    job = task.enqueue()
    with working(hf):
        reached.wait(20)
        job.pause()
        await_state(job, State.PAUSED)
        progress = job.refresh().progress
        assert progress is not None
        # Reported since the last beat, or never written before: it was not lost with the attempt.
        assert (progress.done, progress.total, progress.rate) == (413, 1000, None)
        assert progress.seconds_left is None


def test_track_goes_through_asynchronous_items_and_stops_between_them(hf: Holdfast) -> None:
    seen: list[int] = []
    reached = threading.Event()

    async def items(count: int) -> AsyncIterator[int]:
        for n in range(count):
            yield n  # without ever giving the loop a turn

    @hf.task
    async def short(ctx: JobContext) -> int:
        return sum([n async for n in ctx.track(items(10), total=10)])

    @hf.task
    async def endless(ctx: JobContext) -> None:
        async for n in ctx.track(items(10**9)):
            seen.append(n)
            reached.set()
            if n % 100 == 0:
                await asyncio.sleep(0.001)

    total, job = short.enqueue(), endless.enqueue()
    with working(hf):
        assert total.wait(timeout=20) == 45
        reached.wait(20)
        job.cancel("enough")
        await_state(job, State.CANCELLED)
    assert job.refresh().record.error_message == "enough"


def test_a_plain_call_tracks_without_a_job() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def collected() -> list[int]:
        return [n async for n in ctx.track(items())]

    ctx = JobContext.detached("t")
    assert list(ctx.track([1, 2])) == [1, 2]
    assert asyncio.run(collected()) == [1, 2]


def test_a_note_is_a_text(hf: Holdfast) -> None:
    bad: Any = 3
    with pytest.raises(HoldfastError, match="note must be a text, not 3"):
        JobContext.detached("t").progress(1, note=bad)


@pytest.mark.parametrize("colour", ["plain", "coroutine"])
def test_what_was_reported_last_is_recorded_with_the_outcome(make_app: MakeApp, colour: str) -> None:
    """The heartbeat never comes to write anything."""
    hf = make_app(lease=240.0)

    def work(ctx: JobContext) -> None:
        for n in ctx.track(range(30)):
            if n == 10:
                ctx.checkpoint(n, done=n)
        ctx.progress(31, total=40, note="nearly there")

    async def awork(ctx: JobContext) -> None:
        work(ctx)

    job = hf.task(name="task")(work if colour == "plain" else awork).enqueue()
    hf.drain()
    progress = job.refresh().progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (31, 40, "nearly there")


def test_a_checkpoint_that_counts_overrules_what_was_reported_before(hf: Holdfast) -> None:
    @hf.task
    def task(ctx: JobContext) -> None:
        ctx.progress(5, total=10)
        ctx.checkpoint("all", done=10)

    job = task.enqueue()
    hf.drain()
    assert job.refresh().record.done == 10


def test_progress_that_is_reported_while_it_is_taken_is_not_lost() -> None:
    """Whoever passes progress on clears the flag, then reads: here a handler reports in between."""

    class Reporting(Attempt, kw_only=True, eq=False, gc=False):
        @property
        def progress(self) -> Progress | None:
            seen = super().progress
            if self.done == 29:
                self.done, self.fresh = 30, True
            return seen

    attempt = Reporting(ClaimedJob(1, "f", "t", "default", b"{}", 1, 3), done=29, fresh=True)
    assert attempt.new_progress() == (29, None, None)
    assert attempt.new_progress() == (30, None, None)
    assert attempt.new_progress() is None


def test_a_note_is_cut_and_cleaned_whenever_it_is_passed_on(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may do that between any two steps of the report."""
    seen: list[str | None] = []
    hiding = JobContext._hiding

    def look(context: JobContext) -> Any:
        assert context._attempt is not None
        seen.append(context._attempt.note)
        return hiding(context)

    monkeypatch.setattr(JobContext, "_hiding", look)

    @hf.task
    def task(ctx: JobContext) -> None:
        ctx.progress(1, note="x" * 5_000)

    job = task.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    assert seen[0] is None, "how to take secrets out is known before there is a note"
