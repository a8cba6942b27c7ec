"""PostgreSQL goes away and comes back: nobody is punished, nothing is lost, outcomes wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.embedded import EmbeddedPostgres
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from tests.crash.fleet import Fleet, a_fleet, assert_each_success_is_of_its_newest_claim, wait_until
from tests.servers import own_postgres

TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast%'"
LISTENERS = "select pid from pg_stat_activity where application_name = 'holdfast-listener'"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    # Commits are really written: an immediate stop must not forget what was acknowledged.
    with own_postgres(synchronous_commit="on") as server:
        yield server


@contextmanager
def fleet_on(server: EmbeddedPostgres, home: Path, schema: str, **settings: float) -> Iterator[Fleet]:
    options = {"lease": 2.0, "heartbeat": 0.5, **settings}
    with a_fleet(Settings(url=server.url, schema=schema, **options), home) as fleet:  # type: ignore[arg-type]
        yield fleet


def untroubled(fleet: Fleet, jobs: list[JobRecord]) -> None:
    """Each ran once, was charged once, and has no history of anything else."""
    starts = [trace.job for trace in fleet.traces("start")]
    assert len(starts) == len(set(starts)) == len(jobs)
    assert {(job.state, job.attempt, job.crashes) for job in jobs} == {(State.SUCCEEDED, 1, 0)}
    assert fleet.sql("select * from {attempts}") == []
    assert_each_success_is_of_its_newest_claim(fleet, jobs)


@pytest.mark.parametrize(
    ("mode", "listen", "processes"),
    [("fast", True, 1), ("immediate", False, 1), ("immediate", True, 0)],
    ids=["fast", "immediate-polling", "handlers-in-the-worker"],
)
def test_an_outage_longer_than_the_lease_costs_nobody_anything(
    server: EmbeddedPostgres, tmp_path: Path, mode: str, listen: bool, processes: int
) -> None:
    """Jobs run on through it, some finish during it, others after it; two hosts, so that only leases could tell."""
    with fleet_on(server, tmp_path, f"outage_{mode}_{processes}", listen=listen, processes=processes) as fleet:
        during, after = tmp_path / "during", tmp_path / "after"
        workers = [fleet.start(host=host, threads=8) for host in ("alpha", "beta")]
        fleet.enqueue("ahold", 30, until=str(during))
        fleet.enqueue("hold", 6, until=str(during))
        fleet.enqueue("ahold", 30, until=str(after))
        fleet.await_starts(66)
        fleet.enqueue("doze", 200, seconds=0.02)
        wait_until(lambda: len(fleet.traces("end")) >= 20, what="it is under load")
        # A watchdog that has just started rescues nothing: this one has been there for more than a lease.
        wait_until(lambda: all(time.time() - w.started_at.timestamp() > 2.5 for w in fleet.store.workers.all()))
        server.stop(mode)
        try:
            stopped_at = time.monotonic()
            during.touch()
            wait_until(lambda: time.monotonic() - stopped_at > 3 * fleet.settings.lease)
            ended = {trace.job for trace in fleet.traces("end")}
        finally:
            server.start()
        assert len(ended) >= 36
        fleet.enqueue_when_possible("aquick", 20)
        wait_until(lambda: fleet.states()[State.SUCCEEDED] >= len(ended) + 20, what="what ended meanwhile is recorded")
        after.touch()
        fleet.await_states(succeeded=286)
        untroubled(fleet, fleet.jobs())
        fleet.stop(*workers)
        assert fleet.sql("select * from {leases} where held > 0") == []


def test_terminated_connections_cost_nothing(server: EmbeddedPostgres, tmp_path: Path) -> None:
    """Every connection of two busy workers is terminated again and again."""
    with fleet_on(server, tmp_path, "terminated", lease=20.0, heartbeat=5.0) as fleet:
        fleet.enqueue("doze", 400, seconds=0.05)
        fleet.enqueue("nap", 60, seconds=0.05)
        workers = fleet.start_many(2, concurrency=20)
        cut = 0
        while fleet.states()[State.SUCCEEDED] < 300 or cut < 60:
            cut += len(fleet.sql(TERMINATE))
            moment = time.monotonic() + 0.25
            wait_until(lambda at=moment: time.monotonic() > at)  # type: ignore[misc]
            if not fleet.states()[State.QUEUED]:
                fleet.enqueue_when_possible("doze", 50, seconds=0.05)
        fleet.await_states(succeeded=len(fleet.jobs()))
        untroubled(fleet, fleet.jobs())
        fleet.stop(*workers)


def test_a_listener_whose_connection_is_cut_hears_again(server: EmbeddedPostgres, tmp_path: Path) -> None:
    with fleet_on(server, tmp_path, "listener", poll_base=60.0, poll_max=60.0, lease=60.0, heartbeat=15.0) as fleet:
        worker = fleet.start()
        wait_until(lambda: "listening for notifications" in fleet.log_of(worker))
        for round in range(1, 6):
            [(old,)] = fleet.sql(LISTENERS)
            fleet.sql(f"select pg_terminate_backend({old})")
            wait_until(lambda gone=old: [pid for (pid,) in fleet.sql(LISTENERS) if pid != gone], 15, "it listens again")  # type: ignore[misc]
            wait_until(lambda n=round: fleet.log_of(worker).count("listening for notifications") > n)  # type: ignore[misc]
            [id] = fleet.enqueue("aquick")
            fleet.await_states(succeeded=round)
            job = fleet.job(id)
            assert job.started_at is not None
            assert (job.started_at - job.created_at).total_seconds() < 30, "woken, not found by a poll"
        fleet.stop(worker)


def test_a_worker_that_starts_while_postgres_is_away_says_so_and_ends(server: EmbeddedPostgres, tmp_path: Path) -> None:
    with fleet_on(server, tmp_path, "absent") as fleet:
        server.stop()
        try:
            worker = fleet.launch()
            fleet.await_end(worker)
        finally:
            server.start()
        assert worker.returncode != 0
        assert "can't reach" in fleet.log_of(worker)
