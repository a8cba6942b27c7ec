"""Any process can tell how a worker polls, and whether it is well; telling it costs no statement."""

from __future__ import annotations

import threading
import time
from unittest import mock

import pytest

from holdfast import Holdfast
from holdfast.model.job import WorkerStatus
from holdfast.model.metrics import metrics_of
from holdfast.model.polling import Polling
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.metrics import measure
from holdfast.worker import watchdog
from holdfast.worker.mandate import STUCK, Meters
from holdfast.worker.watchdog import Presence
from tests.factories import a_watchdog
from tests.running import MakeApp, working
from tests.waiting import wait_until


def seen(app: Holdfast) -> WorkerStatus:
    [worker] = app.workers()
    return worker


def test_polls_per_minute_of_an_idle_worker_is_never_zero(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sleeps until somebody wakes it, and still looks now and then."""
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.1)
    app, outside = make_app(), make_app()
    app.task(name="task")(lambda: None)
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        wait_until(lambda: seen(outside).polling.polls_per_minute > worker.desk.meters.polls + 2)
        assert seen(outside).healthy


def test_a_worker_with_all_slots_busy_is_healthy(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.1)
    app, outside = make_app(threads=1), make_app()
    over = threading.Event()
    app.task(name="task")(over.wait)
    with working(app) as worker:
        app.tasks["task"].enqueue()
        try:
            wait_until(lambda: worker.desk.in_flight and not worker.desk.claims.has_room(), "it is full")
            before = seen(outside).polling.polls_per_minute
            wait_until(lambda: seen(outside).polling.polls_per_minute > before + 2)
            found = seen(outside)
            assert (found.healthy, found.running) == (True, 1)
            assert (found.polling.claims_won, found.polling.claim_success_rate) == (1, 1.0)
            assert found.polling.avg_claim_latency
            assert found.polling.jobs_found_per_poll
        finally:
            over.set()


def presence(store: Store, meters: Meters) -> Presence:
    return Presence(
        store, "w1", name="w1", host="h", queues=None, tasks=("greet",), lease=20.0, slots=lambda: 1,
        is_open=lambda: False, meters=meters,
    )  # fmt: skip


def test_a_worker_whose_loop_is_stuck_no_longer_counts_as_polling(kept: Store) -> None:
    """Its watchdog still looks, on a thread of its own."""
    meters = Meters()
    one = presence(kept, meters)
    one.register()
    one.look()
    [worker] = kept.workers.all()
    assert worker.polling == Polling(polls_per_minute=1, jobs_found_per_poll=0.0)
    meters.turned -= STUCK
    meters.poll_meter.last -= 61
    one.look()
    [worker] = kept.workers.all()
    assert worker.polling.polls_per_minute == 1
    assert worker.polling.idle_seconds > 60
    assert not worker.polls_well(kept.reads.now())


def test_others_see_within_a_minute_that_a_worker_is_gone(kept: Store) -> None:
    one = presence(kept, Meters())
    one.register()
    one.look()
    [worker] = kept.workers.all()
    now = kept.reads.now().timestamp()
    at = [worker.seen_at.fromtimestamp(now + seconds, worker.seen_at.tzinfo) for seconds in (1, 44, 62)]
    assert [worker.polls_well(one) for one in at] == [True, True, False]


def test_telling_it_costs_no_statement(kept: Store, settings: Settings) -> None:
    """An idle worker sends what its look needs, three times a minute, and nothing else."""
    dog = a_watchdog(kept, settings)
    dog._look()  # as every worker does first: it also registers
    run: list[str] = []
    original = kept.db.rows  # type: ignore[attr-defined]

    def noting(connection: object, text: str, *parameters: object) -> object:
        run.append(text)
        return original(connection, text, *parameters)

    with mock.patch.object(kept.db, "rows", noting):
        began = time.monotonic()
        dog._look()
    assert len(run) == (3 if settings.url.startswith("sqlite") else 1)
    assert dog._look_at - began == pytest.approx(settings.lease, abs=1.0)


def test_lost_claims_are_counted_for_good_with_the_look(kept: Store, settings: Settings) -> None:
    dog = a_watchdog(kept, settings)
    dog._presence._meters.poll_meter.succeeded(time.monotonic(), tried=True)
    for _ in range(2):
        dog._look()
    assert metrics_of(measure(kept)).lost_claims_total == 1
