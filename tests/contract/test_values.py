"""What is stored comes back as it was: large, deep, odd; and it hurts nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from holdfast.errors import ValueRefused
from holdfast.model.lifecycle import State
from holdfast.model.outcome import MESSAGE_LIMIT, Outcome, describe, returned
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.postgres.connect import connect
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import raw
from tests.factories import a_running_job, claim, ref
from tests.servers import in_database

DEEP = b"[" * 1000 + b"]" * 1000
VALUES = {
    "a megabyte": json.dumps("x" * (1024 * 1024 - 2)).encode(),
    "deep": DEEP,
    "an escaped NUL": b'"a\\u0000b"',
    "other scripts": '"Ω≈ç√ 漢字 🦀"'.encode(),
    "a lone surrogate, escaped": b'"\\ud800"',
    "a huge integer": b"9" * 4000,
    "spaces and order": b'{ "b":1 ,\n"a": 2.50}',
    "null": b"null",
    "quotes": b'"\'; drop table jobs; -- %s %(x)s :now @jobs"',
}


@pytest.mark.parametrize("name", VALUES)
def test_arguments_results_and_checkpoints_come_back_to_the_byte(store: Store, name: str) -> None:
    value = VALUES[name]
    held = a_running_job(store, args=value)
    assert held.args == value
    store.attempts.checkpoint(ref(held), value)
    store.attempts.release(ref(held))
    [held] = claim(store).jobs
    assert held.checkpoint == value
    store.attempts.succeed(ref(held), value)
    job = store.reads.get(str(held.id))
    assert (job.args, job.checkpoint, job.result) == (value, value, value)


def test_large_and_small_results_go_in_one_trip(store: Store) -> None:
    held = [a_running_job(store) for _ in VALUES]
    done = store.exchange(
        [Outcome("succeed", job.id, job.fence, result=value) for job, value in zip(held, VALUES.values(), strict=True)],
        None,
        [job.fence for job in held],
    )
    assert done.lost == []
    assert [store.reads.get(str(job.id)).result for job in held] == list(VALUES.values())


@pytest.mark.parametrize("text", ["NUL \x00 here", "\ud800 alone", "x" * 100_000, "", "\x1b[31mred", "line\nline"])
def test_any_error_message_can_be_kept_once_described(store: Store, text: str) -> None:
    held = a_running_job(store)
    error = describe(ValueError(text), "ValueError\x00")
    store.attempts.fail(ref(held), error)
    job = store.reads.get(str(held.id))
    assert job.state is State.FAILED
    assert job.error_message == error.message
    assert len(error.message) <= MESSAGE_LIMIT
    assert job.error_code == "ValueError\N{SYMBOL FOR NULL}"
    [attempt] = store.reads.attempts(str(held.id))
    assert attempt.traceback == error.traceback


def test_instants_are_kept_to_the_microsecond(store: Store, settings: Settings, engine: str) -> None:
    held = a_running_job(store, delay=0)
    job = store.reads.get(str(held.id))
    assert job.started_at is not None
    if engine == "sqlite":
        with raw(settings) as sql:
            [(stored,)] = sql("select started_at from {jobs}")
        assert stored == "2030-01-01 00:00:00.000000", "text that sorts"


@contextmanager
def database(settings: Settings, encoding: str, **role: str) -> Iterator[Store]:
    """A store in a database of another encoding, with what its sessions are told by default."""
    name = f"other_{settings.schema}"
    with psycopg.connect(settings.url, autocommit=True) as server:
        server.execute(f"create database {name} template template0 encoding '{encoding}' locale 'C'".encode())
        for setting, value in role.items():
            server.execute(f"alter database {name} set {setting} = '{value}'".encode())
    store = open_store(replace(settings, url=in_database(settings.url, name)))
    try:
        store.schema.migrate()
        yield store
    finally:
        store.close()
        with psycopg.connect(settings.url, autocommit=True) as server:
            server.execute(f"drop database {name} with (force)".encode())


SNOWMAN = '"\N{SNOWMAN}"'.encode()


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize(
    ("encoding", "client"), [("SQL_ASCII", "SQL_ASCII"), ("UTF8", "LATIN1"), ("UTF8", "SQL_ASCII")]
)
def test_text_comes_back_whatever_sessions_are_told_of_encodings(
    settings: Settings, encoding: str, client: str
) -> None:
    with database(settings, encoding, client_encoding=client) as store:
        held = a_running_job(store, args=SNOWMAN, queue="\N{SNOWMAN}")
        assert (held.task, held.queue, held.args) == ("greet", "\N{SNOWMAN}", SNOWMAN)
        store.attempts.succeed(ref(held), SNOWMAN)
        job = store.reads.get(str(held.id))
        assert (job.state, job.result) == (State.SUCCEEDED, SNOWMAN)


@pytest.mark.parametrize("engine", ["postgres"])
def test_text_that_a_database_does_not_know_is_refused_and_hurts_nobody_else(settings: Settings) -> None:
    with database(settings, "LATIN1") as store:
        with pytest.raises(ValueRefused):
            a_running_job(store, args=SNOWMAN)
        held = a_running_job(store)
        with pytest.raises(ValueRefused):
            store.exchange([returned(held, SNOWMAN)], None)
        assert store.reads.get(str(held.id)).state is State.RUNNING
        assert store.exchange([returned(held, b"1")], None).lost == []


@pytest.mark.parametrize("engine", ["postgres"])
def test_transactions_read_what_is_committed_whatever_sessions_are_told(settings: Settings) -> None:
    with (
        database(settings, "UTF8", default_transaction_isolation="serializable") as store,
        store.db.transaction() as tx,
    ):
        connection: Any = tx
        [row] = connection._connection.execute("show transaction_isolation").fetchall()
        assert row == ("read committed",)


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_a_role_allows_a_statement_does_not_stop_ours(settings: Settings) -> None:
    with database(settings, "UTF8", statement_timeout="500ms") as store:
        assert isinstance(store, PostgresStore)
        with connect(store.db.settings) as session:
            session.execute("select pg_sleep(1)")
