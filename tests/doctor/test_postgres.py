"""What can be wrong with a PostgreSQL server: each trouble is made for real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from bench.embedded import EmbeddedPostgres
from holdfast import Holdfast
from holdfast.doctor import Level, fleet
from holdfast.doctor.postgres import CONNECTIONS
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.contract.places import raw
from tests.contract.test_workers import register
from tests.doctor.examined import complaints, only
from tests.factories import new_job
from tests.running import working
from tests.servers import ROLES_PASSWORD, as_role, new_schema, own_postgres
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with own_postgres(max_connections=20, max_prepared_transactions=3, autovacuum="off") as server:
        yield server


@pytest.fixture
def own(server: EmbeddedPostgres, engine: str) -> Settings:
    """A fresh schema on a small server, whose autovacuum is off."""
    settings = Settings(url=server.url, schema=new_schema())
    with closing(open_store(settings)) as store:
        store.schema.migrate()
    return settings


def test_a_server_that_does_not_answer_is_an_error(settings: Settings) -> None:
    finding = only(replace(settings, url="postgresql://postgres@127.0.0.1:1/postgres"))
    assert (finding.code, finding.level) == ("HF4001", Level.ERROR)
    assert "can't reach" in finding.found


def test_a_forgotten_transaction_is_named(healthy: Settings) -> None:
    with closing(psycopg.connect(healthy.url, application_name="forgetful")) as session:
        session.execute("set transaction isolation level repeatable read")
        session.execute("select count(*) from pg_class")
        found = [one for one in complaints(healthy, transaction=0.0) if "forgetful" in one.found]
        [finding] = found
        assert (finding.code, finding.level) == ("HF4301", Level.WARNING)
        assert f"pid {session.info.backend_pid} (forgetful, user postgres) is idle in transaction" in finding.found
        assert f"pg_terminate_backend({session.info.backend_pid})" in finding.fix
        assert complaints(healthy) == [], "for some minutes a transaction may be open"


def test_a_prepared_transaction_is_named(own: Settings) -> None:
    with closing(psycopg.connect(own.url)) as session:
        session.execute("create table half_done (id integer)")
        session.execute("prepare transaction 'half done'")
    try:
        [finding] = [one for one in complaints(own, transaction=0.0) if one.code == "HF4301"]
        assert "prepared transaction 'half done' of postgres" in finding.found
        assert "rollback prepared 'half done'" in finding.fix
    finally:
        with psycopg.connect(own.url, autocommit=True) as session:
            session.execute("rollback prepared 'half done'")


def test_a_replication_slot_nobody_reads_is_named(own: Settings) -> None:
    with psycopg.connect(own.url, autocommit=True) as session:
        session.execute("select pg_create_physical_replication_slot('left_behind', true)")
        try:
            [finding] = [one for one in complaints(own) if one.code == "HF4301"]
        finally:
            session.execute("select pg_drop_replication_slot('left_behind')")
    assert finding.found == "replication slot left_behind is inactive"
    assert "pg_drop_replication_slot('left_behind')" in finding.fix


def test_dead_rows_that_stay_are_counted(healthy: Settings) -> None:
    with closing(open_store(healthy)) as store, raw(healthy) as sql:
        sql("alter table {jobs} set (autovacuum_enabled = false)")
        sql.connection.commit()
        for chunk in store.enqueue_many(new_job(delay=3600.0) for _ in range(300)):
            assert len(chunk) == 300
        sql("update {jobs} set note = 'x'")
        sql("select pg_stat_force_next_flush()")
        sql.connection.commit()
        found = wait_until(
            lambda: [one for one in complaints(healthy, dead_rows=200) if one.code == "HF4302"], "the statistics"
        )
    [finding] = found
    assert "table jobs has 300 dead rows" in finding.found
    assert f'vacuum "{healthy.schema}".jobs' in finding.fix
    [off] = complaints(healthy)
    assert (off.code, off.level) == ("HF4303", Level.ERROR)
    assert "autovacuum is off for table jobs" in off.found


def test_a_server_without_autovacuum_is_an_error(own: Settings) -> None:
    finding = only(own)
    assert (finding.code, finding.level) == ("HF4303", Level.ERROR)
    assert "autovacuum is off on the server" in finding.found


def test_connections_that_run_out_are_told(own: Settings) -> None:
    with ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(closing(psycopg.connect(own.url)))
        [finding] = [one for one in complaints(own) if one.code == "HF4304"]
        assert finding.level is Level.WARNING
        assert "10 of 17 connections of the server are used" in finding.found


def test_more_workers_than_the_server_has_connections_for_are_an_error(own: Settings) -> None:
    with closing(open_store(own)) as store:
        for number in range(17 // CONNECTIONS + 1):
            register(store, f"w{number}")
    [finding] = [one for one in complaints(own) if one.code == "HF4304"]
    assert finding.level is Level.ERROR


def test_the_limit_of_a_user_counts_too(healthy: Settings) -> None:
    with psycopg.connect(healthy.url, autocommit=True) as session:
        session.execute(f"create role narrow login superuser connection limit 8 password '{ROLES_PASSWORD}'".encode())
        try:
            found = complaints(replace(healthy, url=as_role(healthy.url, "narrow")))
        finally:
            session.execute("drop role narrow")
    [finding] = found
    assert "of 8 connections of this user are used" in finding.found


def test_no_worker_opens_more_connections_than_are_reckoned_with(healthy: Settings) -> None:
    with Holdfast(healthy.url, schema=healthy.schema) as app:

        @app.task
        async def greet() -> None: ...

        with working(app), psycopg.connect(healthy.url, autocommit=True) as session:
            for _ in range(20):
                greet.enqueue()
            wait_until(lambda: len(app.jobs(state="succeeded")) == 20)
            [row] = session.execute(
                "select count(*) from pg_stat_activity where application_name like 'holdfast%%' and pid <> all(%s)",
                ([session.info.backend_pid],),
            ).fetchall()
    # One of them is the application's own.
    assert 3 <= row[0] - 1 <= CONNECTIONS


def test_a_clock_that_is_off_is_told(healthy: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "host_clock", lambda: datetime.now(UTC) + timedelta(hours=1))
    finding = only(healthy)
    assert (finding.code, finding.level) == ("HF4205", Level.WARNING)
    assert finding.found == "this host's clock is 60m ahead of the database's"
    monkeypatch.setattr(fleet, "host_clock", lambda: datetime.now(UTC) - timedelta(hours=1))
    assert "60m behind" in only(healthy).found


def test_a_user_without_rights_gets_an_error_in_words(healthy: Settings) -> None:
    with psycopg.connect(healthy.url, autocommit=True) as session:
        session.execute(f"create role nobody_here login password '{ROLES_PASSWORD}'".encode())
        try:
            found = complaints(replace(healthy, url=as_role(healthy.url, "nobody_here")))
        finally:
            session.execute("drop role nobody_here")
    assert [one.code for one in found] == ["HF4301", "HF4001"]
    assert "could not be looked at: " in found[0].found
    assert "pg_read_all_stats" in found[0].fix
    assert "HF3006" in found[1].found
    assert "permission denied for schema" in found[1].found
