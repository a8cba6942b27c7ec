"""Behind a real PgBouncer: what works in each of its modes, and what is said where something doesn't."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import Holdfast, events
from holdfast.doctor import Level
from holdfast.errors import StoreError
from holdfast.model.job import NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.postgres import reading
from holdfast.store.postgres.connect import _direct, connect
from tests.crash.fleet import Fleet, a_fleet, assert_each_success_is_of_its_newest_claim, patiently
from tests.doctor.examined import complaints, only
from tests.ha.pgbouncer import PgBouncer, a_pgbouncer, needs_pgbouncer
from tests.ha.servers import told
from tests.running import working
from tests.servers import drop_schema, host_and_port, new_schema, shared_postgres
from tests.waiting import wait_until

pytestmark = needs_pgbouncer

ROOT = Path(__file__).parents[2]
Pool = Callable[..., PgBouncer]


@pytest.fixture
def pool() -> Iterator[Pool]:
    """Starts a PgBouncer in front of the server that tests share."""
    with ExitStack() as stack:
        yield lambda mode, **settings: stack.enter_context(a_pgbouncer(shared_postgres(), mode, **settings))


@pytest.fixture
def schema() -> Iterator[str]:
    schema = new_schema()
    yield schema
    drop_schema(shared_postgres(), schema)


def migrated(schema: str) -> None:
    with Holdfast(shared_postgres(), schema=schema) as owner:
        owner.migrate()


@pytest.mark.parametrize("ignored", ["", "options, extra_float_digits"])
def test_session_mode_needs_no_settings(pool: Pool, schema: str, ignored: str) -> None:
    """Whether the pooler refuses startup options or drops them, sessions get the settings we rely on."""
    pooler = pool("session", **({"ignore_startup_parameters": ignored} if ignored else {}))
    heard: list[str] = []
    end = events.subscribe(lambda name, fields: heard.append(name))
    with Holdfast(pooler.url, schema=schema) as app:
        app.migrate()

        @app.task
        def double(n: int) -> int:
            return 2 * n

        with working(app):
            wait_until(lambda: "listening" in heard, "the worker listens")
            assert double.enqueue(21).wait(20) == 42
            assert [job.wait(20) for job in app.enqueue_many(double.bind(n) for n in range(50))] == [
                2 * n for n in range(50)
            ]
        with connect(app.settings) as session:
            for name, value in {
                "lock_timeout": "2s", "statement_timeout": "0", "TimeZone": "UTC", "holdfast.notifies": "on",
                "plan_cache_mode": "force_generic_plan",
            }.items():  # fmt: skip
                assert session.execute("select current_setting(%s)", (name,)).fetchone() == (value,)
        assert complaints(app.settings) == []
    end()
    assert "deaf" not in heard
    # The pooler resets a session before another client gets it.
    for _ in range(5):
        assert settings_of_others(pooler) == (None, "0", "on")


def settings_of_others(pooler: PgBouncer) -> tuple[str | None, str, str]:
    """What a client of the pooler finds that is not one of ours."""
    with psycopg.connect(pooler.url) as session:
        row = session.execute(
            "select nullif(current_setting('holdfast.notifies', true), ''), current_setting('lock_timeout'), "
            "current_setting('enable_seqscan')"
        ).fetchone()
        assert row is not None
        return row


def test_a_full_pool_in_session_mode_is_not_taken_for_a_shared_one(pool: Pool, schema: str) -> None:
    """One session is free: a second client waits for another in vain."""
    pooler = pool("session", default_pool_size=2, query_wait_timeout=5)
    with psycopg.connect(pooler.url) as other:
        other.execute("select 1")
        with connect(Settings(url=pooler.url)) as session:
            assert session.execute("show lock_timeout").fetchone() == ("2s",)


def test_a_pooler_that_takes_the_place_of_a_server_is_noticed(pool: Pool) -> None:
    settings = Settings(url=pool("session").url)
    _direct.add((settings.url,))  # as if the server itself had answered there
    with connect(settings) as session:
        assert session.execute("show lock_timeout").fetchone() == ("2s",)


@pytest.mark.parametrize("pooling", [{}, {"server_round_robin": 1}, {"default_pool_size": 1}], ids=str)
def test_transaction_mode_with_defaults_says_what_to_set(pool: Pool, schema: str, pooling: dict[str, int]) -> None:
    """At the first statement, in one sentence; and nothing of ours stays in sessions that others use next."""
    pooler = pool("transaction", **pooling)
    with psycopg.connect(pooler.url, autocommit=True) as other, psycopg.connect(pooler.url) as another:
        # Several server connections, as in a pool that is in use.
        if "default_pool_size" not in pooling:
            another.execute("select 1")
            other.execute("select 1")
            another.rollback()
        migrated(schema)
        for _ in range(3):
            with Holdfast(pooler.url, schema=schema) as app:

                @app.task
                def greet() -> None: ...

                for act in (app.migrate, greet.enqueue, app.drain):
                    with pytest.raises(StoreError) as refused:
                        act()
                    assert refused.value.number == "HF3403"
                    assert "set prepare = false and listen = false" in str(refused.value)
                    assert str(refused.value).count(". ") == 0
        for _ in range(10):
            assert settings_of_others(pooler) == (None, "0", "on")


def test_a_pooler_beside_a_server_in_one_url_is_noticed(pool: Pool, schema: str) -> None:
    migrated(schema)
    pooler = pool("transaction")
    server = conninfo_to_dict(shared_postgres())
    host, port = host_and_port(shared_postgres())
    hosts = f"host={quote(host, safe='')},127.0.0.1&port={port},{pooler.port}"
    url = f"postgresql://{server['user']}:{server.get('password', '')}@/{server['dbname']}?{hosts}"
    with Holdfast(url, schema=schema) as app:

        @app.task
        def greet() -> None: ...

        with pytest.raises(StoreError) as refused:
            greet.enqueue()
        assert refused.value.number == "HF3403"
    assert settings_of_others(pooler) == (None, "0", "on")


@pytest.mark.parametrize("command", [["worker", "tests.crash.app:hf"], ["migrate"], ["jobs", "list"]], ids=str)
def test_commands_say_so_too(pool: Pool, schema: str, command: list[str]) -> None:
    migrated(schema)
    done = holdfast(command, HOLDFAST_URL=pool("transaction").url, HOLDFAST_SCHEMA=schema)
    assert done.returncode != 0
    assert "HF3403" in done.stderr
    assert "HOLDFAST_PREPARE=0 HOLDFAST_LISTEN=0" in done.stderr
    assert "prepared statement" not in done.stderr
    assert "Traceback" not in done.stderr


def holdfast(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *command], cwd=ROOT, env={**os.environ, **environment}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"prepare": False, "listen": False}], ids=str)
def test_statement_mode_is_refused(pool: Pool, schema: str, settings: dict[str, Any]) -> None:
    migrated(schema)
    with Holdfast(pool("statement").url, schema=schema, **settings) as app:

        @app.task
        def greet() -> None: ...

        for act in (app.migrate, greet.enqueue, app.drain):
            with pytest.raises(StoreError) as refused:
                act()
            assert refused.value.number == "HF3404"


def test_listening_in_vain_is_logged(pool: Pool, schema: str, caplog: pytest.LogCaptureFixture) -> None:
    """A quiet pool hands a client the session it had before: what it tells itself, it hears."""
    migrated(schema)
    pooler = pool("transaction")
    with Holdfast(pooler.url, schema=schema, prepare=False, poll_base=0.1, poll_max=0.2) as app:

        @app.task
        def greet() -> str:
            return "hello"

        assert (finding := only(app.settings)).code == "HF4305"
        assert finding.level is Level.WARNING
        with working(app):
            wait_until(lambda: "not listening for notifications: HF3402" in caplog.text, "the worker says so")
            caplog.clear()
            assert greet.enqueue().wait(20) == "hello"
            wait_until(lambda: "not listening for notifications: HF3402" in caplog.text, "who waits says so, too")
            assert "listen = false" in caplog.text
    with psycopg.connect(pooler.url) as other:
        assert other.execute("select * from pg_listening_channels()").fetchall() == [], "others hear nothing of ours"
    assert complaints(Settings(url=pooler.url, schema=schema, prepare=False, listen=False)) == []


PAGE = (ROOT / "docs" / "operating.md").read_text()
ROWS = re.findall(r"^\| (directly|`pool_mode = \w+`) \| (.*?) \| (.*?) \| (.*?) ?\|$", PAGE, re.MULTILINE)


def test_the_page_on_operating_has_a_row_for_each_mode() -> None:
    assert {row[0] for row in ROWS} == {
        "directly", *(f"`pool_mode = {mode}`" for mode in ("session", "transaction", "statement"))
    }  # fmt: skip


@pytest.mark.parametrize(("way", "given", "jobs", "found"), ROWS)
def test_the_page_on_operating_is_true(pool: Pool, schema: str, way: str, given: str, jobs: str, found: str) -> None:
    url = shared_postgres() if way == "directly" else pool(re.findall(r"= (\w+)", way)[0]).url
    settings = {name: value == "true" for name, value in re.findall(r"`(\w+) = (\w+)`", given)}
    assert given in ("defaults", "any") or settings
    migrated(schema)
    with Holdfast(url, schema=schema, **settings) as app:

        @app.task
        def double(n: int) -> int:
            return 2 * n

        if jobs.startswith("refused"):
            with pytest.raises(StoreError) as refused:
                double.enqueue(1)
            assert f"refused: `{refused.value.number}`" == jobs
            return
        assert jobs == "run"
        with emitted() as heard, working(app):
            wait_until(lambda: double.enqueue(21).wait(20) == 42, "a job is done")
            if found == "at once":
                wait_until(lambda: "listening" in heard, "it listens")
            elif not app.settings.listen:
                assert found == "by polling"
                assert not {"listening", "deaf"} & heard.keys()
            else:
                [number] = re.findall(r"^by polling; a warning \(`(.*)`\) says so$", found)
                wait_until(lambda: number in heard.get("deaf", ""), "the warning")
                assert "listening" not in heard


@contextmanager
def emitted() -> Iterator[dict[str, str]]:
    """The events so far, each with its error."""
    heard: dict[str, str] = {}
    end = events.subscribe(lambda name, fields: heard.update({name: str(fields.get("error", ""))}))
    try:
        yield heard
    finally:
        end()


def test_jobs_inserted_by_others_through_a_shared_session_wake_workers(pool: Pool, schema: str) -> None:
    """The pooler's only session was used by an application of ours right before."""
    pooler = pool("transaction", default_pool_size=1)
    with Holdfast(shared_postgres(), schema=schema, poll_base=300, poll_max=300) as app, emitted() as heard:
        app.migrate()

        @app.task
        def greet() -> None: ...

        with working(app):
            wait_until(lambda: "listening" in heard, "the worker listens")
            with Holdfast(pooler.url, schema=schema) as wrong:
                wrong.task(name="greet")(lambda: None)
                with pytest.raises(StoreError):
                    wrong.find_task("greet").enqueue()
            with Holdfast(pooler.url, schema=schema, prepare=False, listen=False) as right:
                right.task(name="greet")(lambda: None)
                right.find_task("greet").enqueue()
            for number in range(2, 5):
                with psycopg.connect(pooler.url) as other:
                    other.execute(f"insert into {schema}.jobs (queue, task, args) values ('default', 'greet', '{{}}')")
                wait_until(partial(succeeded, app, number), timeout=5)


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_jobs_survive_kills_of_workers_and_of_the_pooler(pool: Pool, schema: str, tmp_path: Path, mode: str) -> None:
    """Nothing is lost and no payment made twice, while jobs come all the time."""
    pooler = pool(mode, default_pool_size=200 if mode == "session" else 20)
    settings: dict[str, Any] = {} if mode == "session" else {"prepare": False, "listen": False}
    direct = Settings(url=shared_postgres(), schema=schema)
    with a_fleet(direct, tmp_path) as fleet, ThreadPoolExecutor(1) as threads:
        fleet.door = pooler.url
        fleet.sql("create table if not exists payments (job bigint, fence text)")
        fleet.sql("truncate payments")
        stop = threading.Event()
        producing = threads.submit(produce, replace(direct, url=pooler.url, **settings), stop)
        workers = fleet.start_many(3, **settings)
        try:
            for fault in (0, 1, None, 2, None):
                more = fleet.states()[State.SUCCEEDED] + 50
                wait_until(partial(done, fleet, more), "jobs are done", timeout=60)
                if fault is None:
                    pooler.kill()
                    pooler.start()
                else:
                    fleet.kill(workers[fault])
                    workers[fault] = fleet.start(**settings)
        finally:
            stop.set()
        paid, quick = producing.result(60)
        fleet.await_states(succeeded=len(paid) + len(quick))
        assert {job.id for job in fleet.jobs()} == paid | quick, "each that was acknowledged is there, and no other"
        assert Counter(str(id) for (id,) in fleet.sql("select job from payments")) == Counter(paid)
        fences = {str(id): fence for id, fence in fleet.sql("select job, fence from payments")}
        assert {job.id: job.fence for job in fleet.jobs(paid)} == fences, "paid under the claim that succeeded"
        assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs(quick))
        told(f"PgBouncer, {mode} mode, 3 kills of workers and 2 of it", jobs=len(paid) + len(quick), lost=0, doubled=0)
        fleet.stop(*workers)


