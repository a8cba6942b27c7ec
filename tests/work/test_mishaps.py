"""What went wrong once, and must not again: found by review and by a new user."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from holdfast import BadSettings, Holdfast, HoldfastError, JobContext, State, StoreError, StoreUnavailable
from holdfast.model.job import JobRecord, Look
from holdfast.model.lifecycle import FINISHED
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.sqlite import connect as sqlite_connect
from holdfast.worker import outbox
from tests.factories import a_watchdog, new_job, wants
from tests.running import troubled, working
from tests.waiting import wait_until

sqlite_only = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
postgres_only = pytest.mark.parametrize("engine", ["postgres"], indirect=True)


@sqlite_only
@pytest.mark.parametrize("in_use", [False, True])
def test_a_forked_child_keeps_its_jobs_or_is_told_why_not(hf: Holdfast, in_use: bool) -> None:
    """SQLite's locks live in the process's memory: a child that believed the inherited ones lost its writes."""

    @hf.task
    def task() -> None: ...

    task.enqueue()
    reading, writing = os.pipe()
    holding = hf.store.db.transaction() if in_use else None
    if holding is not None:
        holding.__enter__()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, b"kept" if task.enqueue().id == "2" else b"odd")
        except StoreError as refused:
            os.write(writing, b"refused" if "forked" in str(refused) else b"odd")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    if holding is not None:
        holding.__exit__(None, None, None)
    answer = os.read(reading, 100)
    os.close(reading)
    os.close(writing)
    hf.close()
    assert answer == (b"refused" if in_use else b"kept")
    assert sum(row["jobs"] for row in hf.store.reads.counts()) == (1 if in_use else 2)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_result_that_can_t_even_be_looked_at_fails_its_job_and_frees_the_slot(
    make_app: Callable[..., Holdfast], kind: str
) -> None:
    app = make_app(concurrency=1, threads=1)

    def deep() -> Any:
        value: Any = None
        for _ in range(600):
            value = [value, None]
        return value

    async def adeep() -> Any:
        return deep()

    @app.task
    def after() -> int:
        return 1

    bad = app.task(name="deep")(deep if kind == "sync" else adeep).enqueue()
    fine = after.enqueue()
    assert app.drain() == 2
    assert bad.refresh().state is State.FAILED
    assert fine.refresh().result == 1


def test_a_handler_that_meets_an_absent_database_is_not_charged(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    @hf.task(max_attempts=1)
    def asks(ctx: JobContext) -> str:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise StoreUnavailable("away")
        return "done"

    monkeypatch.setattr("holdfast.runners.execution.OUTAGE_DELAY", 0.0)
    job = asks.enqueue()
    hf.drain()
    assert tries == [1, 1]
    assert job.refresh().result == "done"
    assert [attempt.outcome for attempt in job.attempts()] == ["released"]


def test_a_checkpoint_waits_out_an_outage(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.tasks.lease_writes.OUTAGE_WAIT", 0.01)
    save, failures = hf.store.attempts.checkpoint, [StoreUnavailable("away"), StoreUnavailable("still away")]

    def checkpoint(*args: Any) -> tuple[bool, bool]:
        if failures:
            raise failures.pop()
        return save(*args)

    monkeypatch.setattr(hf.store.attempts, "checkpoint", checkpoint)

    @hf.task(max_attempts=1)
    def saves(ctx: JobContext) -> None:
        ctx.checkpoint({"at": 3})

    job = saves.enqueue()
    assert hf.drain() == 1
    assert job.refresh().state is State.SUCCEEDED
    assert job.refresh().record.checkpoint == b'{"at":3}'


def test_who_waits_for_a_job_waits_out_an_outage(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @hf.task
    def task() -> int:
        return 7

    job = task.enqueue()
    hf.drain()
    get, failures = hf.store.reads.get, [StoreUnavailable("away")] * 3

    def troubled_get(id: str) -> JobRecord:
        if failures:
            raise failures.pop()
        return get(id)

    monkeypatch.setattr(hf.store.reads, "get", troubled_get)
    assert job.wait(10) == 7
    assert failures == []


def test_an_error_after_a_committed_success_fails_nothing_and_says_so_to_nobody(hf: Holdfast, heard: Any) -> None:
    @hf.task(max_attempts=1)
    def late(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.set_result(3)
        raise ValueError("after")

    job = late.enqueue()
    hf.drain()
    assert job.refresh().result == 3
    assert heard.of("failed") == []


def test_a_transaction_ended_inside_its_block_is_refused(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def impatient(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.conn.commit()

    job = impatient.enqueue()
    hf.drain()
    assert job.refresh().state is State.FAILED


@sqlite_only
def test_what_a_handler_sets_on_its_connection_ends_with_it(hf: Holdfast) -> None:
    @hf.task
    def odd(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.conn.row_factory = sqlite3.Row
            tx.conn.text_factory = bytes

    @hf.task
    def even() -> str:
        return "fine"

    odd.enqueue()
    hf.drain()
    job = even.enqueue()
    assert job.id == "2"
    assert hf.drain() == 1
    assert job.refresh().result == "fine"


@sqlite_only
def test_enqueuing_elsewhere_beside_one_s_own_open_transaction_is_nobody_s_trouble(
    hf: Holdfast, tmp_path: Path
) -> None:
    other = Holdfast(f"sqlite:///{tmp_path}/other.db")
    other.migrate()
    told = other.task(name="told")(lambda: None)

    @hf.task(max_attempts=1)
    def tell(ctx: JobContext) -> None:
        with ctx.transaction():
            told.enqueue()

    job = tell.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    assert len(other.jobs()) == 1
    other.close()


@sqlite_only
@pytest.mark.parametrize("many", [True, False])
def test_enqueuing_beside_one_s_own_open_transaction_is_refused_at_once(hf: Holdfast, many: bool) -> None:
    said: list[str] = []

    @hf.task(max_attempts=1)
    def careless(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            try:
                if many:
                    hf.enqueue_many([careless.bind()])
                else:
                    careless.enqueue()
            except BadSettings as refused:
                said.append(str(refused))
            careless.using(conn=tx.conn, delay=60).enqueue()

    careless.enqueue()
    assert hf.drain() == 1
    assert "using(conn=tx.conn)" in said[0]
    assert {job.state for job in hf.jobs()} == {State.SUCCEEDED, State.QUEUED}


@sqlite_only
def test_one_s_own_open_transaction_is_known_by_any_name_of_its_file(hf: Holdfast, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite_connect.path_of(hf.settings))
    refused: list[BadSettings] = []

    @hf.task(max_attempts=1)
    def careless(ctx: JobContext) -> None:
        with ctx.transaction(), Holdfast(f"sqlite:///{link}") as other:
            try:
                other.task(name="told")(lambda: None).enqueue()
            except BadSettings as error:
                refused.append(error)

    careless.enqueue()
    assert hf.drain() == 1
    assert [error.number for error in refused] == ["HF1112"]


@sqlite_only
def test_a_checkpoint_of_the_log_that_can_t_be_made_fails_no_commit_and_is_not_tried_each_time(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connect, "LOG_LIMIT", 0)
    store = hf.store
    reader = sqlite3.connect(store.db.path)  # type: ignore[attr-defined]
    reader.execute("begin")
    reader.execute("select count(*) from holdfast_jobs").fetchall()
    store.enqueue(new_job())  # waits for the reader once
    began = time.monotonic()
    with closing(open_store(hf.settings)) as other:  # nor by each connection
        for _ in range(5):
            store.enqueue(new_job())
            other.enqueue(new_job())
    assert time.monotonic() - began < sqlite_connect.CHECKPOINT_BUSY
    reader.close()
    assert len(store.reads.jobs()) == 11


@postgres_only
def test_one_row_locked_by_someone_stops_nobody_else(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "LOCKED", 0.5)
    started, go_on = threading.Event(), threading.Event()

    @hf.task
    def held() -> None:
        started.set()
        go_on.wait(30)

    @hf.task
    async def other() -> None: ...

    locked = held.enqueue()
    with working(hf), psycopg.connect(hf.settings.url) as someone:
        assert started.wait(20)
        table = f'"{hf.settings.schema}".jobs'
        someone.execute(f"select 1 from {table} where id = {locked.id} for update".encode())
        go_on.set()
        jobs = hf.enqueue_many(other.bind() for _ in range(50))
        wait_until(lambda: all(job.refresh().state in FINISHED for job in jobs), timeout=30)
        assert locked.refresh().state is State.RUNNING
        someone.rollback()
        wait_until(lambda: locked.refresh().state is State.SUCCEEDED, timeout=60)
    assert [attempt.outcome for attempt in locked.attempts()] == []


@postgres_only
def test_a_caller_s_own_kind_of_cursor_does_not_matter(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    with psycopg.connect(hf.settings.url, cursor_factory=psycopg.ClientCursor) as connection:
        job = task.using(conn=connection).enqueue()
    assert job.refresh().state is State.QUEUED


def test_a_drain_is_not_over_because_one_look_failed(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @hf.task
    def task() -> None: ...

    task.enqueue()
    monkeypatch.setattr("holdfast.worker.exchange.error_delay", lambda attempt: 0.01)
    failures = [StoreUnavailable("away")]

    def before(finished: Sequence[Outcome]) -> None:
        if failures:
            wait_until(lambda: not worker.watchdog.owes_look)
            raise failures.pop()

    monkeypatch.setattr(hf.store, "trips", troubled(hf.store, before))
    worker = hf.worker()
    assert worker.drain() == 1


def test_a_success_that_came_at_the_end_of_the_grace_is_not_given_back(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(grace=0.0)

    @app.task
    def task() -> int:
        return 5

    job = task.enqueue()
    worker = app.worker()
    worker._begin()
    worker.desk.turn()
    wait_until(lambda: bool(worker.desk.ended))  # it has ended, and nobody has looked yet
    worker.stop()
    worker._shutdown.finish()
    worker._end()
    assert job.refresh().result == 5
    assert job.attempts() == []


def test_odd_calls_are_answered_in_words(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    job = task.enqueue()
    assert hf.job(int(job.id)).id == job.id  # type: ignore[arg-type]
    with pytest.raises(HoldfastError, match=r"task\.bind"):
        hf.enqueue_many([task])  # type: ignore[arg-type]
    with pytest.raises(BadSettings, match="options by name"):
        hf.task("high")  # type: ignore[call-overload]
    with pytest.raises(BadSettings, match="names no file"):
        Holdfast("sqlite:jobs.db").store  # noqa: B018 - opening it is what fails


def test_a_look_that_was_held_up_rescues_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that stood still for longer than a lease kept everyone from renewing, not only the dead."""
    now, took, rescues = [1000.0], [0.0], [0]

    class Stalling:
        shown_url = "a script"
        has_several_hosts = False

        @property
        def db(self) -> Stalling:
            return self

        @property
        def rescues(self) -> Stalling:
            return self

        def look(self, *args: Any, **options: Any) -> Look:
            now[0] += took[0]
            return Look(next_lease_end=-1.0, next_due=None, expired_leases=True, expired_jobs=False)

        def rescue(self, **options: Any) -> list[Any]:
            rescues[0] += 1
            return []

    for module in ("watchdog", "rescuer"):
        monkeypatch.setattr(f"holdfast.worker.{module}.now", lambda: now[0])
    watchdog = a_watchdog(cast(Store, Stalling()), Settings(lease=6.0))
    now[0] += 7.0  # it has been there for more than a lease: it is trusted
    took[0] = 7.5
    watchdog._look()
    assert rescues == [0]
    now[0], took[0] = now[0] + 5.0, 0.0
    watchdog._look()
    assert rescues == [0]
    now[0] += 2.0
    watchdog._look()
    assert rescues == [1]


@postgres_only
def test_a_holder_frozen_in_its_transaction_can_be_rescued(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(lease=4.0)

    @app.task
    def task() -> None: ...

    job = task.enqueue()
    [held] = app.store.attempts.claim(wants(1, tasks=("task",), worker="frozen")).jobs
    frozen = app.store.db.transaction()
    frozen.__enter__().rows("progress", id=held.id, fence=held.fence, done=1, total=None, note=None, rate=None)
    assert app.store.rescues.rescue(by_expiry=False, dead=["frozen"]) == []  # the row is locked
    wait_until(lambda: app.store.rescues.rescue(by_expiry=False, dead=["frozen"]), timeout=30)
    with pytest.raises(StoreUnavailable):
        frozen.__exit__(None, None, None)  # too late: the server has ended the session
    assert job.refresh().state is State.QUEUED
