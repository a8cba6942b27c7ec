"""A handler that attacks its own line to the worker fails its own job. The worker serves on, within its memory, and
nothing that it stores is longer than it should be, or tells a secret."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.model.lifecycle import FINISHED, State
from holdfast.model.outcome import MESSAGE_LIMIT
from tests.crash.fleet import Fleet, wait_until
from tests.crash.hostile import SECRET

MEMORY = 150 * 2**20  # bytes that a worker's peak may grow by
UNFIT = {"not utf-8", "not json", "nul"}


def peak_of(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_a_worker_outlives_handlers_that_attack_its_line(fleet: Fleet) -> None:
    worker = fleet.start()
    fleet.enqueue("quick")
    fleet.await_states(succeeded=1)
    before = peak_of(worker.pid)
    for task in ("attack_alone", "attack_pooled"):
        for how in (*sorted(UNFIT), "secret", "flood", "garbage", "hello"):
            [id] = fleet.enqueue(task, how=how, max_attempts=1)
            wait_until(lambda id=id: fleet.job(id).state in FINISHED, what=f"{task} {how}")  # type: ignore[misc]
            assert fleet.job(id).state is State.FAILED, (task, how, fleet.log_of(worker)[-3000:])
            [attempt] = [each for each in fleet.store.reads.attempts(id) if each.outcome != "lost"]
            told = attempt.error_message or ""

            assert SECRET not in f"{fleet.job(id)} {attempt}", (task, how)
            assert len(told) <= MESSAGE_LIMIT
            if how in UNFIT:
                assert attempt.error_code == "RESULT_UNFIT", (task, how, told)
            elif how == "secret":
                assert (attempt.error_code, told[:25]) == ("BOOM", "password=*** " + "x" * 12), task
            elif task == "attack_alone":
                assert attempt.error_code == "GARBLED", (how, told)
            else:
                assert attempt.error_code == "CRASHED", (how, told)
                assert "its runner process was ended, for it " in told, how
            # Others run beside it and after it, in the same worker.
            others = fleet.enqueue("aquick", 5) + fleet.enqueue("quick", 5)
            wait_until(lambda ids=others: all(job.state is State.SUCCEEDED for job in fleet.jobs(ids)))  # type: ignore[misc]
    assert worker.poll() is None
    assert peak_of(worker.pid) - before < MEMORY
    log = fleet.log_of(worker)
    assert SECRET not in log
    assert "poll failed" not in log
    assert "stumbled" not in log
    fleet.stop(worker)
