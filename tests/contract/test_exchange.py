"""The worker's one trip: outcomes recorded and jobs claimed."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from holdfast.errors import StoreError, ValueRefused
from holdfast.model.job import Claimed
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome, returned
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import everything, raw
from tests.factories import BOOM, LEASE, Clock, a_queued_job, a_running_job, claim, ref, trip, wants


def test_outcomes_and_claim_are_one_trip(store: Store) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    wanted = wants()
    done = store.exchange([Outcome("succeed", held.id, held.fence, result=b"1")], wanted, [held.fence])
    assert (done.lost, done.requeued) == ([], set())
    assert [str(job.id) for job in done.claimed.jobs] == [waiting]
    assert store.reads.get(str(held.id)).result == b"1"


def test_what_the_trip_gives_back_may_be_taken_again_by_it_or_the_next(store: Store) -> None:
    held = a_running_job(store)
    done = store.exchange([Outcome("release", held.id, held.fence, "released")], wants(), [held.fence])
    assert done.requeued == {"default"}
    [again] = done.claimed.jobs or claim(store).jobs
    assert again.id == held.id
    assert again.fence != held.fence


def test_mixed_verbs_in_one_trip(store: Store) -> None:
    for n in range(7):
        a_queued_job(store, queue=f"q{n}")
    one, two, three, four, five, six, seven = claim(store, 7).jobs
    fence = one.fence
    store.operator.pause(str(six.id))
    done = store.exchange(
        [
            Outcome("succeed", one.id, fence, result=b'"r"'),
            Outcome("fail", two.id, fence, "errored", error=BOOM),
            Outcome("succeed", three.id, fence),
            Outcome("reschedule", four.id, fence, "errored", delay=9, error=BOOM),
            Outcome("release", five.id, fence, "released"),
            Outcome("park", six.id, fence, "parked"),
            Outcome("stop", seven.id, fence, "cancelled", error=Error("CANCELLED", "asked")),
        ],
        None,
        [fence],
    )
    assert (done.lost, done.requeued, done.claimed.jobs) == ([], {"q3", "q4"}, [])
    states = {job.id: (job.state, job.result) for job in store.reads.jobs()}
    assert states == {
        str(one.id): (State.SUCCEEDED, b'"r"'), str(two.id): (State.FAILED, None),
        str(three.id): (State.SUCCEEDED, None), str(four.id): (State.QUEUED, None),
        str(five.id): (State.QUEUED, None), str(six.id): (State.PAUSED, None), str(seven.id): (State.CANCELLED, None),
    }  # fmt: skip


@pytest.mark.parametrize("verb", ["succeed", "succeed with", "fail", "reschedule", "release", "park", "stop"])
def test_a_lost_outcome_among_good_ones_hurts_only_itself(store: Store, clock: Clock, verb: str) -> None:
    """One zombie's outcome in a batch costs its neighbours nothing."""
    zombie = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    store.operator.pause(str(zombie.id))
    good = [a_running_job(store) for _ in range(3)]
    before = everything(store, zombie.id)
    name, result = (verb.partition(" ")[0], b'"r"' if " " in verb else None)
    word = None if name == "succeed" else "errored"
    outcomes = [
        Outcome(name, held.id, held.fence, word, result, error=BOOM)  # type: ignore[arg-type]
        for held in (good[0], good[1], zombie, good[2])
    ]
    done = store.exchange(outcomes, None, [held.fence for held in good])
    assert done.lost == [outcomes[2]]
    assert everything(store, zombie.id) == before
    assert State.RUNNING not in {store.reads.get(str(held.id)).state for held in good}


@pytest.mark.parametrize("verb", ["succeed", "fail", "reschedule", "release", "park", "stop"])
def test_a_job_with_the_fence_of_another_is_refused_though_both_are_ours(store: Store, verb: str) -> None:
    one, two = a_running_job(store), a_running_job(store)
    before = everything(store, one.id), everything(store, two.id)
    word = None if verb == "succeed" else "errored"
    crossed = [
        Outcome(verb, one.id, two.fence, word, error=BOOM),  # type: ignore[arg-type]
        Outcome(verb, two.id, one.fence, word, b"1" if verb == "succeed" else None, error=BOOM),  # type: ignore[arg-type]
    ]
    done = store.exchange(crossed, None, [one.fence, two.fence])
    assert sorted(lost.id for lost in done.lost) == [one.id, two.id]
    assert (everything(store, one.id), everything(store, two.id)) == before


def test_a_stale_outcome_does_not_cost_the_newer_claim_its_lease(
    store: Store, clock: Clock, settings: Settings
) -> None:  # else the job would run on, and nobody would ever rescue it
    stale = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    a_queued_job(store)
    newer, other = claim(store, 2).jobs
    assert newer.id == stale.id
    outcomes = [Outcome("succeed", stale.id, stale.fence), Outcome("succeed", other.id, other.fence)]
    done = store.exchange(outcomes, None, [stale.fence, other.fence])
    assert done.lost == outcomes[:1]
    with raw(settings) as sql:
        assert [str(fence) for (fence,) in sql("select fence from {leases}")] == [newer.fence]
    clock.advance(LEASE + 1)
    assert [int(rescued.id) for rescued in store.rescues.rescue()] == [newer.id]


def test_many_claims_finish_in_one_trip_each_under_its_own_fence(store: Store) -> None:
    held = [a_running_job(store) for _ in range(20)]
    done = store.exchange(
        [Outcome("succeed", job.id, job.fence, result=str(job.id).encode()) for job in held],
        None,
        [job.fence for job in held],
    )
    assert done.lost == []
    assert all(job.state is State.SUCCEEDED and job.result == job.id.encode() for job in store.reads.jobs())


