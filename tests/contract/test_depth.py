"""How much waits, runs and failed, told without counting for long."""

from __future__ import annotations

import pytest

from holdfast.model.job import Depth
from holdfast.store import reads as depth
from holdfast.store.base import Store
from tests.factories import BOOM, HOUR, LEASE, Clock, a_queued_job, a_running_job, claim, new_job, ref


def test_depths_tell_each_task_of_each_queue(store: Store, clock: Clock) -> None:
    kept = a_running_job(store, task="scan", worker="w1")
    store.attempts.fail(ref(a_running_job(store, queue="mail")), BOOM)
    began = clock.now
    for priority in (3, -3):
        a_queued_job(store, queue="mail", priority=priority)
        clock.advance(1)
    a_queued_job(store, queue="mail", delay=HOUR, priority=3)
    a_queued_job(store, queue="mail", task="scan", delay=HOUR)
    store.operator.pause(a_queued_job(store, queue="mail"))
    assert store.reads.depths() == [
        Depth("default", "scan", 0, 0, {"w1": 1}, 0, None, False),
        Depth("mail", "greet", 2, 1, {}, 1, began, False),
        Depth("mail", "scan", 0, 1, {}, 0, None, False),
    ]
    store.attempts.succeed(ref(kept))
    clock.advance(2 * HOUR)
    assert [(d.queue, d.task, d.due, d.scheduled) for d in store.reads.depths()] == [
        ("mail", "greet", 3, 0), ("mail", "scan", 1, 0),
    ]  # fmt: skip


def test_what_waits_to_be_run_alone_is_due(store: Store, clock: Clock) -> None:
    for _ in range(2):
        a_queued_job(store)
    assert len(claim(store, 2).jobs) == 2
    clock.advance(LEASE + 1)
    assert len(store.rescues.rescue()) == 2
    [waiting] = store.reads.depths()
    assert (waiting.due, waiting.running, waiting.oldest_due_at) == (2, {}, clock.now)


def test_no_more_are_counted_than_the_cap(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "COUNTED", 5)
    list(store.enqueue_many(new_job() for _ in range(5)))
    assert [(d.due, d.capped) for d in store.reads.depths()] == [(5, False)]
    list(store.enqueue_many(new_job(delay=HOUR) for _ in range(20)))
    assert [(d.due, d.scheduled, d.capped) for d in store.reads.depths()] == [(5, 6, True)]


def test_no_more_lanes_are_looked_at_than_the_cap_and_that_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth, "LANES", 3)
    for n in range(3):
        a_queued_job(store, queue=f"q{n}")
    assert [(d.queue, d.capped) for d in store.reads.depths()] == [("q0", False), ("q1", False), ("q2", False)]
    a_queued_job(store, queue="q3")
    assert [(d.queue, d.capped) for d in store.reads.depths()] == [("q0", True), ("q1", True), ("q2", True)]
