"""SQLite has one writer. Whoever forgets `conn=` within an open transaction waits for itself, and is told at once."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadSettings, Holdfast, Job, StoreUnavailable
from holdfast.store.sqlite import connect, own_writer

AT_ONCE = 5.0  # seconds: half of what a writer waits for others
SAID = (
    r"HF1112 you have a transaction open on .*jobs.db yourself.*task\.using\(conn=connection\)\.enqueue\(…\), or commit"
)


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db", pinned=True) as hf:

        @hf.task
        def double(n: int) -> int:
            return 2 * n

        hf.migrate()
        with sqlite3.connect(tmp_path / "jobs.db") as db:
            db.execute("create table mine (n)")
        db.close()
        yield hf


def in_transaction(path: Path, *, shared: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=not shared)
    db.execute("begin")
    db.execute("insert into mine values (1)")
    return db


WRITES: dict[str, Callable[[Holdfast, Job[Any]], object]] = {
    "enqueue": lambda hf, _: hf.find_task("double").enqueue(1),
    "keyed": lambda hf, _: hf.find_task("double").using(key="k").enqueue(1),
    "many": lambda hf, _: hf.enqueue_many([hf.find_task("double").bind(n) for n in range(3)]),
    "cancel": lambda _, job: job.cancel(),
}


@pytest.mark.parametrize("how", WRITES)
def test_an_own_transaction_is_named_at_once(hf: Holdfast, tmp_path: Path, how: str) -> None:
    task = hf.find_task("double")
    first = task.enqueue(0)
    db = in_transaction(tmp_path / "jobs.db")
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()  # where there are several threads, it has to be found out whose transaction it is
    began = time.monotonic()
    try:
        with pytest.raises(BadSettings, match=SAID):
            WRITES[how](hf, first)
    finally:
        stop.set()
        other.join()
    assert time.monotonic() - began < AT_ONCE
    task.using(conn=db).enqueue(2)
    db.execute("commit")
    db.close()
    task.enqueue(3)


def test_where_there_is_one_thread_any_connection_is_the_callers(tmp_path: Path) -> None:
    """As of SQLAlchemy and Django, whose connections may be passed between threads."""
    program = """
import sqlite3
from holdfast import Holdfast
hf = Holdfast("sqlite:///jobs.db")
@hf.task
def t() -> None: ...
hf.migrate()
db = sqlite3.connect("jobs.db", isolation_level=None, check_same_thread=False)
db.execute("create table mine (n)")
db.execute("begin immediate")
t.enqueue()
"""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, text=True, capture_output=True, check=False, timeout=60
    )
    assert "HF1112 you have a transaction open" in done.stderr, done.stderr
    assert time.monotonic() - began < connect.BUSY


def test_another_threads_transaction_is_waited_for(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in a moment, as it would if it were another process's."""
    asked = threading.Event()

    def spied(database: Path) -> bool:
        found = own_writer.is_this_process(database) and is_this_thread(database)
        asked.set()
        return found

    is_this_thread = own_writer.is_this_thread
    monkeypatch.setattr(own_writer, "is_this_thread", spied)
    db = in_transaction(tmp_path / "jobs.db", shared=True)
    ended: list[str] = []
    waiting = threading.Thread(target=lambda: ended.append(hf.find_task("double").enqueue(1).id))
    waiting.start()
    assert asked.wait(30)
    db.execute("commit")
    db.close()
    waiting.join(30)
    assert ended == ["1"]


def test_who_waited_in_vain_is_told_that_it_may_be_its_own(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY", 0.1)
    db = in_transaction(tmp_path / "jobs.db")

    async def forgets() -> None:
        await hf.find_task("double").aenqueue(1)  # in a thread of its own: whose transaction it is can't be told

    with pytest.raises(StoreUnavailable, match=r"another connection of this process is writing; if it is yours"):
        asyncio.run(forgets())
    db.close()


def test_another_processes_transaction_is_not_called_ones_own(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY", 0.1)
    program = (
        "import sqlite3, sys; db = sqlite3.connect('jobs.db', isolation_level=None); db.execute('begin immediate'); "
        "print('begun', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        mine = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        mine.execute("begin")  # it only reads
        mine.execute("select * from mine").fetchall()
        with pytest.raises(StoreUnavailable, match=r"HF3302 .*: another connection is writing$"):
            hf.find_task("double").enqueue(1)
        mine.close()
        other.communicate("")


def test_whoever_only_reads_waits_for_another_threads_writes(
    hf: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY", 0.1)
    begun, stop = threading.Event(), threading.Event()

    def write() -> None:
        with closing(in_transaction(tmp_path / "jobs.db")):
            begun.set()
            stop.wait()

    writing = threading.Thread(target=write)
    writing.start()
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as mine:
        mine.execute("begin")
        mine.execute("select * from mine").fetchall()
        assert begun.wait(30)
        try:
            with pytest.raises(StoreUnavailable, match="HF3302"):
                hf.find_task("double").enqueue(1)
        finally:
            stop.set()
            writing.join()
