"""The kit in a database of the test's: by its URL, or on an open connection whose transaction the test rolls back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.orm import Session

from holdfast import BadSettings, Holdfast, JobContext, testing
from holdfast.settings import Settings
from tests.servers import shared_postgres

hf = Holdfast("postgresql://nobody@nowhere.invalid/jobs")  # never reached: the kit stands in front of it
seen: list[Any] = []


@hf.task(retry=[5])
def count(table: str) -> int:
    seen.append(table)
    return len(seen)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


@pytest.fixture
def url(settings: Settings) -> str:
    return settings.url


def tables(url: str) -> set[str]:
    """What is in the database, our own tables and a user's."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
            return {name for (name,) in db.execute("select name from sqlite_master where name not like 'sqlite_%'")}
    with psycopg.connect(url) as connection:
        found = connection.execute("select nspname from pg_namespace where nspname like 'holdfast_test_%'")
        return {name for (name,) in found}


# -- by its URL --------------------------------------------------------------------------------------------------------


def test_the_kit_makes_tables_of_its_own_in_the_database_of_a_url_and_drops_them(url: str) -> None:
    before = tables(url)
    with testing.store(hf, url=url) as kit, testing.store(hf, url=url) as inner:
        job = count.enqueue("here")
        inner.run_due(expect="succeeded")
        assert job.refresh().state == "succeeded"
        assert len(inner.jobs()) == 1
    assert tables(url) == before
    del kit


def test_in_a_database_conn_is_any_connection_to_it(url: str, engine: str) -> None:
    made = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with testing.store(hf, url=url) as kit:
        with made.connect() as connection:
            count.using(conn=connection).enqueue("rolled back")
            connection.rollback()
            count.using(conn=connection).enqueue("committed")
            connection.commit()
        kit.advance("1m")
        kit.run_due(expect="succeeded")
        assert seen == ["committed"]
    made.dispose()


def test_a_url_and_a_schema_or_a_connection_are_too_much(url: str) -> None:
    with pytest.raises(BadSettings, match="leave out"), testing.store(hf, url=url, schema="mine"):
        pass
    with pytest.raises(BadSettings, match="not both"), testing.store(hf, url=url, conn=1):
        pass
    assert hf.settings.url.startswith("postgresql://nobody")


def test_conn_in_a_store_elsewhere_says_how_to_give_the_kit_that_connection(url: str, engine: str) -> None:
    opened = sqlite3.connect(":memory:") if engine == "sqlite" else psycopg.connect(url)
    with closing(opened), testing.store(hf), pytest.raises(BadSettings, match=r"testing.store\(hf, conn=…\)"):
        count.using(conn=opened).enqueue("nowhere")


# -- on a driver's connection ------------------------------------------------------------------------------------------


@pytest.fixture(params=["transaction", "autocommit"])
def opened(request: pytest.FixtureRequest, url: str, engine: str) -> Iterator[Any]:
    """A connection of the test's own."""
    connection: Any
    if engine == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        if request.param == "autocommit":
            connection.isolation_level = None
        connection.row_factory = lambda cursor, row: {"a": "row"}
        connection.text_factory = bytes
    else:
        connection = psycopg.connect(url, autocommit=request.param == "autocommit", row_factory=psycopg.rows.dict_row)
    with closing(connection):
        yield connection


def test_everything_is_done_on_the_connection_and_left_as_it_was(opened: Any, url: str) -> None:
    factories = opened.row_factory, getattr(opened, "text_factory", None)
    with testing.store(hf, conn=opened) as kit:
        outer = count.enqueue("a")
        [one, two] = hf.enqueue_many([count.bind("b"), count.using(key="k").bind("c")])
        assert count.using(key="k", conn=opened).enqueue("again").id == two.id
        with kit.failing(count, ConnectionError("down"), times=1):
            assert [ran.outcome for ran in kit.run_due()] == ["rescheduled", "succeeded", "succeeded"]
        assert kit.run_due() == []
        kit.advance("5s")
        kit.run_due(expect="succeeded")
        assert [job.refresh().record.attempt for job in (outer, one, two)] == [2, 1, 1]
        assert kit.assert_enqueued(count, table="c").id == two.id
        kit.crash(count.enqueue("d"))
        kit.advance("1m")
        assert [ran.attempt for ran in kit.run_due(expect="succeeded")] == [2]
    assert (opened.row_factory, getattr(opened, "text_factory", None)) == factories
    opened.rollback()
    assert not [name for name in tables(url) if name.startswith("holdfast_test")]


