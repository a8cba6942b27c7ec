"""SIGTERM: nothing is lost, nothing is left running, what did not finish is given back uncharged."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from holdfast import Holdfast, JobContext
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.signals import stop_signals
from tests.crash.fleet import Fleet, assert_each_success_is_of_its_newest_claim, wait_until

IN_PROCESS = 88  # cycles on each engine, beside
PROCESSES = 12  # real ones: 200 in all
AT_ONCE = 5.0  # seconds until a worker has ended that need not wait for its handlers: their grace is ten minutes


class Workers:
    """Workers in threads of this process, started and stopped again and again, and what their handlers saw."""

    def __init__(self, settings: Settings) -> None:
        self.settings = replace(settings, lease=30.0, heartbeat=7.5, grace=0.2, concurrency=6, threads=3)
        self.ends: Counter[str] = Counter()
        self._lock = threading.Lock()

    def application(self) -> Holdfast:
        names = ("url", "schema", "lease", "heartbeat", "grace", "concurrency", "threads", "synchronous")
        app = Holdfast(**{name: getattr(self.settings, name) for name in names})

        @app.task
        def short(ctx: JobContext) -> None:
            time.sleep(0.01)
            self._end(ctx)

        @app.task
        async def ashort(ctx: JobContext) -> None:
            await asyncio.sleep(0.01)
            self._end(ctx)

        @app.task
        async def long(ctx: JobContext) -> None:
            """Longer than the grace time: it is cancelled."""
            await asyncio.sleep(600)

        @app.task
        def heedful(ctx: JobContext) -> None:
            while not ctx.should_stop():
                time.sleep(0.005)

        @app.task
        def deaf(ctx: JobContext) -> None:
            """Longer than the grace time, and it can't be stopped: whatever it returns is dropped."""
            time.sleep(0.6)
            self._end(ctx)

        return app

    def _end(self, ctx: JobContext) -> None:
        with self._lock:
            self.ends[ctx.job.id] += 1

    def cycle(self, seed: int) -> None:
        luck = random.Random(seed)
        app = self.application()
        worker = app.worker()
        thread = threading.Thread(target=worker.run)
        thread.start()
        for task in luck.choices(["short", "ashort", "long", "heedful", "deaf"], [40, 40, 4, 4, 1], k=20):
            app.tasks[task].enqueue()
        time.sleep(luck.uniform(0, 0.12))  # a random moment is the point
        worker.stop()
        if luck.random() < 0.3:
            time.sleep(luck.uniform(0, 0.1))
            worker.stop()
        thread.join(30)
        assert not thread.is_alive(), worker
        held = [job for job in app.store.reads.jobs(state=State.RUNNING, limit=10_000) if job.worker == worker.id]
        assert held == []
        app.close()


def test_cycles_of_start_and_stop_lose_nothing(settings: Settings) -> None:
    workers = Workers(settings)
    app = workers.application()
    app.migrate()
    failures: list[BaseException] = []

    def cycles(seeds: range) -> None:
        try:
            for seed in seeds:
                workers.cycle(seed)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=cycles, args=(range(n, IN_PROCESS, 4),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    jobs = app.store.reads.jobs(limit=100_000)
    assert len(jobs) == IN_PROCESS * 20
    assert {job.state for job in jobs} <= {State.QUEUED, State.SUCCEEDED}
    for job in jobs:
        assert job.attempt == (1 if job.state is State.SUCCEEDED else 0), "what was given back was not charged"
        assert job.crashes == 0
    for job in jobs:
        if job.task in ("long", "heedful"):
            assert job.state is State.QUEUED
            assert app.store.operator.cancel(job.id) is State.CANCELLED
    # With time enough, the rest gets done.
    workers.settings = replace(workers.settings, grace=30.0)
    last = workers.application()
    last.drain()
    left = Counter(job.state for job in app.store.reads.jobs(limit=100_000))
    assert set(left) == {State.SUCCEEDED, State.CANCELLED}
    for job in app.store.reads.jobs(state=State.SUCCEEDED, limit=100_000):
        assert workers.ends[job.id] >= 1
        released = [a for a in app.store.reads.attempts(job.id) if a.outcome == "released"]
        assert workers.ends[job.id] <= 1 + len(released), "a second run is explained by a release"
    last.close()
    app.close()


def test_signals_at_random_moments_lose_nothing_with_handlers_in_the_worker(fleet: Fleet) -> None:
    luck = random.Random(13)
    jobs = 0
    for _ in range(PROCESSES // 3):
        jobs += len(fleet.enqueue("doze", 60, seconds=0.03) + fleet.enqueue("nap", 20, seconds=0.03))
        jobs += len(fleet.enqueue("heed", 2))
        workers = fleet.start_many(3, grace=0.3, concurrency=8, processes=0)
        for worker in luck.sample(workers, 3):
            moment = time.monotonic() + luck.uniform(0, 0.15)
            wait_until(lambda at=moment: time.monotonic() >= at)  # type: ignore[misc]
            worker.terminate()
        for worker in workers:
            fleet.await_end(worker, 20)
            assert worker.returncode == 0, fleet.log_of(worker)
        states = fleet.states()
        assert set(states) <= {State.QUEUED, State.SUCCEEDED}, states
        assert states.total() == jobs
        assert fleet.sql("select * from {leases} where held > 0") == []
        assert fleet.store.workers.all() == []
    assert {job.attempt for job in fleet.jobs() if job.state is State.QUEUED} <= {0}
    for job in fleet.jobs():
        if job.task == "heed":
            fleet.store.operator.cancel(job.id)
    last = fleet.start(processes=0)
    wait_until(lambda: not fleet.states()[State.QUEUED] and not fleet.states()[State.RUNNING])
    fleet.stop(last)
    assert set(fleet.states()) == {State.SUCCEEDED, State.CANCELLED}
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())


def test_leases_are_renewed_while_a_worker_drains(hasty_fleet: Fleet) -> None:
    """A drain of several leases, watched from another host: nobody rescues what still runs."""
    fleet = hasty_fleet
    go = fleet.home / "go"
    worker = fleet.start(host="alpha", grace=60.0)
    fleet.enqueue("hold", 1, until=str(go))
    fleet.enqueue("ahold", 2, until=str(go))
    fleet.await_starts(3)
    other = fleet.start(host="beta")
    worker.terminate()
    wait_until(lambda: "still running" in fleet.log_of(worker), what="it drains")
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 3 * fleet.settings.lease)
    assert len(fleet.traces("start")) == 3
    assert worker.poll() is None
    go.touch()
    fleet.await_end(worker)
    assert worker.returncode == 0
    fleet.await_states(succeeded=3)
    assert {(job.attempt, len(fleet.store.reads.attempts(job.id))) for job in fleet.jobs()} == {(1, 0)}
    assert len(fleet.traces("start")) == 3
    fleet.stop(other)