def test_the_same_outcome_twice_in_one_trip_counts_once(store: Store) -> None:
    for verb in ("succeed", "reschedule"):
        held = a_running_job(store, task=verb)
        word = None if verb == "succeed" else "errored"
        sent = Outcome(verb, held.id, held.fence, word, error=BOOM)
        assert store.exchange([sent, sent], None, [held.fence]).lost == []
        assert len(store.reads.attempts(str(held.id))) == (verb != "succeed")


def test_a_trip_for_nothing_takes_nothing(store: Store) -> None:
    a_queued_job(store)
    done = store.exchange([], None)
    assert (done.claimed.jobs, done.lost, done.requeued) == ([], [], set())
    assert store.exchange([], wants(0)).claimed.jobs == []
    assert [job.state for job in store.reads.jobs()] == [State.QUEUED]


def test_a_refused_outcome_takes_the_others_with_it(store: Store, settings: Settings) -> None:
    """One that the schema refuses (the last attempt, rescheduled) leaves no half: so they can be sent again by parts.
    What was claimed was handed out, or was not claimed."""
    good, bad = a_running_job(store), a_running_job(store, max_attempts=1)
    waiting = a_queued_job(store)
    before = [everything(store, id) for id in (good.id, bad.id)]
    outcomes = [
        Outcome("succeed", good.id, good.fence, result=b"1"),
        Outcome("reschedule", bad.id, bad.fence, "errored", error=BOOM),
    ]
    handed: list[Claimed] = []
    with pytest.raises(StoreError):
        trip(store, outcomes, wants(), handed.append, [good.fence, bad.fence])
    assert [everything(store, id) for id in (good.id, bad.id)] == before
    with raw(settings) as sql:
        assert sql("select count(*) from {leases}") == [(2 + len(handed),)]
    assert trip(store, outcomes[:1], wants(), handed.append, [good.fence]).lost == []
    assert [str(job.id) for claimed in handed for job in claimed.jobs] == [waiting]


def test_a_value_the_database_refuses_leaves_the_store_working(store: Store, engine: str) -> None:
    """Poison-proof: runners clean what they send (see model); should one slip through, only its own trip fails."""
    held = a_running_job(store)
    poison = Outcome("fail", held.id, held.fence, "errored", error=Error("E", "NUL \x00 inside"))
    if engine == "postgres":
        with pytest.raises(StoreError, match="NUL"):
            store.exchange([poison], wants())
        assert store.reads.get(str(held.id)).state is State.RUNNING
    else:
        assert store.exchange([poison], None).lost == []
    other = a_running_job(store)
    store.attempts.succeed(ref(other))
    assert store.reads.get(str(other.id)).state is State.SUCCEEDED


@pytest.mark.parametrize("engine", ["postgres"])  # where it is told by name; SQLite's listeners see every commit
def test_the_trip_tells_which_finished_jobs_somebody_waits_for(store: Store) -> None:
    for _ in range(5):
        a_queued_job(store)
    one, two, three, four, five = claim(store, 5).jobs
    for held in (one, two, four, five):
        store.operator.await_finish(str(held.id))
    done = store.exchange(
        [
            Outcome("succeed", one.id, one.fence),
            Outcome("succeed", two.id, two.fence, result=b"1"),
            Outcome("succeed", three.id, three.fence),
            Outcome("fail", four.id, four.fence, "errored", error=BOOM),
            Outcome("park", five.id, five.fence, "parked"),
        ],
        None,
    )
    assert sorted(map(int, done.awaited)) == sorted(int(held.id) for held in (one, two, four))


def test_waiting_for_a_job_changes_nothing_else_and_a_finished_one_needs_none(store: Store, settings: Settings) -> None:
    id, held = a_queued_job(store, delay=9), a_running_job(store)
    store.attempts.succeed(ref(held))
    before = everything(store, id), everything(store, held.id)
    for job in (id, str(held.id), "4711"):
        store.operator.await_finish(job)
    assert (everything(store, id), everything(store, held.id)) == before
    with raw(settings) as sql:
        assert [bool(row[0]) for row in sql("select awaited from {jobs} order by id")] == [True, False]


def test_a_success_without_a_result_keeps_none(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held))
    assert store.reads.get(str(held.id)).result is None
    other = a_running_job(store)
    store.attempts.succeed(ref(other), b"null")
    assert store.reads.get(str(other.id)).result == b"null"


def test_an_empty_poll_takes_no_write_lock(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    with store.db.transaction():
        assert claim(stores(clock=clock)).jobs == []


def test_outcomes_of_unknown_fences_are_all_lost(store: Store) -> None:
    id = int(a_queued_job(store))
    unknown = [Outcome("succeed", id + n, str(uuid.uuid4()), result=b"1") for n in range(3)]
    assert store.exchange(unknown, None).lost == unknown


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_the_driver_refuses_takes_the_rest_of_the_trip_with_it(store: Store) -> None:
    """A value that never reaches the server must not commit what was sent before it: it is all or nothing."""
    for _ in range(2):
        a_queued_job(store)
    first, second = claim(store, 2).jobs
    waiting = a_queued_job(store)
    outcomes = [returned(first, None), returned(second, b'"\0"')]
    with pytest.raises(ValueRefused):
        store.exchange(outcomes, wants())
    assert [store.reads.get(id).state for id in (str(first.id), str(second.id), waiting)] == [
        "running",
        "running",
        "queued",
    ]
    store.exchange(outcomes[:1], wants())
    assert [store.reads.get(id).state for id in (str(first.id), str(second.id), waiting)] == [
        "succeeded",
        "running",
        "running",
    ]
