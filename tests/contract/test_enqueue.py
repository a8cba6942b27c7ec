from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from holdfast.errors import BadSettings, StoreError
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.postgres.enqueue import CHUNK
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import at_once, listen_everywhere, open_connection, raw
from tests.factories import Clock, a_queued_job, claim, new_job


def keep(store: Store, jobs: Any) -> list[Enqueued]:
    return [done for chunk in store.enqueue_many(jobs) for done in chunk]


# -- one ------------------------------------------------------------------------------------------------------------


def test_a_job_is_kept_as_it_was_given(store: Store, clock: Clock) -> None:
    job = NewJob(
        task="greet", args=b'{"n": [1, 2.50, "\xc3\xa9"]}', queue="mail", priority=-3, max_attempts=7, delay=5,
        expires_in=60, key="k", reuse=5, correlation_id="c", tags=("a", "b"),
    )  # fmt: skip
    done = store.enqueue(job)
    assert (done.created, done.state) == (True, State.QUEUED)
    kept = store.reads.get(done.id)
    assert (kept.task, kept.queue, kept.priority, kept.max_attempts) == ("greet", "mail", -3, 7)
    assert kept.args == job.args, "to the byte"
    assert kept.created_at == clock.now
    assert (kept.run_at, kept.expires_at) == (clock.now + timedelta(seconds=5), clock.now + timedelta(seconds=60))
    assert (kept.key, kept.holds_key, kept.correlation_id, kept.tags) == ("k", True, "c", ("a", "b"))
    assert (kept.state, kept.attempt, kept.life, kept.worker, kept.fence) == (State.QUEUED, 0, 1, None, None)
    assert (kept.result, kept.error_code, kept.started_at, kept.finished_at) == (None, None, None, None)


def test_an_instant_in_any_zone_is_the_same_instant(store: Store, clock: Clock) -> None:
    later = (clock.now + timedelta(hours=1)).astimezone(timezone(timedelta(hours=-7)))
    id = a_queued_job(store, run_at=later)
    assert store.reads.get(id).run_at == later
    assert store.reads.get(id).run_at.tzinfo is UTC


def test_an_instant_long_ago_is_due(store: Store) -> None:
    ids = [a_queued_job(store, run_at=datetime(year, 1, 1, tzinfo=UTC)) for year in (999, 9, 1970)]
    assert [str(job.id) for job in claim(store, 3).jobs] == [ids[1], ids[0], ids[2]]


def test_ids_grow_and_never_repeat(store: Store) -> None:
    first, second = a_queued_job(store), a_queued_job(store)
    assert int(first) < int(second)
    store.operator.delete(second)
    assert int(a_queued_job(store)) > int(second)
    [bulk] = keep(store, [new_job()])
    store.operator.delete(bulk.id)
    assert int(a_queued_job(store)) > int(bulk.id)


@pytest.mark.parametrize("options", [{"priority": 101}, {"priority": -101}, {"max_attempts": 0}, {"priority": 10**6}])
def test_what_the_schema_refuses_is_refused_and_leaves_nothing(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        a_queued_job(store, **options)
    with pytest.raises(StoreError):
        keep(store, [new_job(), new_job(**options)])
    assert store.reads.jobs() == []
    a_queued_job(store)


# -- many -----------------------------------------------------------------------------------------------------------


def test_many_are_answered_in_the_order_they_came(store: Store, clock: Clock) -> None:
    jobs = [
        new_job(args=str(n).encode(), priority=n % 5, delay=n, queue="ab"[n % 2], tags=(str(n),)) for n in range(50)
    ]
    done = keep(store, iter(jobs))
    assert [answer.created for answer in done] == [True] * 50
    for n, answer in enumerate(done):
        kept = store.reads.get(answer.id)
        assert (kept.args, kept.priority, kept.queue, kept.tags) == (str(n).encode(), n % 5, "ab"[n % 2], (str(n),))
        assert (kept.created_at, kept.run_at) == (clock.now, clock.now + timedelta(seconds=n))


def test_no_jobs_are_no_jobs(store: Store) -> None:
    assert keep(store, []) == []
    assert keep(store, iter(())) == []


@pytest.mark.parametrize("jobs", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3])
def test_more_jobs_than_a_chunk_holds_keep_their_order(store: Store, jobs: int) -> None:
    """Mixed, with and without keys, some keys twice, across chunks."""

    def stream() -> Iterator[NewJob]:
        for n in range(jobs):
            # The last keyed ones name keys that the first ones hold.
            key = f"k{n % (jobs - 3)}" if n % 50 == 0 or n >= jobs - 3 else None
            yield new_job(args=str(n).encode(), key=key)

    done = keep(store, stream())
    assert len(done) == jobs
    kept = {job.id: job for job in store.reads.jobs(limit=2 * jobs)}
    assert done[jobs - 3] == Enqueued(done[0].id, False)
    for n, answer in enumerate(done):
        if answer.created:
            assert kept[answer.id].args == str(n).encode()
    assert len(kept) == sum(answer.created for answer in done)


