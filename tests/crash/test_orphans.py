"""Nobody is left of what a handler started, however its worker or runner ends: killed, both at once, or stopped.
Workers as people start them, in default mode."""

from __future__ import annotations

import os
import random
import signal
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.crash.conftest import Start
from tests.crash.fleet import children_of, direct_children_of, lives, reaper_of, runs_handlers
from tests.factories import a_queued_job
from tests.waiting import wait_until

CYCLES = int(os.environ.get("HOLDFAST_CHAOS", "6"))  # kills on each engine; `make chaos` has many more
PROGRAMS = 4  # that one handler starts
PATIENCE = 60.0
APP = """
import os, subprocess, sys, time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

# A daemon: its own session, no parent, no environment, no descriptor of ours.
DAEMON = '''
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
    os._exit(0)
os.wait()
'''

def programs(mark: str) -> list[str]:
    found = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and (place / "cmdline").read_bytes().split(b"\\0")[1:2] == [mark.encode()]:
                found.append(place.name)
        except OSError:
            continue
    return found

def run(mark: str) -> None:
    with open("begun", "a") as ledger:
        print(os.getpid(), *programs(mark), file=ledger)
    subprocess.Popen(["sleep", mark])
    subprocess.Popen(["sleep", mark], start_new_session=True)
    subprocess.run([sys.executable, "-Sc", DAEMON, mark])
    subprocess.run(["sleep", mark])

@hf.task(isolation="process", retry=0)
def isolated(mark: str) -> None:
    run(mark)

@hf.task(retry=0)
def pooled(mark: str) -> None:
    run(mark)

@hf.task
def leaving(mark: str) -> None:
    subprocess.run("sleep 0.2 & echo $! >>left; setsid sleep 0.2 & echo $! >>left", shell=True)

@hf.task(retry=0)
def spawning(mark: str) -> None:
    for _ in range(500):
        subprocess.Popen(["sleep", mark], start_new_session=True, env={})
    time.sleep(600)
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    shell = Shell(tmp_path, settings, APP)
    shell.environment |= {"HOLDFAST_GRACE": "0.5", "HOLDFAST_QUARANTINE_AFTER": "1000"}
    return shell


@pytest.fixture
def mark() -> Iterator[str]:
    """How long the programs of this test sleep: that is how they are known. None is left to the next test."""
    mark = f"600.{uuid.uuid4().int % 10**12:012}"
    yield mark
    for pid in programs(mark):
        os.kill(pid, signal.SIGKILL)


def programs(mark: str) -> list[int]:
    """Those of this test that live."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                words = (place / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(int(place.name))
    return found


def enqueue(kept: Store, task: str, mark: str, **options: Any) -> str:
    return a_queued_job(kept, task=task, args=msgspec.json.encode({"mark": mark}), **{"max_attempts": 1000, **options})


def begun(home: Path) -> list[list[int]]:
    """Of each time the handler began: its process, and programs of an earlier one that were still there."""
    ledger = home / "begun"
    return [[int(pid) for pid in line.split()] for line in ledger.read_text().splitlines()] if ledger.exists() else []


def await_programs(mark: str, count: int = PROGRAMS) -> None:
    wait_until(lambda: len(programs(mark)) >= count, "the programs run", timeout=PATIENCE)


def await_nobody(mark: str) -> None:
    wait_until(lambda: not programs(mark), "the programs are gone", timeout=10)


@pytest.mark.parametrize("task", ["isolated", "pooled"])
@pytest.mark.parametrize("whom", ["worker", "runner", "both", "all children"])
def test_a_job_runs_again_only_when_nobody_of_a_killed_process_is_left(
    kept: Store, worker: Start, tmp_path: Path, mark: str, task: str, whom: str
) -> None:
    """A neighbour on the same host takes it over: within a moment, and not before the programs are gone."""
    enqueue(kept, task, mark)
    victim = worker()
    await_programs(mark)
    if whom != "runner":
        worker()
        wait_until(lambda: len(kept.workers.all()) == 2, timeout=PATIENCE)
    first = programs(mark)
    [[runner]] = begun(tmp_path)
    everybody = [*direct_children_of(victim.pid), victim.pid]
    victims = {"worker": [victim.pid], "runner": [runner], "both": [runner, victim.pid], "all children": everybody}
    for pid in victims[whom]:
        with suppress(ProcessLookupError):  # it ended because of one that was killed before it
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(begun(tmp_path)) == 2, "it runs again", timeout=PATIENCE)
    [_, [_, *seen]] = begun(tmp_path)
    assert seen == []
    assert not any(lives(pid) for pid in first)


