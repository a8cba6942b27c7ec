"""What a client notices of a server that went away and came back, or of a reply that was lost: as little as can be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from bench.embedded import EmbeddedPostgres
from holdfast import Fail, Holdfast, Job, JobContext, State
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import JobRecord
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.postgres.connect import ready
from holdfast.store.postgres.enqueue import PostgresEnqueue
from holdfast.tasks.attempt import Attempt
from tests.crash.proxy import Proxy, a_proxy
from tests.factories import a_queued_job, claim
from tests.servers import own_postgres
from tests.waiting import wait_until

USES: dict[str, Callable[[Holdfast, Job[Any]], object]] = {
    "get": lambda app, job: job.refresh().state,
    "list": lambda app, job: app.jobs(limit=5),
    "why": lambda app, job: job.why(),
    "enqueue": lambda app, job: app.tasks["greet"].enqueue(),
    "enqueue keyed": lambda app, job: app.tasks["greet"].using(key="k").enqueue(),
    "enqueue_many": lambda app, job: app.enqueue_many(app.tasks["greet"].bind() for _ in range(3)),
    "cancel": lambda app, job: job.cancel(),
    "pauses": lambda app, job: app.pauses(),
}


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with own_postgres(synchronous_commit="on") as server:
        yield server


def a_client(url: str, schema: str) -> Holdfast:
    app = Holdfast(url, schema=schema)

    @app.task
    def greet() -> None: ...

    app.migrate()
    return app


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_the_first_thing_a_client_does_after_a_restart_succeeds(server: EmbeddedPostgres, mode: str) -> None:
    """Each on a client of its own, which had done all of these before."""
    clients = {}
    for number, use in enumerate(USES):
        app = a_client(server.url, f"restart_{mode}_{number}")
        for other in USES.values():
            other(app, app.tasks["greet"].enqueue())
        clients[use] = app, app.tasks["greet"].enqueue()
    server.stop(mode)
    server.start()
    for use, (app, job) in clients.items():
        USES[use](app, job)
        for other in USES.values():
            other(app, app.tasks["greet"].enqueue())
        app.close()


class Watched(Job[Any]):
    """Notes the reads that failed."""

    failed = 0

    def _read(self) -> JobRecord:
        try:
            return super()._read()
        except StoreUnavailable:
            self.failed += 1
            raise


@pytest.mark.parametrize("asynchronous", [False, True])
def test_who_follows_a_job_goes_on_when_the_server_is_back(server: EmbeddedPostgres, asynchronous: bool) -> None:
    app = a_client(server.url, f"followed_{asynchronous}")
    job = Watched(app, app.tasks["greet"].enqueue().id, "greet")
    seen: list[State] = []

    def follow() -> None:
        for update in job.updates(timeout=60):
            seen.append(update.state)

    async def afollow() -> None:
        async for update in job.updates(timeout=60):
            seen.append(update.state)

    following = threading.Thread(target=(lambda: asyncio.run(afollow())) if asynchronous else follow, daemon=True)
    following.start()
    wait_until(lambda: seen == [State.QUEUED])
    server.stop("immediate")
    wait_until(lambda: job.failed)
    server.start()
    app.drain()
    following.join(60)
    assert (seen[0], seen[-1]) == (State.QUEUED, State.SUCCEEDED)
    assert job.result is None
    app.close()


@pytest.fixture
def proxy(server: EmbeddedPostgres) -> Iterator[Proxy]:
    with a_proxy(server.url) as proxy:
        yield proxy


def lose_reply(proxy: Proxy, to: bytes) -> None:
    """The reply to the next message that has this in it is lost."""
    before = proxy.lost
    proxy.loses = lambda sent: to in sent and proxy.lost == before


def test_a_read_whose_reply_was_lost_is_made_again(proxy: Proxy) -> None:
    with a_client(proxy.url, "lost_read") as app:
        job = app.tasks["greet"].enqueue()
        for _ in range(3):
            assert job.refresh().state is State.QUEUED
            lose_reply(proxy, b"")
            assert job.refresh().state is State.QUEUED
        assert proxy.lost == 3


def test_a_keyed_enqueue_whose_reply_was_lost_is_looked_up(proxy: Proxy) -> None:
    with a_client(proxy.url, "lost_key") as app:
        greet = app.tasks["greet"].using(key="before")
        greet.enqueue()
        for number in range(4):
            lose_reply(proxy, b"COMMIT")
            job = app.tasks["greet"].using(key=f"k{number}").enqueue()
            assert proxy.lost == number + 1
            assert job.created, "the look-up counts back from when it is answered, however long that takes"
        assert len(app.jobs()) == 5


def test_a_keyed_enqueue_whose_commit_is_still_under_way_is_looked_up(
    server: EmbeddedPostgres, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.crash.proxy.random.random", lambda: 0.9)  # it cuts at once
    with a_client(proxy.url, "slow_commit") as app:
        greet = app.tasks["greet"].using(key="before")
        greet.enqueue()
        with psycopg.connect(server.url) as sql:
            sql.execute(
                "create function slow_commit.sleep() returns trigger language plpgsql as "
                "$$ begin perform pg_sleep(0.3); return null; end $$"
            )
            sql.execute(
                "create constraint trigger sleep after insert on slow_commit.jobs deferrable initially deferred "
                "for each row execute function slow_commit.sleep()"
            )
        lose_reply(proxy, b"COMMIT")
        assert app.tasks["greet"].using(key="k").enqueue().created
        assert proxy.lost == 1


def test_a_keyed_enqueue_that_was_cut_before_its_commit_is_made_again(proxy: Proxy) -> None:
    with a_client(proxy.url, "lost_begin") as app:
        app.tasks["greet"].using(key="before").enqueue()
        for number in range(4):
            lose_reply(proxy, b"")
            job = app.tasks["greet"].using(key=f"k{number}").enqueue()
            assert job.created
        assert len(app.jobs()) == 5


def test_many_whose_commit_went_unanswered_are_looked_up(proxy: Proxy) -> None:
    with a_client(proxy.url, "lost_many") as app:
        app.enqueue_many([app.tasks["greet"].bind()])
        found = 0
        for number in range(6):
            greet = app.tasks["greet"].using(tags=[f"round{number}"])
            lose_reply(proxy, b"COMMIT")
            try:
                jobs = app.enqueue_many(greet.bind() for _ in range(10))
            except OutcomeUnknown:  # the server was still at it when it was looked for
                continue
            found += 1
            assert {job.refresh().state for job in jobs} == {State.QUEUED}
            assert len(app.jobs(f"tag:round{number}")) == 10
        assert proxy.lost == 6
        assert found


def test_an_enqueue_without_a_key_says_how_to_find_out(proxy: Proxy) -> None:
    with a_client(proxy.url, "lost_plain") as app:
        app.tasks["greet"].enqueue()
        lose_reply(proxy, b"")
        with pytest.raises(OutcomeUnknown, match="task greet may have been enqueued or not"):
            app.tasks["greet"].enqueue()
        app.tasks["greet"].enqueue()


def test_a_transaction_whose_commit_went_unanswered_is_looked_up(proxy: Proxy) -> None:
    """Success and the handler's writes are there, once; or neither, and its attempt is given back."""
    settings = Settings(url=proxy.url, schema="lost_commit")
    with closing(open_store(settings)) as store, psycopg.connect(proxy.past, autocommit=True) as db:
        store.schema.migrate()
        db.execute("create table if not exists paid (n int)")
        for n in range(6):
            a_queued_job(store)
            [held] = claim(store).jobs
            context = JobContext(Attempt(held), store, settings)
            lose_reply(proxy, b"COMMIT")
            known = False
            try:
                with context.transaction() as tx:
                    tx.conn.execute("insert into paid values (%s)", (n,))
                known = True
            except OutcomeUnknown:
                pass  # the server was still at it when it was looked for, and may be at it now
            one_snapshot = """select (select state from lost_commit.jobs where id = %s),
                                     (select count(*) from paid where n = %s)"""
            [(state, rows)] = db.execute(one_snapshot, (held.id, n)).fetchall()
            assert rows == int(state == State.SUCCEEDED)
            assert rows == 1 or not known


