"""`holdfast stack`: asked of real worker processes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.crash.fleet import children_of
from tests.factories import a_queued_job

APP = """
import asyncio, ctypes, pathlib, time
from holdfast import Holdfast

hf = Holdfast()

def crunch_numbers(depth):
    pathlib.Path("started").touch()
    while not pathlib.Path("door").exists():
        time.sleep(0.02)

@hf.task
def sync():
    crunch_numbers(3)

@hf.task
async def coroutine():
    pathlib.Path("started").touch()
    while not pathlib.Path("door").exists():
        await asyncio.sleep(0.02)

@hf.task
def gil():
    pathlib.Path("started").touch()
    ctypes.PyDLL(None).sleep(4)
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings, APP)


@contextmanager
def running(
    shell: Shell, store: Store, task: str, processes: int = 0
) -> Iterator[tuple[str, subprocess.Popen[str], list[int]]]:
    """A worker in the middle of a job, and the processes that may run its handler."""
    id = a_queued_job(store, task=task)
    worker = shell.start("worker", "app:hf", "--processes", str(processes))
    try:
        wait_until(lambda: (shell.directory / "started").exists())
        yield id, worker, children_of(worker.pid) if processes else [worker.pid]
        (shell.directory / "door").touch()
        wait_until(lambda: store.reads.get(id).state is State.SUCCEEDED)
    finally:
        (shell.directory / "door").touch()
        worker.send_signal(signal.SIGCONT)
        worker.terminate()
        worker.communicate(timeout=30)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("task", ["sync", "coroutine"])
def test_a_running_handler_is_shown_where_it_is(shell: Shell, kept: Store, task: str, processes: int) -> None:
    with running(shell, kept, task, processes) as (id, _, pids):
        shown = shell("stack", id).stdout
        assert shown.startswith(f"job {id} ({task}), attempt 1, at 20")
        assert f"in worker {kept.reads.get(id).worker}, pid " in shown
        assert ", thread holdfast-" in shown
        line = {"sync": "crunch_numbers(3)", "coroutine": "await asyncio.sleep(0.02)"}[task]
        assert re.search(rf'app.py", line \d+, in {task}\n    {re.escape(line)}\n', shown)
        data = json.loads(shell("stack", id, "-o", "json").stdout)
        assert set(data) == {"job", "task", "attempt", "worker", "pid", "thread", "taken_at", "text", "output"}
        assert data["job"] == id
        assert data["pid"] in pids


def test_what_has_no_stack_is_told_with_an_exit_code(shell: Shell, kept: Store) -> None:
    id = a_queued_job(kept, task="sync")
    assert f"job {id} is queued" in shell("stack", id, code=4).stderr
    assert "there is no job 999" in shell("stack", "999", code=3).stderr


@pytest.mark.parametrize("processes", [0, 1])
def test_a_stopped_process_gives_no_answer_and_that_is_said(shell: Shell, kept: Store, processes: int) -> None:
    with running(shell, kept, "sync", processes) as (id, _, pids):
        os.kill(pids[0], signal.SIGSTOP)
        said = shell("stack", id, "--timeout", "0.5", code=8).stderr
        os.kill(pids[0], signal.SIGCONT)
        assert "HF1322 no answer from worker" in said
        assert "global lock" in said


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("processes", [0, 1])
def test_a_handler_that_holds_the_global_lock_gives_no_answer_until_it_lets_go(
    shell: Shell, kept: Store, processes: int
) -> None:
    with running(shell, kept, "gil", processes) as (id, _, _):
        assert "HF1322" in shell("stack", id, "--timeout", "0.5", code=8).stderr


def test_a_killed_worker_is_told_as_gone_or_silent(shell: Shell, kept: Store) -> None:
    shell.environment |= {"HOLDFAST_LEASE": "0.4"}
    id = a_queued_job(kept, task="sync")
    worker = shell.start("worker", "app:hf")
    wait_until(lambda: (shell.directory / "started").exists())
    worker.kill()
    worker.communicate(timeout=30)
    wait_until(lambda: not kept.workers.all()[0].alive(kept.reads.now()))
    assert "was last heard of" in shell("stack", id, code=4).stderr
