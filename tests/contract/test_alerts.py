"""Scripted incidents: each alert begins and ends, once, by the database's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from holdfast import events
from holdfast.model.alerts import ADVICE, Thresholds
from holdfast.model.filter import Filter
from holdfast.model.outcome import Error
from holdfast.model.polling import Polling
from holdfast.store.base import Store
from holdfast.worker.judge import Judge
from tests.factories import HOUR, MINUTE, Clock, a_queued_job, a_running_job, claim, new_job, ref


class Told(list[tuple[str, str, str]]):
    """What was said since the last look: event, alert and subject."""

    def new(self) -> list[tuple[str, str, str]]:
        found, self[:] = list(self), []
        return found


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()

    def note(name: str, fields: dict[str, object]) -> None:
        alert = fields["alert"]
        assert isinstance(alert, dict)
        told.append((name, alert["name"], alert["subject"]))

    unsubscribe = events.subscribe(note, only=("alert_began", "alert_ended"))
    yield told
    unsubscribe()


@pytest.fixture
def judge(stores: Callable[..., Store], store: Store, clock: Clock) -> Callable[[], None]:
    """Three watchdogs judge, one after the other. What was counted is folded before, as with each look."""
    judges = [Judge(each, Thresholds(), "w") for each in (store, stores(clock=clock), stores(clock=clock))]

    def all_judge() -> None:
        store.rollups.fold()
        for one in judges:
            one.judge()

    return all_judge


def standing(store: Store) -> list[str]:
    return [alert.name for alert in store.alerts.all() if alert.ended_at is None]


def fail(store: Store, times: int, code: str = "Boom") -> None:
    for _ in range(times):
        held = a_running_job(store)
        store.attempts.fail(ref(held), Error(code, "it broke"))


def test_where_all_is_quiet_nobody_is_told(store: Store, clock: Clock, judge: Callable[[], None], told: Told) -> None:
    judge()
    store.attempts.succeed(ref(a_running_job(store)))
    clock.advance(MINUTE)
    judge()
    assert (told, store.alerts.all()) == ([], [])


def test_where_all_is_quiet_judging_costs_two_statements(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    for verb in ("read", "write"):
        original = getattr(store.db, verb)

        def noting(name: str, original: Callable[..., object] = original, **parameters: object) -> object:
            run.append(name)
            return original(name, **parameters)

        monkeypatch.setattr(store.db, verb, noting)
    a_queued_job(store)
    Judge(store, Thresholds(), "w").judge()
    assert list(dict.fromkeys(run)) == ["waiting", "unquiet"]  # on PostgreSQL reading is writing, and noted twice


def test_a_deep_queue_alerts_once_it_was_deep_for_ten_minutes(
    store: Store, clock: Clock, judge: Callable[[], None], told: Told
) -> None:
    list(store.enqueue_many(new_job(queue="mail") for _ in range(1000)))
    judge()
    clock.advance(11 * MINUTE)
    judge()
    assert told == [], "a thousand are not too many"
    a_queued_job(store, queue="mail")
    judge()
    clock.advance(9.9 * MINUTE)
    judge()
    assert (told, store.alerts.all()) == ([], []), "not for ten minutes yet"
    clock.advance(0.2 * MINUTE)
    judge()
    assert told.new() == [("alert_began", "queue_depth", "mail")]
    clock.advance(MINUTE)
    judge()
    assert told.new() == []
    [alert] = store.alerts.all()
    assert (alert.started_at, alert.ended_at) == (clock.now - timedelta(seconds=MINUTE), None)
    assert alert.text == "more than 1,000 jobs of queue mail are due"
    store.operator.bulk("cancel", Filter(queues=("mail",)))
    judge()
    assert told.new() == [("alert_ended", "queue_depth", "mail")]
    assert [alert.ended_at for alert in store.alerts.all()] == [clock.now]


def test_a_queue_that_is_deep_for_a_moment_alerts_nobody(
    store: Store, clock: Clock, judge: Callable[[], None], told: Told
) -> None:
    list(store.enqueue_many(new_job() for _ in range(1001)))
    judge()
    clock.advance(5 * MINUTE)
    claim(store, 10)
    judge()
    clock.advance(3 * MINUTE)
    list(store.enqueue_many(new_job() for _ in range(20)))
    judge()
    clock.advance(9 * MINUTE)
    judge()
    assert told == []


def test_a_spike_of_failures_alerts_and_names_the_codes(
    store: Store, clock: Clock, judge: Callable[[], None], told: Told
) -> None:
    fail(store, 5)
    judge()
    assert told == []
    fail(store, 2, "Timeout")
    judge()
    judge()
    assert told.new() == [("alert_began", "failed_spike", "")]
    [alert] = store.alerts.all()
    assert "7 jobs failed in 10 min" in alert.text
    assert "Boom 5, Timeout 2" in alert.text
    clock.advance(12 * MINUTE)
    judge()
    assert told.new() == [("alert_ended", "failed_spike", "")]
    clock.advance(2 * HOUR)
    fail(store, 6)
    judge()
    assert told.new() == [("alert_began", "failed_spike", "")], "it may happen again"
    assert len(store.alerts.all()) == 2


def test_as_many_failures_as_usual_are_no_spike(
    store: Store, clock: Clock, judge: Callable[[], None], told: Told
) -> None:
    for _ in range(6):
        fail(store, 3)
        clock.advance(10 * MINUTE)
    clock.advance(2 * MINUTE)
    fail(store, 7)
    judge()
    assert told == [], "7 are not more than 3 times 3"
    fail(store, 3)
    judge()
    assert told.new() == [("alert_began", "failed_spike", "")]


def test_attempts_that_take_long_alert(store: Store, clock: Clock, judge: Callable[[], None], told: Told) -> None:
    for seconds in (29.0,) * 3:
        held = a_running_job(store, lease=HOUR)
        clock.advance(seconds)
        store.attempts.succeed(ref(held))
    judge()
    assert told == []
    held = a_running_job(store, lease=HOUR)
    clock.advance(45)
    store.attempts.succeed(ref(held))
    judge()
    assert told.new() == [("alert_began", "slow_jobs", "greet")]
    clock.advance(12 * MINUTE)
    judge()
    assert told.new() == [("alert_ended", "slow_jobs", "greet")]


def test_a_job_that_waits_too_long_alerts(store: Store, clock: Clock, judge: Callable[[], None], told: Told) -> None:
    a_queued_job(store, queue="unserved")
    a_queued_job(store, queue="later", delay=2 * HOUR)
    clock.advance(59 * MINUTE)
    judge()
    assert told == []
    clock.advance(2 * MINUTE)
    judge()
    assert told.new() == [("alert_began", "job_age", "unserved")]
    claim(store, queues=["unserved"])
    judge()
    assert told.new() == [("alert_ended", "job_age", "unserved")]


def test_an_unhealthy_worker_alerts_until_it_is_well_or_gone(
    store: Store, clock: Clock, judge: Callable[[], None], told: Told
) -> None:
    for id in ("w1", "w2"):
        store.workers.register(id=id, name=id, host="h", pid=1, queues=None, tasks=["greet"], slots=1)
    store.look("w2", ["greet"], None, polling=Polling(consecutive_errors=4))
    clock.advance(40)
    judge()
    assert told == []
    store.look("w2", ["greet"], None, polling=Polling(consecutive_errors=5))
    clock.advance(25)
    judge()
    assert sorted(told.new()) == [("alert_began", "worker_unhealthy", "w1"), ("alert_began", "worker_unhealthy", "w2")]
    texts = {alert.subject: alert.text for alert in store.alerts.all()}
    assert texts == {
        "w1": "worker w1 was last seen 65s ago",
        "w2": "worker w2 does not poll: 5 errors in a row",
    }
    store.look("w2", ["greet"], None)
    store.workers.unregister("w1")
    judge()
    assert sorted(told.new()) == [("alert_ended", "worker_unhealthy", "w1"), ("alert_ended", "worker_unhealthy", "w2")]


def test_many_watchdogs_at_once_tell_it_once(
    stores: Callable[..., Store], store: Store, clock: Clock, told: Told
) -> None:
    a_queued_job(store)
    clock.advance(2 * HOUR)
    judges = [Judge(stores(clock=clock), Thresholds(), "w") for _ in range(6)]
    for turn in range(2):
        start = threading.Barrier(len(judges))
        if turn:
            claim(store)

        def judging(judge: Judge, start: threading.Barrier = start) -> None:
            start.wait()
            judge.judge()

        threads = [threading.Thread(target=judging, args=(judge,)) for judge in judges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told.new() == [("alert_began" if not turn else "alert_ended", "job_age", "default")]
    assert len(store.alerts.all()) == 1


@pytest.mark.parametrize("name", ["depth", "failures", "p95", "age"])
def test_a_threshold_of_zero_never_alerts(store: Store, clock: Clock, told: Told, name: str) -> None:
    fail(store, 10)
    held = a_running_job(store, lease=HOUR)
    clock.advance(45)
    store.attempts.succeed(ref(held))
    list(store.enqueue_many(new_job() for _ in range(3)))
    clock.advance(5 * MINUTE)
    store.rollups.fold()
    low = {"depth": 1, "depth_for": 0.0, "failures": 1, "p95": 1.0, "age": 1.0}
    of = {"depth": "queue_depth", "failures": "failed_spike", "p95": "slow_jobs", "age": "job_age"}
    Judge(store, Thresholds(**{**low, name: 0}), "w").judge()  # type: ignore[arg-type]
    assert sorted(alert for _, alert, _ in told) == sorted(set(of.values()) - {of[name]})


def test_every_alert_says_what_to_do() -> None:
    assert all(ADVICE.values())


def test_old_alerts_are_forgotten(store: Store, clock: Clock, judge: Callable[[], None]) -> None:
    a_queued_job(store)
    clock.advance(2 * HOUR)
    judge()
    claim(store)
    judge()
    clock.advance(HOUR)
    store.alerts.forget(2 * HOUR)
    assert len(store.alerts.all()) == 1
    store.alerts.forget(MINUTE)
    assert store.alerts.all() == []
