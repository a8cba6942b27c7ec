"""A worker that was killed: it, and what it held, are told until someone takes them back."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from holdfast.doctor import Finding, Level
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.cli.shell import Shell
from tests.doctor.examined import complaints
from tests.factories import new_job
from tests.waiting import wait_until

APP = """
import time
from holdfast import Holdfast

hf = Holdfast(lease=1.0)

@hf.task
def sleep() -> None:
    time.sleep(600)
"""


def test_a_killed_worker_and_its_leases_are_told(healthy: Settings, tmp_path: Path) -> None:
    shell = Shell(tmp_path, healthy)
    (tmp_path / "app.py").write_text(APP)
    with closing(open_store(healthy)) as store:
        job = store.enqueue(new_job("sleep")).id
        process = shell.start("worker", "app:hf")
        try:
            wait_until(lambda: store.reads.get(job).worker)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=20)
        worker = store.reads.get(job).worker

        hasty = replace(healthy, lease=1.0, heartbeat=0.0)

        def told() -> list[Finding]:
            found = complaints(hasty)
            return found if len(found) == 2 else []

        dead, lapsed = wait_until(told, "the worker to be missed")
    assert (dead.code, lapsed.code) == ("HF4203", "HF4204")
    assert {dead.level, lapsed.level} == {Level.WARNING}
    assert f"worker {worker} (pid {process.pid} on" in dead.found
    assert f"worker {worker} let 1 lease run out" in lapsed.found
