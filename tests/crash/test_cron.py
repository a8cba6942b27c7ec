"""One job a tick, none missing, whichever worker is killed and whenever the database is away."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.model.cron import tick_of
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from tests.crash.fleet import Fleet, a_fleet, wait_until
from tests.servers import own_postgres

SECOND = timedelta(seconds=1)
TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast'"


@pytest.fixture(autouse=True)
def a_cron_of_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed ticks are all made up for: so every one must be there."""
    monkeypatch.setenv("CRASH_CRON", "* * * * * *")


def ticks(fleet: Fleet) -> list[datetime]:
    return sorted(filter(None, map(tick_of_job, fleet.jobs())))


def tick_of_job(job: JobRecord) -> datetime | None:
    # Not when it is due: a job that was rescued falls due again later, for the same tick.
    return tick_of(job.task, job.correlation_id)


def await_ticks(fleet: Fleet, more: int) -> None:
    there = len(ticks(fleet))
    wait_until(lambda: len(ticks(fleet)) >= there + more, what=f"{more} more ticks")


def one_job_a_tick(fleet: Fleet) -> list[JobRecord]:
    found = ticks(fleet)
    assert {later - earlier for earlier, later in pairwise(found)} == {SECOND}, "each tick once, and none is missing"
    return [job for job in fleet.jobs() if job.task == "ticking"]


def around_a_tick(luck: random.Random) -> None:
    """Wait for the moment in which workers take a tick, or the one before or after."""
    moment = int(time.time()) + 1 + luck.uniform(-0.02, 0.06)
    wait_until(lambda: time.time() >= moment)


def test_workers_killed_in_turns_leave_one_job_a_tick(hasty_fleet: Fleet) -> None:
    fleet, luck = hasty_fleet, random.Random(11)
    workers = fleet.start_many(2)
    await_ticks(fleet, 2)
    for _ in range(6):
        around_a_tick(luck)
        fleet.kill(workers.pop(0))
        workers.append(fleet.start())
    await_ticks(fleet, 2)
    for worker in workers:  # and now nobody is left for a while
        fleet.kill(worker)
    gone = time.monotonic()
    wait_until(lambda: time.monotonic() - gone > 2.5)
    last = fleet.start_many(2)
    await_ticks(fleet, 4)
    fleet.kill(last[0])
    await_ticks(fleet, 1)
    last[1].terminate()
    fleet.await_end(last[1])
    jobs = one_job_a_tick(fleet)
    assert len(jobs) >= 10
    assert {job.state for job in jobs} <= {State.SUCCEEDED, State.QUEUED, State.RUNNING}
    for job in jobs:
        if job.state is State.SUCCEEDED:
            assert job.result == f'"{tick_of_job(job)}"'.encode()


def test_a_worker_that_was_frozen_over_ticks_repeats_none(hasty_fleet: Fleet) -> None:
    fleet = hasty_fleet
    workers = fleet.start_many(2)
    await_ticks(fleet, 1)
    for worker in workers:
        fleet.freeze(worker)
        await_ticks(fleet, 3)
        fleet.thaw(worker)
        await_ticks(fleet, 1)
    fleet.stop(*workers)
    one_job_a_tick(fleet)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_connections_that_break_in_the_middle_of_a_tick_leave_one_job_each(settings: Settings, tmp_path: Path) -> None:
    """A commit whose answer is lost may have happened or not: whoever looks again sees which."""
    with own_postgres() as server, a_fleet(Settings(url=server.url, schema="ticks"), tmp_path) as fleet:
        workers, luck = fleet.start_many(2), random.Random(5)
        await_ticks(fleet, 1)
        for _ in range(8):
            around_a_tick(luck)
            fleet.sql(TERMINATE)
        await_ticks(fleet, 2)
        fleet.stop(*workers)
        one_job_a_tick(fleet)


def test_a_database_that_is_away_over_ticks_loses_none(settings: Settings, tmp_path: Path, engine: str) -> None:
    with away_and_back(settings, engine) as (place, away), a_fleet(place, tmp_path) as fleet:
        workers = fleet.start_many(2)
        await_ticks(fleet, 2)
        with away():
            gone = time.monotonic()
            wait_until(lambda: time.monotonic() - gone > 3.2)
        await_ticks(fleet, 6)
        fleet.stop(*workers)
        one_job_a_tick(fleet)


@contextmanager
def away_and_back(
    settings: Settings, engine: str
) -> Iterator[tuple[Settings, Callable[[], AbstractContextManager[None]]]]:
    """A place to keep jobs in, and what makes it unreachable for as long as a block lasts."""
    if engine == "sqlite":
        path = settings.url.removeprefix("sqlite:///")

        @contextmanager
        def locked() -> Iterator[None]:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as other:
                other.execute("begin immediate")
                yield
                other.execute("rollback")

        yield settings, locked
        return
    with own_postgres(synchronous_commit="on") as server:

        @contextmanager
        def stopped() -> Iterator[None]:
            server.stop("immediate")
            try:
                yield
            finally:
                server.start()

        yield Settings(url=server.url, schema="ticks"), stopped
