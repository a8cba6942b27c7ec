"""What goes on, at one look: with a fixed number of statements, and rates that are estimates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome
from holdfast.store import overview as module
from holdfast.store.base import Store
from holdfast.store.overview import SAMPLE, Rates, overview
from tests.factories import BOOM, HOUR, MINUTE, Clock, a_queued_job, a_running_job, claim, new_job, ref

SECOND = timedelta(seconds=1)


def test_an_empty_store_has_nothing_to_show(store: Store, clock: Clock) -> None:
    seen = overview(store)
    assert seen.at == clock.now
    assert (seen.depths, seen.rates, seen.workers, seen.running, seen.failures, seen.pauses) == ([], {}, [], [], [], [])


def test_it_tells_what_waits_runs_failed_and_is_paused(store: Store, clock: Clock) -> None:
    store.workers.register(id="w1", name="w", host="h", pid=7, queues=None, tasks=["greet"], slots=4)
    store.attempts.fail(ref(a_running_job(store, queue="mail")), BOOM)
    first = a_running_job(store, queue="mail")
    store.attempts.progress(ref(first), 3, 10, "page 3")
    clock.advance(5)
    second = a_running_job(store)
    store.operator.cancel(str(second.id))
    a_queued_job(store, queue="mail")
    store.pauses.add("queue", "mail", by="ops", reason="because")
    store.pauses.add("task", "greet")
    seen = overview(store)
    assert [(d.queue, d.due, d.running, d.failed) for d in seen.depths] == [
        ("default", 0, {"w1": 1}, 0), ("mail", 1, {"w1": 1}, 1),
    ]  # fmt: skip
    assert [(job.id, job.done, job.total, job.note, job.cancel_requested) for job in seen.running] == [
        (str(first.id), 3, 10, "page 3", False), (str(second.id), None, None, None, True),
    ]  # fmt: skip
    assert (seen.running[0].fence, seen.running[0].started_at) == (first.fence, seen.running[1].started_at - 5 * SECOND)
    assert [(f.queue, f.error_code, f.error_message) for f in seen.failures] == [("mail", "Boom", "it broke")]
    assert [worker.id for worker in seen.workers] == ["w1"]
    assert [(pause.kind, pause.name) for pause in seen.pauses] == [("queue", "mail"), ("task", "greet")]


def test_it_can_be_of_some_queues_only(store: Store) -> None:
    store.workers.register(id="w1", name="w", host="h", pid=7, queues=["mail"], tasks=["greet"], slots=4)
    store.workers.register(id="w2", name="w", host="h", pid=8, queues=["news"], tasks=["greet"], slots=4)
    store.workers.register(id="w3", name="w", host="h", pid=9, queues=None, tasks=["greet"], slots=4)
    for queue in ("mail", "news"):
        store.attempts.fail(ref(a_running_job(store, queue=queue)), BOOM)
        a_running_job(store, queue=queue)
        store.pauses.add("queue", queue)
    for queue in ("mail", "news"):
        a_queued_job(store, queue=queue)
    seen = overview(store, ["mail"])
    assert [depth.queue for depth in seen.depths] == [job.queue for job in seen.running] == ["mail"]
    assert [failure.queue for failure in seen.failures] == [pause.name for pause in seen.pauses] == ["mail"]
    assert [worker.id for worker in seen.workers] == ["w1", "w3"]
    assert list(seen.rates) == ["mail"]


def test_it_takes_as_many_statements_for_fifty_queues_as_for_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read, statements = store.db.read, list[str]()

    def counting(name: str, /, **parameters: Any) -> Any:
        statements.append(name)
        return read(name, **parameters)

    monkeypatch.setattr(store.db, "read", counting)
    a_running_job(store)
    a_queued_job(store)
    overview(store)
    few = list(statements)
    for number in range(50):
        a_queued_job(store, queue=f"q{number}", priority=number)
        store.attempts.fail(ref(a_running_job(store, task=f"t{number}")), BOOM)
    claim(store, 20)
    statements.clear()
    overview(store)
    assert statements == few
    assert len(few) <= 12


def test_no_more_running_jobs_are_listed_than_there_is_use_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 3)
    list(store.enqueue_many(new_job() for _ in range(5)))
    assert len(claim(store, 5).jobs) == 5
    seen = overview(store)
    assert len(seen.running) == 3
    assert [depth.running for depth in seen.depths] == [{"w1": 5}]


def test_rates_tell_of_the_last_minute(store: Store, clock: Clock) -> None:
    for _ in range(6):
        store.attempts.succeed(ref(a_running_job(store, queue="mail")))  # too long ago
    clock.advance(2 * MINUTE)
    for _ in range(30):
        store.attempts.succeed(ref(a_running_job(store, queue="mail")))
    for _ in range(12):
        a_queued_job(store, queue="news")
    assert overview(store).rates == {"mail": Rates(30 / 60, 30 / 60), "news": Rates(12 / 60, 0.0)}


def test_rates_of_more_than_the_sample_are_made_of_the_time_it_covers(store: Store, clock: Clock) -> None:
    for _ in range(4):  # 500 a second for four seconds
        list(store.enqueue_many(new_job() for _ in range(500)))
        store.exchange([_done(job) for job in claim(store, 500).jobs], None)
        clock.advance(1)
    [rates] = overview(store).rates.values()
    assert rates.came == pytest.approx(SAMPLE / 2, rel=0.01)
    assert rates.ended == pytest.approx(SAMPLE / 2, rel=0.01)


def test_a_backlog_that_is_worked_off_has_a_rate(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(4 * SAMPLE)))
    clock.advance(HOUR)
    for _ in range(3):  # 600 a second
        store.exchange([_done(job) for job in claim(store, 600).jobs], None)
        clock.advance(1)
    claim(store, 10)
    [rates] = overview(store).rates.values()
    assert rates.came == 0
    assert rates.ended == pytest.approx(SAMPLE / 2, rel=0.3)


def _done(job: ClaimedJob) -> Outcome:
    return Outcome("succeed", job.id, job.fence)