@pytest.mark.parametrize("before", [0, 3, CHUNK, CHUNK + 10, 3 * CHUNK + 10])
def test_a_stream_that_breaks_leaves_nothing(store: Store, before: int) -> None:
    def stream() -> Iterator[NewJob]:
        for n in range(before):
            yield new_job(key="k" if n == 1 else None)
        raise LookupError("the source broke")

    with pytest.raises(LookupError, match="the source broke"):
        keep(store, stream())
    assert store.reads.jobs() == []
    assert len(keep(store, [new_job(), new_job()])) == 2, "and the store goes on"


def test_a_job_in_a_long_stream_that_cannot_be_kept_leaves_nothing(store: Store) -> None:
    jobs = [new_job() for _ in range(CHUNK)] + [new_job(args=b"\xff not text")]
    with pytest.raises((UnicodeDecodeError, StoreError)):
        keep(store, jobs)
    assert store.reads.jobs() == []
    assert len(keep(store, [new_job()] * (CHUNK + 1))) == CHUNK + 1, "and the store goes on"


def test_a_slow_source_does_not_stop_other_writers(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    other = stores(clock=clock)

    def stream() -> Iterator[NewJob]:
        for n in range(CHUNK + 10):
            if n == CHUNK + 5:
                a_queued_job(other, queue="meanwhile")
            yield new_job()

    assert len(keep(store, stream())) == CHUNK + 10
    assert len(store.reads.jobs(queue="meanwhile")) == 1


def test_many_at_once_from_many_threads_lose_none(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    own = [stores(clock=clock) for _ in range(4)]

    def submit(number: int) -> list[str]:
        ids = [a_queued_job(own[number]) for _ in range(10)]
        return ids + [done.id for done in keep(own[number], [new_job()] * 20)]

    ids = [id for mine in at_once(4, submit) for id in mine]
    assert len(set(ids)) == 120
    assert {job.id for job in store.reads.jobs(limit=200)} == set(ids)


# -- on the caller's own transaction --------------------------------------------------------------------------------


@pytest.fixture
def connection(settings: Settings, store: Store) -> Iterator[Any]:
    connection = open_connection(settings)
    connection.execute("create temporary table orders (id integer)")
    connection.commit()
    yield connection
    connection.close()


@pytest.mark.parametrize("key", [None, "order-7"])
def test_a_job_comes_with_the_callers_commit(store: Store, connection: Any, key: str | None) -> None:
    connection.execute("insert into orders values (7)")
    done = store.enqueue_on(connection, new_job(key=key, tags=("t",), delay=0))
    assert done.created
    assert store.reads.jobs() == [], "not before the commit"
    connection.commit()
    job = store.reads.get(done.id)
    assert (job.key, job.tags) == (key, ("t",))
    assert [str(held.id) for held in claim(store).jobs] == [done.id]


@pytest.mark.parametrize("key", [None, "order-7"])
def test_a_job_goes_with_the_callers_rollback(store: Store, connection: Any, key: str | None) -> None:
    connection.execute("insert into orders values (7)")
    store.enqueue_on(connection, new_job(key=key))
    connection.rollback()
    assert store.reads.jobs() == []
    assert connection.execute("select count(*) from orders").fetchone() == (0,)
    connection.rollback()
    assert store.enqueue(new_job(key=key)).created, "the key was not taken either"


def test_a_key_on_the_callers_transaction_joins_the_job_that_holds_it(store: Store, connection: Any) -> None:
    first = store.enqueue(new_job(key="k"))
    assert store.enqueue_on(connection, new_job(key="k")) == Enqueued(first.id, False)
    connection.commit()
    assert len(store.reads.jobs()) == 1


@pytest.mark.parametrize("engine", ["postgres"])
def test_an_asynchronous_connection_enqueues_the_same(store: Store, settings: Settings) -> None:
    async def both() -> tuple[Enqueued, Enqueued]:
        async with await psycopg.AsyncConnection.connect(settings.url) as connection:
            dropped = await store.aenqueue_on(connection, new_job(key="dropped"))
            await connection.rollback()
            kept = await store.aenqueue_on(connection, new_job(key="kept"))
        return dropped, kept

    dropped, kept = asyncio.run(both())
    assert [job.id for job in store.reads.jobs()] == [kept.id]
    assert dropped.created


@pytest.mark.parametrize("engine", ["sqlite"])
def test_sqlites_connection_serves_asynchronous_callers_too(store: Store, connection: Any) -> None:
    done = asyncio.run(store.aenqueue_on(connection, new_job()))
    connection.commit()
    assert store.reads.get(done.id).state is State.QUEUED


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_rollback_leaves_no_wake_up_and_a_commit_leaves_some(store: Store, settings: Settings) -> None:
    assert isinstance(store, PostgresStore)
    with psycopg.connect(settings.url, autocommit=True) as ear, psycopg.connect(settings.url) as connection:
        ear.execute(listen_everywhere(store))
        store.enqueue_on(connection, new_job(queue="dropped"))
        connection.rollback()
        store.enqueue_on(connection, new_job(queue="mail"))
        store.enqueue_on(connection, new_job(queue="mail"))
        connection.commit()
        heard = [notice.payload for notice in ear.notifies(timeout=5, stop_after=1)]
        heard += [notice.payload for notice in ear.notifies(timeout=0.1)]
    assert set(heard) == {"q"}
    assert len(heard) <= 2, "one for each statement at most, none for what was rolled back"


@pytest.mark.parametrize("engine", ["postgres"])
def test_our_own_enqueues_wake_after_the_commit(store: Store, settings: Settings) -> None:
    assert isinstance(store, PostgresStore)
    with psycopg.connect(settings.url, autocommit=True) as ear:
        ear.execute(listen_everywhere(store))
        a_queued_job(store, queue="mail")
        [notice] = ear.notifies(timeout=5, stop_after=1)
        assert notice.payload == 'l["mail", "greet", 0]'
        keep(store, [new_job(queue="bulk")] * 3)
        [notice] = ear.notifies(timeout=5, stop_after=1)
        assert notice.payload == "qbulk"


@pytest.mark.parametrize("thing", [None, "postgresql://x", object(), 7])
def test_what_is_no_connection_is_refused_in_words(store: Store, engine: str, thing: object) -> None:
    kind = {"sqlite": "sqlite3", "postgres": "psycopg"}[engine]
    with pytest.raises(BadSettings, match=f"conn= needs a {kind} connection .* not a "):
        store.enqueue_on(thing, new_job())
    with pytest.raises(BadSettings, match=f"conn= needs a {kind} connection"):
        asyncio.run(store.aenqueue_on(thing, new_job()))


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_wrong_colour_of_connection_is_told_which_method_to_use(store: Store, settings: Settings) -> None:
    async def wrong_way() -> None:
        async with await psycopg.AsyncConnection.connect(settings.url) as connection:
            store.enqueue_on(connection, new_job())

    with pytest.raises(BadSettings, match="AsyncConnection: use aenqueue"):
        asyncio.run(wrong_way())
    with (
        psycopg.connect(settings.url) as connection,
        pytest.raises(BadSettings, match=r"psycopg\.Connection: use enqueue"),
    ):
        asyncio.run(store.aenqueue_on(connection, new_job()))


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_connection_to_another_file_is_refused(store: Store, tmp_path: Any) -> None:
    for place in (":memory:", tmp_path / "other.db"):
        other = sqlite3.connect(place)
        with pytest.raises(BadSettings, match="another file"):
            store.enqueue_on(other, new_job())
        other.close()


def test_a_row_inserted_by_plain_sql_is_a_job(store: Store, settings: Settings, engine: str) -> None:
    with raw(settings) as sql:
        if engine == "postgres":
            sql("insert into {jobs} (queue, task, args) values ('q', 'greet', '1')")
        else:
            moment = "2029-01-01 00:00:00.000000"
            sql("insert into {jobs} (queue, task, args, created_at, run_at, ready_at) "
                "values ('q', 'greet', '1', ?, ?, ?)", moment, moment, moment)  # fmt: skip
    assert [job.args for job in claim(store).jobs] == [b"1"]


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("column", ["created_at", "run_at", "ready_at", "expires_at"])
@pytest.mark.parametrize("moment", ["infinity", "-infinity", "10000-01-01 00:00Z", "0001-12-31 BC"])
def test_an_instant_that_nobody_could_reckon_with_is_refused(
    store: Store, settings: Settings, column: str, moment: str
) -> None:
    """One such row would hinder every claim, or every list."""
    with raw(settings) as sql, pytest.raises(psycopg.errors.CheckViolation, match="instant"):
        sql(f"insert into {{jobs}} (queue, task, args, {column}) values ('q', 'greet', '1', ?::timestamptz)", moment)
    assert store.reads.jobs() == []


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("moment", ["0001-01-01 00:00Z", "9999-12-31 23:59:59.999999Z"])
def test_the_first_and_the_last_instant_of_python_are_taken(store: Store, settings: Settings, moment: str) -> None:
    with raw(settings) as sql:
        sql("insert into {jobs} (queue, task, args, run_at, ready_at) values "
            "('default', 'greet', '1', ?::timestamptz, ?::timestamptz)", moment, moment)  # fmt: skip
    [job] = store.reads.jobs()
    [depth] = store.reads.depths()
    assert (depth.due, depth.scheduled) == ((1, 0) if job.run_at.year == 1 else (0, 1))
    assert len(claim(store).jobs) == depth.due


def test_the_same_job_with_a_key_twice_is_made_once(store: Store) -> None:
    job = new_job(key="once")
    [answers] = store.enqueue_many([job, new_job(), job])
    assert [answer.created for answer in answers] == [True, True, False]
    assert answers[0].id == answers[2].id


MOMENT = "2029-01-01 00:00:00"
WRONG = [
    "tomorrow", "1861920", "", "2029-01-01T00:00:00Z", "2029-02-30 01:00:00", "0000-01-01 00:00:00",
    f"{MOMENT}+05:00", f"{MOMENT}.", f"{MOMENT}..1", f"{MOMENT}.1.2", f"{MOMENT}123", f"{MOMENT}\0x",
]  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("written", [MOMENT, f"{MOMENT}.123", f"{MOMENT}.123456"])
def test_an_instant_of_a_row_inserted_by_plain_sql_is_utc_text(store: Store, settings: Settings, written: str) -> None:
    inserted(settings, run_at=written, ready_at=written, expires_at=written.replace("2029", "2099"))
    [job] = store.reads.jobs()
    assert job.run_at.replace(microsecond=0) == datetime(2029, 1, 1, tzinfo=UTC)
    assert [held.id for held in claim(store).jobs] == [int(job.id)]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    ("column", "value", "constraint"),
    [
        *[
            (column, value, f"{column}_is_utc_text")
            for column in ("created_at", "run_at", "expires_at")
            for value in (
                "tomorrow",
                "1861920000",
                "2029-01-01T00:00:00Z",
                f"{MOMENT}+05:00",
                "2029-02-30 00:00:00",
                "",
            )
        ],
        ("run_at", MOMENT.encode(), "run_at_is_utc_text"),
        ("ready_at", "tomorrow", "ready_at_is_run_at_or_later"),
        ("args", "oops", "args_are_json_text"),
        ("args", b"{}", "args_are_json_text"),
        ("tags", "urgent", "tags_are_a_json_array"),
        ("tags", "5", "tags_are_a_json_array"),
        ("tags", "null", "tags_are_a_json_array"),
        ("tags", b"[]", "tags_are_a_json_array"),
        ("priority", 1.5, "numbers_are_integers"),
        ("attempt", 0.5, "numbers_are_integers"),
        ("max_attempts", "many", "numbers_are_integers"),
        ("max_attempts", math.inf, "numbers_are_integers"),
        ("queue", b"mail", "names_are_text"),
        ("task", b"greet", "names_are_text"),
    ],
)
def test_a_row_that_nobody_could_read_is_refused(
    store: Store, settings: Settings, column: str, value: str | bytes | float, constraint: str
) -> None:
    """SQLite takes anything for text, and one such row would hinder every claim, or every list."""
    also = {"ready_at": value} if column == "run_at" else {}
    with pytest.raises(sqlite3.IntegrityError, match=constraint):
        inserted(settings, **{column: value, **also})
    assert store.reads.jobs() == []


def inserted(settings: Settings, **columns: Any) -> None:
    row = {"queue": "default", "task": "greet", "args": "1", "created_at": MOMENT, "run_at": MOMENT, "ready_at": MOMENT}
    row |= columns
    with raw(settings) as sql:
        sql(f"insert into {{jobs}} ({', '.join(row)}) values ({', '.join('?' * len(row))})", *row.values())
