"""Workers that claim ahead of their free slots, on real databases: quick where jobs are short, and nothing is held that
another worker could run, nothing lost or charged that did not begin."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Job, State
from holdfast.settings import Settings
from holdfast.worker import intake
from holdfast.worker.intake import TOO_LATE
from tests.contract.places import raw
from tests.running import HASTY, await_state, working
from tests.waiting import wait_until

MakeApp = Callable[..., Holdfast]
COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


def running_by_worker(settings: Settings) -> dict[str, int]:
    with raw(settings) as sql:
        return dict(sql("select worker, count(*) from {jobs} where state = 'running' group by worker"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was claimed ahead may wait as long as the test takes."""
    monkeypatch.setattr(intake, "TOO_LATE", 60.0)


class Stage:
    """One slot: short jobs first, by which it learns to claim ahead, then one that keeps it busy until it is let go,
    then others, which the worker has in flight meanwhile. A coroutine keeps its whole loop busy."""

    QUICK, FOLLOWERS = 40, 20

    def __init__(self, app: Holdfast, settings: Settings, colour: str) -> None:
        self.settings = settings
        self.ran: Counter[int] = Counter()
        self.began, self.let_go = threading.Event(), threading.Event()

        def handler(n: int) -> int:
            self.ran[n] += 1
            if n == self.QUICK:
                self.began.set()
                self.let_go.wait(30)
            return n

        async def coroutine(n: int) -> int:
            return handler(n)

        task: Any = app.task(name="task")(handler if colour == "sync" else coroutine)
        jobs: list[Job[Any]] = list(app.enqueue_many(task.bind(n) for n in range(self.QUICK + 1 + self.FOLLOWERS)))
        self.first, self.followers = jobs[self.QUICK], jobs[self.QUICK + 1 :]

    def until_claimed_ahead(self) -> None:
        assert self.began.wait(20)
        wait_until(lambda: self.running() == 1 + self.FOLLOWERS, "the others to be claimed ahead")

    def running(self) -> int:
        return sum(running_by_worker(self.settings).values())

    def followers_run(self) -> int:
        return sum(times for n, times in self.ran.items() if n > self.QUICK)

    def assert_each_ran_once(self) -> None:
        assert self.ran == Counter(range(self.QUICK + 1 + self.FOLLOWERS))
        for job in (self.first, *self.followers):
            assert (job.refresh().state, job.refresh().record.attempt, job.attempts()) == (State.SUCCEEDED, 1, [])


@pytest.fixture
def stage(make_app: MakeApp, settings: Settings, colour: str) -> tuple[Holdfast, Stage]:
    app = make_app(concurrency=1, threads=1, **HASTY)
    return app, Stage(app, settings, colour)


# -- short jobs, long jobs ---------------------------------------------------------------------------------------------


@COLOURS
def test_short_jobs_are_claimed_in_few_trips_and_each_runs_once(hf: Holdfast, settings: Settings, colour: str) -> None:
    ran: Counter[int] = Counter()

    def handler(n: int) -> None:
        ran[n] += 1

    async def coroutine(n: int) -> None:
        ran[n] += 1

    task: Any = hf.task(name="task")(handler if colour == "sync" else coroutine)
    hf.enqueue_many(task.bind(n) for n in range(3000))
    assert hf.drain() == 3000
    assert ran == Counter(range(3000))
    with raw(settings) as sql:
        assert sql("select state, attempt, count(*) from {jobs} group by state, attempt") == [("succeeded", 1, 3000)]
        [(claims,)] = sql("select count(distinct fence) from {jobs}")
        assert sql("select (select count(*) from {leases}), (select count(*) from {attempts})") == [(0, 0)]
    slots = hf.settings.concurrency if colour == "async" else hf.settings.threads
    assert claims < 3000 / slots / 2