def close_it(connection: Any) -> None:
    connection.close()


def divide(connection: Any) -> None:
    connection.execute("select 1/0")


def dawdle(connection: Any) -> None:
    connection.execute("set idle_in_transaction_session_timeout = '50ms'")
    ready(connection.fileno(), timeout=20.0)  # until the server ends it
    connection.execute("select 1")


def steer(connection: Any) -> None:
    connection.execute("set idle_in_transaction_session_timeout = '50ms'")
    ready(connection.fileno(), timeout=20.0)
    try:
        connection.execute("select 1")
    except psycopg.Error:
        raise Fail("no way") from None


@pytest.mark.parametrize(
    ("act", "raised"),
    [
        (close_it, psycopg.OperationalError), (divide, psycopg.errors.DivisionByZero), (dawdle, psycopg.Error),
        (steer, Fail),
    ],
)  # fmt: skip
def test_what_a_handler_does_to_its_own_transaction_is_no_outage(
    server: EmbeddedPostgres, act: Callable[[Any], None], raised: type[Exception]
) -> None:
    """It would be the same again, for ever."""
    settings = Settings(url=server.url, schema="own_doing")
    with closing(open_store(settings)) as store:
        store.schema.migrate()
        a_queued_job(store)
        [held] = claim(store).jobs
        with pytest.raises(raised), JobContext(Attempt(held), store, settings).transaction() as tx:
            act(tx.conn)


@pytest.mark.parametrize("verb", ["_enqueue_steadily", "_enqueue_all"])
def test_while_the_server_is_away_an_enqueue_that_may_have_happened_says_so(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Whoever takes it for one that did not happen, and enqueues again, doubles it."""
    real = getattr(PostgresEnqueue, verb)

    def lost(*given: Any) -> Any:
        done = real(*given)
        for _ in done if verb == "_enqueue_all" else ():
            pass
        server.stop()
        raise OutcomeUnknown("the connection broke")

    with a_client(server.url, f"away{verb}") as app:
        monkeypatch.setattr(PostgresEnqueue, verb, lost)
        greet = app.tasks["greet"]
        calls: dict[str, Callable[[], object]] = {
            "_enqueue_all": lambda: app.enqueue_many([greet.bind()]),
            "_enqueue_steadily": lambda: greet.using(key="k").enqueue(),
        }
        try:
            with pytest.raises(
                OutcomeUnknown, match=r"enqueued or not: enqueue it again with its key|all of these jobs"
            ):
                calls[verb]()
        finally:
            server.start()
        assert len(app.jobs()) == 1, "and it did happen"
