"""Wake-ups are hints: they come soon, they never fail anybody, and deafness is told."""

from __future__ import annotations

import json
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import util
from typing import Any

import psycopg
import pytest

from holdfast import events
from holdfast.errors import StoreUnavailable, ValueRefused
from holdfast.model.lifecycle import State
from holdfast.model.peers import CHANNELS, Place
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.postgres import connect as postgres_connect
from holdfast.store.postgres import notify, primary
from holdfast.store.postgres import notify as wakeup_rate
from holdfast.store.postgres import wakeups as listen
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import raw
from tests.factories import BOOM, LEASE, Clock, a_queued_job, a_running_job, a_watchdog, claim, new_job, ref
from tests.waiting import wait_until


class Listening:
    """A listener on a thread of its own."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.heard: queue.Queue[tuple[str, str]] = queue.Queue()
        self.turns: list[int | None] = []  # of all that was heard
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(store, options))
        self._thread.start()

    def _listen(self, store: Store, options: dict[str, Any]) -> None:
        try:
            store.wakeups.listen(self._received, self._stop.is_set, **options)
        except StoreUnavailable as error:
            self.error = error

    def _received(self, kind: str, what: str, turn: int | None) -> None:
        self.turns.append(turn)
        self.heard.put((kind, what))

    def next(self) -> tuple[str, str]:
        return self.heard.get(timeout=10)

    def close(self) -> None:
        self._stop.set()
        self.wait()

    def wait(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


@contextmanager
def listening(store: Store, **options: Any) -> Iterator[Listening]:
    listener = Listening(store, **options)
    try:
        assert listener.next() == ("listening", ""), "first: from now on nothing is missed"
        yield listener
    finally:
        listener.close()


def test_another_handles_job_is_heard(store: Store, stores: Callable[..., Store], engine: str) -> None:
    with listening(stores()) as listener:
        a_queued_job(store, queue="mail", priority=7)
        assert listener.next() == {"sqlite": ("changed", ""), "postgres": ("lane", '["mail", "greet", 7]')}[engine]


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_job_that_is_not_due_yet_tells_when_it_is(store: Store, stores: Callable[..., Store]) -> None:
    with listening(stores()) as listener:
        a_queued_job(store, queue="mail", delay=60)
        assert listener.next() == ("due", "60.000")
        a_queued_job(store, queue="mail", run_at=datetime.now(UTC) + timedelta(hours=1))
        assert listener.next() == ("queue", "mail"), "how long that is, only the database's clock tells"


@pytest.mark.parametrize("engine", ["postgres"])
def test_names_too_long_for_a_wake_up_are_left_out_of_it(store: Store, stores: Callable[..., Store]) -> None:
    with listening(stores()) as listener:
        a_queued_job(store, queue="mail", task="t" * 3000)
        assert listener.next() == ("queue", "mail")


@pytest.mark.parametrize("engine", ["postgres"])
def test_however_quickly_jobs_follow_each_other_each_is_heard_of_soon(
    store: Store, stores: Callable[..., Store]
) -> None:
    """Each in a queue of its own, from two at once: some wake-ups travel with their job, others wait to be sent
    together (docs/decisions/0009); none is stuck."""
    jobs = 400
    told_at: dict[str, float] = {}
    with listening(stores()) as listener:

        def enqueue(who: int) -> None:
            for n in range(jobs // 2):
                queue_name = f"{who}-{n}"
                a_queued_job(store, queue=queue_name)
                told_at[queue_name] = time.monotonic()

        threads = [threading.Thread(target=enqueue, args=(who,)) for who in range(2)]
        for thread in threads:
            thread.start()
        heard: dict[str, float] = {}
        while len(heard) < jobs:
            kind, what = listener.next()
            assert kind == "lane"
            heard[json.loads(what)[0]] = time.monotonic()
        for thread in threads:
            thread.join()
    late = {name: heard[name] - told_at[name] for name in told_at if heard[name] - told_at[name] > 1.0}
    assert not late


def test_a_rescue_wakes_its_own_worker_and_the_others(
    store: Store, stores: Callable[..., Store], settings: Settings, clock: Clock, engine: str
) -> None:
    held = a_running_job(store, queue="mail")
    clock.advance(2 * LEASE)
    wakes: list[float] = []
    watchdog = a_watchdog(store, settings, wakes.append)
    with listening(stores()) as listener:
        watchdog.catch_up()
        assert store.reads.get(str(held.id)).state is State.QUEUED
        assert listener.next() == {"sqlite": ("changed", ""), "postgres": ("queue", "mail")}[engine]
    assert wakes == [0.0]


def pretend_that_many_enqueue(monkeypatch: pytest.MonkeyPatch, *, rest: float) -> None:
    """From the fourth job on: the first begins the counting, the second shows the crowd, a rest follows the third."""
    for name, value in {"WINDOW": 0.0, "MANY": 0, "WAKEUPS": 1e-6, "LONGEST_REST": rest}.items():
        monkeypatch.setattr(wakeup_rate, name, value)


def lanes_heard(listener: Listening, last: str) -> list[str]:
    """The queues of what was heard, up to that one."""
    heard: list[str] = []
    while not heard or heard[-1] != last:
        heard.append(json.loads(listener.next()[1])[0])
    return heard


@pytest.mark.parametrize("engine", ["postgres"])
def test_where_few_enqueue_each_wake_up_travels_with_its_job(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup_rate, "MANY", 1.5)  # however slow the disk, one thread has but one commit under way
    with listening(stores()) as listener:
        for _ in range(50):
            a_queued_job(store, queue="mail")
        a_queued_job(store, queue="last")
        assert lanes_heard(listener, "last") == ["mail"] * 50 + ["last"]


@pytest.mark.parametrize("engine", ["postgres"])
def test_jobs_that_join_others_wake_nobody(store: Store, stores: Callable[..., Store]) -> None:
    """Nothing is new for a worker then: wake-ups for it would look like somebody's idle talk."""
    equal, other = new_job(queue="mail", key="k"), new_job(queue="other")
    with listening(stores()) as listener:
        a_queued_job(store, queue="mail", key="k")
        assert lanes_heard(listener, "mail") == ["mail"], "this one is new"
        assert [answer.created for answers in store.enqueue_many([equal]) for answer in answers] == [False]
        assert [answer.created for answers in store.enqueue_many([equal, equal, other]) for answer in answers] == [
            False, False, True,
        ]  # fmt: skip
        assert listener.next() == ("queue", "other")