def test_an_adopted_table_is_worked_through_a_pooler(pool: Pool, schema: str) -> None:
    """All sides share a few sessions: who adopts it, who works it, and other programs."""
    pooler = pool("transaction", default_pool_size=4)
    theirs = f"{schema}_app"
    states = {"queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed"}
    columns = {"worker": "worker_id", "heartbeat_at": "beat", "results": {"score": "score"}, "lease": 2.0}
    migrated(schema)
    with (
        Holdfast(pooler.url, schema=schema, prepare=False, listen=False, lease=2.0, heartbeat=0.2, poll_max=0.5) as app,
        psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as other,
    ):
        other.execute(f"create schema {theirs}".encode())
        other.execute(
            f"create table {theirs}.audits (id bigint generated always as identity primary key, url text, "
            "status text not null default 'pending', worker_id text, beat timestamptz, score integer)".encode()
        )
        audits = app.adopt(f"{theirs}.audits", **cast(Any, {"states": states, **columns}))
        go = threading.Event()

        @audits.task
        def analyse(row: dict[str, Any]) -> dict[str, int]:
            assert row["url"] != "slow" or go.wait(30)
            return {"score": len(row["url"])}

        other.execute(f"insert into {theirs}.audits (url) select 'before' from generate_series(1, 300)".encode())
        audits.install()

        def rows(what: str) -> list[Any]:
            return other.execute(f"select {what}".replace("{t}", f"{theirs}.audits").encode()).fetchall()

        with working(app):
            other.execute(f"insert into {theirs}.audits (url) values ('slow'), ('after')".encode())
            wait_until(lambda: rows("count(*) from {t} where status = 'completed'") == [(301,)], timeout=60)
            [(first,)] = rows("beat from {t} where status = 'processing'")
            wait_until(lambda: rows("beat from {t} where status = 'processing'") > [(first,)], "its heartbeat")
            go.set()
            wait_until(lambda: rows("distinct status from {t}") == [("completed",)])
        assert rows("sum(score), count(worker_id) from {t}") == [(300 * 6 + 4 + 5, 0)]
        assert app.store.adopted.check(audits.mapping) == []
        assert app.store.adopted.undo("audits") == 0
        assert settings_of_others(pooler) == (None, "0", "on")
    drop_schema(shared_postgres(), theirs)


