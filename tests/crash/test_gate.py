"""SQLite has one writer at a time. Whoever waits for its turn never keeps the one that has it from going on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.sqlite.connect import path_of
from holdfast.store.sqlite.gate import Gate, holder_of
from tests.cli.shell import Shell
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])

LIVE = 120.0  # seconds: far more than it takes; a standstill is for ever

APP = """
import asyncio, pathlib, time
from holdfast import Holdfast, JobContext

hf = Holdfast()
HERE = pathlib.Path(__file__).parent

@hf.task
async def pay(ctx: JobContext, n: int) -> None:
    async with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values (?)", (n,))

@hf.task
async def save(ctx: JobContext, pages: int) -> None:
    for page in range(pages):
        await ctx.acheckpoint(page)

@hf.task(queue="later")
def later(n: int) -> None: ...

@hf.task
async def dawdle(ctx: JobContext, seconds: float) -> None:
    async with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values (0)")
        await asyncio.sleep(seconds)

@hf.task(isolation="process", database=True)
def pay_alone(ctx: JobContext, n: int) -> None:
    with ctx.transaction() as tx:
        began = time.monotonic()
        tx.conn.execute("insert into paid values (?)", (n,))
        time.sleep(1)  # meanwhile all helpers of the worker come to wait
    (HERE / f"paid-{n}").write_text(str(time.monotonic() - began))

@hf.task(isolation="process")
def save_alone(ctx: JobContext) -> None:
    page = 0
    while len(list(HERE.glob("paid-*"))) < 3:
        ctx.checkpoint(page := page + 1)
"""

PRODUCER = """
import pathlib, time
from app import later
n = 0
while not pathlib.Path("enough").exists():
    later.enqueue(n)
    n += 1
    time.sleep(0.005)
print(n)
"""


@pytest.fixture
def shell(settings: Settings, tmp_path: Path) -> Shell:
    shell = Shell(tmp_path, settings, APP)
    shell("migrate")
    with database(settings) as db:
        db.execute("create table paid (n integer)")
    return shell


@contextmanager
def database(settings: Settings) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path_of(settings), timeout=60, isolation_level=None)) as db:
        yield db


@contextmanager
def worker(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    process = shell.start("worker", "app.py", "-q", "default")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def states(settings: Settings) -> dict[str, int]:
    with database(settings) as db:
        return dict(db.execute("select state, count(*) from holdfast_jobs where queue = 'default' group by 1"))


def test_hundreds_of_coroutines_and_producers_take_turns(shell: Shell, settings: Settings) -> None:
    jobs = [NewJob(task="pay", args=json.dumps({"n": n}).encode()) for n in range(200)]
    jobs += [NewJob(task="save", args=b'{"pages": 5}')] * 200
    with closing(open_store(settings)) as store:
        assert sum(map(len, store.enqueue_many(jobs))) == 400
    producers = [
        subprocess.Popen(
            [sys.executable, "-c", PRODUCER], cwd=shell.directory, env=shell.environment, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    with worker(shell):
        wait_until(lambda: states(settings) == {"succeeded": 400}, "all are done", timeout=LIVE)
    shell.directory.joinpath("enough").touch()
    assert all(int(producer.communicate(timeout=LIVE)[0]) > 0 for producer in producers), "they got their turns, too"
    with database(settings) as db:
        assert db.execute("select count(*), count(distinct n) from paid").fetchone() == (200, 200)
        assert db.execute("select * from holdfast_attempts").fetchall() == [], "nobody gave up"


def test_a_process_of_its_own_commits_while_all_others_wait_to_save(shell: Shell, settings: Settings) -> None:
    """Its worker hears of that first, and saves for the others on a few threads."""
    jobs = [NewJob(task="save_alone", args=b"{}")] * 6
    jobs += [NewJob(task="pay_alone", args=json.dumps({"n": n}).encode(), delay=2.0) for n in range(3)]
    with closing(open_store(settings)) as store:
        assert sum(map(len, store.enqueue_many(jobs))) == 9
    shell.environment["HOLDFAST_ISOLATED"] = "9"
    with worker(shell):
        wait_until(lambda: states(settings) == {"succeeded": 9}, "all are done", timeout=LIVE)
    took = [float(path.read_text()) for path in shell.directory.glob("paid-*")]
    assert len(took) == 3
    assert max(took) < 9, "nobody waited until the others gave up"


def test_why_and_doctor_name_who_keeps_others_from_writing(shell: Shell, settings: Settings) -> None:
    with Holdfast(settings.url) as hf, worker(shell) as process:
        running = shell.json("enqueue", "dawdle", "seconds=30", "--app", "app.py")
        waiting = shell.json("enqueue", "later", "n=1", "--app", "app.py")
        wait_until(lambda: (holder := hf.store.db.writing()) and holder.seconds > 1.1, "it holds the file")
        holder = hf.store.db.writing()
        assert holder is not None
        assert holder.pid in {process.pid, *children_of(process.pid)}
        assert holder.note == f"job {running['id']} (dawdle)"
        [told] = [reason for reason in shell.json("why", waiting["id"]) if reason["code"] == "WRITERS_WAIT"]
        assert f"process {holder.pid}, thread {holder.thread} ({holder.note}), for " in told["text"]
        found = shell("doctor").stdout
        assert f"held by process {holder.pid}, thread {holder.thread} ({holder.note}), for " in found
    # Its processes were killed: the file is free.
    assert wait_until(lambda: holder_of(path_of(settings)) is None)


def children_of(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = place.read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) == pid:
            found.append(int(place.parent.name))
    return found


HOLDS = """
import os, signal, sys, time
from pathlib import Path
from holdfast.store.sqlite.gate import Gate

