"""A signal at any moment ends a worker in good order: status 0, and two seconds after its grace at the latest, whatever
hangs. A worker that can't start its runner tries again."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from tests.crash.commands import Command, Commands
from tests.crash.fleet import children_of, wait_until
from tests.crash.proxy import a_proxy
from tests.factories import new_job
from tests.servers import shared_postgres

BEYOND = 2.0  # seconds after its grace when a worker that was asked to stop has ended
GRACE = 1.0
TIMES = 24  # on each engine
AT_ONCE = 4
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

sqlite_only = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
postgres_only = pytest.mark.parametrize("engine", ["postgres"], indirect=True)

APP = """
import time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

@hf.task
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""

FORKS = """
import os, time
if not os.fork():  # it keeps the line to the worker open
    time.sleep(60)
    os._exit(0)
"""

SLOW = """
import os
from pathlib import Path
Path("importing").write_text(str(os.getpid()))
import time
while not Path("go").exists():
    time.sleep(0.02)
"""

HANGS = {
    "resource": """
@hf.resource
def slow():
    yield 1
    time.sleep(600)

@hf.task
def uses(value: int = slow.injected) -> None: ...
""",
    "aresource": """
import asyncio

@hf.resource
async def slow():
    yield 1
    await asyncio.sleep(600)

@hf.task
async def uses(value: int = slow.injected) -> None: ...
""",
    "hook": """
@hf.on_stop
def hang():
    time.sleep(600)
""",
}


def hears_signals(worker: Command) -> bool:
    """Does it catch SIGTERM? Before that Python itself starts."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def assert_stopped(worker: Command, took: float, grace: float = GRACE) -> None:
    assert worker.returncode == 0, worker.log
    assert took <= grace + BEYOND, f"{took:.2f} s\n{worker.log}"


@pytest.mark.usefixtures("a_terminal_to_lose")
def test_a_signal_at_any_moment_ends_a_worker_in_good_order(commands: Commands) -> None:
    commands.app(APP)
    list(commands.store.enqueue_many([new_job("nap", b'{"seconds": 30}')] * 3))
    luck = random.Random(6)
    asks = [(luck.uniform(0, 3), luck.choice(SIGNALS)) for _ in range(TIMES)]

    def start_and_stop(moment: float, number: signal.Signals) -> tuple[Command, float]:
        worker = commands.start(grace=GRACE)
        wait_until(lambda: hears_signals(worker))
        began = time.monotonic()
        wait_until(lambda: time.monotonic() >= began + moment)
        return worker, worker.stop(number)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        for worker, took in threads.map(start_and_stop, *zip(*asks, strict=True)):
            assert_stopped(worker, took)
    assert commands.store.workers.all() == []
    assert {(job.state, job.attempt) for job in commands.store.reads.jobs()} == {(State.QUEUED, 0)}


@sqlite_only
def test_signals_that_come_until_the_very_end_change_nothing(commands: Commands) -> None:
    commands.app(APP)
    for _ in range(3):
        worker = commands.start_and_wait(grace=GRACE)
        worker.send_signal(signal.SIGTERM)
        worker.await_log("stopped;")
        while worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            time.sleep(0.0005)
        assert worker.returncode == 0, worker.log


@pytest.mark.parametrize("forked", [False, True], ids=["", "with a fork that lives on"])
def test_a_worker_whose_runner_is_killed_while_it_imports_starts_another(commands: Commands, forked: bool) -> None:
    commands.app((FORKS if forked else "") + SLOW + APP)
    [[enqueued]] = commands.store.enqueue_many([new_job("nap", b'{"seconds": 0}')])
    worker = commands.start()
    importing = commands.home / "importing"
    for _ in range(2):
        wait_until(lambda: importing.exists() and importing.read_text())
        [runner] = [pid for pid in children_of(worker.pid) if pid == int(importing.read_text())]
        importing.unlink()
        os.kill(runner, signal.SIGKILL)
    worker.await_log("was ended by SIGKILL while it imported the application; trying again in 2 s")
    (commands.home / "go").touch()
    wait_until(lambda: commands.store.reads.get(enqueued.id).state is State.SUCCEEDED, what=lambda: worker.log)
    assert_stopped(worker, worker.stop(), 25.0)


@sqlite_only
def test_a_worker_can_be_stopped_while_its_runner_hangs_in_an_import(commands: Commands) -> None:
    commands.app(SLOW + APP)
    worker = commands.start(grace=GRACE)
    wait_until((commands.home / "importing").exists)
    assert_stopped(worker, worker.stop(), 0.0)


@sqlite_only
@pytest.mark.parametrize("processes", [1, 0])
@pytest.mark.parametrize("what", HANGS)
def test_what_hangs_as_it_closes_holds_nobody_up(commands: Commands, what: str, processes: int) -> None:
    commands.app(APP + HANGS[what])
    worker = commands.start_and_wait(grace=GRACE, processes=processes)
    assert_stopped(worker, worker.stop())


def test_a_second_signal_ends_what_hangs_as_well(commands: Commands) -> None:
    commands.app(APP + HANGS["hook"])
    list(commands.store.enqueue_many([new_job("nap", b'{"seconds": 600}')]))
    worker = commands.start_and_wait(grace=600)
    wait_until(lambda: commands.store.reads.jobs(state=State.RUNNING))
    worker.send_signal(signal.SIGTERM)
    worker.await_log("stopping:")
    assert_stopped(worker, worker.stop(), 0.0)
    [job] = commands.store.reads.jobs()
    assert (job.state, job.attempt) == (State.QUEUED, 0)


@sqlite_only
@pytest.mark.parametrize("running", [False, True])
def test_a_file_that_somebody_else_keeps_locked_holds_nobody_up(commands: Commands, running: bool) -> None:
    commands.app(APP)
    if running:
        list(commands.store.enqueue_many([new_job("nap", b'{"seconds": 600}')]))
    worker = commands.start_and_wait(grace=GRACE)
    wait_until(lambda: not running or commands.store.reads.jobs(state=State.RUNNING))
    with Path(f"{commands.settings.url.removeprefix('sqlite:///')}-gate").open("r+") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        assert_stopped(worker, worker.stop())


@postgres_only
@pytest.mark.parametrize("running", [False, True])
def test_a_server_that_answers_no_more_holds_nobody_up(commands: Commands, running: bool) -> None:
    commands.app(APP)
    if running:
        list(commands.store.enqueue_many([new_job("nap", b'{"seconds": 600}')]))
    with a_proxy(shared_postgres()) as proxy:
        commands.settings = replace(commands.settings, url=proxy.url)
        worker = commands.start_and_wait(grace=GRACE)
        wait_until(lambda: not running or commands.store.reads.jobs(state=State.RUNNING))
        proxy.still = True
        assert_stopped(worker, worker.stop())


@postgres_only
def test_a_worker_that_waits_for_its_first_answer_can_be_stopped(commands: Commands) -> None:
    commands.app(APP)
    with a_proxy(shared_postgres()) as proxy:
        proxy.still = True
        commands.settings = replace(commands.settings, url=proxy.url)
        worker = commands.start(grace=GRACE)
        wait_until(lambda: proxy.taken, what=lambda: worker.log)
        assert_stopped(worker, worker.stop())
