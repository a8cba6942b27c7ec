"""Handlers share a few connections for their transactions on PostgreSQL, and wait for a free one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, JobContext, State
from holdfast.errors import TooManyConnections
from holdfast.store.engine import Permits
from tests.contract.places import raw
from tests.running import HASTY, Heard, working
from tests.servers import own_postgres
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])
only_plain = pytest.mark.parametrize("plain", [True, False], ids=["thread", "coroutine"])


class Crowd:
    """Counts who has a transaction open."""

    def __init__(self) -> None:
        self.now = self.most = self.entered = 0
        self._lock = threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.entered += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1


def declare(app: Holdfast, crowd: Crowd, go_on: threading.Event, *, plain: bool, **options: Any) -> Any:
    """A task that keeps its transaction open until told to go on."""
    if plain:

        @app.task(max_attempts=1, **options)
        def hold(ctx: JobContext) -> None:
            with ctx.transaction(), crowd():
                go_on.wait(30)

        return hold

    @app.task(name="hold", max_attempts=1, **options)
    async def ahold(ctx: JobContext) -> None:
        async with ctx.transaction():
            with crowd():
                while not go_on.is_set():  # noqa: ASYNC110 - set on another thread
                    await asyncio.sleep(0.01)

    return ahold


@only_plain
def test_more_handlers_than_connections_wait_in_line(make_app: Callable[..., Holdfast], plain: bool) -> None:
    app = make_app(handler_connections=3, concurrency=40, threads=40)
    crowd, go_on = Crowd(), threading.Event()
    hold = declare(app, crowd, go_on, plain=plain)
    jobs = [hold.enqueue() for _ in range(40)]
    with working(app):
        wait_until(lambda: crowd.now == 3)
        wait_until(lambda: len(app.jobs(state="running", limit=100)) == 40)
        with psycopg.connect(app.settings.url) as db:
            [(open_now,)] = db.execute(
                "select count(*) from pg_stat_activity where application_name = 'holdfast-handler' and state <> 'idle' "
                "and datname = current_database()"
            ).fetchall()
        assert open_now <= 3
        go_on.set()
        wait_until(lambda: all(job.refresh().state is State.SUCCEEDED for job in jobs))
    assert {job.refresh().record.attempt for job in jobs} == {1}
    assert (crowd.most, crowd.entered) == (3, 40)


@only_plain
@pytest.mark.parametrize("how", ["cancel", "timeout", "lost"])
def test_who_waits_for_a_connection_can_be_stopped(
    make_app: Callable[..., Holdfast], plain: bool, how: str, heard: Heard
) -> None:
    app = make_app(handler_connections=1, **HASTY)
    crowd, go_on = Crowd(), threading.Event()
    hold = declare(app, crowd, go_on, plain=plain)
    begun = threading.Event()

    def waiting(ctx: JobContext) -> None:
        begun.set()
        with ctx.transaction(), crowd():
            pass

    async def awaiting(ctx: JobContext) -> None:
        begun.set()
        async with ctx.transaction():
            with crowd():
                pass

    limit = 1.0 if how == "timeout" else None
    wait: Any = app.task(name="wait", max_attempts=1, timeout=limit)(waiting if plain else awaiting)
    with working(app):
        first = hold.enqueue()
        wait_until(lambda: crowd.now == 1)
        second = wait.enqueue()
        assert begun.wait(10)
        if how == "cancel":
            second.cancel()
            wait_until(lambda: second.refresh().state is State.CANCELLED)
        elif how == "timeout":
            wait_until(lambda: second.refresh().state is State.FAILED)
            assert second.refresh().record.error_code == "TIMED_OUT"
        else:
            # As if another worker had taken it over, and this one alone.
            with raw(app.settings) as sql:
                sql("update {jobs} set fence = gen_random_uuid() where id = ?", int(second.id))
            wait_until(lambda: any(told["job"] == second.id for told in heard.of("lease_lost")))
        assert crowd.entered == 1
        go_on.set()
        wait_until(lambda: first.refresh().state is State.SUCCEEDED)
        third = hold.enqueue()  # whoever was stopped has left the line
        wait_until(lambda: third.refresh().state is State.SUCCEEDED)
    assert crowd.entered == 2


@only_plain
def test_a_server_that_refuses_connections_is_asked_again(
    make_app: Callable[..., Holdfast], plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(handler_connections=2)
    crowd, go_on = Crowd(), threading.Event()
    go_on.set()
    tried: list[float] = []
    open_really = app.store.user_connections.transaction

    def sometimes(note: str = "") -> Any:
        tried.append(time.monotonic())
        if len(tried) < 4:
            raise TooManyConnections("sorry, too many clients already")
        return open_really(note)

    monkeypatch.setattr(app.store.user_connections, "transaction", sometimes)
    hold = declare(app, crowd, go_on, plain=plain)
    job = hold.enqueue()
    with working(app):
        wait_until(lambda: job.refresh().state is State.SUCCEEDED)
    assert (job.refresh().record.attempt, len(tried), crowd.entered) == (1, 4, 1)
    assert tried[3] - tried[2] > tried[1] - tried[0]


def test_the_server_notices_within_half_a_lease_that_a_handler_has_vanished(engine: str) -> None:
    names = ("keepalives_idle", "keepalives_interval", "keepalives_count", "user_timeout")
    with own_postgres(tcp=True) as server, Holdfast(server.url, lease=20.0) as app:
        app.migrate()
        with app.store.user_connections.transaction() as own:
            assert [own.execute(f"show tcp_{name}").fetchone()[0] for name in names] == ["3", "3", "2", "10000"]


def test_a_plain_with_in_a_coroutine_is_refused(make_app: Callable[..., Holdfast]) -> None:
    """It could wait for a transaction of another coroutine, which would wait for the loop that it blocks."""
    app = make_app()

    @app.task(max_attempts=1)
    async def pay(ctx: JobContext) -> None:
        with ctx.transaction():
            pass

    job = pay.enqueue()
    app.drain()
    assert job.refresh().state is State.FAILED
    assert "async with ctx.transaction()" in (job.refresh().record.error_message or "")


def test_permits_are_granted_in_order_and_pass_over_who_left(engine: str) -> None:
    permits = Permits(1)
    first, second, third, fourth = (permits.ask() for _ in range(4))
    assert [permit.done() for permit in (first, second, third, fourth)] == [True, False, False, False]
    permits.give_back(second)  # it left the line
    permits.give_back(first)
    assert third.result(0) is None
    assert not fourth.done()
    permits.give_back(third)
    assert fourth.result(0) is None
    permits.give_back(fourth)
    assert permits.ask().done()
    assert not permits.ask().done()
