"""Steps: what one returned is kept under the lease, outlives the attempt, and goes with the job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import LeaseLost
from holdfast.model.job import ClaimedJob
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import at_once, raw, reclaim
from tests.factories import BOOM, LEASE, Clock, a_running_job, claim, ref


def test_what_a_step_returned_is_kept_with_where_and_when(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    assert store.attempts.step(ref(held), "fetch") == (None, False, False)
    assert store.attempts.keep_step(ref(held), "fetch", b'{"a":[1,null]}') == (False, False)
    clock.advance(1)
    store.attempts.keep_step(ref(held), "nothing", b"null")
    assert store.attempts.step(ref(held), "fetch") == (b'{"a":[1,null]}', False, False)
    assert store.attempts.step(ref(held), "nothing") == (b"null", False, False)  # done, and returned nothing
    first, second = store.reads.steps(str(held.id))
    assert (first.name, first.life, first.attempt, first.result) == ("fetch", 1, 1, {"a": [1, None]})
    assert (second.name, second.ended_at) == ("nothing", clock.now)


def test_steps_say_what_people_have_asked_meanwhile(store: Store) -> None:
    held = a_running_job(store)
    store.operator.pause(str(held.id))
    assert store.attempts.step(ref(held), "fetch") == (None, False, True)
    store.operator.cancel(str(held.id))
    assert store.attempts.keep_step(ref(held), "fetch", b"1") == (True, True)


def paused(store: Store, clock: Clock, held: ClaimedJob) -> None:
    store.operator.pause(str(held.id))
    store.attempts.park(ref(held))
    store.operator.resume(str(held.id))


def rescued(store: Store, clock: Clock, held: ClaimedJob) -> None:
    clock.advance(LEASE + 1)
    assert store.rescues.rescue()


def retried(store: Store, clock: Clock, held: ClaimedJob) -> None:
    store.attempts.fail(ref(held), BOOM)
    store.operator.retry(str(held.id))


def cancelled_and_retried(store: Store, clock: Clock, held: ClaimedJob) -> None:
    store.operator.cancel(str(held.id))
    store.attempts.stop(ref(held))
    store.operator.retry(str(held.id))


AGAIN: dict[str, Callable[[Store, Clock, ClaimedJob], object]] = {
    "an error": lambda store, clock, held: store.attempts.reschedule(ref(held), 0, BOOM),
    "a release": lambda store, clock, held: store.attempts.release(ref(held)),
    "a pause": paused,
    "a rescue": rescued,
    "another life": retried,
    "another life after a cancel": cancelled_and_retried,
}


@pytest.mark.parametrize("after", AGAIN)
def test_whoever_runs_the_job_next_finds_its_steps(store: Store, clock: Clock, after: str) -> None:
    held = a_running_job(store)
    store.attempts.keep_step(ref(held), "fetch", b"1")
    AGAIN[after](store, clock, held)
    again = reclaim(store, held.id)
    assert store.attempts.step(ref(again), "fetch") == (b"1", False, False)
    with pytest.raises(LeaseLost):
        store.attempts.keep_step(ref(held), "store", b"2")
    with pytest.raises(LeaseLost):
        store.attempts.step(ref(held), "fetch")
    assert [step.name for step in store.reads.steps(str(held.id))] == ["fetch"]


def test_a_step_kept_again_after_a_lost_reply_stays_as_it_was(store: Store) -> None:
    held = a_running_job(store)
    for result in (b"1", b"2"):
        store.attempts.keep_step(ref(held), "fetch", result)
    assert [step.result for step in store.reads.steps(str(held.id))] == [1]


def test_steps_of_jobs_of_the_same_claim_are_their_own(store: Store) -> None:
    one, two = a_running_job(store), a_running_job(store)
    store.attempts.keep_step(ref(one), "fetch", b"1")
    assert store.attempts.step(ref(two), "fetch")[0] is None


def test_steps_are_forgotten_with_their_job(store: Store, clock: Clock, settings: Settings) -> None:
    deleted, old, kept = (a_running_job(store) for _ in range(3))
    for held in (deleted, old, kept):
        store.attempts.checkpoint(ref(held), b"1", pending=3)
        store.attempts.keep_step(ref(held), "fetch", b"1")
    store.attempts.fail(ref(deleted), BOOM)
    store.operator.delete(str(deleted.id))
    store.attempts.succeed(ref(old))
    clock.advance(1000)
    assert store.retention.purge(0, finished=100, failed=100)[0] == 1
    with raw(settings) as sql:
        for table in ("steps", "pending"):
            assert sql(f"select job_id from {{{table}}}") == [(kept.id,)]


def test_no_step_is_kept_after_a_rescue_that_comes_at_the_same_time(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    """What a rescued attempt says after that is dropped; what it said before is found by the next."""
    own = [stores(clock=clock) for _ in range(2)]
    for _ in range(20):
        held = a_running_job(store)
        clock.advance(LEASE + 1)

        def act(number: int, held: ClaimedJob = held) -> bool:
            if number == 0:
                return bool(own[0].rescues.rescue())
            try:
                own[1].attempts.keep_step(ref(held), "fetch", b"1")
            except LeaseLost:
                return False
            return True

        was_rescued, was_kept = at_once(2, act)
        assert was_rescued or was_kept
        if not was_rescued:  # its row was locked just then: it is left for the next look
            store.rescues.rescue()
        assert [step.name for step in store.reads.steps(str(held.id))] == ["fetch"] * was_kept
        [again] = claim(store).jobs
        store.attempts.succeed(ref(again))


@pytest.mark.parametrize("engine", ["postgres"])  # on SQLite one writes at a time
def test_a_step_waits_for_a_rescue_under_way_and_is_not_kept(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    with ThreadPoolExecutor(1) as pool:
        with raw(settings) as sql:
            sql("update {jobs} set state = 'queued', ready_at = run_at, fence = null where id = ?", held.id)
            keeping = pool.submit(store.attempts.keep_step, ref(held), "fetch", b"1")
            with pytest.raises(TimeoutError):
                keeping.result(0.3)
        with pytest.raises(LeaseLost):
            keeping.result(20)
    assert store.reads.steps(str(held.id)) == []
