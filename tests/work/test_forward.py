"""Events on their way from a worker to its runner processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import BadSettings, Holdfast, events
from holdfast.model.job import NewJob
from holdfast.runners import event_forwarding
from holdfast.runners.event_forwarding import Forwarder, Receiver
from holdfast.runners.pooled_process import PooledProcess
from holdfast.runners.process_pool import ProcessPool
from holdfast.runners.wire import Deliver, ToRunner
from holdfast.settings import Settings
from holdfast.worker.worker import Worker
from tests.running import Heard
from tests.waiting import wait_until


class Runner:
    """A runner process, as the forwarder knows it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.batches: list[int] = []
        self.backlog = False

    def send(self, message: ToRunner) -> None:
        assert isinstance(message, Deliver)
        batch = [msgspec.msgpack.decode(event) for event in message.events]
        self.batches.append(len(batch))
        self.told += [(name, fields) for name, fields in batch]

    @property
    def numbers(self) -> list[int]:
        return [fields["count"] for name, fields in self.told if name == "recorded"]

    @property
    def dropped(self) -> list[int]:
        return [fields["count"] for name, fields in self.told if name == "events_dropped"]


@pytest.fixture
def wakes() -> list[None]:
    return []


@pytest.fixture
def forwarder(wakes: list[None]) -> Iterator[Forwarder]:
    forwarder = Forwarder(lambda: wakes.append(None))
    yield forwarder
    forwarder.close(0.0)


def emit(*counts: int) -> None:
    for count in counts:
        events.emit("recorded", count=count)


def test_what_comes_while_a_batch_is_under_way_goes_together_when_that_was_heard(
    forwarder: Forwarder, wakes: list[None]
) -> None:
    runner = Runner()
    forwarder.announced(None)
    emit(1)
    assert len(wakes) == 1
    forwarder.send([runner])
    emit(2, 3, 4)
    forwarder.send([runner])
    assert (runner.numbers, len(wakes)) == ([1], 1)
    forwarder.delivered(runner)
    forwarder.send([runner])
    assert (runner.numbers, runner.batches) == ([1, 2, 3, 4], [1, 3])


def test_a_process_that_does_not_take_what_was_sent_gets_no_more(forwarder: Forwarder) -> None:
    """Whatever it says: it could fill the worker's memory by saying that it has heard."""
    runner = Runner()
    forwarder.announced(None)
    emit(1)
    runner.backlog = True
    forwarder.send([runner])
    forwarder.delivered(runner)
    forwarder.send([runner])
    assert runner.numbers == []
    runner.backlog = False
    forwarder.send([runner])
    assert runner.numbers == [1]


def test_all_goes_to_one_process_until_that_is_gone_then_to_another(forwarder: Forwarder) -> None:
    """What the first one may not have heard any more is counted, not told again."""
    first, second = Runner(), Runner()
    forwarder.announced(None)
    for number in (1, 2):
        emit(number)
        forwarder.send([first, second])
        forwarder.delivered(first)
    emit(3, 4)
    forwarder.send([first, second])
    emit(5)
    forwarder.lost(first)
    forwarder.send([second])
    assert (first.numbers, second.numbers, second.dropped) == ([1, 2, 3, 4], [5], [2])


def test_what_finds_no_room_is_dropped_and_counted(forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_forwarding, "ROOM", 1000)
    monkeypatch.setattr(event_forwarding, "BATCH", 400)
    runner = Runner()
    forwarder.announced(None)
    emit(*range(10_000))
    assert forwarder._size < 1100
    while forwarder._queue or forwarder._under_way:
        forwarder.send([runner])
        forwarder.delivered(runner)
    kept = len(runner.numbers)
    assert runner.numbers == list(range(kept))
    assert sum(runner.dropped) == 10_000 - kept
    assert max(runner.batches) < kept


