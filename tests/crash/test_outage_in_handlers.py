"""However a handler meets our database while that is away, it costs no attempt: each job here has only one."""

from __future__ import annotations

import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from bench.embedded import EmbeddedPostgres
from holdfast.model.job import JobRecord, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.sqlite.connect import path_of
from tests.cli.shell import Shell
from tests.crash.fleet import patiently
from tests.servers import own_postgres
from tests.waiting import wait_until

DONE = (State.SUCCEEDED, 1, None)  # state, attempt, error
LIVE = 120.0  # seconds; only a failing test waits that long

# Each handler gets ready, waits until the database has gone away, and goes on.
COMMON = """
import asyncio, functools, os, time
from pathlib import Path
from holdfast import Holdfast, JobContext

HERE = Path(__file__).parent
URL = (HERE / "url").read_text()
hf = Holdfast(URL)

def wait(ctx):
    (HERE / f"ready-{ctx.job.task}").touch()
    while not (HERE / "away").exists():
        time.sleep(0.01)

async def await_(ctx):
    (HERE / f"ready-{ctx.job.task}").touch()
    while not (HERE / "away").exists():
        await asyncio.sleep(0.01)

def once(function):  # declares a task with one attempt, and leaves a mark when its handler ends
    @functools.wraps(function)
    def run(ctx: JobContext) -> None:
        try:
            return function(ctx)
        finally:
            (HERE / f"met-{ctx.job.task}").touch()
    return hf.task(max_attempts=1)(run)

def aonce(function):
    @functools.wraps(function)
    async def run(ctx: JobContext) -> None:
        try:
            return await function(ctx)
        finally:
            (HERE / f"met-{ctx.job.task}").touch()
    return hf.task(max_attempts=1)(run)

@hf.task(queue="later")
def later() -> None: ...

@once
def enter(ctx):
    wait(ctx)
    with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('enter')")

@aonce
async def enter_async(ctx):
    await await_(ctx)
    async with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('enter_async')")

@once
def enqueue(ctx):
    wait(ctx)
    later.enqueue()

@aonce
async def enqueue_in_group(ctx):
    await await_(ctx)
    async with asyncio.TaskGroup() as group:
        group.create_task(later.aenqueue())

@once
def enqueue_keyed(ctx):
    wait(ctx)
    later.using(key="k").enqueue()

@once
def enqueue_many(ctx):
    wait(ctx)
    hf.enqueue_many(later.bind() for _ in range(3))

@once
def look(ctx):
    wait(ctx)
    hf.jobs(limit=1)
    later.using(delay=1).enqueue()

@once
def save(ctx):
    wait(ctx)
    ctx.checkpoint(1)

@aonce
async def save_async(ctx):
    await await_(ctx)
    await ctx.acheckpoint(1)

@once
def step(ctx):
    wait(ctx)
    ctx.step("one", lambda: 1)

@hf.task(max_attempts=1, isolation="process")
def isolated_save(ctx: JobContext) -> None:
    wait(ctx)
    ctx.checkpoint(1)

@hf.task(max_attempts=1, isolation="process", database=True)
def isolated_enter(ctx: JobContext) -> None:
    wait(ctx)
    try:
        with ctx.transaction() as tx:
            tx.conn.execute("insert into paid values ('isolated_enter')")
    finally:
        (HERE / "met-isolated_enter").touch()
"""

WAITING = {"save", "save_async", "step", "isolated_save"}  # they wait until the database is back

POSTGRES = (
    COMMON
    + """
import psycopg

@once
def inside(ctx):
    with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('inside')")
        wait(ctx)
        tx.conn.execute("select 1")

@once
def inside_wrapped(ctx):
    with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('inside_wrapped')")
        wait(ctx)
        try:
            tx.conn.execute("select 1")
        except psycopg.Error as error:
            raise RuntimeError("could not pay") from error

@once
def leave(ctx):
    with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('leave')")
        wait(ctx)

@aonce
async def leave_async(ctx):
    async with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values ('leave_async')")
        await await_(ctx)

@once
def own_enqueue(ctx):
    with psycopg.connect(URL) as own:
        own.execute("insert into paid values ('own_enqueue')")
        wait(ctx)
        later.using(conn=own).enqueue()

@once
def own_succeed(ctx):
    with psycopg.connect(URL) as own:
        own.execute("insert into paid values ('own_succeed')")
        wait(ctx)
        ctx.succeed(conn=own)

@once
def own_commit(ctx):
    with psycopg.connect(URL) as own:
        own.execute("insert into paid values ('own_commit')")
        ctx.succeed(conn=own)
        wait(ctx)

@aonce
async def own_commit_async(ctx):
    async with await psycopg.AsyncConnection.connect(URL) as own:
        await own.execute("insert into paid values ('own_commit_async')")
        await ctx.asucceed(conn=own)
        await await_(ctx)

@hf.task(max_attempts=1, isolation="process", database=True)
def isolated_leave(ctx: JobContext) -> None:
    try:
        with ctx.transaction() as tx:
            tx.conn.execute("insert into paid values ('isolated_leave')")
            wait(ctx)
    finally:
        (HERE / "met-isolated_leave").touch()
"""
)