gate = Gate(Path(sys.argv[1]), 10.0)
with gate:
    if sys.argv[2] == "forked" and os.fork() == 0:
        gate.__exit__()
        print("child", flush=True)
        time.sleep(60)
    time.sleep(0.2)
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("forked", ["forked", "alone"])
def test_the_gate_is_free_as_soon_as_its_holder_is_killed(settings: Settings, tmp_path: Path, forked: str) -> None:
    """Also if a child that it forked lives on, which shares its locks."""
    path = path_of(settings)
    holder = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLDS, str(path), forked], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        if forked == "forked":
            assert holder.stdout.readline() == "child\n"
        assert holder.stdout.readline() == "held\n"
        told = holder_of(path)
        assert told is not None, "a child does not let go of what its parent holds"
        assert (told.pid, told.thread) == (holder.pid, "MainThread")
        holder.kill()
        holder.wait()
        gate = Gate(path, 5.0)
        with gate:
            assert holder_of(path) is not None
        gate.close()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()


def test_who_waits_gives_up_only_if_nobody_gets_a_turn(settings: Settings) -> None:
    """A hundred short turns before it are no reason; one holder that keeps it is."""
    place = path_of(settings)
    busy, patient = [Gate(place, 1.0) for _ in range(2)], Gate(place, 0.3)
    enough = threading.Event()

    def take_turns(gate: Gate) -> None:
        while not enough.is_set():
            with gate:
                time.sleep(0.1)

    threads = [threading.Thread(target=take_turns, args=[gate]) for gate in busy]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with patient:
                pass
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    with busy[0], pytest.raises(StoreUnavailable, match=f"process {os.getpid()}, thread MainThread, for"), patient:
        pytest.fail("two at once")
    for gate in (*busy, patient):
        gate.close()


def test_a_writer_past_the_gate_is_named_by_its_process(shell: Shell, settings: Settings) -> None:
    held = "import sqlite3, sys, time\ndb = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
    held += "db.execute('begin immediate')\nprint('held', flush=True)\ntime.sleep(60)"
    path = path_of(settings)
    with Holdfast(settings.url) as hf:
        writer = subprocess.Popen([sys.executable, "-c", held, str(path)], stdout=subprocess.PIPE, text=True)
        try:
            assert writer.stdout is not None
            writer.stdout.readline()

            @hf.task
            def quick() -> None: ...

            enqueuing = threading.Thread(target=quick.enqueue, name="enqueuing")
            enqueuing.start()
            holder = wait_until(lambda: holder_of(path))
            assert holder is not None
            assert (holder.pid, holder.thread, holder.writer) == (os.getpid(), "enqueuing", writer.pid)
        finally:
            writer.kill()
            writer.communicate()
        enqueuing.join()
        assert len(hf.jobs()) == 1