def succeeded(app: Holdfast, count: int) -> bool:
    return len(app.jobs(state="succeeded")) == count


def done(fleet: Fleet, count: int) -> bool:
    return fleet.states()[State.SUCCEEDED] >= count


def produce(settings: Settings, stop: threading.Event) -> tuple[set[str], set[str]]:
    """Jobs with keys, until told to stop: one whose outcome is unknown is enqueued again. The ids that were told."""
    made: dict[str, set[str]] = {"pay": set(), "aquick": set()}
    with closing(open_store(settings)) as store:
        number = 0
        while not stop.is_set():
            number += 1
            for task, ids in made.items():
                args = json.dumps({"number": number}).encode()
                job = NewJob(task=task, args=args, key=str(number), max_attempts=20, reuse=3600.0)
                ids.add(patiently(partial(store.enqueue, job)).id)
            stop.wait(0.01)
    return made["pay"], made["aquick"]


def test_who_only_looks_is_limited_behind_it_and_leaves_no_limits(
    pool: Pool, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PATIENCE", 0.2)
    with closing(open_store(Settings(url=shared_postgres(), schema=schema))) as store:
        store.schema.migrate()
    url = pool("transaction").url
    settings = Settings(url=url, schema=schema, prepare=False, listen=False)
    with closing(open_store(settings, reading=True)) as reader:
        database = cast(reading.ReadingDatabase, reader.db)
        with pytest.raises(StoreError) as told, database.use() as connection:
            connection.execute("select pg_sleep(30)")
        assert told.value.number == "HF3008"
        delete = database.statements.with_tables("delete from @jobs")
        with pytest.raises(StoreError, match="read-only"), database.use() as connection:
            connection.execute(delete.encode())
        assert reader.reads.jobs(limit=5) == []
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        assert connection.execute("show statement_timeout").fetchone() == ("0",)
