"""Jobs that come one at a time, while the workers that offer to take them are killed, frozen, stopped and cut off: each
is done, under one claim that counts, and those who are gone are given nothing (docs/decisions/0022)."""

from __future__ import annotations

import random
import time
from subprocess import Popen

import msgspec
import pytest

from holdfast.model.job import JobRecord, NewJob
from holdfast.model.lifecycle import State
from holdfast.store.postgres.notify import QUIET
from tests.crash.fleet import Fleet, assert_each_success_is_of_its_newest_claim, wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

SOON = 6.0  # seconds, on a busy machine: far from a lease of minutes
CUT_OFF = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast-listener'"


def enqueue(fleet: Fleet, task: str = "aquick", **args: object) -> str:
    """One job, that comes alone."""
    at = time.monotonic() + 1.5 * QUIET
    wait_until(lambda: time.monotonic() >= at)
    return fleet.store.enqueue(NewJob(task=task, args=msgspec.json.encode(args))).id


def offers(fleet: Fleet) -> int:
    return int(fleet.sql("select count(*) from {offers}")[0][0])


def was_given(job: JobRecord) -> bool:
    """It was claimed by the statement that made it."""
    assert job.started_at is not None
    return (job.started_at - job.created_at).total_seconds() < 0.0002


def a_worker_that_offers(fleet: Fleet, **settings: object) -> Popen[bytes]:
    """The first one."""
    worker = fleet.start(processes=1, **settings)
    wait_until(lambda: "listening" in fleet.log_of(worker), what="it listens")
    asked_at = 0.0

    def offered() -> bool:
        nonlocal asked_at
        if offers(fleet):
            return True
        if time.monotonic() > asked_at + 1.0:  # a look everywhere may find it, which says nothing of the next
            asked_at = time.monotonic()
            enqueue(fleet)
        return False

    wait_until(offered, what="it offers")
    return worker


def test_a_worker_is_given_job_after_job(fleet: Fleet) -> None:
    worker = a_worker_that_offers(fleet)

    def ten_were_given() -> bool:
        wait_until(lambda: offers(fleet) == 1)
        id = enqueue(fleet)
        wait_until(lambda: fleet.job(id).state is State.SUCCEEDED)
        return sum(was_given(job) for job in fleet.jobs()) >= 10

    wait_until(ten_were_given)  # at once, but for what a busy machine holds up
    assert {job.attempt for job in fleet.jobs()} == {1}
    wait_until(lambda: fleet.sql("select count(*) from {leases}") == [(0,)], SOON, "none of their leases is left")
    fleet.stop(worker)
    assert fleet.sql("select count(*) from {offers}") == fleet.sql("select count(*) from {leases}") == [(0,)]


@pytest.mark.parametrize("host", ["alpha", "beta"], ids=["same-host", "other-host"])
def test_who_was_killed_is_given_nothing(fleet: Fleet, host: str) -> None:
    """The lease is long: a job that was given to it would wait that long, or for a neighbour."""
    victim = a_worker_that_offers(fleet, host="alpha", lease=240.0)
    fleet.kill(victim)
    wait_until(lambda: fleet.sql(CUT_OFF.replace("pg_terminate_backend(pid)", "pid")) == [], what="its session ends")
    assert offers(fleet) >= 1
    id = enqueue(fleet)
    assert fleet.job(id).state is State.QUEUED
    worker = fleet.start(processes=1, host=host, lease=240.0)
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED, SOON)
    fleet.stop(worker)


def test_what_a_frozen_worker_was_given_is_rescued_when_its_lease_ends(hasty_fleet: Fleet) -> None:
    fleet = hasty_fleet
    frozen = a_worker_that_offers(fleet, host="alpha")
    other = fleet.start(processes=1, host="beta")
    fleet.freeze(frozen)
    id = enqueue(fleet)
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED)
    first = fleet.job(id)
    fleet.thaw(frozen)  # and hears of it now
    later = enqueue(fleet)
    wait_until(lambda: fleet.job(later).state is State.SUCCEEDED)
    assert fleet.job(id) == first, "what it heard late changes nothing"
    assert len(fleet.traces("start", id)) == 1, "nor is it run by who heard of it late"
    fleet.stop(frozen, other)
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())


def test_jobs_one_at_a_time_while_everything_goes_wrong(hasty_fleet: Fleet) -> None:  # I1 I5 R1.4
    fleet, luck = hasty_fleet, random.Random(5)
    workers = [a_worker_that_offers(fleet), fleet.start(processes=1)]
    before = len(fleet.jobs())
    ids: list[str] = []
    for round in range(12):
        ids += [enqueue(fleet) for _ in range(luck.randrange(5, 10))]
        match round % 4:
            case 0:
                fleet.kill(workers.pop(0))
            case 1:
                fleet.sql(CUT_OFF)
            case 2:
                fleet.stop(workers.pop(0))
            case 3:
                fleet.freeze(workers[0])
                ids += [enqueue(fleet) for _ in range(5)]
                fleet.thaw(workers[0])
        if len(workers) < 2:
            ids.append(enqueue(fleet))
            workers.append(fleet.start(processes=1))
    fleet.await_states(succeeded=before + len(ids))
    jobs = fleet.jobs(ids)
    print(f"\n{sum(map(was_given, jobs))} of {len(jobs)} were given")
    assert any(map(was_given, jobs))
    assert_each_success_is_of_its_newest_claim(fleet, jobs)
    runs = [(trace.job, trace.fence) for trace in fleet.traces("start")]
    assert len(runs) == len(set(runs)), "no claim was run twice"
    fleet.stop(*workers)
    assert fleet.sql("select count(*) from {offers}") == [(0,)]
