"""What a worker hears while it waits, or during a round trip, leads to a look. When the connection that it listens on
breaks, it opens another one."""

from __future__ import annotations

import threading
from typing import Any, cast

import psycopg
import pytest

from holdfast import State
from holdfast.model.job import Claimed, Wants
from holdfast.store.postgres import wakeups as postgres_wakeups
from holdfast.worker import wakeups
from holdfast.worker.wakeups import Listener
from tests.running import Heard, MakeApp, await_state, working
from tests.waiting import wait_until
from tests.work.scripted import Bench, listening

LANE = ("default", "greet", 0)
HERE = '["default", "greet", 0]'


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(monkeypatch, slots=5)
    listening(bench)
    bench.until_idle()
    return bench


def looks(bench: Bench) -> list[tuple[tuple[str, str, int], ...]]:
    return [wants.told for _, _, wants in bench.store.made if wants is not None]


def test_what_is_said_while_it_waits_ends_the_wait_and_leads_to_a_look(bench: Bench) -> None:
    bench.heard("lane", HERE, 0)
    bench.desk.wait()
    bench.until_idle()
    assert looks(bench)[1:] == [(LANE,)]


def test_whoever_begins_to_listen_looks_for_work_after_that() -> None:
    """What came between the last look and the first word it could hear would wait until the next poll."""
    did: list[str] = []

    class Desk:
        def wake(self) -> None:
            did.append("look")

    listener = Listener(
        cast(Any, None), cast(Any, Desk()), queues=None, requested=lambda: None,
        listening=lambda on: did.append(f"listens: {on}"), peers_changed=lambda: None, table_written=lambda turn: None,
    )  # fmt: skip
    listener.received("listening", "")
    assert did == ["listens: True", "look"]


def test_what_is_said_during_a_trip_leads_to_another_before_it_rests(bench: Bench) -> None:
    def speak(wants: Wants | None) -> Claimed:
        bench.heard("lane", HERE, 0)
        return Claimed()

    bench.store.answers = [speak]
    bench.desk.wakeups.wake()
    bench.until_idle()
    assert looks(bench)[1:] == [(), (LANE,)]


def test_more_than_it_can_keep_leads_to_a_look_everywhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said by another thread while the desk is held up."""
    monkeypatch.setattr(wakeups, "MOST", 10)

    def say() -> None:
        for n in range(1000):
            bench.heard("lane", f'["queue {n}", "greet", 0]', 0)

    other = threading.Thread(target=say)
    other.start()
    other.join()
    assert len(bench.desk.wakeups._waiting) == 10
    bench.until_idle()
    assert looks(bench)[1:] == [()]


@pytest.mark.parametrize(
    "said",
    [
        ("lane", "not json"), ("lane", '["too", "short"]'), ("lane", '["default", "greet", 101]'), ("lane", "[" * 8000),
        ("lane", '["\\u0000", "greet", 0]'), ("lane", '["default", "no such task", 0]'), ("other", "?"),
        ("due", "soon"), ("due", "nan"), ("due", "-1"),
    ],
)  # fmt: skip
def test_a_wakeup_that_makes_no_sense_is_ignored(bench: Bench, said: tuple[str, str]) -> None:
    bench.heard(*said, 0)
    bench.until_idle()
    assert len(looks(bench)) == 1, "nothing to look for"
    bench.heard("lane", HERE, 0)
    bench.until_idle()
    assert looks(bench)[1:] == [(LANE,)], "and it still hears"


@pytest.fixture
def engine() -> str:
    return "postgres"


CUT = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast-listener'"


def test_a_worker_whose_connection_breaks_listens_on_another_one(
    make_app: MakeApp, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "RETRY_DELAYS", (0.05,))
    app = make_app(lease=600, heartbeat=200)  # so that no look of the watchdog's finds the job
    app.task(name="task")(lambda: "done")
    with working(app) as worker, psycopg.connect(app.settings.url, autocommit=True) as session:
        for round in range(1, 4):
            wait_until(lambda n=round: len(heard.of("listening")) == n and worker.desk.poller.listening)  # type: ignore[misc]
            wait_until(lambda: worker.desk.poller.nothing_due and worker.desk.idle())
            await_state(app.find_task("task").enqueue(), State.SUCCEEDED)
            assert session.execute(CUT).fetchall() == [(True,)]
            wait_until(lambda n=round: len(heard.of("deaf")) == n)  # type: ignore[misc]


def test_a_worker_that_stops_does_not_wait_until_its_listener_looks_up(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_wakeups, "LOOK_UP", 3600.0)
    app = make_app()
    app.task(name="task")(lambda: "done")
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.watchdog.looked)
        [listener] = [t for t in threading.enumerate() if t.name == "holdfast-listener"]
    assert not listener.is_alive(), "the wake-up that says that it leaves has woken it"