@pytest.mark.parametrize("opened", ["transaction"], indirect=True)
def test_a_rollback_of_the_test_takes_its_jobs_and_the_tables_along(opened: Any, url: str) -> None:
    before = tables(url)
    with testing.store(hf, conn=opened):
        count.enqueue("a")
        assert tables(url) == before, "nothing was committed"
        opened.rollback()
    opened.commit()
    assert tables(url) == before


def test_a_handler_writes_and_enqueues_in_a_transaction_on_the_connection(opened: Any, engine: str) -> None:
    app = Holdfast("sqlite:///unused.db")

    @app.task(max_attempts=2, retry=[0])
    def note(ctx: JobContext, text: str) -> None:
        with ctx.transaction() as tx:
            tx.conn.execute("insert into notes values ('" + text + "')")
            after.using(conn=tx.conn).enqueue()
            if ctx.attempt == 1:
                raise ZeroDivisionError

    @app.task
    def after() -> None:
        seen.append("after")

    @app.task
    def by_itself(ctx: JobContext) -> None:
        ctx.succeed({"by": "itself"}, conn=opened)

    opened.execute("create table notes (text text)")
    with testing.store(app, conn=opened) as kit:
        note.enqueue("kept")
        job = by_itself.enqueue()
        kit.run_due(expect="succeeded")
        assert job.refresh().state == "succeeded"
        assert len(kit.jobs(after)) == 1
    assert len(opened.execute("select text from notes").fetchall()) == 1
    opened.execute("drop table notes")
    opened.commit()


def test_another_connection_than_the_kits_is_refused(opened: Any, url: str, engine: str) -> None:
    other = sqlite3.connect(":memory:") if engine == "sqlite" else psycopg.connect(url)
    with closing(other), testing.store(hf, conn=opened), pytest.raises(BadSettings, match="another connection"):
        count.using(conn=other).enqueue("nowhere")
    opened.rollback()


