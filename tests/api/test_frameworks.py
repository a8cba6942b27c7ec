"""Enqueue, and succeed, on what SQLAlchemy and Django call a connection: one commit, or none of both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import connections as django_connections
from django.db import transaction as django_transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from holdfast import BadSettings, Holdfast, JobContext, State
from holdfast.settings import Settings
from tests.running import working
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def database(hf: Holdfast, settings: Settings, engine: str) -> Iterator[sa.Engine]:
    """An engine of the user's own on the jobs' database, with a table `notes`."""
    _ = hf.store
    url = settings.url if engine == "sqlite" else settings.url.replace("postgresql://", "postgresql+psycopg://")
    options = f"-csearch_path={settings.schema}"
    made = sa.create_engine(url, connect_args={} if engine == "sqlite" else {"options": options})
    with made.begin() as connection:
        connection.execute(sa.text("create table notes (text text)"))
    yield made
    made.dispose()


def notes(database: sa.Engine) -> int:
    with database.connect() as connection:
        return int(connection.execute(sa.text("select count(*) from notes")).scalar_one())


def write(connection: Any) -> None:
    connection.execute(sa.text("insert into notes values ('written')"))


class TwiceRemoved(Session):
    """A session class of the user's own."""


FORMS: dict[str, Callable[[sa.Engine], Any]] = {
    "Connection": lambda database: database.connect(),
    "Session": Session,
    "a class of one's own": TwiceRemoved,
    "scoped_session": lambda database: scoped_session(sessionmaker(database)),
}


