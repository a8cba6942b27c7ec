"""A desk with a wake-up connection hears what comes while it waits, and what came during a round trip. When the
connection breaks, it is given up, and another one is opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest

from holdfast import Holdfast, State
from holdfast.errors import StoreUnavailable
from holdfast.model.job import Claimed, Wants
from holdfast.model.peers import Place
from holdfast.store.base import Trips
from holdfast.worker.wakeups import Listener
from tests.running import await_state, working
from tests.waiting import wait_until
from tests.work.scripted import Bench, ScriptedEar, listening

HERE = '["default", "greet", 0]'


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(monkeypatch, slots=5)
    listening(bench)
    bench.until_idle()
    return bench


def looks(bench: Bench) -> list[tuple[tuple[str, str, int], ...]]:
    return [wants.told for _, _, wants in bench.store.made if wants is not None]


def test_what_is_said_while_it_waits_leads_to_a_look(bench: Bench) -> None:
    ear = ScriptedEar(bench.store)
    bench.attend(ear)
    ear.said.append(("lane", HERE, 0))
    bench.until_idle()
    assert looks(bench)[1:] == [(("default", "greet", 0),)]
    assert ear.used == 1, "its round trips go the same way"


def test_whoever_begins_to_listen_looks_for_work_after_that() -> None:
    """What came between the last look and the first word it could hear would wait until the next poll."""
    did: list[str] = []

    class Desk:
        def wake(self) -> None:
            did.append("look")

    listener = Listener(
        cast(Any, None), cast(Any, Desk()), queues=None, requested=lambda: None,
        listening=lambda on: did.append(f"listens: {on}"), peers_changed=lambda: None, attend=lambda connection: None,
    )  # fmt: skip
    listener.received("listening", "")
    assert did == ["listens: True", "look"]


def test_what_is_said_during_a_trip_leads_to_another_before_it_rests(bench: Bench) -> None:
    ear = ScriptedEar(bench.store)
    bench.attend(ear)

    def speak(wants: Wants | None) -> Claimed:
        ear.said.append(("lane", HERE, 0))
        return Claimed()

    bench.store.answers = [speak]
    bench.desk.wakeups.wake()
    bench.until_idle()
    assert looks(bench)[1:] == [(), (("default", "greet", 0),)]


def test_an_ear_that_went_deaf_is_given_up_and_trips_go_on(bench: Bench) -> None:
    ear = ScriptedEar(bench.store)
    bench.attend(ear)
    ear.broken = True
    bench.desk.wakeups.wake()
    bench.until_idle()
    assert ear.closed
    assert (ear.used, len(looks(bench))) == (0, 2)


@pytest.mark.parametrize(
    "said",
    [
        ("lane", "not json"), ("lane", '["too", "short"]'), ("lane", '["default", "greet", 101]'), ("lane", "[" * 8000),
        ("lane", '["\\u0000", "greet", 0]'), ("lane", '["default", "no such task", 0]'), ("other", "?"),
    ],
)  # fmt: skip
def test_a_wakeup_that_makes_no_sense_is_ignored(bench: Bench, said: tuple[str, str]) -> None:
    ear = ScriptedEar(bench.store)
    bench.attend(ear)
    ear.said.append((*said, 0))
    bench.until_idle()
    assert len(looks(bench)) == 1, "nothing to look for"
    ear.said.append(("lane", HERE, 0))
    bench.until_idle()
    assert looks(bench)[1:] == [(("default", "greet", 0),)], "and it still hears"
    assert not ear.closed


@pytest.fixture
def engine() -> str:
    return "postgres"


MakeApp = Callable[..., Holdfast]


class Silent:
    """A connection that hears nothing any more, and notices by its descriptor alone, as when the kernel gives up on the
    other end."""

    def __init__(self, ear: Any) -> None:
        self._ear = ear
        self.cut = threading.Event()

    def fileno(self) -> int:
        return int(self._ear.fileno())

    def tune(self, place: Place) -> bool:
        return bool(self._ear.tune(place))

    def hear(self) -> Iterator[tuple[str, str, int | None]]:
        if self.cut.is_set():
            raise StoreUnavailable("the connection timed out")
        return cast(Iterator[tuple[str, str, int | None]], self._ear.hear())

    def trips(self) -> AbstractContextManager[Trips]:
        return cast(AbstractContextManager[Trips], self._ear.trips())

    def close(self) -> None:
        self._ear.close()


def test_a_worker_whose_ear_breaks_is_given_another(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.wakeups.RETRY_DELAYS", (0.05,))
    app = make_app(lease=600, heartbeat=200)  # so that no look of the watchdog's finds the job
    app.task(name="task")(lambda: "done")
    ears: list[Silent] = []
    open_ear = app.store.wakeups.open_ear

    def listen() -> Silent:
        ears.append(Silent(open_ear()))
        return ears[-1]

    monkeypatch.setattr(app.store.wakeups, "open_ear", listen)
    with working(app) as worker:
        for round in range(1, 4):
            wait_until(lambda n=round: len(ears) == n and worker.desk.poller.listening)  # type: ignore[misc]
            wait_until(lambda: worker.desk.poller.nothing_due and worker.desk.idle())
            await_state(app.find_task("task").enqueue(), State.SUCCEEDED)
            ears[-1].cut.set()
            worker.desk.wakeups.wake()  # it looks up
