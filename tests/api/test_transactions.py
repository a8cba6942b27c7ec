"""One commit for a user's own writes and the job: when enqueuing, and when a handler records its success."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from typing import Any

import psycopg
import pytest

from holdfast import BadSettings, Holdfast, HoldfastError, JobContext, JobNotFound, LeaseLost, State, StoreUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.settings import Settings
from holdfast.store.sqlite import connect as sqlite_connect
from holdfast.tasks.attempt import Attempt
from tests.running import HASTY, Heard, await_state, take_over, working
from tests.waiting import wait_until


class Ledger:
    """A table of the user's own, beside the jobs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.name = "ledger" if self.is_sqlite else f"{settings.schema}.ledger"

    @property
    def is_sqlite(self) -> bool:
        return self._settings.url.startswith("sqlite")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A connection as a user opens it; closing it rolls back what was not committed."""
        if self.is_sqlite:
            connection: Any = sqlite3.connect(self._settings.url.removeprefix("sqlite:///"), timeout=5)
        else:
            connection = psycopg.connect(self._settings.url)
        try:
            yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def aconnect(self) -> AsyncIterator[Any]:
        connection = await psycopg.AsyncConnection.connect(self._settings.url)
        try:
            yield connection
        finally:
            await connection.close()

    def write(self, connection: Any, text: str = "written") -> Any:
        return connection.execute(f"insert into {self.name} values ('{text}')")

    @property
    def rows(self) -> int:
        with self.connect() as connection:
            return int(connection.execute(f"select count(*) from {self.name}").fetchone()[0])


@pytest.fixture
def ledger(hf: Holdfast, settings: Settings) -> Ledger:
    ledger = Ledger(settings)
    _ = hf.store  # the schema is there
    with ledger.connect() as connection:
        connection.execute(f"create table {ledger.name} (text text)")
        connection.commit()
    return ledger


def only(hf: Holdfast) -> Any:
    [record] = hf.jobs()
    return record


# -- enqueue -----------------------------------------------------------------------------------------------------------


def test_a_job_whose_transaction_has_not_committed_is_not_found_for_that_reason(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def task() -> None: ...

    with ledger.connect() as connection:
        kept = task.using(conn=connection).enqueue()
        connection.commit()
        job = task.using(conn=connection).enqueue()
        with pytest.raises(JobNotFound, match=r"\(conn=\) has not committed yet, or was rolled back"):
            job.refresh()
        with pytest.raises(JobNotFound, match=r"\(conn=\) has not committed yet, or was rolled back"):
            job.wait(timeout=5)
        with pytest.raises(JobNotFound, match="the transaction that enqueued it has not committed, or was rolled back"):
            hf.job(job.id)
    kept.refresh()
    kept.cancel()
    kept.delete()
    with pytest.raises(JobNotFound) as deleted:
        kept.refresh()
    assert "conn=" not in str(deleted.value), "it had been there"


def test_a_job_enqueued_on_a_transaction_is_there_with_its_commit(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def task(n: int) -> int:
        return n

    with ledger.connect() as connection:
        ledger.write(connection)
        job = task.using(conn=connection).enqueue(1)
        keyed = task.using(conn=connection, key="k").enqueue(2)
        assert task.using(conn=connection, key="k").enqueue(3).id == keyed.id
        assert hf.jobs() == []  # nobody else sees them yet
        connection.commit()
    assert {record.id for record in hf.jobs()} == {job.id, keyed.id}
    assert hf.drain() == 2
    assert [job.refresh().result, keyed.refresh().result, ledger.rows] == [1, 2, 1]


def test_a_rollback_leaves_no_job_and_no_wake_up(hf: Holdfast, ledger: Ledger) -> None:
    heard: list[tuple[str, str]] = []
    stop = threading.Event()

    @hf.task
    def task() -> None: ...

    def listen() -> None:
        hf.store.wakeups.listen(lambda kind, what, turn: heard.append((kind, what)), stop.is_set)

    listener = threading.Thread(target=listen)
    listener.start()
    wait_until(lambda: heard)
    with ledger.connect() as connection:
        ledger.write(connection)
        job = task.using(conn=connection, queue="rolled-back").enqueue()
        connection.rollback()
        ledger.write(connection)
        task.using(conn=connection, queue="committed").enqueue()
        connection.commit()
    wait_until(lambda: len(heard) > 1)
    stop.set()
    listener.join()
    assert [job.record.queue for job in hf.jobs()] == ["committed"]
    assert job.id not in {record.id for record in hf.jobs(queue="rolled-back")}
    assert ledger.rows == 1
    if not ledger.is_sqlite:  # where each commit is told of once
        assert heard == [("listening", ""), ("queue", "")]


def test_the_first_thing_a_process_does_may_be_to_enqueue_on_its_own_transaction(
    hf: Holdfast, ledger: Ledger, settings: Settings
) -> None:
    """Opening the store must not write: on SQLite nobody gets past the transaction that is open."""
    with Holdfast(**asdict(settings)) as fresh, ledger.connect() as connection:

        @fresh.task
        def task() -> None: ...

        ledger.write(connection)
        task.using(conn=connection).enqueue()
        connection.commit()
    assert len(hf.jobs()) == ledger.rows == 1


@pytest.mark.parametrize("engine", ["sqlite"])
def test_tables_that_cannot_be_made_within_a_transaction_are_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connect, "BUSY", 0.05)
    with Ledger(settings).connect() as connection, Holdfast(**asdict(settings)) as app:

        @app.task
        def task() -> None: ...

        connection.execute("create table mine (x)")
        connection.execute("insert into mine values (1)")
        with pytest.raises(StoreUnavailable, match=r"Call hf\.migrate\(\) or `holdfast migrate` before"):
            task.using(conn=connection).enqueue()


def test_an_asynchronous_transaction_is_taken_by_aenqueue(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    async def task(n: int) -> int:
        return n

    async def enqueue_on(connection: Any, *, commit: bool) -> Any:
        job = await task.using(conn=connection, key="k").aenqueue(1)
        plain = await task.using(conn=connection).aenqueue(2)
        outcome = connection.commit() if commit else connection.rollback()
        if outcome is not None:
            await outcome
        return job, plain

    async def both() -> Any:
        if ledger.is_sqlite:
            with ledger.connect() as connection:
                await enqueue_on(connection, commit=False)
                assert await hf.ajobs() == []
                return await enqueue_on(connection, commit=True)
        async with ledger.aconnect() as connection:
            await enqueue_on(connection, commit=False)
            assert await hf.ajobs() == []
            return await enqueue_on(connection, commit=True)

    jobs = asyncio.run(both())
    assert hf.drain() == 2
    assert [job.refresh().result for job in jobs] == [1, 2]


def test_a_connection_of_the_wrong_kind_is_refused_in_words(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def task() -> None: ...

    with pytest.raises(BadSettings, match=r"conn= needs a .* connection"):
        task.using(conn=object()).enqueue()
    if ledger.is_sqlite:
        with sqlite3.connect(":memory:") as elsewhere, pytest.raises(BadSettings, match="open on another file"):
            task.using(conn=elsewhere).enqueue()
        elsewhere.close()
    else:

        async def mistaken() -> None:
            async with ledger.aconnect() as connection:
                with pytest.raises(BadSettings, match=r"this is a psycopg\.AsyncConnection: use aenqueue"):
                    task.using(conn=connection).enqueue()
            with ledger.connect() as connection, pytest.raises(BadSettings, match=r"psycopg\.Connection: use enqueue"):
                await task.using(conn=connection).aenqueue()

        asyncio.run(mistaken())
    assert hf.jobs() == []


def test_a_sleeping_worker_is_woken_by_a_job_on_a_foreign_transaction(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def task() -> str:
        return "done"

    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening)
        with ledger.connect() as connection:
            job = task.using(conn=connection).enqueue()
            connection.commit()
        assert job.wait(timeout=10) == "done"


# -- exactly-once effects ----------------------------------------------------------------------------------------------


def test_success_on_the_handlers_own_transaction_is_one_commit(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def pay(ctx: JobContext) -> str:
        with ledger.connect() as connection:
            ledger.write(connection)
            ctx.succeed({"paid": 3}, conn=connection)
            assert hf.job(ctx.job.id).state is State.RUNNING
            assert ledger.rows == 0
            connection.commit()
        return "ignored"

    job = pay.enqueue()
    assert hf.drain() == 1
    assert job.refresh().state is State.SUCCEEDED
    assert job.refresh().record.result == b'{"paid":3}'
    assert ledger.rows == 1
    assert job.attempts() == []


def test_the_short_form_commits_effect_and_outcome_together(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def pay(ctx: JobContext) -> dict[str, int]:
        with ctx.transaction() as tx:
            ledger.write(tx.conn)
            tx.set_result({"paid": 4})
        return {"ignored": 1}

    @hf.task
    async def apay(ctx: JobContext) -> dict[str, int]:
        async with ctx.transaction() as tx:
            ledger.write(tx.conn)
            tx.set_result({"paid": 5})
        return {"ignored": 1}

    job, ajob = pay.enqueue(), apay.enqueue()
    assert hf.drain() == 2
    assert [job.refresh().result, ajob.refresh().result, ledger.rows] == [{"paid": 4}, {"paid": 5}, 2]


def test_success_on_an_asynchronous_transaction(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    async def pay(ctx: JobContext) -> int:
        if ledger.is_sqlite:
            with ledger.connect() as connection:
                ledger.write(connection)
                await ctx.asucceed(6, conn=connection)
                connection.commit()
        else:
            async with ledger.aconnect() as connection:
                await ledger.write(connection)
                await ctx.asucceed(6, conn=connection)
                await connection.commit()
        return 0

    job = pay.enqueue()
    assert hf.drain() == 1
    assert [job.refresh().result, ledger.rows] == [6, 1]


@pytest.mark.parametrize("form", ["with", "async with", "by hand"])
def test_an_error_in_the_transaction_rolls_both_back(hf: Holdfast, ledger: Ledger, form: str) -> None:
    def by_hand(ctx: JobContext) -> None:
        with ledger.connect() as connection:
            ledger.write(connection)
            ctx.succeed(1, conn=connection)
            raise ZeroDivisionError("after success, before the commit")

    def short(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            ledger.write(tx.conn)
            raise ZeroDivisionError("in the block")

    async def ashort(ctx: JobContext) -> None:
        async with ctx.transaction() as tx:
            ledger.write(tx.conn)
            raise ZeroDivisionError("in the block")

    handler: Any = {"with": short, "async with": ashort, "by hand": by_hand}[form]
    job = hf.task(max_attempts=1, name="pay")(handler).enqueue()
    hf.drain()
    assert job.refresh().state is State.FAILED
    assert job.error is not None
    assert job.error.code == "ZeroDivisionError"
    assert ledger.rows == 0


def test_a_forgotten_commit_is_an_errored_attempt(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task(retry=None)
    def pay(ctx: JobContext) -> int:
        with ledger.connect() as connection:
            ledger.write(connection)
            ctx.succeed(1, conn=connection)
            if ctx.attempt == 2:
                connection.commit()
        return 0

    job = pay.enqueue()
    assert hf.drain().attempts == 2
    assert job.refresh().result == 1
    assert ledger.rows == 1
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_code, attempt.number) == ("errored", "NOT_COMMITTED", 1)


def test_an_error_after_the_commit_changes_nothing(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task(max_attempts=1)
    def pay(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            ledger.write(tx.conn)
            tx.set_result("paid")
        raise ZeroDivisionError("too late")

    job = pay.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    assert [job.refresh().record.result, ledger.rows] == [b'"paid"', 1]


@pytest.mark.parametrize("form", ["with", "by hand"])
def test_who_lost_the_lease_writes_nothing(hf: Holdfast, ledger: Ledger, heard: Heard, form: str) -> None:
    refused: list[LeaseLost] = []

    @hf.task
    def pay(ctx: JobContext) -> None:
        take_over(hf, ctx.job.id)
        try:
            if form == "with":
                with ctx.transaction() as tx:
                    ledger.write(tx.conn)
            else:
                with ledger.connect() as connection:
                    ledger.write(connection)
                    ctx.succeed(1, conn=connection)
        except LeaseLost as lost:
            refused.append(lost)
            raise

    job = pay.enqueue()
    hf.drain()
    assert "roll this transaction back" in str(refused[0])
    assert ledger.rows == 0
    assert job.refresh().state is State.QUEUED
    assert [told["job"] for told in heard.of("lease_lost")] == [job.id]
    assert heard.of("errored") == []


def test_a_result_that_can_not_be_kept_rolls_the_transaction_back(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task(max_attempts=1)
    def pay(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            ledger.write(tx.conn)
            tx.set_result("a\x00b")

    job = pay.enqueue()
    hf.drain()
    job.refresh()
    assert job.error is not None
    assert "the result of job" in job.error.message
    assert "NUL" in job.error.message
    assert ledger.rows == 0


@pytest.mark.parametrize("when", ["while its worker runs", "when its worker has ended"])
def test_a_handler_cancelled_while_its_transaction_opens_leaves_none_open(
    make_app: Callable[..., Holdfast], ledger: Ledger, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Else on SQLite nobody could write any more."""
    app = make_app(**HASTY)
    opening, go_on, opened, closed = (threading.Event() for _ in range(4))
    original = app.store.user_connections.transaction

    @contextmanager
    def slow(note: str) -> Iterator[Any]:
        opening.set()
        go_on.wait(10)
        try:
            with original(note) as connection:
                opened.set()
                yield connection
        finally:
            closed.set()

    monkeypatch.setattr(app.store.user_connections, "transaction", slow)

    kept: list[Any] = []  # so that it is not closed by being forgotten

    @app.task
    async def pay(ctx: JobContext) -> None:
        kept.append(ctx.transaction())
        async with kept[0] as tx:
            ledger.write(tx.conn)

    with working(app):
        job = pay.enqueue()
        opening.wait(10)
        job.cancel()
        await_state(job, State.CANCELLED)
        if when == "while its worker runs":
            go_on.set()
            assert closed.wait(10)
    go_on.set()
    assert closed.wait(10)
    assert opened.is_set()
    with ledger.connect() as connection:
        ledger.write(connection)
        connection.commit()
    assert ledger.rows == 1


