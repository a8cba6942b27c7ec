from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from holdfast.errors import LeaseLost
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.rescues import RESCUE_BATCH
from tests.contract.places import at_once, everything, raw, reclaim
from tests.factories import BOOM, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, ref, wants

# -- who is rescued -------------------------------------------------------------------------------------------------


def test_an_unexpired_lease_of_a_live_worker_is_never_touched(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    before = everything(store, held.id)
    clock.advance(LEASE - 0.001)
    assert store.rescues.rescue(dead=["somebody else"]) == []
    assert everything(store, held.id) == before
    store.attempts.succeed(ref(held))


def test_duration_never_counts_only_an_unrenewed_lease(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    for _ in range(100):
        clock.advance(LEASE * 0.9)
        store.attempts.renew([held.fence], [ref(held)], LEASE)
        assert store.rescues.rescue() == []
    store.attempts.succeed(ref(held))
    assert store.reads.get(str(held.id)).attempt == 1


def test_processing_jobs_whose_lease_expired_are_found_and_recovered(store: Store, clock: Clock) -> None:
    """A crashed job does not stay running for ever, and keeps nothing of its old lock."""
    held = a_running_job(store)
    clock.advance(LEASE + 0.001)
    [rescued] = store.rescues.rescue()
    assert (rescued.id, rescued.queue, rescued.worker) == (str(held.id), "default", "w1")
    assert (rescued.attempt, rescued.max_attempts, rescued.charged) == (1, 3, True)
    job = store.reads.get(str(held.id))
    assert (job.state, job.fence, job.worker, job.run_at) == (State.QUEUED, None, None, clock.now)
    assert (job.attempt, job.crashes, job.error_code) == (1, 1, "CRASHED")
    assert store.rescues.rescue() == []
    assert reclaim(store, held.id).attempt == 2


def test_a_worker_known_to_be_dead_is_rescued_before_its_lease_ends(store: Store) -> None:
    held, other = a_running_job(store, worker="dead"), a_running_job(store, worker="alive")
    [rescued] = store.rescues.rescue(by_expiry=False, dead=["dead"])
    assert rescued.id == str(held.id)
    store.attempts.succeed(ref(other))
    with pytest.raises(LeaseLost):
        store.attempts.succeed(ref(held))


def test_when_expiry_does_not_count_only_the_dead_are_rescued(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    clock.advance(10 * LEASE)
    assert store.rescues.rescue(by_expiry=False) == []
    store.attempts.succeed(ref(held))


def test_a_worker_that_never_registered_is_rescued_all_the_same(store: Store, clock: Clock) -> None:
    a_running_job(store, worker="never registered")
    assert store.workers.all() == []
    clock.advance(LEASE + 1)
    assert len(store.rescues.rescue()) == 1


def test_rescue_goes_in_bounded_batches(store: Store, clock: Clock) -> None:
    for n in range(RESCUE_BATCH + 3):
        a_running_job(store, worker=f"w{n}")
    clock.advance(LEASE + 1)
    assert [len(store.rescues.rescue()) for _ in range(3)] == [RESCUE_BATCH, 3, 0]


# -- what becomes of the job ----------------------------------------------------------------------------------------


def test_a_stale_job_whose_attempts_are_used_up_fails_and_is_never_claimed_again(store: Store, clock: Clock) -> None:
    """A job that always kills its worker is not reclaimed for ever."""
    held = a_running_job(store, max_attempts=2)
    for _ in range(2):
        clock.advance(LEASE + 1)
        [rescued] = store.rescues.rescue()
        claim(store)
    assert rescued.state is State.FAILED
    job = store.reads.get(str(held.id))
    assert (job.state, job.attempt) == (State.FAILED, 2)
    assert (job.error_code, job.error_message) == ("CRASHED", "Job crashed and exceeded max retries")
    assert job.finished_at == job.failed_at is not None
    clock.advance(MINUTE)
    assert claim(store).jobs == []


def test_three_lone_crashes_in_a_row_quarantine_a_job(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=10)
    for crashes in (1, 2, 3):
        clock.advance(LEASE + 1)
        store.rescues.rescue()
        job = store.reads.get(str(held.id))
        assert (job.crashes, job.attempt) == (crashes, crashes)
        claim(store)
    assert (job.state, job.error_code) == (State.FAILED, "QUARANTINED")


def test_quarantine_can_be_turned_off(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=10)
    for _ in range(5):
        clock.advance(LEASE + 1)
        [rescued] = store.rescues.rescue(quarantine_after=0)
        assert rescued.state is State.QUEUED
        reclaim(store, held.id)


def test_an_attempt_that_ends_in_words_breaks_the_row_of_crashes(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=10)
    for _ in range(2):
        clock.advance(LEASE + 1)
        store.rescues.rescue()
        held = reclaim(store, held.id)
    store.attempts.reschedule(ref(held), 0, BOOM)
    assert store.reads.get(str(held.id)).crashes == 0
    reclaim(store, held.id)
    clock.advance(LEASE + 1)
    [rescued] = store.rescues.rescue()
    assert rescued.state is State.QUEUED


def test_what_is_rescued_to_failed_tells_its_zombie_that_the_lease_is_lost(store: Store, clock: Clock) -> None:
    """The job keeps its fence, yet what the zombie did was not recorded."""
    for max_attempts, cancel in ((1, False), (3, True)):
        held = a_running_job(store, max_attempts=max_attempts)
        if cancel:
            store.operator.cancel(str(held.id))
        clock.advance(LEASE + 1)
        [rescued] = store.rescues.rescue()
        assert rescued.state is (State.CANCELLED if cancel else State.FAILED)
        before = everything(store, held.id)
        assert store.reads.get(str(held.id)).fence == held.fence
        with pytest.raises(LeaseLost):
            store.attempts.succeed(ref(held))
        with pytest.raises(LeaseLost):
            store.attempts.fail(ref(held), BOOM)
        assert everything(store, held.id) == before


# -- races ----------------------------------------------------------------------------------------------------------


def test_many_watchdogs_rescue_each_job_once(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    expected = sorted(str(a_running_job(store, worker=f"w{n}").id) for n in range(30))
    clock.advance(LEASE + 1)
    own = [stores(clock=clock) for _ in range(6)]

    def watch(number: int) -> list[str]:
        mine: list[str] = []
        while store.look("w", ["greet"], None).expired_leases:
            mine += [rescued.id for rescued in own[number].rescues.rescue()]
        return mine

    rescued = [id for mine in at_once(6, watch) for id in mine]
    assert sorted(rescued) == expected
    assert all(store.reads.get(id).attempt == 1 and len(store.reads.attempts(id)) == 1 for id in expected)


@pytest.mark.parametrize("verb", ["succeed", "fail", "reschedule"])
def test_a_rescue_and_the_holders_outcome_have_one_winner(
    store: Store, stores: Callable[..., Store], clock: Clock, verb: str
) -> None:
    jobs = [a_running_job(store, worker=f"w{n}") for n in range(24)]
    clock.advance(LEASE + 1)
    holder, watchdog = stores(clock=clock), stores(clock=clock)
    error = None if verb == "succeed" else BOOM
    word = None if verb == "succeed" else "errored"

    def act(number: int) -> list[str]:
        if number == 0:
            taken: list[str] = []
            for _ in range(8):
                taken += [rescued.id for rescued in watchdog.rescues.rescue()]
            return taken
        done = []
        for held in reversed(jobs):
            outcome = Outcome(verb, held.id, held.fence, word, error=error)  # type: ignore[arg-type]
            if not holder.exchange([outcome], None, [held.fence]).lost:
                done.append(str(held.id))
        return done

    rescued, recorded = at_once(2, act)
    rescued += [late.id for late in store.rescues.rescue()]
    assert sorted(rescued + recorded) == sorted(str(held.id) for held in jobs)
    expected = {"succeed": State.SUCCEEDED, "fail": State.FAILED, "reschedule": State.QUEUED}[verb]
    for id in recorded:
        assert store.reads.get(id).state is expected
    for id in rescued:
        [attempt] = store.reads.attempts(id)
        assert attempt.outcome == "crashed"
        assert store.reads.get(id).state is State.QUEUED


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
def test_a_job_that_another_transaction_has_locked_does_not_hold_up_the_rescue_of_others(
    store: Store, clock: Clock, settings: Settings
) -> None:
    for _ in range(3):
        a_queued_job(store)
    wanted = wants(3)
    one, two, three = store.attempts.claim(wanted).jobs
    clock.advance(LEASE + 1)
    with raw(settings) as sql:
        sql("select 1 from {jobs} where id = ? for update", two.id)
        assert [rescued.id for rescued in store.rescues.rescue()] == [str(one.id), str(three.id)]
        assert store.reads.get(str(two.id)).state is State.RUNNING
        assert store.rescues.rescue() == []
    assert [rescued.id for rescued in store.rescues.rescue()] == [str(two.id)]


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
def test_a_success_under_way_on_the_handlers_transaction_is_not_rescued(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    clock.advance(LEASE + 1)
    with store.user_connections.transaction() as connection:
        store.attempts.succeed_on(connection, ref(held), b"1")
        assert store.rescues.rescue() == []
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED
    assert store.rescues.rescue() == []
    assert store.reads.attempts(str(held.id)) == []


@pytest.mark.parametrize("engine", ["postgres"])  # on SQLite one of both simply comes first
def test_rescue_writes_only_what_is_still_running_under_that_fence(
    store: Store, clock: Clock, settings: Settings
) -> None:
    """Between the watchdog's look and its write the holder succeeds, past all locks; the write must find out."""
    held = a_running_job(store)
    clock.advance(LEASE + 1)
    with store.db.transaction() as tx:
        parameters = {
            "id": held.id, "fence": held.fence, "state": "queued", "attempt": 1,
            "crashes": 1, "suspicion": 0, "error_code": "CRASHED", "error_message": "gone",
            "error_fingerprint": "0123456789",
        }  # fmt: skip
        finished = threading.Thread(target=store.attempts.succeed, args=(ref(held), b"1"))
        finished.start()
        finished.join(10)
        assert tx.rows("rescue", **parameters) == []
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


def test_rescue_of_a_fence_that_is_gone_changes_nothing(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.release(ref(held))
    again = reclaim(store, held.id)
    before = everything(store, held.id)
    with store.db.transaction() as tx:
        rows = tx.rows(
            "rescue", id=held.id, fence=held.fence, state="queued", attempt=1, crashes=1,
            suspicion=0, error_code="CRASHED", error_message="gone",
            error_fingerprint="0123456789",
        )  # fmt: skip
    assert rows == []
    assert everything(store, held.id) == before
    store.attempts.succeed(ref(again))