def test_what_is_no_connection_is_refused_in_plain_words() -> None:
    with pytest.raises(BadSettings, match=r"HF1112 .*needs an open connection"), testing.store(hf, conn=object()):
        pass
    assert hf.settings.url.startswith("postgresql://nobody")


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(url: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with made.begin() as connection:
        connection.execute(sa.text("drop table if exists kit_notes"))
        connection.execute(sa.text("create table kit_notes (text text)"))
    yield made
    made.dispose()


def rows(database: sa.Engine) -> int:
    with database.connect() as connection:
        return int(connection.execute(sa.text("select count(*) from kit_notes")).scalar_one())


def test_in_a_session_of_sqlalchemy_that_the_test_rolls_back(database: sa.Engine, url: str) -> None:
    before = tables(url)
    with database.connect() as connection:
        outer = connection.begin()
        session = Session(bind=connection, join_transaction_mode="create_savepoint")
        with testing.store(hf, conn=session) as kit:
            session.execute(sa.text("insert into kit_notes values ('committed')"))
            count.using(conn=session).enqueue("committed")
            session.commit()
            session.execute(sa.text("insert into kit_notes values ('rolled back')"))
            count.using(conn=session).enqueue("rolled back")
            session.rollback()
            kit.run_due(expect="succeeded")
            assert seen == ["committed"]
            assert session.execute(sa.text("select text from kit_notes")).scalars().all() == ["committed"]
        session.close()
        outer.rollback()
    assert rows(database) == 0
    assert tables(url) == before


def test_a_session_that_takes_connections_from_an_engine_is_refused(database: sa.Engine) -> None:
    with (
        Session(database) as session,
        pytest.raises(BadSettings, match="bind it to the connection"),
        testing.store(hf, conn=session),
    ):
        pass


@pytest.mark.parametrize("statement", ["select * from kit_notes", "insert into kit_notes values ('early')"])
def test_a_session_that_sqlite_took_for_a_transaction_is_refused(
    database: sa.Engine, url: str, engine: str, statement: str
) -> None:
    if engine != "sqlite":
        pytest.skip("only Python's driver for SQLite lets a savepoint be the whole transaction")
    with database.connect() as connection, connection.begin() as outer:
        session = Session(bind=connection, join_transaction_mode="create_savepoint")
        session.execute(sa.text(statement))
        with pytest.raises(BadSettings, match=r"HF1112 .*Open the kit before"), testing.store(hf, conn=session):
            pass
        session.close()
        outer.rollback()
    assert rows(database) == 0
    assert tables(url) == {"kit_notes"}


@pytest.mark.parametrize("statement", ["select * from kit_notes", "insert into kit_notes values ('early')"])
def test_a_used_session_is_welcome_where_sqlalchemy_begins_itself(
    database: sa.Engine, url: str, engine: str, statement: str
) -> None:
    if engine == "sqlite":

        @sa.event.listens_for(database, "connect")
        def leave_it_to_sqlalchemy(driver: Any, _: object) -> None:
            driver.isolation_level = None

        @sa.event.listens_for(database, "begin")
        def begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql("BEGIN")

        database.dispose()
    before = tables(url)
    with database.connect() as connection, connection.begin() as outer:
        session = Session(bind=connection, join_transaction_mode="create_savepoint")
        session.execute(sa.text(statement))
        with testing.store(hf, conn=session) as kit:
            count.using(conn=session).enqueue("committed")
            session.commit()
            kit.run_due(expect="succeeded")
        session.close()
        outer.rollback()
    assert rows(database) == 0
    assert tables(url) == before


# -- Django ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alias() -> Iterator[None]:
    """A project with both databases."""
    server = conninfo_to_dict(shared_postgres())
    postgres = {
        "ENGINE": "django.db.backends.postgresql", "NAME": server["dbname"], "USER": server.get("user", ""),
        "HOST": server.get("host", ""), "PORT": str(server.get("port", "")), "PASSWORD": server.get("password", ""),
    }  # fmt: skip
    lite = {"ENGINE": "django.db.backends.sqlite3", "NAME": "file:kit?mode=memory&cache=shared"}
    databases = {"default": lite, "sqlite": lite, "postgres": postgres}
    if not django_settings.configured:
        django_settings.configure(DATABASES=databases, INSTALLED_APPS=[], USE_TZ=True)
        django.setup()
    connections.settings = connections.configure_settings(databases)
    yield
    for connection in connections.all(initialized_only=True):
        connection.close()


def run(case: type[Any], name: str) -> None:
    """A test of Django's, in its own test class."""
    result = case(name).defaultTestResult()
    case.setUpClass()
    try:
        case(name).run(result)
    finally:
        case.tearDownClass()
        case.doClassCleanups()
    assert result.wasSuccessful(), "\n".join(text for _, text in [*result.failures, *result.errors])
    assert result.testsRun == 1


def a_case(kind: type[Any], engine: str) -> type[Any]:
    class Case(kind):  # type: ignore[misc]
        databases = {engine}  # noqa: RUF012
        available_apps = None

        def test_orders(self) -> None:
            connection = connections[engine]
            with connection.cursor() as cursor:
                cursor.execute("create table orders (name text)")
            with testing.store(app, conn=connection) as kit:
                with transaction.atomic(using=engine):
                    order(connection, "shoes")
                    ship.using(conn=connection).enqueue("shoes")
                with suppress(ZeroDivisionError), transaction.atomic(using=engine):
                    order(connection, "socks")
                    ship.using(conn=connection).enqueue("socks")
                    raise ZeroDivisionError
                ship.enqueue("by itself")
                kit.run_due(expect="succeeded")
            with connection.cursor() as cursor:
                cursor.execute("select name from orders order by name")
                assert [name for (name,) in cursor] == ["shipped by itself", "shipped shoes", "shoes"]
                cursor.execute("drop table orders")

    app = Holdfast("postgresql://nobody@nowhere.invalid/jobs")

    def order(connection: Any, name: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute("insert into orders values (%s)", [name])

    @app.task
    def ship(name: str) -> None:
        order(connections[engine], f"shipped {name}")  # the connection of this thread, which is the test's

    return Case


@pytest.mark.usefixtures("alias")
def test_in_djangos_test_case_on_its_connection_in_savepoints(engine: str) -> None:
    run(a_case(TestCase, engine), "test_orders")
    assert left_behind(engine) == []


@pytest.mark.usefixtures("alias")
def test_in_djangos_transaction_test_case_too(engine: str) -> None:
    run(a_case(TransactionTestCase, engine), "test_orders")
    assert left_behind(engine) == []


def left_behind(engine: str) -> list[str]:
    names = connections[engine].introspection.table_names()
    if engine == "sqlite":
        return [name for name in names if name.startswith("holdfast_test") or name == "orders"]
    return [name for name in [*names, *tables(shared_postgres())] if "holdfast_test" in name or name == "orders"]