@pytest.mark.parametrize("engine", ["postgres"])
def test_where_many_enqueue_a_wake_up_serves_for_several_jobs(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_that_many_enqueue(monkeypatch, rest=5.0)
    with listening(stores()) as listener:
        for _ in range(100):
            a_queued_job(store, queue="mail")
        a_queued_job(store, queue="last")
        heard = lanes_heard(listener, "last")
    # The first three while nobody knew yet, then one in so many; what the last of them left behind is told in the end.
    assert 100 // notify.MOST <= heard.count("mail") <= 100 // notify.MOST + 4


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_busy_lane_does_not_keep_others_from_being_told_of(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_that_many_enqueue(monkeypatch, rest=0.1)
    monkeypatch.setattr(notify, "MOST", 3)
    with listening(stores()) as listener:
        for queue_name in ("busy", "busy", "busy", "quiet"):  # the last of them rests
            a_queued_job(store, queue=queue_name)
        until = time.monotonic() + 10
        heard: list[str] = []
        while "quiet" not in heard and time.monotonic() < until:
            a_queued_job(store, queue="busy")
            while not listener.heard.empty():
                heard.append(json.loads(listener.next()[1])[0])
        assert "quiet" in heard


@pytest.mark.parametrize("engine", ["postgres"])
def test_one_who_sends_in_the_moment_the_thread_does_spoils_nothing(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, PostgresStore)
    notifier, channel, once = store.wakeups.notifier, store.wakeups.channel, iter([True])
    await_answer = notifier._await_answer

    def and_then_another_sends() -> None:
        await_answer()
        if next(once, False):
            with notifier._changed:
                notifier._post([(channel, "qfirst")])
                notifier._waiting[channel, "qsecond"] = None

    monkeypatch.setattr(notifier, "_await_answer", and_then_another_sends)
    with listening(stores()) as listener:
        store.wakeups.notify(["waiting"])
        assert {listener.next() for _ in range(3)} == {("queue", name) for name in ("first", "second", "waiting")}


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_job_that_is_refused_takes_no_others_wake_up_with_it(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_that_many_enqueue(monkeypatch, rest=0.3)
    with listening(stores()) as listener:
        for _ in range(4):  # the last of them rests
            a_queued_job(store, queue="mail")
        told = [listener.next() for _ in range(3)]
        monkeypatch.setattr(notify, "MOST", 0)  # so the next one takes it along
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(queue="mail", correlation_id="\0"))
        assert [*told, listener.next()] == [("lane", '["mail", "greet", 0]')] * 4


def enqueue_many_and_end(settings: Settings) -> None:
    store = open_store(settings)
    list(store.enqueue_many([new_job(), new_job()]))


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_forked_process_of_multiprocessing_sends_its_wake_ups_before_it_ends(
    store: Store, stores: Callable[..., Store], settings: Settings
) -> None:
    with listening(stores()) as listener:
        child = multiprocessing.get_context("fork").Process(target=enqueue_many_and_end, args=(settings,))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        assert listener.next() == ("queue", "default")


@pytest.mark.parametrize("engine", ["postgres"])
def test_however_often_its_thread_starts_a_notifier_is_flushed_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "IDLE", 0.01)
    told: list[object] = []
    monkeypatch.setattr(util, "Finalize", lambda notifier, *args, **options: told.append(notifier))
    for _ in range(3):
        list(store.enqueue_many([new_job()]))
        wait_until(lambda: not any(thread.name == "holdfast-notify" for thread in threading.enumerate()))
    assert len(told) == 1


def test_a_listener_that_is_told_to_stop_stops(store: Store, stores: Callable[..., Store]) -> None:
    with listening(stores()) as listener:
        pass
    assert listener.error is None


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite's listeners see every commit
def test_who_waits_for_a_job_hears_its_end(store: Store, stores: Callable[..., Store]) -> None:
    with listening(stores(), finished=True) as listener:
        succeeded, failed = a_running_job(store), a_running_job(store)
        unawaited = a_running_job(store)
        cancelled = a_queued_job(store)
        for id in (str(succeeded.id), str(failed.id), cancelled):
            store.operator.await_finish(id)
        store.attempts.succeed(ref(unawaited))
        store.attempts.succeed(ref(succeeded))
        assert listener.next() == ("finished", str(succeeded.id))
        store.attempts.fail(ref(failed), BOOM)
        assert listener.next() == ("finished", str(failed.id))
        store.operator.cancel(cancelled)
        assert listener.next() == ("finished", cancelled)


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_listener_whose_connection_breaks_says_so(
    store: Store, stores: Callable[..., Store], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    real = postgres_connect.connect

    def connect(settings: Settings, **options: Any) -> Connection:
        connection = real(settings, **options)
        opened.append(connection.info.backend_pid)
        return connection

    monkeypatch.setattr(primary, "connect", connect)
    with listening(stores()) as listener:
        with raw(settings) as sql:
            assert sql("select pg_terminate_backend(?)", opened[0]) == [(True,)]
        listener.wait()
        assert isinstance(listener.error, StoreUnavailable)


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_listener_hears_what_concerns_its_place_and_moves_with_it(
    store: PostgresStore, stores: Callable[..., Store]
) -> None:
    places = [Place()]
    with listening(stores(), place=lambda: places[-1]) as listener:

        def heard() -> list[tuple[str, int | None]]:
            """What it hears if something is said on each channel, and last on the one for all."""
            before = len(listener.turns)
            store.wakeups.notifier.send(
                [*((channel, f"q{number}") for number, channel in enumerate(store.wakeups.channels))]
            )
            store.wakeups.notify(["last"])
            names: list[str] = []
            while not names or names[-1] != "last":
                names.append(listener.next()[1])
            return list(zip(names, listener.turns[before:], strict=True))

        assert dict(heard()) == {**{str(number): 0 for number in range(CHANNELS)}, "last": None}
        for place in (Place(1, 3), Place(3, 4)):
            places.append(place)
            assert listener.next() == ("moved", "")
            concerned = {str(number): place.turn(number) for number in place.channels()}
            assert dict(heard()) == {**concerned, "last": None}
        assert listener.heard.empty(), "who stays says nothing"


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_comes_while_a_listener_moves_is_heard(
    store: PostgresStore, stores: Callable[..., Store], settings: Settings
) -> None:
    asked, moving = threading.Event(), threading.Event()

    def place() -> Place:
        if not moving.is_set():
            return Place()
        if not asked.is_set():
            with raw(settings) as sql:
                sql("select pg_notify(?, 'r')", store.wakeups.channel)
            asked.set()
        return Place(1, 3)

    with listening(stores(), place=place) as listener:
        moving.set()
        assert {listener.next(), listener.next()} == {("moved", ""), ("requests", "")}


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_place_that_delivers_no_notifications_is_found_out(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler: LISTEN works, and nothing ever comes."""
    monkeypatch.setattr(listen, "SELF_CHECK", 0.05)
    monkeypatch.setattr(psycopg.Connection, "notifies", lambda self, **options: iter(()))
    listener = Listening(stores())
    listener.wait()
    assert "does not deliver notifications" in str(listener.error)
    assert listener.heard.empty()


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_wake_up_that_cannot_be_sent_fails_nobody(store: Store, settings: Settings) -> None:
    nowhere = open_store(replace(settings, url="postgresql://127.0.0.1:1/nowhere"))
    told: queue.Queue[str] = queue.Queue()
    unsubscribe = events.subscribe(lambda name, fields: told.put(name))
    try:
        nowhere.wakeups.notify(["mail"], ["7"], requests=True)
        assert told.get(timeout=10) == "notify_failed"
    finally:
        unsubscribe()
        nowhere.close()


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_connection_that_ends_at_once_costs_a_wake_up_and_no_more(
    store: PostgresStore, stores: Callable[..., Store]
) -> None:
    connect = store.wakeups.notifier._connect
    told: queue.Queue[str] = queue.Queue()

    def ended() -> Connection:
        connection = connect()
        connection.close()
        store.wakeups.notifier._connect = connect  # the next one lives
        return connection

    store.wakeups.notifier._connect = ended
    unsubscribe = events.subscribe(lambda name, fields: told.put(name), only=["notify_failed"])
    try:
        with listening(stores()) as listener:
            store.wakeups.notify(["dropped"])
            told.get(timeout=10)
            store.wakeups.notify(["mail"])
            assert listener.next() == ("queue", "mail")
    finally:
        unsubscribe()


@pytest.mark.parametrize("engine", ["postgres"])
def test_schemas_do_not_wake_each_other(store: Store, settings: Settings, stores: Callable[..., Store]) -> None:
    with listening(stores()) as listener:
        other = open_store(replace(settings, schema="elsewhere"))
        other.wakeups.notify(["theirs"])
        other.close()
        a_queued_job(store, queue="ours")
        assert listener.next() == ("lane", '["ours", "greet", 0]')


def test_without_anyone_listening_a_poll_finds_the_job(store: Store, stores: Callable[..., Store]) -> None:
    quiet = stores()
    id = quiet.enqueue(new_job()).id
    assert [str(job.id) for job in claim(store).jobs] == [id]
