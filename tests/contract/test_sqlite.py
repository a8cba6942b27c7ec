"""What only a file needs: a log that stays short, handles that survive a fork."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.sqlite import connect
from holdfast.store.sqlite.enqueue import Stamp, stored
from tests.contract.places import raw
from tests.factories import Clock, a_queued_job, new_job

ONLY_SQLITE = pytest.mark.parametrize("engine", ["sqlite"])


def log_of(settings: Settings) -> int:
    return Path(f"{connect.path_of(settings)}-wal").stat().st_size


@ONLY_SQLITE
def test_whoever_sees_the_log_too_long_makes_it_begin_anew(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:  # F36, F38
    big = b'"' + b"x" * 100_000 + b'"'
    for _ in range(5):
        a_queued_job(store, args=big)
    length = log_of(settings)
    assert length > 500_000, "no connection of ours checkpoints by itself"
    monkeypatch.setattr(connect, "LOG_LIMIT", 400_000)
    for _ in range(connect.LOG_LOOK):
        a_queued_job(store)  # one of them sees it, and makes a checkpoint
    for _ in range(3):
        a_queued_job(store, args=big)
    assert log_of(settings) <= length + 20_000 * connect.LOG_LOOK, "it began anew, within the length it had"
    assert len(store.jobs()) == 8 + connect.LOG_LOOK


@ONLY_SQLITE
def test_a_reader_that_pins_the_log_holds_nobody_up(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "LOG_LIMIT", 1000)
    monkeypatch.setattr(connect, "LOG_LOOK", 1)
    monkeypatch.setattr(connect, "CHECKPOINT_BUSY_MS", 10)
    monkeypatch.setattr(connect, "CHECKPOINT_AGAIN", 0.0)
    reader = sqlite3.connect(connect.path_of(settings))
    reader.execute("begin")
    reader.execute("select count(*) from holdfast_jobs").fetchall()
    ids = [a_queued_job(store) for _ in range(3)]
    reader.close()
    ids.append(a_queued_job(store))
    length = log_of(settings)
    ids += [a_queued_job(store) for _ in range(5)]
    assert log_of(settings) == length, "every commit begins it anew"
    assert [job.id for job in store.jobs()] == ids[::-1]


def test_our_connections_are_durable_by_default(tmp_path: Path) -> None:  # DESIGN 3.9, F39
    connection = connect.Connection(tmp_path / "jobs.db", Settings())
    assert connection.db.execute("pragma synchronous").fetchone() == (2,), "full"
    assert connection.db.execute("pragma wal_autocheckpoint").fetchone() == (0,)
    connection.close()


@ONLY_SQLITE
def test_the_file_is_in_wal_mode_for_everyone(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        assert sql("pragma journal_mode") == [("wal",)]
        assert sql("pragma integrity_check") == [("ok",)]


def test_now_is_stored_as_any_instant_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = Stamp()
    before, now, after = stored(datetime.now(UTC)), stamp(), stored(datetime.now(UTC))
    assert before <= now <= after
    for moment in ("2026-11-16 09:59:59.999999", "2026-11-16 10:00:00.000000", "2026-11-16 10:00:00.000007"):
        instant = datetime.fromisoformat(moment).replace(tzinfo=UTC)
        nanoseconds = int(instant.replace(microsecond=0).timestamp()) * 10**9 + instant.microsecond * 1000 + 999
        monkeypatch.setattr("time.time_ns", lambda ns=nanoseconds: ns)
        assert stamp() == stored(instant) == moment


FORK = """
import os, sys
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(Settings(url=sys.argv[1], schema=sys.argv[2], synchronous="off"))
for _ in range(10):  # each time at another moment of whatever our threads are doing
    store.enqueue(NewJob(task="greet", args=b'"parent"'))
    child = os.fork()
    if not child:
        store.enqueue(NewJob(task="greet", args=b'"child"'))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
store.enqueue(NewJob(task="greet", args=b'"parent again"'))
print(len(store.jobs()))
"""


def test_a_forked_child_uses_no_handle_of_its_parent(store: Store, settings: Settings) -> None:  # F37
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, settings.url, settings.schema],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "21\n"), done.stderr
    assert [job.args for job in store.jobs()] == [b'"parent again"', *[b'"child"', b'"parent"'] * 10]


def test_a_closed_store_leaves_nothing_open(settings: Settings, stores: Callable[..., Store], clock: Clock) -> None:
    store = stores(clock=clock)
    store.migrate()
    assert sum(len(chunk) for chunk in store.enqueue_many([new_job()] * 3)) == 3
    store.close()
    with raw(settings) as sql:
        if settings.url.startswith("sqlite"):
            sql("begin exclusive")
        [(jobs,)] = sql("select count(*) from {jobs}")
    assert jobs == 3
