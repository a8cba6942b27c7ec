"""Unusual places to live in: behind a pooler, among workers of other versions, on a full disk, after a fork."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.model.job import ClaimedJob, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.crash.fleet import PATIENCE, ROOT, Fleet, a_fleet, assert_each_success_is_of_its_newest_claim, wait_until
from tests.factories import claim, new_job, ref

POOLED = {"prepare": False, "listen": False, "poll_base": 0.1, "poll_max": 0.3}


def test_without_prepared_statements_and_notifications_everything_works(fleet: Fleet) -> None:
    """As behind PgBouncer in transaction mode."""
    go = fleet.home / "go"
    workers = fleet.start_many(2, concurrency=10, **POOLED)
    fleet.enqueue("aquick", 100)
    fleet.enqueue("quick", 100)
    fleet.await_states(succeeded=200)
    fleet.enqueue("ahold", 5, until=str(go))
    fleet.await_starts(205)
    fleet.kill(workers[0])
    fleet.kill(workers[1])
    workers = fleet.start_many(1, **POOLED)
    [later] = fleet.enqueue("aquick", delay=0.5)
    go.touch()
    fleet.await_states(succeeded=206)
    job = fleet.job(later)
    assert job.started_at is not None
    assert job.started_at >= job.run_at, "not early"
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())
    [heeding] = fleet.enqueue("heed")
    fleet.await_starts(212)
    assert fleet.store.operator.cancel(heeding) is State.RUNNING
    wait_until(lambda: fleet.job(heeding).state is State.CANCELLED, what="a heartbeat brought the request")
    fleet.stop(*workers)


def test_unknown_tasks_are_left_to_those_who_know_them(hasty_fleet: Fleet) -> None:
    """Never claimed, never discarded, never in the way."""
    fleet = hasty_fleet
    tomorrow = fleet.enqueue("a task of tomorrow's version", 300, priority=100)
    workers = fleet.start_many(2, concurrency=3)
    known = fleet.enqueue("aquick", 60)
    wait_until(lambda: {job.state for job in fleet.jobs(known)} == {State.SUCCEEDED})
    # A victim and its rescue, too, leave them alone.
    go = fleet.home / "go"
    held = fleet.enqueue("ahold", 4, until=str(go))
    wait_until(lambda: {job.state for job in fleet.jobs(held)} == {State.RUNNING})
    fleet.kill(workers[0])
    go.touch()
    wait_until(lambda: {job.state for job in fleet.jobs(held)} == {State.SUCCEEDED})
    fleet.stop(workers[1])
    untouched = fleet.jobs(tomorrow)
    assert len(untouched) == 300
    assert {(job.state, job.attempt, job.fence, job.started_at) for job in untouched} == {(State.QUEUED, 0, None, None)}
    # Whoever knows the task takes them.
    taken = claim(fleet.store, 500, tasks=("a task of tomorrow's version",)).jobs
    assert {str(job.id) for job in taken} == set(tomorrow)


DISK_FULL = """
import resource, sys
from holdfast import Holdfast
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.job import ClaimedJob, NewJob

app = Holdfast(sys.argv[1])
store = app.store
kept = [store.enqueue(NewJob(task="later", args=b'"' + b"x" * 5000 + b'"')).id for _ in range(20)]
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))  # a file that may not grow: like a full disk
refused = []
for _ in range(400):
    try:
        kept.append(store.enqueue(NewJob(task="later", args=b'"' + b"x" * 5000 + b'"')).id)
    except HoldfastError as error:
        assert isinstance(error, StoreUnavailable), repr(error)
        refused.append(str(error))
assert refused, "it never was full"
print(refused[0], file=sys.stderr)
try:
    list(store.enqueue_many(NewJob(task="bulk", args=b'"' + b"x" * 5000 + b'"') for _ in range(200)))
except StoreUnavailable:
    pass
else:
    raise AssertionError("the bulk found room")
assert store.reads.jobs(limit=1000) and store.reads.get(kept[0])  # reading goes on
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
kept.append(store.enqueue(NewJob(task="later", args=b"{}")).id)  # there is room again: no restart needed
print("\\n".join(kept))
"""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_full_disk_refuses_new_jobs_and_loses_none(settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DISK_FULL, settings.url], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kept = done.stdout.split()
    store = open_store(settings)
    jobs = store.reads.jobs(limit=1000)
    store.close()
    assert {job.id for job in jobs} == set(kept), "what was accepted is there, what was refused is not"
    assert {job.state for job in jobs} == {State.QUEUED}
    with closing(sqlite3.connect(settings.url.removeprefix("sqlite:///"))) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_worker_outlives_a_full_disk(tmp_path: Path) -> None:
    """Outcomes wait until there is room again: what ran is not run twice."""
    with a_fleet(Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off"), tmp_path) as fleet:
        go = fleet.home / "go"
        ids = fleet.enqueue("ahold", 20, until=str(go))
        worker = fleet.start()
        fleet.await_starts(20)
        # Its log and ledger are files, too, but short ones: only the database has outgrown this.
        limit_files(worker.pid, 100_000)
        go.touch()
        wait_until(lambda: "outcomes wait for the database" in fleet.log_of(worker), what="there is no room")
        limit_files(worker.pid, None)
        fleet.await_states(succeeded=20)
        assert {job.attempt for job in fleet.jobs(ids)} == {1}
        fleet.stop(worker)


def limit_files(pid: int, size: int | None) -> None:
    hard = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def in_child(do: Callable[[], None]) -> int:
    """Fork, do it there; how the child ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            do()
            status = 0
        except HoldfastError:
            status = 7  # a clean refusal
        finally:
            os._exit(status)
    deadline = time.monotonic() + PATIENCE
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)


def test_a_forked_child_does_not_harm_its_parents_connections(stores: Callable[..., Store]) -> None:
    store = stores()
    store.schema.migrate()
    held = {str(job.id): job for job in _claimed(store, 20)}
    before = len(store.reads.jobs(limit=1000))

    def child() -> None:
        store.enqueue(new_job("from a child"))
        [mine] = store.reads.jobs(task="from a child", limit=1)
        store.operator.cancel(mine.id)

    for number in range(10):
        assert in_child(child) == 0
        assert len(store.reads.jobs(limit=1000)) == before + number + 1
        store.enqueue(new_job("later"))
        before += 1
    for job in held.values():
        store.attempts.succeed(ref(job))
    assert len(store.reads.jobs(state=State.SUCCEEDED, limit=100)) == 20
    path = getattr(store.db, "path", None)
    if path:
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_child_forked_in_the_middle_of_a_transaction_leaves_it_alone(stores: Callable[..., Store]) -> None:
    store = stores()
    store.schema.migrate()
    [job] = _claimed(store, 1)
    with store.db.transaction() as tx:
        tx.rows("checkpoint", id=job.id, fence=job.fence, checkpoint='{"at": 1}', pending=1, done=None)

        def child() -> None:
            if hasattr(store.db, "path"):
                return  # it would wait for us, and we for it: as any second writer
            store.enqueue(new_job("from a child"))

        assert in_child(child) == 0
    assert store.reads.get(str(job.id)).checkpoint == b'{"at": 1}'
    store.attempts.succeed(ref(job))


def _claimed(store: Store, count: int) -> list[ClaimedJob]:
    for chunk in store.enqueue_many([NewJob(task="greet", args=b"{}")] * count):
        assert chunk
    return list(claim(store, count).jobs)
