"""kill -9: what a worker held is rescued, by a neighbour at once, from another host when the lease has run out. Times
are the database's own: when a job was claimed again, not when a test noticed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

import pytest

from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from tests.crash.fleet import Fleet, assert_each_success_is_of_its_newest_claim, wait_until

WITHIN = 2.0  # seconds after a neighbour's death everything it held is claimed again


def restarts(fleet: Fleet, killed_at: float, ids: Iterable[str] | None = None) -> list[float]:
    """Seconds from the death to the second claim of each job, by the database's clock (this host's own)."""
    return sorted(_started(job) - killed_at for job in fleet.jobs(ids))


def _started(job: JobRecord) -> float:
    assert job.started_at is not None
    return job.started_at.timestamp()


def settled(fleet: Fleet, count: int) -> None:
    """Everything succeeded, each under its newest claim, and nobody holds anything."""
    fleet.await_states(succeeded=count)
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())


@pytest.mark.parametrize(
    ("busy", "processes"),
    [(False, 1), (True, 1), (False, 0)],
    ids=["idle-neighbour", "busy-neighbour", "handlers-in-the-worker"],
)
def test_a_neighbour_runs_the_jobs_of_a_killed_worker_within_two_seconds(
    fleet: Fleet, busy: bool, processes: int
) -> None:
    go = fleet.home / "go"
    victim = fleet.start(processes=processes)
    ids = fleet.enqueue("ahold", 40, until=str(go)) + fleet.enqueue("hold", 3, until=str(go))
    fleet.await_starts(43)
    neighbour = fleet.start(processes=processes)
    if busy:
        fleet.enqueue("ahold", 1, until=str(go), queue="other")
        fleet.await_starts(44)
    held = len(fleet.traces("start"))
    mine = [job.id for job in fleet.jobs(ids) if job.worker and f"-{victim.pid}~" in job.worker]
    assert len(mine) == 43
    killed_at = fleet.kill(victim)
    fleet.await_starts(held + 43, timeout=15)
    again = restarts(fleet, killed_at, mine)
    assert 0 < again[0] <= again[-1] < WITHIN, again
    go.touch()
    settled(fleet, held)
    assert {job.attempt for job in fleet.jobs()} == {1}, "in company nobody is blamed: the lost attempt is refunded"
    assert {a.outcome for job in mine for a in fleet.store.reads.attempts(job)} == {"lost"}
    fleet.stop(neighbour)


def test_a_lone_job_of_a_killed_worker_is_charged_and_runs_again_at_once(fleet: Fleet) -> None:
    go = fleet.home / "go"
    victim = fleet.start()
    [id] = fleet.enqueue("hold", until=str(go))
    fleet.await_starts(1)
    fleet.start()
    killed_at = fleet.kill(victim)
    fleet.await_starts(2, timeout=15)
    assert _started(fleet.job(id)) - killed_at < WITHIN
    go.touch()
    settled(fleet, 1)
    assert (fleet.job(id).attempt, fleet.job(id).crashes) == (2, 1)
    [crash] = fleet.store.reads.attempts(id)
    assert (crash.outcome, crash.error_code) == ("crashed", "CRASHED")


def test_a_worker_started_afterwards_on_the_same_host_rescues_at_once(fleet: Fleet) -> None:
    go = fleet.home / "go"
    victim = fleet.start(lease=240.0)
    fleet.enqueue("ahold", 10, until=str(go))
    fleet.await_starts(10)
    fleet.kill(victim)
    go.touch()
    fleet.start()
    [rescuer] = [worker for worker in fleet.store.workers.all() if worker.pid != victim.pid]
    settled(fleet, 10)
    assert restarts(fleet, rescuer.started_at.timestamp())[-1] < WITHIN


def test_across_hosts_the_lease_decides(hasty_fleet: Fleet) -> None:
    fleet, lease = hasty_fleet, hasty_fleet.settings.lease
    go = fleet.home / "go"
    victim = fleet.start(host="alpha")
    fleet.enqueue("ahold", 20, until=str(go))
    fleet.await_starts(20)
    fleet.start(host="beta")
    # The other watchdog trusts what it sees once it has watched for a lease.
    wait_until(lambda: _watched_for(fleet, 2 * lease), what="the rescuer has been there for a while")
    killed_at = fleet.kill(victim)
    fleet.await_starts(40, timeout=30)
    again = restarts(fleet, killed_at)
    # The last renewal was a heartbeat ago at most.
    assert again[0] > lease - fleet.settings.heartbeat, "nobody rescued it before its lease had run out"
    assert again[-1] < lease + WITHIN, again
    go.touch()
    settled(fleet, 20)


def _watched_for(fleet: Fleet, seconds: float) -> bool:
    return all(time.time() - worker.started_at.timestamp() > seconds for worker in fleet.store.workers.all())


def test_many_kills_under_load_lose_nothing(hasty_fleet: Fleet) -> None:
    """Three workers, one after another killed at random moments and replaced; short and longer jobs."""
    fleet, luck = hasty_fleet, random.Random(7)
    jobs = 600
    fleet.enqueue("aquick", 200)
    fleet.enqueue("quick", 200)
    fleet.enqueue("doze", 150, seconds=0.05)
    fleet.enqueue("nap", 50, seconds=0.05)
    workers = fleet.start_many(3, concurrency=4, threads=2)
    for _ in range(8):
        victim = workers.pop(luck.randrange(len(workers)))
        moment = time.monotonic() + luck.uniform(0.0, 0.3)
        wait_until(lambda at=moment: time.monotonic() >= at)  # type: ignore[misc]
        fleet.kill(victim)
        fleet.enqueue("doze", 20, seconds=0.02)
        jobs += 20
        workers.append(fleet.start(concurrency=4, threads=2))
    settled(fleet, jobs)
    ends = [(trace.job, trace.fence) for trace in fleet.traces("end")]
    assert len(ends) == len(set(ends)), "no claim was run twice"
    for job in fleet.jobs():
        assert job.state is State.SUCCEEDED
        lost = fleet.store.reads.attempts(job.id)
        runs = {trace.fence for trace in fleet.traces("start", job.id)} if lost else {job.fence}
        assert runs <= {job.fence, *(a.fence for a in lost)}, "every run is in the job's history"
    fleet.stop(*workers)