@pytest.mark.parametrize(
    ("signals", "processes"),
    [((signal.SIGTERM, signal.SIGTERM), 1), ((signal.SIGINT, signal.SIGTERM), 1), ((signal.SIGTERM, signal.SIGINT), 0)],
)
def test_a_second_signal_releases_at_once(
    fleet: Fleet, signals: tuple[signal.Signals, signal.Signals], processes: int
) -> None:
    worker = fleet.start(grace=600.0, processes=processes)
    fleet.enqueue("nap", 2, seconds=600)
    fleet.enqueue("doze", 2, seconds=600)
    fleet.await_starts(4)
    worker.send_signal(signals[0])
    wait_until(lambda: "still running" in fleet.log_of(worker), what="it drains")
    assert fleet.states() == {State.RUNNING: 4}
    worker.send_signal(signals[1])
    fleet.await_end(worker, AT_ONCE)
    assert worker.returncode == 0
    assert fleet.states() == {State.QUEUED: 4}
    assert {job.attempt for job in fleet.jobs()} == {0}
    assert {a.outcome for job in fleet.jobs() for a in fleet.store.reads.attempts(job.id)} == {"released"}


@pytest.mark.usefixtures("a_terminal_to_lose")
def test_a_terminal_that_is_closed_is_no_crash(fleet: Fleet) -> None:
    worker = fleet.start(processes=1, grace=0.1)
    fleet.enqueue("nap", seconds=600)
    fleet.await_starts(1)
    worker.send_signal(signal.SIGHUP)
    fleet.await_end(worker, 30)
    assert worker.returncode == 0
    [job] = fleet.jobs()
    assert (job.state, job.attempt) == (State.QUEUED, 0)


@pytest.mark.usefixtures("a_terminal_to_lose")
def test_who_is_to_outlive_its_terminal_does() -> None:
    assert signal.SIGHUP in stop_signals()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    assert signal.SIGHUP not in stop_signals()


def test_a_handler_that_heeds_the_shutdown_is_given_back_early(fleet: Fleet) -> None:
    worker = fleet.start(grace=600.0)
    fleet.enqueue("heed", 3)
    fleet.await_starts(3)
    fleet.stop(worker, timeout=AT_ONCE)
    assert fleet.states() == {State.QUEUED: 3}
    assert {job.attempt for job in fleet.jobs()} == {0}


INTERRUPTED = """
import signal, sys, time
from holdfast.worker.loop import Bell

bell, rung = Bell(), 0

def handler(*_):
    global rung
    rung += 1
    bell.ring()

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
while rung < 5_000:
    bell.wait(0.0001)
    bell.ring()
signal.setitimer(signal.ITIMER_REAL, 0)
bell.ring()
sys.exit(not bell.wait(5))
"""


def test_what_stop_rings_may_interrupt_itself() -> None:
    """A signal handler runs in the middle of whatever the main thread does, also while that one holds a lock: with an
    Event, this ends in a deadlock within seconds."""
    subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, timeout=60)
