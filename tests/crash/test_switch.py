"""A pause by arguments among real workers and a flood of jobs: once it stands nothing it means begins, and when it ends
all of it runs, none twice, none lost."""

from __future__ import annotations

import threading
import time

import msgspec

from holdfast.model.job import NewJob
from holdfast.model.lifecycle import State
from tests.crash.fleet import Fleet, wait_until

CUSTOMER = "args.number:42"
CHUNKS, CHUNK = 40, 50
IN_HAND = 1.5  # seconds: what a worker had taken when the pause began has begun by then, or was given back


def flood(fleet: Fleet, ids: dict[int, list[str]], done: threading.Event) -> None:
    for n in range(CHUNKS):
        for number in (42, 7):
            new = NewJob(task=("quick", "aquick")[n % 2], args=msgspec.json.encode({"number": number}))
            ids[number] += [kept.id for kept in fleet.enqueue_all([new] * (CHUNK // 2))]
    done.set()


def test_once_it_stands_nothing_it_means_begins_and_nothing_is_lost(hasty_fleet: Fleet) -> None:
    fleet = hasty_fleet
    ids: dict[int, list[str]] = {42: [], 7: []}
    done = threading.Event()
    workers = fleet.start_many(2)
    flooding = threading.Thread(target=flood, args=(fleet, ids, done))
    flooding.start()
    wait_until(lambda: len(ids[7]) >= CHUNKS * CHUNK // 8)
    fleet.store.pauses.add("filter", CUSTOMER, by="ops", reason="a bug")
    stood_at = time.time()
    flooding.join()
    assert done.is_set()

    def others_ran() -> bool:
        return all(job.state is State.SUCCEEDED for job in fleet.jobs(ids[7]))

    wait_until(others_ran, what="the others are not disturbed")
    theirs = fleet.jobs(ids[42])
    wait_until(lambda: all(job.state is not State.RUNNING for job in fleet.jobs(ids[42])))
    mine = set(ids[42])
    late = [t for t in fleet.traces("start") if t.job in mine and t.at > stood_at + IN_HAND]
    assert late == []
    # Some were claimed later and given back as held; what was started had been claimed when the pause returned.
    jobs = fleet.jobs(ids[42])
    begun = {job.id for job in jobs if job.state is not State.QUEUED}
    assert begun == {t.job for t in fleet.traces("start")} & mine
    assert all(job.started_at is None or job.started_at.timestamp() <= stood_at for job in jobs if job.id in begun)
    assert all((job.held_by, job.attempt) == (f"pause:{CUSTOMER}", 0) for job in jobs if job.id not in begun)
    [pause] = fleet.store.pauses.all()
    assert pause.jobs is not None
    assert 0 < pause.jobs == len(theirs) - len(begun)
    fleet.store.pauses.drop("filter", CUSTOMER)
    fleet.await_states(succeeded=CHUNKS * CHUNK)
    starts = [t.job for t in fleet.traces("start")]
    assert sorted(starts, key=int) == sorted([*ids[42], *ids[7]], key=int), "each ran once"
    fleet.stop(*workers)


def test_workers_that_start_later_keep_to_it_and_let_go_when_it_is_over(hasty_fleet: Fleet) -> None:
    fleet = hasty_fleet
    fleet.enqueue("quick", 200, number=42)
    fleet.store.pauses.add("filter", CUSTOMER, delay=600.0)
    fleet.enqueue("aquick", 200, number=42)
    other = fleet.enqueue("quick", number=1)
    worker = fleet.start()
    wait_until(lambda: fleet.job(other[0]).state is State.SUCCEEDED)
    wait_until(lambda: fleet.store.pauses.all()[0].jobs == 400)
    fleet.store.pauses.add("filter", CUSTOMER, delay=1.0)
    fleet.kill(worker)  # whoever is up when it ends lets them go
    worker = fleet.start()
    fleet.await_states(succeeded=401)
    assert len(fleet.traces("start")) == 401
    fleet.stop(worker)
