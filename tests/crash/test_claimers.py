"""Two hundred claimers in twenty processes: each job is taken by one of them, once."""

from __future__ import annotations

import subprocess
import sys

from holdfast.model.job import NewJob
from holdfast.model.lifecycle import State
from tests.crash.claimers import CLAIMERS
from tests.crash.fleet import ROOT, Fleet, wait_until

PROCESSES = 20
JOBS = 600


def test_two_hundred_claimers_take_each_job_once(fleet: Fleet) -> None:
    fleet.enqueue_all([NewJob(task="work", args=b"{}", priority=number % 3) for number in range(JOBS)])
    fleet.enqueue_all([NewJob(task="someone else's", args=b"{}", priority=9)] * 50)
    go, ledger = fleet.home / "go", fleet.home / "claims"
    command = [sys.executable, "-m", "tests.crash.claimers", str(go), str(ledger)]
    claimers = [subprocess.Popen(command, cwd=ROOT, env=fleet.environment()) for _ in range(PROCESSES)]
    try:
        wait_until(
            lambda: len(list(fleet.home.glob("ready-*"))) == PROCESSES * CLAIMERS, 120, "all have opened their store"
        )
        go.touch()
        assert [claimer.wait(240) for claimer in claimers] == [0] * PROCESSES
    finally:
        for claimer in claimers:
            claimer.kill()
            claimer.wait()
    claims = [line.split() for line in ledger.read_text().splitlines()]
    taken = {id: (fence, name) for id, fence, _, name in claims}
    assert len(claims) == len(taken) == JOBS, "each was taken, and by one only"
    assert {attempt for _, _, attempt, _ in claims} == {"1"}
    running = [job for job in fleet.jobs() if job.task == "work"]
    assert {job.id: (job.fence, job.worker) for job in running} == taken, "who was told is who has it"
    assert {job.state for job in running} == {State.RUNNING}
    # And each lease says what was taken under it.
    [(leases, held)] = fleet.sql("select count(*), sum(held) from {leases}")
    assert (leases, held) == (len({fence for fence, _ in taken.values()}), JOBS)