def test_a_listener_that_never_returns_is_logged_meanwhile_and_at_the_end(
    forwarder: Forwarder, heard: Heard, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_forwarding, "ROOM", 1000)
    monkeypatch.setattr(event_forwarding, "BATCH", 400)
    runner = Runner()
    forwarder.announced(None)
    emit(*range(30))
    forwarder.send([runner])
    emit(*range(10_000))
    assert logged(caplog) == [1], "not once for each"
    monkeypatch.setattr(event_forwarding, "LOG_EVERY", 0.0)
    emit(1)
    assert len(logged(caplog)) == 2
    forwarder.close(0.0)
    assert [fields["count"] for fields in heard.of("events_dropped")] == [10_031]
    assert sum(logged(caplog)) == 10_031
    forwarder.lost(runner)
    assert len(heard.of("events_dropped")) == 1, "told once"


def logged(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.__dict__["holdfast"]["count"] for record in caplog.records if "did not reach" in record.getMessage()]


def test_only_what_somebody_listens_to_is_kept_and_the_rest_is_not_even_made(forwarder: Forwarder) -> None:
    def never() -> list[dict[str, Any]]:
        raise AssertionError("made for nobody")

    for names in ([], ["failed"]):
        forwarder.announced(names)
        events.emit("claimed", jobs=never, count=1, worker="w")
    assert not forwarder._queue
    assert events.heard() == ["failed"]
    events.emit("failed", job="1")
    assert len(forwarder._queue) == 1


def test_a_value_of_any_kind_gets_through(forwarder: Forwarder, heard: Heard) -> None:
    forwarder.announced(["recorded"])
    events.emit("recorded", count=1, place=Path("/x"), when=(1, 2.5, None, b"x", {"a": [True]}))
    [event] = forwarder._queue
    told = threading.Event()
    Receiver(told.set).take([msgspec.Raw(event)])
    assert told.wait(5)
    assert heard.of("recorded")[1] == {"count": 1, "place": "/x", "when": [1, 2.5, None, b"x", {"a": [True]}]}


def test_a_listener_may_ask_for_some_events_only() -> None:
    told: list[str] = []
    unsubscribe = events.subscribe(lambda name, fields: told.append(name), only=["recorded"])
    try:
        assert events.wanted("recorded")
        emit(1)
        events.emit("renewed", count=1)
    finally:
        unsubscribe()
    assert told == ["recorded"]
    with pytest.raises(BadSettings, match="there is no event succeded"):
        events.subscribe(lambda name, fields: None, only=["succeded"])


APP = """
from holdfast import Holdfast, events
hf = Holdfast()
@hf.task
def work() -> None: ...
"""
LISTENS = {
    "to nothing": "",
    "to what does not happen": "events.subscribe(lambda name, fields: None, only=['purged'])",
    "by a hook for errors": "hf.on_error(lambda job, error: None)",
    "to everything": "events.subscribe(lambda name, fields: None)",
}


@pytest.mark.parametrize("how", LISTENS)
def test_a_worker_sends_no_event_where_nobody_listens(
    how: str, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in asdict(settings).items():
        if name in ("url", "schema", "synchronous"):
            monkeypatch.setenv(f"HOLDFAST_{name.upper()}", str(value))
    (tmp_path / "app.py").write_text(APP + LISTENS[how] + "\n")
    sent: list[ToRunner] = []
    send: Callable[[PooledProcess, ToRunner], None] = PooledProcess.send

    def spy(process: PooledProcess, message: ToRunner) -> None:
        sent.append(message)
        send(process, message)

    monkeypatch.setattr(PooledProcess, "send", spy)
    with Holdfast(**asdict(settings)) as app:
        app.migrate()
        pool = ProcessPool(f"{tmp_path}/app.py")
        job = app.store.enqueue(NewJob(task="work", args=b"{}"))
        assert Worker(app.store, pool.settings, pool).drain() == 1
        assert app.store.reads.get(job.id).state == "succeeded"
    assert sent
    events_sent = [message for message in sent if isinstance(message, Deliver)]
    assert bool(events_sent) is (how == "to everything")
    wait_until(lambda: events.heard() == [], "the worker listens no more")