@pytest.mark.parametrize("task", ["isolated", "pooled"])
def test_nobody_is_left_when_a_worker_is_stopped(kept: Store, worker: Start, mark: str, task: str) -> None:
    id = enqueue(kept, task, mark)
    process = worker()
    await_programs(mark)
    reaper = reaper_of(process.pid)
    assert reaper is not None
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert programs(mark) == []
    wait_until(lambda: not lives(reaper), "the reaper is gone, too")
    assert kept.reads.get(id).state is State.QUEUED


def adopts_orphans(worker: int) -> bool:
    """A worker does so once its reaper has detached itself, and the process it detached itself from is reaped."""
    children = direct_children_of(worker)
    return reaper_of(worker) is not None and children == children_of(worker) and all(map(lives, children))


def test_no_zombies_pile_up_under_a_worker_whose_handlers_leave_programs_behind(
    kept: Store, worker: Start, tmp_path: Path, mark: str
) -> None:
    """The worker adopts them. Its runner lives on meanwhile."""
    process = worker()
    wait_until(lambda: adopts_orphans(process.pid), timeout=PATIENCE)
    ids = [enqueue(kept, "leaving", mark) for _ in range(10)]
    wait_until(lambda: all(kept.reads.get(id).state is State.SUCCEEDED for id in ids), timeout=PATIENCE)
    runners = [pid for pid in children_of(process.pid) if runs_handlers(pid)]
    assert runners
    left = [int(pid) for pid in (tmp_path / "left").read_text().split()]
    assert len(left) == 20
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), "they are reaped")
    assert all(lives(runner) for runner in runners)


def test_programs_of_other_workers_live_on(kept: Store, worker: Start, mark: str) -> None:
    others = f"{mark}1"
    victim = worker("--queues", "mine")
    worker("--queues", "others")
    enqueue(kept, "pooled", mark, queue="mine")
    enqueue(kept, "pooled", others, queue="others")
    try:
        await_programs(mark)
        await_programs(others)
        running = programs(others)
        victim.kill()
        await_nobody(mark)
        assert programs(others) == running
    finally:
        for pid in programs(others):
            os.kill(pid, signal.SIGKILL)


def test_kills_while_a_handler_starts_programs_leave_nobody(kept: Store, worker: Start, mark: str) -> None:
    """At any moment of it, also between a fork and what it starts."""
    luck = random.Random(3)
    enqueue(kept, "spawning", mark)
    for _ in range(CYCLES):
        process = worker()
        await_programs(mark, luck.randrange(1, 60))
        victims = [process.pid]
        if luck.random() < 0.5:
            victims += children_of(process.pid)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        await_nobody(mark)


def test_another_reaper_is_started_when_one_is_killed(kept: Store, worker: Start, mark: str) -> None:
    enqueue(kept, "pooled", mark)
    process = worker()
    await_programs(mark)
    first = reaper_of(process.pid)
    assert first is not None
    os.kill(first, signal.SIGTERM)  # as a service manager does to all processes
    os.kill(first, signal.SIGHUP)
    assert lives(first)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not lives(first))
    second = wait_until(lambda: reaper_of(process.pid))
    assert second is not None
    process.kill()
    process.wait()
    await_nobody(mark)
    wait_until(lambda: not lives(second), "the reaper is gone, too")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("task", ["isolated", "pooled"])
def test_no_handler_outlives_a_worker_that_is_killed_with_its_reaper(
    kept: Store, worker: Start, tmp_path: Path, mark: str, task: str
) -> None:
    """Only the kernel is left to end them. Programs that they started live on, and nobody waits for those."""
    enqueue(kept, task, mark)
    victim = worker()
    await_programs(mark)
    wait_until(lambda: reaper_of(victim.pid) is not None, timeout=PATIENCE)
    reaper = reaper_of(victim.pid)
    assert reaper is not None
    worker()
    wait_until(lambda: len(kept.workers.all()) == 2, timeout=PATIENCE)
    [[runner]] = begun(tmp_path)
    os.kill(victim.pid, signal.SIGSTOP)  # it starts no other
    os.kill(reaper, signal.SIGKILL)
    wait_until(lambda: not lives(reaper))
    victim.kill()
    wait_until(lambda: len(begun(tmp_path)) == 2, "it runs again", timeout=PATIENCE)
    assert not lives(runner)
