"""Worker processes to start, stop, kill and freeze, and what can be seen of them from outside: the database, and the
ledger their handlers write."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.job import Enqueued, JobRecord, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.waiting import pause

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0  # seconds for what should happen soon, on a machine that may be busy with other things


def wait_until(condition: Callable[[], object], timeout: float = PATIENCE, what: str | Callable[[], str] = "") -> None:
    """Look until it is so."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > timeout:
            told = what() if callable(what) else what
            pytest.fail(f"waited {timeout:g} s in vain: {told or condition}")
        time.sleep(pause(waited))


def patiently(ask: Callable[[], T]) -> T:
    """The answer, however often the connection breaks meanwhile."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Trace(NamedTuple):
    """A line of the ledger: a handler was here, or the application was imported."""

    what: str
    job: str
    fence: str
    attempt: int
    pid: int
    at: float


class Fleet:
    def __init__(self, settings: Settings, home: Path) -> None:
        self.settings = settings
        self.home = home
        self.ledger = home / "ledger"
        self.door = settings.url  # where the workers go in: a proxy, perhaps
        self.store: Store = open_store(settings)
        self.store.schema.migrate()
        self._started: list[subprocess.Popen[bytes]] = []

    # -- workers -------------------------------------------------------------------------------------------------

    def start(self, **settings: Any) -> subprocess.Popen[bytes]:
        """A worker process; returns once it has registered."""
        process = self.launch(**settings)
        self.await_worker(process)
        return process

    def start_many(self, count: int, **settings: Any) -> list[subprocess.Popen[bytes]]:
        workers = [self.launch(**settings) for _ in range(count)]
        for worker in workers:
            self.await_worker(worker)
        return workers

    def launch(self, **settings: Any) -> subprocess.Popen[bytes]:
        """The command people run, with its defaults; `processes=0` has it run handlers in its own process."""
        log = self.home / f"worker-{len(self._started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "worker", "tests.crash.app:hf", "-vv"], cwd=ROOT,
                env=self.environment(**settings), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        self._started.append(process)
        return process

    def environment(self, **settings: Any) -> dict[str, str]:
        given = asdict(self.settings) | {"url": self.door} | settings
        if "lease" in settings and "heartbeat" not in settings:
            given["heartbeat"] = 0.0
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        ours = {f"HOLDFAST_{name.upper()}": str(value) for name, value in given.items()}
        return {**clean, **ours, "CRASH_LEDGER": str(self.ledger), "PYTHONFAULTHANDLER": "1"}

    def await_worker(self, process: subprocess.Popen[bytes]) -> None:
        wait_until(
            lambda: self._registered(process),
            what=lambda: f"worker {process.pid} registers\n{self._last_words(process)}",
        )

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        """Its log, which ends in the stacks of its threads: faulthandler writes them when it is aborted."""
        process.send_signal(signal.SIGABRT)
        process.wait(PATIENCE)
        return self.log_of(process)[-5000:]

    def _registered(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            pytest.fail(f"the worker ended with {process.returncode}:\n{self.log_of(process)}")
        return process.pid in {worker.pid for worker in self.store.workers.all()}

    def log_of(self, process: subprocess.Popen[bytes]) -> str:
        return (self.home / f"worker-{self._started.index(process)}.log").read_text(errors="replace")

    def runners(self, process: subprocess.Popen[bytes]) -> list[int]:
        """The processes it runs handlers in. (It has another child for a moment, which becomes its reaper.)"""
        return [pid for pid in children_of(process.pid) if runs_handlers(pid)]

    def importers(self) -> set[int]:
        """The processes that have imported the application."""
        return {trace.pid for trace in self.traces("import")}

    def left_behind(self) -> list[int]:
        """Processes that came from our workers and still live, whoever their parent is now."""
        mark = f"CRASH_LEDGER={self.ledger}".encode()
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit() and int(place.name) not in (os.getpid(), *(p.pid for p in self._started)):
                with suppress(OSError):
                    if mark in (place / "environ").read_bytes().split(b"\0") and lives(int(place.name)):
                        found.append(int(place.name))
        return found

    def kill(self, process: subprocess.Popen[bytes]) -> float:
        """SIGKILL; returns when."""
        at = time.time()
        process.kill()
        process.wait(PATIENCE)
        return at

    def freeze(self, process: subprocess.Popen[bytes], *, runners: bool = True) -> None:
        """SIGSTOP for a worker and its runners, as when their machine sleeps; but not in the middle of a write to the
        file: that would stop everyone else, too."""
        path = getattr(self.store.db, "path", None)
        for _ in range(100):
            for pid in (process.pid, *(self.runners(process) if runners else ())):
                _stop(pid)
            if path is None or not is_locked(Path(f"{path}-gate")):
                return
            self.thaw(process)
        pytest.fail("the worker holds the gate all the time")

    def thaw(self, process: subprocess.Popen[bytes]) -> None:
        for pid in (process.pid, *self.runners(process)):
            os.kill(pid, signal.SIGCONT)

    def stop(self, *processes: subprocess.Popen[bytes], timeout: float = PATIENCE) -> None:
        """SIGTERM, and wait for the end."""
        for process in processes:
            process.terminate()
        for process in processes:
            self.await_end(process, timeout)
            assert process.returncode == 0, self.log_of(process)

    def await_end(self, process: subprocess.Popen[bytes], timeout: float = PATIENCE) -> None:
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the worker did not end within {timeout:g} s:\n{self._last_words(process)}")

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.store.close()

    # -- jobs ----------------------------------------------------------------------------------------------------

    def enqueue(self, task: str, count: int = 1, **args: Any) -> list[str]:
        options = {name: args.pop(name) for name in ("max_attempts", "queue", "priority", "delay") if name in args}
        new = NewJob(task=task, args=msgspec.json.encode(args), **options)
        return [done.id for done in self.enqueue_all([new] * count)]

    def enqueue_when_possible(self, task: str, count: int, **args: Any) -> list[str]:
        """The same with patience: connections break here. A bulk enqueue is all or nothing, so it is known what was
        kept: nothing, or as many more."""
        before = len(self.jobs())
        return patiently(lambda: self.enqueue(task, count, **args) if len(self.jobs()) == before else [])

    def enqueue_all(self, jobs: Iterable[NewJob]) -> list[Enqueued]:
        return [done for chunk in self.store.enqueue_many(jobs) for done in chunk]

    def job(self, id: str) -> JobRecord:
        return patiently(lambda: self.store.reads.get(id))

    def jobs(self, ids: Iterable[str] | None = None) -> list[JobRecord]:
        wanted = None if ids is None else set(ids)
        found = patiently(lambda: self.store.reads.jobs(limit=100_000))
        return [job for job in found if wanted is None or job.id in wanted]

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Straight from the database, on a connection of its own; `{jobs}` names a table of ours."""
        path = getattr(self.store.db, "path", None)
        name = f'"{self.settings.prefix}%s"' if path else f'"{self.settings.schema}".%s'
        text = text.format(**{table: name % table for table in ("jobs", "leases", "attempts", "workers")})
        if path:
            with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
                return list(db.execute(text).fetchall())
        with psycopg.connect(self.settings.url, autocommit=True) as connection:
            cursor = connection.execute(text.encode())
            return cursor.fetchall() if cursor.description else []

    def states(self) -> Counter[State]:
        counted: Counter[State] = Counter()
        for row in patiently(self.store.reads.counts):
            counted[State(row["state"])] += row["jobs"]
        return counted

    def await_states(self, timeout: float = PATIENCE, **expected: int) -> None:
        """Until so many jobs are in each of these states."""
        wanted = Counter({State(name): count for name, count in expected.items()})

        deadline = time.monotonic() + timeout
        while (found := self.states()) != wanted:
            if time.monotonic() > deadline:
                pytest.fail(f"waited {timeout:g} s for {dict(wanted)}, and it is {dict(found)}\n{self._logs()}")
            time.sleep(0.02)

    def _logs(self) -> str:
        return "\n".join(f"-- {p.pid}:\n{self.log_of(p)[-1500:]}" for p in self._started[-3:])

    # -- the ledger ------------------------------------------------------------------------------------------------

    def traces(self, what: str | None = None, job: str | None = None) -> list[Trace]:
        if not self.ledger.exists():
            return []
        text = self.ledger.read_text()
        lines = (line.split() for line in text[: text.rfind("\n") + 1].splitlines())  # the last may be half written
        whole = (line for line in lines if len(line) == len(Trace._fields))
        found = [Trace(w, j, f, int(a), int(p), float(t)) for w, j, f, a, p, t in whole]
        return [t for t in found if (what is None or t.what == what) and (job is None or t.job == job)]

    def await_starts(self, count: int, timeout: float = PATIENCE) -> None:
        wait_until(lambda: len(self.traces("start")) >= count, timeout, f"{count} starts")


