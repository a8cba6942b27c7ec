"""Retention: old finished jobs are forgotten, in bounded steps, and nothing else."""

from __future__ import annotations

import pytest

from holdfast.errors import JobNotFound
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import raw
from tests.factories import BOOM, Clock, a_queued_job, a_running_job, claim, ref

DAY = 86400.0


def purge(store: Store, after_id: int, limit: int = 1000) -> tuple[int, int | None]:
    return store.retention.purge(after_id, finished=7 * DAY, failed=90 * DAY, limit=limit)


def one_of_each(store: Store) -> dict[str, str]:
    ids = {}
    for state in ("succeeded", "failed", "cancelled"):
        held = a_running_job(store)
        ids[state] = str(held.id)
        if state == "succeeded":
            store.attempts.succeed(ref(held), b"1")
        elif state == "failed":
            store.attempts.fail(ref(held), BOOM)
        else:
            store.attempts.stop(ref(held))
    held = a_running_job(store, lease=1000 * DAY)
    ids["running"] = str(held.id)
    ids["paused"] = a_queued_job(store)
    store.operator.pause(ids["paused"])
    ids["queued"] = a_queued_job(store)
    return ids


def sweep(store: Store, limit: int = 1000) -> int:
    """One walk along the whole table."""
    gone, place = 0, 0
    while True:
        deleted, reached = purge(store, place, limit)
        assert deleted <= limit
        gone += deleted
        if reached is None:
            return gone
        assert reached > place
        place = reached


@pytest.mark.parametrize(
    ("days", "forgotten"),
    [
        (6.9, set()),
        (7.1, {"succeeded", "cancelled"}),
        (89.9, {"succeeded", "cancelled"}),
        (90.1, {"succeeded", "cancelled", "failed"}),
        (1000, {"succeeded", "cancelled", "failed"}),
    ],
)
def test_each_kind_is_kept_for_its_time(store: Store, clock: Clock, days: float, forgotten: set[str]) -> None:
    ids = one_of_each(store)
    clock.advance(days * DAY)
    a_queued_job(store)  # someone still uses the place
    assert sweep(store) == len(forgotten)
    for state, id in ids.items():
        if state in forgotten:
            with pytest.raises(JobNotFound):
                store.reads.get(id)
            assert store.reads.attempts(id) == []
        else:
            assert store.reads.get(id).state == State(state)


def test_history_goes_with_its_job_and_only_with_it(store: Store, clock: Clock, settings: Settings) -> None:
    one_of_each(store)
    young = a_running_job(store)
    clock.advance(91 * DAY)
    store.attempts.fail(ref(young), BOOM)
    sweep(store)
    assert len(store.reads.attempts(str(young.id))) == 1
    with raw(settings) as sql:
        assert sql("select count(*) from {attempts}") == [(1,)]


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_sweep_goes_in_bounded_steps(store: Store, clock: Clock, limit: int) -> None:
    for _ in range(20):
        store.attempts.succeed(ref(a_running_job(store)))
        a_queued_job(store, queue="kept", delay=1000 * DAY)
    clock.advance(8 * DAY)
    assert sweep(store, limit) == 20
    assert len(store.reads.jobs(limit=100)) == 20
    assert sweep(store, limit) == 0


def test_a_sweep_ends_where_jobs_are_too_young(store: Store, clock: Clock) -> None:
    store.attempts.succeed(ref(a_running_job(store)))
    clock.advance(8 * DAY)
    for _ in range(30):
        store.attempts.succeed(ref(a_running_job(store)))
    assert purge(store, 0, 10) == (1, None), "nothing ahead can be old enough"


def test_an_empty_place_has_nothing_to_forget(store: Store) -> None:
    assert purge(store, 0) == (0, None)


def test_a_job_that_took_long_is_kept_from_its_end_on(store: Store, clock: Clock) -> None:
    held = a_running_job(store, lease=1000 * DAY)
    clock.advance(30 * DAY)
    store.attempts.succeed(ref(held))
    clock.advance(1 * DAY)
    assert sweep(store) == 0
    clock.advance(7 * DAY)
    assert sweep(store) == 1


def test_a_retried_job_is_not_forgotten_for_its_old_end(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    store.attempts.fail(ref(held), BOOM)
    clock.advance(89 * DAY)
    store.operator.retry(str(held.id))
    clock.advance(89 * DAY)
    assert sweep(store) == 0
    [again] = claim(store).jobs
    assert again.id == held.id


def test_many_sweepers_forget_each_job_once(store: Store, clock: Clock) -> None:
    for _ in range(10):
        store.attempts.succeed(ref(a_running_job(store)))
    clock.advance(8 * DAY)
    assert [purge(store, 0)[0] for _ in range(2)] == [10, 0]


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
def test_a_job_that_somebody_has_locked_waits_for_the_next_sweep(
    store: Store, clock: Clock, settings: Settings
) -> None:
    ids = [a_running_job(store) for _ in range(2)]
    for held in ids:
        store.attempts.succeed(ref(held))
    clock.advance(8 * DAY)
    with raw(settings) as sql:
        sql("select 1 from {jobs} where id = ? for update", ids[0].id)
        assert purge(store, 0)[0] == 1
    assert purge(store, 0)[0] == 1
