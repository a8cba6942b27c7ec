"""A listener on a SQLite file is woken by whoever writes to it, and does not look around meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.sqlite import wakeups as sqlite_wakeups
from holdfast.store.sqlite import wakeups as watch
from holdfast.store.sqlite.connect import path_of
from holdfast.store.sqlite.wakeups import Watch
from tests.contract.test_wakeups import listening
from tests.factories import a_queued_job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the change counter is polled")


@pytest.fixture
def engine() -> str:
    return "sqlite"


NEVER = 3600.0  # seconds


class Asleep(Watch):
    """Nothing but a write wakes it."""

    opened: list[Asleep]

    def __init__(self, path: Path, *, restless: bool = False) -> None:
        super().__init__(path)
        self._seldom = self._next = NEVER
        self.opened.append(self)


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[Asleep]:
    monkeypatch.setattr(Asleep, "opened", [], raising=False)
    monkeypatch.setattr(sqlite_wakeups, "Watch", Asleep)
    return Asleep.opened


OURS = """
import sys
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(Settings(url=sys.argv[1], synchronous=sys.argv[2]))
for line in sys.stdin:
    print(store.enqueue(NewJob(task="greet", args=b"{}")).id, flush=True)
"""

THEIRS = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1].removeprefix("sqlite:///"), isolation_level=None)
db.execute("pragma cache_size = 1")
for line in sys.stdin:
    db.execute(line).fetchall()
    print("done", flush=True)
"""


class Other:
    """Another process that does what it is told, one line after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, line: str = "") -> str:
        _pipe(self._process.stdin).write(line + "\n")
        _pipe(self._process.stdin).flush()
        return _pipe(self._process.stdout).readline().strip()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@pytest.fixture
def other(store: Store) -> Iterator[Callable[..., Other]]:
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> Other:
        command = [sys.executable, "-c", script, *arguments]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return Other(started[-1])

    yield start
    for process in started:
        process.communicate(timeout=20)


@pytest.mark.parametrize("synchronous", ["full", "off"])
def test_another_processs_commit_is_heard_by_its_write(
    settings: Settings, stores: Callable[..., Store], asleep: list[Asleep], other: Callable[..., Other],
    synchronous: str,
) -> None:  # fmt: skip
    ours = other(OURS, settings.url, synchronous)
    with listening(stores()) as listener:
        for _ in range(3):
            assert ours.do()
            assert listener.next() == ("changed", "")
            asleep[0]._next = NEVER
        assert ours.do()  # and it hears that it is to stop


def test_what_others_write_without_us_is_heard_when_they_commit(
    settings: Settings, stores: Callable[..., Store], asleep: list[Asleep], other: Callable[..., Other]
) -> None:
    """A large transaction writes to the log long before it is committed."""
    theirs = other(THEIRS, settings.url)
    with listening(stores()) as listener:
        theirs.do("begin")
        log = Path(f"{path_of(settings)}-wal")
        before = log.stat().st_size
        theirs.do(
            "insert into holdfast_jobs (queue, task, args, created_at, run_at, ready_at) "
            "with recursive s (n) as (select 1 union all select n + 1 from s where n < 50) "
            "select 'default', 'greet', json_quote(hex(zeroblob(4000))), datetime(), datetime(), datetime() from s"
        )
        assert log.stat().st_size > before, "it has written, and not committed"
        assert listener.heard.empty()
        theirs.do("commit")
        assert listener.next() == ("changed", "")


def test_a_log_that_begins_anew_is_still_watched(
    settings: Settings, stores: Callable[..., Store], asleep: list[Asleep], other: Callable[..., Other], store: Store
) -> None:
    theirs = other(THEIRS, settings.url)
    a_queued_job(store)
    with listening(stores()) as listener:
        theirs.do("pragma wal_checkpoint(truncate)")
        assert Path(f"{path_of(settings)}-wal").stat().st_size == 0
        a_queued_job(store)
        assert listener.next() == ("changed", "")


def test_a_file_behind_a_link_is_watched_where_it_is(
    settings: Settings, store: Store, asleep: list[Asleep], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path_of(settings))
    linked = open_store(replace(settings, url=f"sqlite:///{link}"))
    try:
        with listening(linked) as listener:
            a_queued_job(store)
            assert listener.next() == ("changed", "")
    finally:
        linked.close()
    assert [path.name for path in link.parent.iterdir()] == ["link.db"], "nothing of ours is beside the link"


def test_a_log_that_was_not_there_is_watched_when_it_is(tmp_path: Path) -> None:
    log = tmp_path / "jobs.db-wal"
    watched = Watch(tmp_path / "jobs.db")
    try:
        watched._next = watched._seldom
        watched.wait()
        log.write_bytes(b"")
        watched.wait()
        watched._seldom = watched._next = NEVER
        with log.open("ab") as file:
            file.write(b"frame")
        _soon(watched.wait)
    finally:
        watched.close()


def test_after_a_write_several_looks_follow_as_it_may_be_committed_only_then(tmp_path: Path) -> None:
    log = tmp_path / "jobs.db-wal"
    log.write_bytes(b"")
    watched = Watch(tmp_path / "jobs.db")
    watched._seldom = watched._next = NEVER
    try:
        log.write_bytes(b"frame")
        for _ in range(8):
            _soon(watched.wait)
    finally:
        watched.close()


def test_runner_processes_inherit_no_watch(tmp_path: Path) -> None:
    watched = Watch(tmp_path / "jobs.db")
    try:
        assert not os.get_inheritable(watched._inotify)
    finally:
        watched.close()


def test_without_a_watch_the_change_counter_is_polled(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_libc", object)  # as where the system has no such function
    monkeypatch.setattr(watch, "SELDOM", NEVER)
    with listening(stores()) as listener:
        a_queued_job(store)
        assert listener.next() == ("changed", "")


OUT_OF_DESCRIPTORS = """
import json, os, resource, sys
from pathlib import Path
from holdfast import events
from holdfast.store.sqlite import wakeups as watch
told = []
events.subscribe(lambda name, fields: told.append([name, fields]))
watch._libc()
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
for _ in range(2):
    watched = watch.Watch(Path(sys.argv[1]))
    watched.wait()
    watched.close()
print(json.dumps(told))
"""


def test_where_a_limit_is_reached_it_is_polled_and_told_once(tmp_path: Path) -> None:
    """Of descriptors here; of watches and watchers in the same words."""
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS, str(tmp_path / "jobs.db")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [["unwatched", {"error": "[Errno 24] Too many open files", "times": 67}]]


def _soon(do: Callable[[], None]) -> None:
    """Only a failing test waits long."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
