"""PostgreSQL servers with standbys, and workers as people start them: a real `holdfast worker app.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from bench.embedded import EmbeddedPostgres
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.servers import FAST
from tests.waiting import wait_until

LIVE = 120.0  # seconds; only a failing test waits that long

# `paid` holds the effects that handlers commit with their success.
APP = """
import asyncio, os, time
from pathlib import Path
from holdfast import Holdfast, JobContext

hf = Holdfast()

def ran(ctx):
    with open(Path(__file__).parent / "ran", "a") as ledger:
        ledger.write(f"{ctx.job.id}\\n")

@hf.task(max_attempts=1)
async def hold(ctx: JobContext, seconds: float = 0.0) -> None:
    ran(ctx)
    async with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values (%s, %s)", (int(ctx.job.id), ctx.fence))
        await asyncio.sleep(seconds)

@hf.task(max_attempts=1)
def pay(ctx: JobContext) -> None:
    ran(ctx)
    with ctx.transaction() as tx:
        tx.conn.execute("insert into paid values (%s, %s)", (int(ctx.job.id), ctx.fence))

@hf.task(max_attempts=1)
async def note(ctx: JobContext) -> None:
    ran(ctx)

@hf.task
async def outlast(ctx: JobContext) -> None:
    ran(ctx)
    while not Path(__file__).with_name("end").exists():
        await asyncio.sleep(0.05)

@hf.task
async def linger(ctx: JobContext, name: str) -> None:  # its first attempt never ends
    async with ctx.transaction() as tx:
        tx.conn.execute("update held set by = %s where id = 1", (ctx.fence,))
        Path(__file__).with_name(name).touch()
        if ctx.attempt == 1:
            await asyncio.sleep(3600)
"""


def told(what: str, **figures: object) -> None:
    """Print figures for the page "Past one machine" (shown by `pytest -rP`)."""
    print(f"{what}: " + ", ".join(f"{name} {value}" for name, value in figures.items()))


class Standby(EmbeddedPostgres):
    """A streaming copy of another server."""

    def __init__(self, primary: EmbeddedPostgres, name: str = "standby") -> None:
        self._primary = primary
        self._name = name
        settings = {**primary._settings, "synchronous_standby_names": ""}  # nobody follows it
        super().__init__(primary.version, tcp=True, in_memory=False, **settings)

    def _create(self) -> None:
        """With the roles, passwords and rules of its primary; -R writes how to reach it, with the password."""
        self.password = self._primary.password
        self._run(
            "pg_basebackup", "-D", str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-d", f"host=127.0.0.1 port={self._primary.port} user=postgres application_name={self._name}",
            env={"PGPASSWORD": self.password},
        )  # fmt: skip

    def promote(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "promote")


@contextmanager
def a_pair(version: int = 18, **settings: str | int) -> Iterator[tuple[EmbeddedPostgres, Standby]]:
    """A primary and a standby that follows it."""
    given = {**FAST, "synchronous_commit": "on", "max_connections": 100, **settings}
    primary = EmbeddedPostgres(version, tcp=True, **given)
    try:
        standby = Standby(primary)
        try:
            wait_until(lambda: ask(primary.url, "select count(*) from pg_stat_replication where state = 'streaming'"))
            yield primary, standby
        finally:
            standby.destroy()
    finally:
        primary.destroy()


def both(first: EmbeddedPostgres, second: EmbeddedPostgres) -> str:
    return first.url.replace(f":{first.port}/", f":{first.port},127.0.0.1:{second.port}/")


def ask(url: str, query: str, *parameters: Any) -> Any:
    """The first value of the first row."""
    with admitted(url) as db:
        row = db.execute(query.encode(), parameters).fetchone()
    return None if row is None else row[0]


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True, target_session_attrs="read-write") as db:
        for statement in statements:
            db.execute(statement.encode())


class Scene:
    """An application in a directory, its workers, and what came of its jobs as the database says."""

    def __init__(self, home: Path, url: str, app: str = APP) -> None:
        self.home = home
        self.url = url
        (home / "app.py").write_text(app)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "HOLDFAST_URL": url,
            "NO_COLOR": "1",
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def prepare(self) -> None:
        """Make the tables."""
        self.run("migrate")
        do(self.url, "create table paid (job bigint, fence uuid)", "create table held (id int primary key, by uuid)",
           "insert into held values (1)")  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments], cwd=self.home, env=self._environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def enqueue(self, url: str, task: str, count: int = 1, *, max_attempts: int = 1, **args: Any) -> list[int]:
        with closing(open_store(Settings(url=url))) as store:
            new = NewJob(task=task, args=msgspec.json.encode(args), max_attempts=max_attempts)
            return [int(store.enqueue(new).id) for _ in range(count)]

    def start(self, *, before: Sequence[str] = (), **settings: object) -> subprocess.Popen[bytes]:
        """A worker with default settings, but for these. `before`: what it is started by."""
        ours = {f"HOLDFAST_{name.upper()}": str(value) for name, value in settings.items()}
        with (self.home / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                [*before, sys.executable, "-m", "holdfast", "worker", "app.py"], cwd=self.home,
                env={**self._environment, **ours}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.workers.append(worker)
        return worker

    @property
    def log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.home.glob("worker-*.log")))

    def log_of(self, worker: int) -> str:
        return (self.home / f"worker-{worker}.log").read_text(errors="replace")

    def ran(self) -> Counter[int]:
        """How often the handler of each job began."""
        ledger = self.home / "ran"
        return Counter(map(int, ledger.read_text().split()) if ledger.exists() else ())

    def states(self, url: str) -> Counter[str]:
        return counted(url, "select state::text, count(*) from holdfast.jobs group by 1")

    def charged(self, url: str) -> int:
        """Attempts that count, beside those that succeeded."""
        query = "select count(*) from holdfast.attempts where outcome not in ('succeeded', 'released', 'snoozed')"
        return int(ask(url, query))

    def await_done(self, url: str, jobs: int, *, timeout: float = LIVE) -> None:
        try:
            wait_until(lambda: sum(self.states(url)[s] for s in ("succeeded", "failed")) >= jobs, timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.states(url)}\n{self.log[-5000:]}") from None

    def close(self) -> None:
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def admitted(url: str) -> psycopg.Connection[Any]:
    """Clients that are just telling who they are take up the connections that are reserved for superusers, too: where
    many are refused, we may have to ask again."""
    deadline = time.monotonic() + LIVE
    while True:
        try:
            return psycopg.connect(url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError as error:
            if "too many clients" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def counted(url: str, query: str) -> Counter[str]:
    with admitted(url) as db:
        return Counter(dict(db.execute(query.encode()).fetchall()))


@contextmanager
def a_scene(home: Path, url: str) -> Iterator[Scene]:
    scene = Scene(home, url)
    scene.prepare()
    try:
        yield scene
    finally:
        scene.close()


def seconds(do: Callable[[], object]) -> float:
    began = time.monotonic()
    do()
    return time.monotonic() - began