@contextmanager
def opened(form: str, database: sa.Engine) -> Iterator[Any]:
    connection = FORMS[form](database)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("write_first", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_sqlalchemy_commits_or_rolls_back_the_job(
    hf: Holdfast, database: sa.Engine, form: str, write_first: bool
) -> None:
    @hf.task
    def task() -> str:
        return "done"

    for commit in (False, True):
        with opened(form, database) as connection:
            if write_first:
                write(connection)
            job = task.using(conn=connection).enqueue()
            keyed = task.using(conn=connection, key="k").enqueue()
            if not write_first:
                write(connection)
            assert hf.jobs() == []
            if commit:
                connection.commit()
            else:
                connection.rollback()
        assert notes(database) == len(hf.jobs()) / 2 == commit
    assert hf.drain() == 2
    assert [job.refresh().result, keyed.refresh().result] == ["done", "done"]


def test_a_job_alone_is_committed_too(hf: Holdfast, database: sa.Engine) -> None:
    """Nothing was executed through SQLAlchemy, so it has no transaction of its own to commit, unless we say so."""

    @hf.task
    def task() -> None: ...

    with database.connect() as connection:
        task.using(conn=connection).enqueue()
        connection.commit()
    assert len(hf.jobs()) == 1


def test_success_on_a_session_is_one_commit_with_its_writes(hf: Holdfast, database: sa.Engine) -> None:
    @hf.task(max_attempts=2, retry=None)
    def note(ctx: JobContext) -> None:
        with Session(database) as session:
            write(session)
            ctx.succeed({"noted": ctx.attempt}, conn=session)
            if ctx.attempt == 2:
                session.commit()

    job = note.enqueue()
    assert hf.drain() == 1
    assert job.refresh().state is State.SUCCEEDED
    assert job.refresh().record.result == b'{"noted":2}'
    assert notes(database) == 1


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("form", ["AsyncSession", "AsyncConnection"])
def test_an_asynchronous_session_commits_or_rolls_back_the_job(hf: Holdfast, database: sa.Engine, form: str) -> None:
    @hf.task
    async def task() -> str:
        return "done"

    async def both() -> None:
        asynchronous = create_async_engine(database.url)
        try:
            for commit in (False, True):
                async with (
                    AsyncSession(asynchronous) if form == "AsyncSession" else asynchronous.connect() as connection
                ):
                    await task.using(conn=connection).aenqueue()
                    assert await hf.ajobs() == []
                    await (connection.commit() if commit else connection.rollback())
                assert len(await hf.ajobs()) == commit
        finally:
            await asynchronous.dispose()

    asyncio.run(both())
    assert hf.drain() == 1


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_wrong_colour_is_told(hf: Holdfast, database: sa.Engine) -> None:
    @hf.task
    def task() -> None: ...

    async def mistaken() -> None:
        asynchronous = create_async_engine(database.url)
        async with AsyncSession(asynchronous) as session:
            with pytest.raises(BadSettings, match="conn= needs a psycopg connection"):
                task.using(conn=session).enqueue()
        await asynchronous.dispose()
        with Session(database) as session, pytest.raises(BadSettings, match=r"psycopg\.Connection: use enqueue"):
            await task.using(conn=session).aenqueue()

    asyncio.run(mistaken())


def test_what_is_no_connection_is_told(hf: Holdfast, database: sa.Engine) -> None:
    @hf.task
    def task() -> None: ...

    for wrong in (database, sessionmaker(database), django_connections, django_transaction):
        with pytest.raises(BadSettings, match=r"conn= needs a (psycopg|sqlite3) connection to"):
            task.using(conn=wrong).enqueue()
    assert hf.jobs() == []


# -- Django ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def django_connection(hf: Holdfast, settings: Settings, engine: str) -> Iterator[Any]:
    """Django's connection to the jobs' database, as `django.db.connections[…]` gives it."""
    if not django_settings.configured:
        django_settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    from django.db import connections

    _ = hf.store
    if engine == "sqlite":
        place: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": settings.url[len("sqlite:///") :]}
    else:
        given = conninfo_to_dict(settings.url)
        place = {
            "ENGINE": "django.db.backends.postgresql", "HOST": given["host"], "PORT": given.get("port", ""),
            "USER": given["user"], "PASSWORD": given.get("password", ""), "NAME": given["dbname"],
            "OPTIONS": {"options": f"-csearch_path={settings.schema}"},
        }  # fmt: skip
    connections.databases["jobs"] = connections.configure_settings({"default": {}, "jobs": place})["jobs"]
    connection = connections["jobs"]
    with connection.cursor() as cursor:
        cursor.execute("create table notes (text text)")
    yield connection
    connection.close()
    del connections["jobs"]
    del connections.databases["jobs"]


def test_djangos_atomic_commits_or_rolls_back_the_job(hf: Holdfast, django_connection: Any) -> None:
    from django.db import transaction

    @hf.task
    def task() -> str:
        return "done"

    def order(*, fail: bool) -> None:
        with transaction.atomic(using="jobs"):
            with django_connection.cursor() as cursor:
                cursor.execute("insert into notes values ('written')")
            task.using(conn=django_connection).enqueue()
            assert hf.jobs() == []
            if fail:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        order(fail=True)
    assert hf.jobs() == []
    order(fail=False)
    assert len(hf.jobs()) == 1
    assert hf.drain() == 1


@pytest.mark.parametrize("engine", ["sqlite"])
def test_conn_forgotten_within_atomic_is_said_at_once(hf: Holdfast, django_connection: Any) -> None:
    """Django lets other threads use its connections, and has one for each thread: this one is the caller's."""

    @hf.task
    def task() -> None: ...

    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        with django_transaction.atomic(using=django_connection.alias), django_connection.cursor() as cursor:
            cursor.execute("insert into notes values ('written')")
            with pytest.raises(BadSettings, match="HF1112 you have a transaction open"):
                task.enqueue()
            task.using(conn=django_connection).enqueue()
    finally:
        stop.set()
        other.join()
    assert len(hf.jobs()) == 1


def test_success_within_atomic_is_one_commit_with_its_writes(hf: Holdfast, django_connection: Any) -> None:
    from django.db import connections, transaction

    @hf.task(max_attempts=2, retry=None)
    def note(ctx: JobContext) -> None:
        own = connections["jobs"]  # of this thread
        with transaction.atomic(using="jobs"):
            with own.cursor() as cursor:
                cursor.execute("insert into notes values ('written')")
            ctx.succeed("noted", conn=own)
            if ctx.attempt == 1:
                own.close()
                raise ZeroDivisionError
        own.close()

    job = note.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    with django_connection.cursor() as cursor:
        cursor.execute("select count(*) from notes")
        assert cursor.fetchone() == (1,)


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("cared_for", [True, False])
def test_a_connection_that_the_server_ended_costs_one_attempt(
    make_app: Callable[..., Holdfast], settings: Settings, django_connection: Any, cared_for: bool, colour: str
) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connections

    from holdfast.django import close_connections

    django_connection.settings_dict["CONN_MAX_AGE"] = None
    app = make_app(threads=1)  # so that all attempts use one connection
    if cared_for:
        close_connections(app)

    def query() -> int:
        with connections["jobs"].cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            return int(cursor.fetchone()[0])

    def end_it() -> None:
        with psycopg.connect(settings.url, autocommit=True) as admin:
            admin.execute("select pg_terminate_backend(%s)", [query()])

    def close() -> None:
        connections["jobs"].close()

    def task(function: Callable[[], Any]) -> Any:
        async def coroutine() -> Any:
            return await sync_to_async(function)()

        handler = function if colour == "sync" else coroutine
        return app.task(name=function.__name__, max_attempts=3, retry=0)(handler)

    endings, queries, closing = task(end_it), task(query), task(close)
    with working(app):
        endings.enqueue().wait(PATIENCE)
        job = queries.enqueue()
        wait_until(lambda: job.refresh().finished)
        closing.enqueue().wait(PATIENCE)
    assert job.refresh().state is (State.SUCCEEDED if cared_for else State.FAILED)
    assert len(job.attempts()) == (1 if cared_for else 3)
