"""Keys make equal jobs one (DESIGN 3.13, R7.1, R7.2, I12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.job import FOREVER, Enqueued
from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from tests.contract.places import at_once
from tests.factories import BOOM, HOUR, LEASE, Clock, a_queued_job, a_running_job, claim, new_job, ref


def in_bulk(store: Store, *jobs: object) -> list[Enqueued]:
    return [done for chunk in store.enqueue_many(iter(jobs)) for done in chunk]  # type: ignore[arg-type]


def one_by_one(store: Store, *jobs: object) -> list[Enqueued]:
    return [store.enqueue(job) for job in jobs]  # type: ignore[arg-type]


BOTH_WAYS = pytest.mark.parametrize("enqueue", [one_by_one, in_bulk])
Enqueue = Callable[..., list[Enqueued]]


@BOTH_WAYS
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.PAUSED])
def test_while_unfinished_the_same_key_is_the_same_job(store: Store, state: State, enqueue: Enqueue) -> None:
    [first] = enqueue(store, new_job(key="k", args=b"1"))
    assert first.created
    if state is State.RUNNING:
        claim(store)
    elif state is State.PAUSED:
        store.pause(first.id)
    for reuse in (None, 0.0, 60.0, FOREVER):
        assert enqueue(store, new_job(key="k", args=b"2", reuse=reuse)) == [Enqueued(first.id, False, state)]
    assert [job.args for job in store.jobs()] == [b"1"]


@BOTH_WAYS
def test_a_result_is_handed_out_again_for_as_long_as_asked(store: Store, clock: Clock, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    store.succeed(ref(held), b'"r"')
    clock.advance(HOUR)
    again = [Enqueued(str(held.id), False, State.SUCCEEDED)]
    assert enqueue(store, new_job(key="k", reuse=FOREVER)) == again
    assert enqueue(store, new_job(key="k", reuse=HOUR + 1)) == again
    [fresh] = enqueue(store, new_job(key="k", reuse=HOUR - 1))
    assert (fresh.created, fresh.id != str(held.id)) == (True, True)
    old, new = store.get(str(held.id)), store.get(fresh.id)
    assert (old.state, old.result, old.key, old.holds_key) == (State.SUCCEEDED, b'"r"', "k", False)
    assert new.holds_key


@BOTH_WAYS
def test_without_reuse_a_finished_job_gives_its_key_up(store: Store, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    store.succeed(ref(held))
    [done] = enqueue(store, new_job(key="k"))
    assert done.created


@BOTH_WAYS
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_failed_and_cancelled_jobs_give_their_key_up_at_once(store: Store, end: str, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    if end == "failed":
        store.fail(ref(held), BOOM)
    else:
        store.stop(ref(held))
    [done] = enqueue(store, new_job(key="k", reuse=FOREVER))
    assert done.created
    assert done.id != str(held.id)


@BOTH_WAYS
def test_keys_are_per_task(store: Store, enqueue: Enqueue) -> None:
    one, two = enqueue(store, new_job(task="greet", key="k"), new_job(task="scan", key="k"))
    assert one.created
    assert two.created
    assert one.id != two.id


@BOTH_WAYS
def test_equal_keys_in_one_call_are_one_job(store: Store, enqueue: Enqueue) -> None:
    done = enqueue(store, *(new_job(key=key, args=str(n).encode()) for n, key in enumerate("abacba")))
    a, b, c = done[0].id, done[1].id, done[3].id
    assert [(answer.id, answer.created) for answer in done] == [
        (a, True), (b, True), (a, False), (c, True), (b, False), (a, False),
    ]  # fmt: skip
    assert [store.get(id).args for id in (a, b, c)] == [b"0", b"1", b"3"]


@BOTH_WAYS
def test_a_key_is_kept_to_the_letter(store: Store, enqueue: Enqueue) -> None:
    keys = ["k", "K", " k", "", "k'", 'k"', "\\u0041", "A", "ключ", "x" * 2000]
    done = enqueue(store, *(new_job(key=key) for key in keys))
    assert all(answer.created for answer in done)
    assert [store.get(answer.id).key for answer in done] == keys
    assert not any(answer.created for answer in enqueue(store, *(new_job(key=key) for key in keys)))


def test_values_come_through_a_bulk_of_keys_to_the_byte(store: Store, clock: Clock) -> None:
    args = b'{"n": 1.10, "big": 123456789012345678901234567890, "e": 1e2, "s": "\\u00e9\\\\", "n": 1}'
    [done] = in_bulk(store, new_job(key="k", args=args, tags=("a b", '"'), delay=3, expires_in=9, correlation_id="c"))
    job = store.get(done.id)
    assert (job.args, job.tags, job.correlation_id) == (args, ("a b", '"'), "c")
    assert (job.run_at - clock.now).total_seconds() == 3
    assert job.expires_at is not None
    assert (job.expires_at - clock.now).total_seconds() == 9


def test_deep_arguments_come_through_a_bulk_of_keys(store: Store) -> None:
    args = b"[" * 2000 + b"]" * 2000
    [done] = in_bulk(store, new_job(key="k", args=args))
    assert store.get(done.id).args == args


def test_a_deleted_job_gives_its_key_up(store: Store) -> None:
    id = a_queued_job(store, key="k")
    store.delete(id)
    assert store.enqueue(new_job(key="k")).created


def test_a_retry_after_the_key_went_elsewhere_does_not_clash(store: Store, clock: Clock) -> None:  # F28
    held = a_running_job(store, key="k")
    store.fail(ref(held), BOOM)
    other = store.enqueue(new_job(key="k", delay=HOUR))
    assert other.created
    assert store.retry(str(held.id)) is State.QUEUED
    assert store.get(str(held.id)).holds_key is False
    assert store.enqueue(new_job(key="k")) == Enqueued(other.id, False)
    [again] = claim(store).jobs
    clock.advance(LEASE + 1)
    store.rescue()  # and the sweep is not stopped by it either
    [again] = claim(store).jobs
    assert again.id == held.id
    store.succeed(ref(again))
    assert store.enqueue(new_job(key="k", reuse=FOREVER)) == Enqueued(other.id, False)


def test_a_retry_while_nobody_took_the_key_holds_it_again(store: Store) -> None:
    held = a_running_job(store, key="k")
    store.fail(ref(held), BOOM)
    store.retry(str(held.id))
    assert store.enqueue(new_job(key="k")) == Enqueued(str(held.id), False)


# -- many at once ---------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("before", ["nothing", "a failed job", "an old result"])
def test_sixteen_submitters_of_one_key_make_one_job(
    store: Store, stores: Callable[..., Store], clock: Clock, enqueue: Enqueue, before: str
) -> None:
    if before != "nothing":
        held = a_running_job(store, key="k")
        if before == "a failed job":
            store.fail(ref(held), BOOM)
        else:
            store.succeed(ref(held))
    clock.advance(60)
    own = [stores(clock=clock) for _ in range(16)]
    answers = at_once(16, lambda number: enqueue(own[number], new_job(key="k", reuse=30.0))[0])
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert sum(job.holds_key for job in store.jobs()) == 1


def test_bulk_inserts_in_opposite_order_do_not_deadlock(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:  # F27
    keys = [f"k{n:03}" for n in range(300)]
    own = [stores(clock=clock) for _ in range(4)]

    def submit(number: int) -> list[Enqueued]:
        mine = keys if number % 2 else keys[::-1]
        return in_bulk(own[number], *(new_job(key=key) for key in mine))

    for _ in range(2):  # the second time over jobs that gave their keys up
        answers = at_once(4, submit)
        assert sum(answer.created for mine in answers for answer in mine) == len(keys)
        live = [job for job in store.jobs(limit=1000) if job.holds_key]
        assert sorted(job.key or "" for job in live) == keys
        for job in live:
            store.cancel(job.id)


def test_submitters_and_retries_of_one_key_never_hold_it_twice(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:  # F28: enqueue x retry
    own = [stores(clock=clock) for _ in range(6)]
    for n in range(10):
        held = a_running_job(store, key=f"k{n}", queue=f"q{n}", task=f"t{n}")
        store.fail(ref(held), BOOM)

        def act(number: int, n: int = n, id: str = str(held.id)) -> str:
            if number == 0:
                return own[0].retry(id).value
            return own[number].enqueue(new_job(task=f"t{n}", key=f"k{n}", queue=f"q{n}")).id

        answers = at_once(6, act)
        assert answers[0] == "queued"
        assert len(set(answers[1:])) == 1
        assert sum(job.holds_key for job in store.jobs(queue=f"q{n}")) == 1