@COLOURS
def test_long_jobs_are_left_to_others(make_app: MakeApp, settings: Settings, colour: str) -> None:
    app = make_app(concurrency=2, threads=2)
    seconds, jobs = 0.3, 16

    def handler() -> None:
        threading.Event().wait(seconds)

    async def coroutine() -> None:
        await asyncio.sleep(seconds)

    task: Any = app.task(name="task")(handler if colour == "sync" else coroutine)
    most: Counter[str] = Counter()

    def all_done() -> bool:
        held = running_by_worker(settings)
        most.update({worker: max(0, count - most[worker]) for worker, count in held.items()})
        return len(app.jobs(state="succeeded", limit=jobs)) == jobs

    with working(app) as one, working(app) as two:
        wait_until(lambda: len(app.store.workers.all()) == 2)
        app.enqueue_many(task.bind() for _ in range(jobs))
        wait_until(all_done)
        processed = one.desk.meters.attempts, two.desk.meters.attempts
    assert set(most) == {one.id, two.id}
    assert all(2 <= count <= 4 for count in most.values()), most
    assert min(processed) >= jobs / 4


# -- what can't begin --------------------------------------------------------------------------------------------------


@COLOURS
def test_what_was_claimed_ahead_and_can_not_begin_is_run_by_another_worker(stage: tuple[Holdfast, Stage]) -> None:
    app, play = stage
    with working(app) as stuck:
        play.until_claimed_ahead()
        waited_since = time.monotonic()
        with working(app):
            wait_until(lambda: play.followers_run() == play.FOLLOWERS, "another worker to run them")
        assert time.monotonic() - waited_since < TOO_LATE + 15
        assert (play.first.refresh().state, stuck.desk.in_flight.attempts()[0].held.id) == (
            State.RUNNING,
            int(play.first.id),
        )
        wait_until(lambda: play.running() == 1)
        play.let_go.set()
        play.first.wait(timeout=20)
    play.assert_each_ran_once()


@COLOURS
def test_what_can_not_begin_is_held_for_a_second_and_not_taken_again(stage: tuple[Holdfast, Stage]) -> None:
    app, play = stage
    with working(app) as stuck:
        play.until_claimed_ahead()
        wait_until(lambda: play.running() == 1, "those that wait to be given back", timeout=TOO_LATE + 4)
        polls = stuck.desk.meters.polls
        stuck.desk.wakeups.wake()
        for job in play.followers:
            record = job.refresh().record
            assert (record.state, record.attempt, job.attempts()) == (State.QUEUED, 0, [])
        assert stuck.desk.meters.polls == polls
        play.let_go.set()
        for job in play.followers:
            job.wait(timeout=20)
    play.assert_each_ran_once()


@COLOURS
@pytest.mark.usefixtures("patient")
def test_a_worker_that_stops_gives_back_at_once_what_did_not_begin(stage: tuple[Holdfast, Stage]) -> None:
    app, play = stage
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    play.until_claimed_ahead()
    worker.stop()
    wait_until(lambda: play.running() == 1, "what did not begin to be given back")
    assert play.first.refresh().state is State.RUNNING
    play.let_go.set()
    thread.join(20)
    assert not thread.is_alive()
    assert (play.first.refresh().state, play.first.refresh().result) == (State.SUCCEEDED, play.QUICK), (
        "what ran was let finish"
    )
    for job in play.followers:
        assert (job.refresh().state, job.refresh().record.attempt, job.attempts()) == (State.QUEUED, 0, [])
    assert play.followers_run() == 0
    assert app.drain() == play.FOLLOWERS
    play.assert_each_ran_once()


@COLOURS
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("verb", "state"), [("cancel", State.CANCELLED), ("pause", State.PAUSED)])
def test_what_people_ask_of_a_job_claimed_ahead_is_done_without_running_it(
    stage: tuple[Holdfast, Stage], verb: str, state: State
) -> None:
    app, play = stage
    asked, *others = play.followers
    with working(app) as worker:
        play.until_claimed_ahead()
        [attempt] = [attempt for attempt in worker.desk.in_flight.attempts() if str(attempt.held.id) == asked.id]
        getattr(asked, verb)()
        wait_until(lambda: attempt.reason == verb, "the worker to hear of it")
        play.let_go.set()
        await_state(asked, state)
        for job in others:
            job.wait(timeout=20)
    assert play.followers_run() == len(others)
    assert play.ran[play.QUICK + 1] == 0
    record = asked.refresh().record
    assert (record.attempt, asked.attempts()) == (0, [])
    assert record.error_code == ("CANCELLED" if verb == "cancel" else None)