def assert_each_success_is_of_its_newest_claim(fleet: Fleet, jobs: Sequence[JobRecord]) -> None:
    """Every success was brought by a handler that ran under the fence that stands in the row."""
    ends = {(trace.job, trace.fence) for trace in fleet.traces("end")}
    for job in jobs:
        if job.state is State.SUCCEEDED:
            assert (job.id, job.fence) in ends, job


@contextmanager
def a_fleet(settings: Settings, home: Path) -> Iterator[Fleet]:
    fleet = Fleet(settings, home)
    try:
        yield fleet
    finally:
        fleet.close()


def children_of(pid: int) -> list[int]:
    """Other than its reaper, which is not among them for long."""
    return [child for child in direct_children_of(pid) if not _is_reaper(child)]


def direct_children_of(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # it has just ended
            found += map(int, (thread / "children").read_text().split())
    return sorted(found)


def reaper_of(pid: int) -> int | None:
    """The process that this worker has for its own end."""
    pids = (int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit())
    return next((child for child in pids if _is_reaper(child, of=pid) and lives(child)), None)


def _is_reaper(pid: int, of: int | None = None) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[4:5] == [b"reaper"] and (of is None or words[5] == b"%d" % of)


def runs_handlers(pid: int) -> bool:
    with suppress(OSError):  # it has just ended
        return b"_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def lives(pid: int) -> bool:
    """Is there such a process, other than one that is dead and not reaped yet?"""
    try:
        return _kernel_state(pid) not in ("Z", "X")
    except FileNotFoundError:
        return False


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _kernel_state(pid) == "T", what="it is stopped")


def _kernel_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_locked(path: Path) -> bool:
    """Does another process hold the lock on this file?"""
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
