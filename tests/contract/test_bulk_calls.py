"""Verbs on many jobs whose process died, or lost the database, are carried on: each job once, and by one worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Refused, RowLocked, StoreUnavailable
from holdfast.model.filter import parse
from holdfast.model.job import Changed
from holdfast.store import bulk_calls, reads
from holdfast.store.base import Store
from holdfast.store.bulk_calls import SILENT
from tests.contract.places import at_once
from tests.factories import BOOM, HOUR, Clock, a_queued_job, a_running_job, claim, new_job, ref


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "CHUNK", 4)
    monkeypatch.setattr(bulk_calls, "CHUNK", 4)


def cut_short(act: Callable[..., Changed], *args: Any, after: int = 1, **options: Any) -> None:
    """As if the process had died after so many chunks: it does nothing more, and its call stays begun."""
    chunks = []

    def told(done: Changed) -> None:
        chunks.append(done)
        if len(chunks) == after:
            raise StoreUnavailable("away")

    with pytest.raises(StoreUnavailable):
        act(*args, told=told, **options)


def never() -> bool:
    return False


def carry_on(store: Store) -> Changed:
    call = store.operator.bulk_calls.take_silent()
    assert call is not None
    return store.operator.bulk_calls.carry_on(call, never)


def in_state(store: Store, state: str) -> int:
    return store.reads.count(parse(f"state:{state}"))


def failed(store: Store, count: int = 1) -> None:
    for _ in range(count):
        store.attempts.fail(ref(a_running_job(store)), BOOM)


def test_the_rest_is_done_and_counted_once(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(10)))
    cut_short(store.operator.bulk, "pause", parse("task:greet"), "provider down", "ops")
    later = a_queued_job(store)
    assert store.operator.bulk_calls.take_silent() is None, "its holder may live"
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(6, 0)
    [record] = store.audit.all()
    assert (record.changed, record.asked, record.refused, record.by) == (10, 0, 0, "ops")
    assert record.ended_at is not None
    assert store.reads.get(later).state == "queued", "it came after the call was begun"
    assert store.reads.get("1").asked_why == "provider down"
    assert [call.verb for call in store.audit.all(job="1")] == ["pause"]
    clock.advance(HOUR)
    assert store.operator.bulk_calls.take_silent() is None


def test_a_job_that_failed_again_is_not_retried_twice(store: Store, clock: Clock) -> None:
    failed(store, 6)
    cut_short(store.operator.bulk, "retry", parse("state:failed"))
    for held in claim(store, 4).jobs:
        store.attempts.fail(ref(held), BOOM)
    assert in_state(store, "failed") == 6
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(2, 0)
    assert (in_state(store, "failed"), in_state(store, "queued")) == (4, 2)


def test_a_limit_and_a_spread_hold_for_the_whole(store: Store, clock: Clock) -> None:
    failed(store, 12)
    cut_short(store.operator.bulk_some, "retry", parse("state:failed"), limit=10, spread=100.0)
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(6, 0)
    left = store.reads.jobs(parse("state:failed"))
    assert [job.id for job in left] == ["12", "11"], "the oldest are retried"
    due = [(store.reads.get(str(id)).run_at - clock.now).total_seconds() for id in range(5, 11)]
    assert due == [0, 10, 20, 30, 40, 50], "the rest over the rest of the time"


def test_so_long_ago_means_before_the_call_was_begun(store: Store, clock: Clock) -> None:
    a_queued_job(store)
    clock.advance(HOUR)
    for _ in range(6):
        a_queued_job(store)
    cut_short(store.operator.bulk, "cancel", parse("since:10m"))
    clock.advance(HOUR)
    assert carry_on(store) == Changed(2, 0)
    assert store.audit.all()[0].what == "since:600s"
    assert store.reads.get("1").state == "queued"


@pytest.mark.parametrize("sign", [1, -1])
def test_what_is_changed_is_the_same(store: Store, clock: Clock, sign: int) -> None:
    list(store.enqueue_many(new_job() for _ in range(6)))
    run_at = clock.now + sign * timedelta(hours=1)
    given: dict[str, Any] = {"queue": "slow", "priority": 3, "tags": ("a", "b"), "run_at": run_at, "delay": None}
    cut_short(store.operator.bulk, "change", parse("task:greet"), **given)
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(2, 0)
    assert {(job.queue, job.priority, job.tags, job.run_at) for job in store.reads.jobs()} == {
        ("slow", 3, ("a", "b"), run_at)
    }


def test_a_holder_that_was_only_slow_does_no_more(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(12)))
    other = stores(clock=clock)

    def sleep(done: Changed) -> None:
        clock.advance(SILENT + 1)
        assert other.operator.bulk_calls.take_silent() is not None

    with pytest.raises(Refused, match="a worker carries it on"):
        store.operator.bulk("pause", parse("task:greet"), told=sleep)
    assert in_state(store, "paused") == 4
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(8, 0)
    assert store.audit.all()[0].changed == 12


def test_one_of_many_takes_it(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(40)))
    cut_short(store.operator.bulk, "cancel", parse("task:greet"))
    clock.advance(SILENT + 1)
    own = [stores(clock=clock) for _ in range(4)]
    taken = at_once(4, lambda n: own[n].operator.bulk_calls.take_silent())
    assert sum(call is not None for call in taken) == 1


def test_whoever_is_told_of_an_error_decides_what_becomes_of_the_rest(store: Store, clock: Clock) -> None:
    """Ctrl-C, say: nobody expects that it goes on."""
    list(store.enqueue_many(new_job() for _ in range(10)))

    def stop(done: Changed) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.operator.bulk("pause", parse("task:greet"), told=stop)
    clock.advance(HOUR)
    assert store.operator.bulk_calls.take_silent() is None
    assert in_state(store, "paused") == 4
    assert store.audit.all()[0].ended_at is None


def test_a_holder_that_finds_nothing_for_long_gives_signs(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "STEP", 2)
    monkeypatch.setattr(bulk_calls, "SEEN_EVERY", 0.0)
    for n in range(40):
        a_queued_job(store, queue="other" if n else "default")
    found = store.reads.matching

    def slowly(filter: Any, before: int | None = None) -> Any:
        for ids in found(filter, before):
            clock.advance(SILENT / 4)
            yield ids
            assert store.operator.bulk_calls.take_silent() is None

    monkeypatch.setattr(store.reads, "matching", slowly)
    assert store.operator.bulk("pause", parse("queue:default")) == Changed(1, 0)


def test_a_worker_that_stops_leaves_it_to_another(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(10)))
    cut_short(store.operator.bulk, "pause", parse("task:greet"))
    clock.advance(SILENT + 1)
    call = store.operator.bulk_calls.take_silent()
    assert call is not None
    asked = iter([False, True])
    assert store.operator.bulk_calls.carry_on(call, lambda: next(asked)) == Changed(4, 0)
    clock.advance(SILENT + 1)
    assert carry_on(store) == Changed(2, 0)


def test_a_lock_ends_a_call_but_not_the_rest_of_one_that_is_carried_on(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(store.enqueue_many(new_job() for _ in range(10)))
    act, locked = store.operator.act, {9, 2}

    def acting(verb: str, ids: Any, call: Any, **options: Any) -> Any:
        if locked & {int(id) for id in ids}:
            raise RowLocked("somebody holds it")
        return act(verb, ids, call, **options)

    monkeypatch.setattr(store.operator.bulk_calls, "_act", acting)
    with pytest.raises(RowLocked):
        store.operator.bulk("pause", parse("task:greet"))
    assert in_state(store, "paused") == 3
    clock.advance(HOUR)
    assert store.operator.bulk_calls.take_silent() is None
    locked.remove(9)
    cut_short(store.operator.bulk, "pause", parse("task:greet"))
    clock.advance(SILENT + 1)
    with pytest.raises(RowLocked):
        carry_on(store)
    assert [job.id for job in store.reads.jobs(parse("state:queued"))] == ["2"]
    locked.clear()
    assert store.operator.bulk_calls.take_silent() is None
    clock.advance(SILENT + 1)
    assert carry_on(store).changed == 1
    assert store.audit.all()[0].ended_at is not None
