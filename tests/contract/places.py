"""What several contract tests share: jobs in any state, a look behind the store's back, many callers at once."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.connect import path_of
from tests.factories import BOOM, LEASE, Clock, a_queued_job, claim, ref

T = TypeVar("T")

HOLDER_VERBS: dict[str, Callable[[Store, Ref], object]] = {
    "succeed": lambda store, ref: store.attempts.succeed(ref, b'"late"'),
    "fail": lambda store, ref: store.attempts.fail(ref, BOOM),
    "reschedule": lambda store, ref: store.attempts.reschedule(ref, 5, BOOM),
    "release": lambda store, ref: store.attempts.release(ref),
    "park": lambda store, ref: store.attempts.park(ref),
    "stop": lambda store, ref: store.attempts.stop(ref),
    "checkpoint": lambda store, ref: store.attempts.checkpoint(ref, b'"late"', 7, 8),
    "progress": lambda store, ref: store.attempts.progress(ref, 1, 2, "late"),
    "step": lambda store, ref: store.attempts.keep_step(ref, "late", b"1"),
}

PEOPLES_VERBS: dict[str, Callable[[Store, str], State]] = {
    "pause": lambda store, id: store.operator.pause(id),
    "resume": lambda store, id: store.operator.resume(id),
    "cancel": lambda store, id: store.operator.cancel(id),
    "retry": lambda store, id: store.operator.retry(id),
    "change": lambda store, id: store.operator.change(id, priority=9),
    "delete": lambda store, id: store.operator.delete(id),
}


def stale_and_current(store: Store, clock: Clock, state: State, **options: Any) -> tuple[Ref, Ref]:
    """A job in this state that was rescued from a first worker: the fence that worker still believes in, and the
    newest one."""
    a_queued_job(store, max_attempts=5, **options)
    [first] = claim(store, worker="zombie").jobs
    clock.advance(LEASE + 1)
    [rescued] = store.rescues.rescue()
    assert rescued.state is State.QUEUED
    if state is State.QUEUED:
        return ref(first), Ref(first.id, str(uuid.uuid4()))
    if state is State.PAUSED:
        store.operator.pause(str(first.id))
        return ref(first), Ref(first.id, str(uuid.uuid4()))
    [second] = claim(store, worker="heir").jobs
    if state is State.SUCCEEDED:
        store.attempts.succeed(ref(second), b'"done"')
    elif state is State.FAILED:
        store.attempts.fail(ref(second), BOOM)
    elif state is State.CANCELLED:
        store.attempts.stop(ref(second))
    return ref(first), ref(second)


def everything(store: Store, job_id: object) -> tuple[object, object]:
    """All that is known of a job: to show that nothing changed."""
    return store.reads.get(str(job_id)), (store.reads.attempts(str(job_id)), store.reads.steps(str(job_id)))


def reclaim(store: Store, job_id: object, **options: Any) -> ClaimedJob:
    [held] = claim(store, **options).jobs
    assert held.id == job_id
    return held


class Raw:
    """SQL past the store, in its own words: `{jobs}` is our table, `?` a parameter."""

    def __init__(self, settings: Settings, connection: Any) -> None:
        self._settings = settings
        self.connection = connection

    def __call__(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        tables = (
            "meta",
            "jobs",
            "leases",
            "attempts",
            "workers",
            "pauses",
            "steps",
            "pending",
            "audit",
            "audit_jobs",
            "secrets",
            "deltas",
            "rollups",
        )
        if isinstance(self.connection, sqlite3.Connection):
            names = {table: f'"{self._settings.prefix}{table}"' for table in tables}
            return self.connection.execute(sql.format(**names), parameters).fetchall()
        names = {table: f'"{self._settings.schema}".{table}' for table in (*tables, "state")}  # that one is a type
        cursor = self.connection.execute(sql.format(**names).replace("?", "%s").encode(), parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return rows


def open_connection(settings: Settings) -> Any:
    """A connection as an application would open it: its own, with its own transactions."""
    if settings.url.startswith("sqlite"):
        return sqlite3.connect(path_of(settings), timeout=10, check_same_thread=False)
    return psycopg.connect(settings.url)


@contextmanager
def raw(settings: Settings) -> Iterator[Raw]:
    """Committed at the end."""
    connection = open_connection(settings)
    try:
        yield Raw(settings, connection)
        connection.commit()
    finally:
        connection.close()


def at_once(n: int, act: Callable[[int], T]) -> list[T]:
    """Run `act` on n threads that start together; their answers, in order. An error in any of them is raised."""
    start = threading.Barrier(n)

    def run(number: int) -> T:
        start.wait(30)
        return act(number)

    with ThreadPoolExecutor(n) as threads:
        return list(threads.map(run, range(n)))


def listen_everywhere(store: PostgresStore) -> bytes:
    """The command with which a connection hears all that workers hear."""
    channels = (store.wakeups.channel, *store.wakeups.channels)
    return ";".join(f'listen "{channel}"' for channel in channels).encode()