SQLITE = (
    COMMON
    + """
import sqlite3

@once
def own_enqueue(ctx):
    wait(ctx)
    with sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=1) as own:
        later.using(conn=own).enqueue()

@once
def own_succeed(ctx):
    wait(ctx)
    with sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=1) as own:
        ctx.succeed(conn=own)
"""
)


class Scene:
    """A worker with default settings, and one job of each task, ready to meet the outage."""

    def __init__(self, home: Path, settings: Settings, app: str) -> None:
        self._home = home
        (home / "url").write_text(settings.url)
        shell = Shell(home, settings, app)
        shell.environment |= {"HOLDFAST_THREADS": "20", "HOLDFAST_ISOLATED": "4"}  # all of them at once
        shell("migrate")
        self.names = _declared(app)
        with closing(open_store(settings)) as store:
            for name in self.names:
                store.enqueue(NewJob(task=name, args=b"{}", max_attempts=1))
        self._settings = settings
        self.worker: subprocess.Popen[str] = shell.start("worker", "app.py", "-q", "default")

    def await_ready(self) -> None:
        wait_until(lambda: self._marked("ready") == set(self.names), f"{self.names} are ready", timeout=LIVE)

    def go_away(self) -> None:
        (self._home / "away").touch()

    def await_met(self) -> None:
        wait_until(lambda: self._marked("met") >= set(self.names) - WAITING, "all met it", timeout=LIVE)

    def _marked(self, what: str) -> set[str]:
        return {path.name.removeprefix(f"{what}-") for path in self._home.glob(f"{what}-*")}

    def jobs(self) -> list[JobRecord]:
        with closing(open_store(self._settings)) as store:
            return list(patiently(lambda: store.reads.jobs(queue="default", limit=100)))

    def await_end(self) -> list[JobRecord]:
        wait_until(lambda: all(job.finished for job in self.jobs()), "all are finished", timeout=LIVE)
        return self.jobs()

    def close(self) -> None:
        self.worker.kill()
        self.worker.communicate()


def _declared(app: str) -> list[str]:
    """The tasks with one attempt."""
    return re.findall(r"^@(?:a?once|hf\.task\(max_attempts=1.*)\n(?:async )?def (\w+)", app, re.MULTILINE)


@contextmanager
def a_scene(home: Path, settings: Settings, app: str) -> Iterator[Scene]:
    scene = Scene(home, settings, app)
    try:
        yield scene
    finally:
        scene.close()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with own_postgres(synchronous_commit="on") as server:
        yield server


@pytest.mark.parametrize("how", ["immediate", "fast", "cut"])
def test_an_outage_of_postgres_costs_no_attempt(server: EmbeddedPostgres, tmp_path: Path, how: str) -> None:
    settings = Settings(url=server.url, schema=f"away_{how}")
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("drop table if exists paid")
        db.execute("create table paid (task text)")
    with a_scene(tmp_path, settings, POSTGRES) as scene:
        scene.await_ready()
        if how == "cut":
            with psycopg.connect(server.url, autocommit=True) as db:
                db.execute("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
            scene.go_away()
        else:
            server.stop(how)
            try:
                scene.go_away()
                scene.await_met()
            finally:
                server.start()
        jobs = scene.await_end()
    assert {job.task: (job.state, job.attempt, job.error_message) for job in jobs} == dict.fromkeys(scene.names, DONE)
    with psycopg.connect(server.url, autocommit=True) as db:
        paid = [task for (task,) in db.execute("select task from paid order by task").fetchall()]
    assert len(paid) == len(set(paid)), "each once"
    assert set(paid) == {name for name in scene.names if f"values ('{name}')" in POSTGRES}


def test_a_foreign_lock_on_sqlite_costs_no_attempt(tmp_path: Path) -> None:
    settings = Settings(url=f"sqlite:///{tmp_path}/jobs.db")
    with a_scene(tmp_path, settings, SQLITE) as scene:
        with closing(sqlite3.connect(path_of(settings), timeout=60, isolation_level=None)) as db:
            db.execute("create table paid (task text)")
            scene.await_ready()
            db.execute("begin immediate")
            scene.go_away()
            scene.await_met()  # each has waited for as long as its connection waits for a lock
            db.execute("rollback")
        jobs = scene.await_end()
    assert {job.task: (job.state, job.attempt, job.error_message) for job in jobs} == dict.fromkeys(scene.names, DONE)
