"""SIGSTOP past the lease: a worker that wakes up after its jobs were rescued has no more say about them."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import LeaseLost
from holdfast.model.lifecycle import State
from holdfast.store.base import Ref
from holdfast.store.columns import key_of
from tests.crash.fleet import Fleet, assert_each_success_is_of_its_newest_claim, wait_until


@pytest.mark.parametrize(
    ("task", "processes", "runners"),
    [("hold", 1, True), ("ahold", 1, True), ("ahold", 1, False), ("ahold", 0, True)],
    ids=["threads", "coroutines", "its-runner-goes-on", "handlers-in-the-worker"],
)
def test_a_frozen_workers_results_are_refused_after_rescue(
    hasty_fleet: Fleet, task: str, processes: int, runners: bool
) -> None:
    """The zombie's handlers finish in the very moment it wakes, before any heartbeat could tell them; or, where its
    runner goes on, have finished before."""
    fleet = hasty_fleet
    go = fleet.home / "go"
    zombie = fleet.start(host="alpha", threads=8, processes=processes)
    ids = fleet.enqueue(task, 8, until=str(go))
    fleet.await_starts(8)
    fences = {job.id: job.fence for job in fleet.jobs()}
    other = fleet.start(host="beta", threads=8)
    fleet.freeze(zombie, runners=runners)
    wait_until(lambda: all(job.fence not in (None, fences[job.id]) for job in fleet.jobs()), what="all were rescued")
    fleet.await_starts(16)
    go.touch()
    fleet.await_states(succeeded=8)
    before = fleet.jobs(ids)
    if not runners:
        wait_until(lambda: len(fleet.traces("end")) == 16, what="its handlers have ended")
    fleet.thaw(zombie)
    wait_until(lambda: len(fleet.traces("end")) + fleet.log_of(zombie).count("was taken over by") >= 16)
    for job in ids:
        with pytest.raises(LeaseLost):  # whatever the zombie knew is worth nothing now
            fleet.store.attempts.succeed(Ref(key_of(job), str(fences[job])), b'"from the grave"')
    # It goes on to work for others: it lost its jobs, not its mind.
    fleet.stop(other)
    more = fleet.enqueue("aquick", 5)
    fleet.await_states(succeeded=13)
    assert fleet.jobs(ids) == before, "nothing the zombie did has touched them"
    assert {job.worker for job in fleet.jobs(more)} == {w.id for w in fleet.store.workers.all() if w.pid == zombie.pid}
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())
    assert all(f'"{job.fence}"'.encode() == job.result for job in fleet.jobs(ids)), "each result is its newest claim's"
    assert "was taken over by another worker" in fleet.log_of(zombie)
    fleet.stop(zombie)


def test_a_zombie_that_saves_progress_is_told_that_it_lost_its_job(hasty_fleet: Fleet) -> None:
    fleet = hasty_fleet
    go = fleet.home / "go"
    zombie = fleet.start(host="alpha")
    [id] = fleet.enqueue("save", until=str(go))
    fleet.await_starts(1)
    fleet.start(host="beta")
    fleet.freeze(zombie)
    fleet.await_starts(2)
    fence = fleet.job(id).fence
    fleet.thaw(zombie)
    wait_until(lambda: {t.pid for t in fleet.traces("stopped")} == {*fleet.runners(zombie)}, what="it was told")
    assert (fleet.job(id).state, fleet.job(id).fence) == (State.RUNNING, fence), "the new holder still has it"
    go.touch()
    fleet.await_states(succeeded=1)
    assert fleet.job(id).fence == fence


def test_a_frozen_worker_that_nobody_rescued_keeps_its_jobs(hasty_fleet: Fleet) -> None:
    """An expired lease that nobody took is still its holder's."""
    fleet = hasty_fleet
    go = fleet.home / "go"
    worker = fleet.start()
    ids = fleet.enqueue("ahold", 5, until=str(go))
    fleet.await_starts(5)
    fleet.freeze(worker)
    wait_until(lambda: fleet.store.look("nobody", ["ahold"], None).expired_leases, what="the lease has run out")
    go.touch()
    fleet.thaw(worker)
    fleet.await_states(succeeded=5)
    assert {(job.attempt, fleet.store.reads.attempts(job.id) == []) for job in fleet.jobs(ids)} == {(1, True)}
    assert len(fleet.traces("start")) == 5
    fleet.stop(worker)


def test_a_renewal_does_not_wake_itself(fleet: Fleet) -> None:
    """Whoever commits wakes the workers of a SQLite file, and a renewal is a commit: it must not lead to the next."""
    go = fleet.home / "go"
    worker = fleet.start(lease=8.0, heartbeat=1.0)
    fleet.enqueue("ahold", 3, until=str(go))
    fleet.await_starts(3)
    ends: set[object] = set()

    def renewed() -> bool:
        ends.update(fleet.sql("select max(expires_at) from {leases}"))
        return len(ends) >= 4

    began = time.monotonic()
    wait_until(renewed, what="three renewals")
    assert time.monotonic() - began > 1.8, "one every second, as set"
    go.touch()
    fleet.await_states(succeeded=3)
    fleet.stop(worker)


def test_a_worker_whose_row_was_lost_registers_again(fleet: Fleet) -> None:
    """By a failover to a server that did not have it yet, or because it was taken for dead."""
    worker = fleet.start(lease=2.0)
    [known] = fleet.store.workers.all()
    fleet.store.workers.unregister(known.id)
    assert fleet.store.workers.all() == []
    wait_until(lambda: [found.id for found in fleet.store.workers.all()] == [known.id], what="it is known again")
    fleet.stop(worker)
    assert fleet.store.workers.all() == []