def test_a_handler_whose_coroutine_is_closed_while_its_transaction_opens_leaves_none_open(
    hf: Holdfast, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a loop ends without having cancelled what a handler started there."""
    opening, closed = threading.Event(), threading.Event()
    really_open = hf.store.user_connections.transaction

    @contextmanager
    def told(note: str) -> Iterator[Any]:
        opening.set()
        try:
            with really_open(note) as connection:
                yield connection
        finally:
            closed.set()

    async def closing() -> None:
        entering: Any = transaction.__aenter__()
        entering.send(None)  # the thread is on its way
        await asyncio.to_thread(opening.wait, 10)
        entering.close()

    attempt = Attempt(ClaimedJob(1, "f", "pay", "default", b"{}", 1, 3))
    transaction = JobContext(attempt, hf.store, hf.settings).transaction()
    monkeypatch.setattr(hf.store.user_connections, "transaction", told)
    asyncio.run(closing())
    assert closed.wait(10)
    with ledger.connect() as connection:
        ledger.write(connection)
        connection.commit()


def test_a_transaction_needs_a_job_from_the_queue() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task
    def pay(ctx: JobContext) -> None:
        ctx.transaction()

    with pytest.raises(HoldfastError, match="called directly"):
        pay()


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("when", ["inside", "at the commit"])
def test_a_full_disk_costs_no_attempt(hf: Holdfast, ledger: Ledger, when: str) -> None:
    """(A file that may not grow stands for a disk that is full.)"""
    tries = []

    @hf.task(max_attempts=1)
    def pay(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tries.append(ctx.attempt)
            if len(tries) == 1:
                [(pages,)] = tx.conn.execute("pragma page_count").fetchall()
                tx.conn.execute(f"pragma max_page_count = {pages}")
            if len(tries) > 1 or when == "inside":
                ledger.write(tx.conn, "x" * 100_000)
            else:
                tx.set_result("x" * 100_000)

    job = pay.enqueue()
    hf.drain()
    assert job.refresh().state is State.QUEUED
    assert [(one.outcome, one.error_code) for one in job.attempts()] == [("released", None)]
    job.change(delay=0)
    hf.drain()
    assert (job.refresh().state, tries) == (State.SUCCEEDED, [1, 1])
    assert ledger.rows == 1


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("how", ["enqueue", "succeed"])
def test_another_connection_is_refused_while_a_transaction_keeps_it_from_writing(
    hf: Holdfast, ledger: Ledger, how: str
) -> None:
    """It would wait for the handler that waits for it, and be given back as if somebody else had the file: for ever."""

    @hf.task
    def later() -> None: ...

    @hf.task(max_attempts=1)
    def pay(ctx: JobContext) -> None:
        with ctx.transaction() as tx, ledger.connect() as other:
            later.using(conn=tx.conn).enqueue()
            if how == "enqueue":
                later.using(conn=other).enqueue()
            else:
                ctx.succeed(conn=other)

    job = pay.enqueue()
    hf.drain()
    job.refresh()
    assert job.error is not None
    assert job.error.code == "BadSettings"
    assert len(hf.jobs()) == 1


@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_others_lock_on_your_own_connection_is_told_as_ours(hf: Holdfast, ledger: Ledger) -> None:
    @hf.task
    def later() -> None: ...

    with ledger.connect() as writer, ledger.connect() as other:
        ledger.write(writer)
        other.execute("pragma busy_timeout = 10")
        with pytest.raises(StoreUnavailable, match="another connection of this process is writing"):
            later.using(conn=other).enqueue()
