"""Keys make equal jobs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.errors import Refused
from holdfast.model.filter import parse
from holdfast.model.job import FOREVER, Changed, Enqueued
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.audit import Call
from holdfast.store.base import Store
from holdfast.store.columns import COLUMNS
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from tests.contract.places import at_once, listen_everywhere, raw
from tests.factories import BOOM, HOUR, Clock, a_queued_job, a_running_job, claim, new_job, ref


def in_bulk(store: Store, *jobs: object) -> list[Enqueued]:
    return [done for chunk in store.enqueue_many(iter(jobs)) for done in chunk]  # type: ignore[arg-type]


def one_by_one(store: Store, *jobs: object) -> list[Enqueued]:
    return [store.enqueue(job) for job in jobs]  # type: ignore[arg-type]


COLUMN_NAMES = [column.name for column in COLUMNS if column.type not in ("json", "text[]")]
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
        store.operator.pause(first.id)
    for reuse in (None, 0.0, 60.0, FOREVER):
        assert enqueue(store, new_job(key="k", args=b"2", reuse=reuse)) == [Enqueued(first.id, False, state)]
    assert [job.args for job in store.reads.jobs()] == [b"1"]


def on_a_callers_connection(store: Store, *jobs: object) -> list[Enqueued]:
    assert isinstance(store, SqliteStore | PostgresStore)
    with raw(store.db.settings) as sql:
        return [store.enqueue_on(sql.connection, job) for job in jobs]  # type: ignore[arg-type]


@pytest.mark.parametrize("enqueue", [one_by_one, in_bulk, on_a_callers_connection])
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.PAUSED, State.SUCCEEDED])
def test_who_joins_a_job_that_waits_raises_its_priority(store: Store, state: State, enqueue: Enqueue) -> None:
    id = a_queued_job(store, key="k", queue="there")
    [other] = enqueue(store, new_job(key="other", priority=1))
    if state in (State.RUNNING, State.SUCCEEDED):
        [held] = claim(store, queues=("there",)).jobs
        if state is State.SUCCEEDED:
            store.attempts.succeed(ref(held))
    elif state is State.PAUSED:
        store.operator.pause(id)
    for priority in (-5, 7, 3):
        assert enqueue(store, new_job(key="k", priority=priority, reuse=FOREVER)) == [Enqueued(id, False, state)]
    job = store.reads.get(id)
    locks = enqueue is on_a_callers_connection and isinstance(store, PostgresStore)  # the job, until the caller commits
    raised = state in (State.QUEUED, State.PAUSED) and not locks
    assert (job.state, job.priority, job.queue) == (state, 7 if raised else 0, "there")
    assert store.reads.get(other.id).priority == 1
    if state is State.PAUSED:
        store.operator.resume(id)
    if raised:
        assert [held.id for held in claim(store, 2).jobs] == [int(id), int(other.id)], "it comes before the other now"


@BOTH_WAYS
def test_the_most_urgent_of_equal_jobs_at_once_says_how_urgent_they_are(store: Store, enqueue: Enqueue) -> None:
    first, *others = enqueue(store, *(new_job(key="k", priority=priority) for priority in (1, 9, 4)))
    assert {done.id for done in others} == {first.id}
    assert store.reads.get(first.id).priority == 9


@BOTH_WAYS
def test_a_result_is_handed_out_again_for_as_long_as_asked(store: Store, clock: Clock, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    store.attempts.succeed(ref(held), b'"r"')
    clock.advance(HOUR)
    again = [Enqueued(str(held.id), False, State.SUCCEEDED)]
    assert enqueue(store, new_job(key="k", reuse=FOREVER)) == again
    assert enqueue(store, new_job(key="k", reuse=HOUR + 1)) == again
    [fresh] = enqueue(store, new_job(key="k", reuse=HOUR - 1))
    assert (fresh.created, fresh.id != str(held.id)) == (True, True)
    old, new = store.reads.get(str(held.id)), store.reads.get(fresh.id)
    assert (old.state, old.result, old.key, old.holds_key) == (State.SUCCEEDED, b'"r"', "k", False)
    assert new.holds_key


@BOTH_WAYS
def test_without_reuse_a_finished_job_gives_its_key_up(store: Store, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    store.attempts.succeed(ref(held))
    [done] = enqueue(store, new_job(key="k"))
    assert done.created


@BOTH_WAYS
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_failed_and_cancelled_jobs_give_their_key_up_at_once(store: Store, end: str, enqueue: Enqueue) -> None:
    held = a_running_job(store, key="k")
    if end == "failed":
        store.attempts.fail(ref(held), BOOM)
    else:
        store.attempts.stop(ref(held))
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
    assert [store.reads.get(id).args for id in (a, b, c)] == [b"0", b"1", b"3"]


@BOTH_WAYS
def test_a_key_is_kept_to_the_letter(store: Store, enqueue: Enqueue) -> None:
    keys = ["k", "K", " k", "", "k'", 'k"', "\\u0041", "A", "ключ", "x" * 2000]
    done = enqueue(store, *(new_job(key=key) for key in keys))
    assert all(answer.created for answer in done)
    assert [store.reads.get(answer.id).key for answer in done] == keys
    assert not any(answer.created for answer in enqueue(store, *(new_job(key=key) for key in keys)))


def test_values_come_through_a_bulk_of_keys_to_the_byte(store: Store, clock: Clock) -> None:
    args = b'{"n": 1.10, "big": 123456789012345678901234567890, "e": 1e2, "s": "\\u00e9\\\\", "n": 1}'
    [done] = in_bulk(store, new_job(key="k", args=args, tags=("a b", '"'), delay=3, expires_in=9, correlation_id="c"))
    job = store.reads.get(done.id)
    assert (job.args, job.tags, job.correlation_id) == (args, ("a b", '"'), "c")
    assert (job.run_at - clock.now).total_seconds() == 3
    assert job.expires_at is not None
    assert (job.expires_at - clock.now).total_seconds() == 9


def test_deep_arguments_come_through_a_bulk_of_keys(store: Store) -> None:
    args = b"[" * 2000 + b"]" * 2000
    [done] = in_bulk(store, new_job(key="k", args=args))
    assert store.reads.get(done.id).args == args


def test_a_deleted_job_gives_its_key_up(store: Store) -> None:
    id = a_queued_job(store, key="k")
    store.operator.delete(id)
    assert store.enqueue(new_job(key="k")).created


def test_a_retry_is_refused_while_an_unfinished_job_has_its_key(store: Store, clock: Clock) -> None:
    held = a_running_job(store, key="k")
    store.attempts.fail(ref(held), BOOM)
    other = store.enqueue(new_job(key="k", delay=HOUR))
    assert other.created
    with pytest.raises(Refused, match=rf"its key 'k' went to job {other.id}, which is queued"):
        store.operator.retry(str(held.id))
    assert store.reads.get(str(held.id)).state is State.FAILED
    store.operator.cancel(other.id)
    assert store.operator.retry(str(held.id)) is State.QUEUED
    assert store.enqueue(new_job(key="k")) == Enqueued(str(held.id), False)
    with pytest.raises(Refused, match=rf"went to job {held.id}"):
        store.operator.retry(other.id)


def test_a_retry_of_a_job_that_succeeded_names_its_state(store: Store) -> None:
    held = a_running_job(store, key="k")
    store.attempts.succeed(ref(held))
    assert store.enqueue(new_job(key="k")).created
    with pytest.raises(Refused, match="it is succeeded, and must be failed or cancelled"):
        store.operator.retry(str(held.id))


@pytest.mark.parametrize("engine", ["postgres"])  # where others can hold single rows locked
def test_a_retry_waits_for_no_job_that_somebody_works_on(store: Store, settings: Settings) -> None:
    failed, equal = a_running_job(store), a_running_job(store, key="k")
    for job in (failed, equal):
        store.attempts.fail(ref(job), BOOM)
    running = a_running_job(store, key="k")
    with raw(settings) as sql:
        sql(f"select 1 from {{jobs}} where id = {running.id} for update")  # as within its handler's transaction
        assert store.operator.bulk("retry", parse("")) == Changed(changed=1, refused=2)
        with pytest.raises(Refused, match=f"its key 'k' went to job {running.id}, which is running"):
            store.operator.retry(str(equal.id))
    assert store.reads.get(str(failed.id)).state is State.QUEUED


def test_a_retry_takes_its_key_back_from_a_job_that_has_finished(store: Store) -> None:
    first = a_running_job(store, key="k")
    store.attempts.fail(ref(first), BOOM)
    second = a_running_job(store, key="k")
    store.attempts.succeed(ref(second))
    assert store.operator.retry(str(first.id)) is State.QUEUED
    assert [store.reads.get(str(job.id)).holds_key for job in (first, second)] == [True, False]
    assert store.enqueue(new_job(key="k", reuse=FOREVER)) == Enqueued(str(first.id), False)


def three_failed(store: Store) -> list[str]:
    """Of one key, which the newest has."""
    held = []
    for _ in range(3):
        held.append(a_running_job(store, key="k"))
        store.attempts.fail(ref(held[-1]), BOOM)
    return [str(job.id) for job in held]


def test_of_equal_jobs_that_are_retried_together_one_is(store: Store) -> None:
    ids = three_failed(store)
    other = a_running_job(store, key="other")
    store.attempts.fail(ref(other), BOOM)
    assert store.operator.bulk("retry", parse("state:failed")) == Changed(changed=2, refused=2)
    assert [store.reads.get(id).state for id in ids] == [State.FAILED, State.FAILED, State.QUEUED]
    assert store.reads.get(str(other.id)).state is State.QUEUED


def test_of_equal_jobs_without_their_key_that_are_retried_together_the_newest_is(store: Store) -> None:
    ids = three_failed(store)
    store.operator.delete(ids.pop())  # it had the key
    assert store.operator.bulk("retry", parse("state:failed")) == Changed(changed=1, refused=1)
    assert [store.reads.get(id).state for id in ids] == [State.FAILED, State.QUEUED]


def test_a_retry_while_nobody_took_the_key_holds_it_again(store: Store) -> None:
    held = a_running_job(store, key="k")
    store.attempts.fail(ref(held), BOOM)
    store.operator.retry(str(held.id))
    assert store.enqueue(new_job(key="k")) == Enqueued(str(held.id), False)


# -- after a failure ------------------------------------------------------------------------------------------------


WAYS = pytest.mark.parametrize("enqueue", [one_by_one, in_bulk, on_a_callers_connection])
ENDS = pytest.mark.parametrize("end", ["failed", "cancelled"])


def ended_job(store: Store, end: str = "failed", **options: Any) -> str:
    held = a_running_job(store, **{"key": "k", **options})
    if end == "failed":
        store.attempts.fail(ref(held), BOOM)
    else:
        store.attempts.stop(ref(held))
    return str(held.id)


@WAYS
@ENDS
def test_an_idempotency_key_hands_the_failed_job_back_as_it_is(store: Store, end: str, enqueue: Enqueue) -> None:
    id = ended_job(store, end)
    before = store.reads.get(id)
    assert enqueue(store, new_job(key="k", priority=9, after_failure="return")) == [Enqueued(id, False, State(end))]
    assert store.reads.get(id) == before
    assert len(store.reads.jobs()) == 1


@WAYS
@ENDS
def test_the_failed_job_begins_another_life(store: Store, clock: Clock, end: str, enqueue: Enqueue) -> None:
    id = ended_job(store, end, args=b"1", queue="there", tags=("x",), priority=2)
    clock.advance(HOUR)
    asked = new_job(key="k", args=b"2", queue="here", delay=60, priority=5, after_failure="retry")
    assert enqueue(store, asked) == [Enqueued(id, False, State.QUEUED, retried=True)]
    job = store.reads.get(id)
    assert (job.state, job.attempt, job.life, job.holds_key) == (State.QUEUED, 0, 2, True)
    assert (job.args, job.queue, job.tags) == (b"1", "there", ("x",)), "it is the same job"
    assert (job.run_at - clock.now).total_seconds() == 60, "due when this enqueue says"
    assert job.priority == 5, "and no less urgent"
    assert enqueue(store, new_job(key="k", priority=1, after_failure="retry")) == [Enqueued(id, False)]
    assert (store.reads.get(id).life, store.reads.get(id).priority) == (2, 5)
    clock.advance(60)
    assert [str(held.id) for held in claim(store, queues=("there",)).jobs] == [id]


@WAYS
def test_an_enqueue_leaves_a_job_as_a_retry_does(store: Store, enqueue: Enqueue) -> None:
    """Column by column: whoever adds one to the verb must add it to what an enqueue does."""
    assert isinstance(store, SqliteStore | PostgresStore)
    ids = []
    for key in ("mine", "other"):
        held = a_running_job(store, key=key, expires_in=HOUR)
        store.attempts.checkpoint(ref(held), b"[1]", pending=3, done=1)
        store.attempts.fail(ref(held), BOOM)
        store.operator.cancel(str(held.id), "no need", "ops")
        ids.append(int(held.id))
    store.retention.drop_pending()
    store.operator.retry(str(ids[0]))
    assert enqueue(store, new_job(key="other", after_failure="retry"))[0].retried
    with raw(store.db.settings) as sql:
        columns = [str(id) for id in COLUMN_NAMES]
        by_verb, by_enqueue = (
            dict(zip(columns, sql(f"select {', '.join(columns)} from {{jobs}} where id = {id}")[0], strict=True))
            for id in ids
        )
        assert sorted(row[0] for row in sql("select job_id from {pending}")) == ids, "its pending work counts again"
    assert by_verb | {"id": ids[1], "key": "other"} == by_enqueue


@WAYS
def test_a_failed_job_that_is_returned_or_retried_keeps_its_key_from_a_result_that_is_too_old(
    store: Store, clock: Clock, enqueue: Enqueue
) -> None:
    """`reuse` is about success, `after_failure` about failure: neither stands in for the other."""
    held = a_running_job(store, key="k")
    store.attempts.succeed(ref(held))
    clock.advance(HOUR)
    [done] = enqueue(store, new_job(key="k", reuse=60.0, after_failure="return"))
    assert done.created
    assert done.id != str(held.id)


@BOTH_WAYS
def test_of_equal_jobs_in_one_call_one_retries(store: Store, enqueue: Enqueue) -> None:
    id = ended_job(store)
    asked = [new_job(key="k", after_failure="retry") for _ in range(3)]
    assert enqueue(store, *asked, new_job(key="k")) == [
        Enqueued(id, False, retried=True), *[Enqueued(id, False)] * 3
    ]  # fmt: skip


def test_a_rollback_takes_the_retry_back(store: Store) -> None:
    assert isinstance(store, SqliteStore | PostgresStore)
    id = ended_job(store)
    before = store.reads.get(id)
    with raw(store.db.settings) as sql:
        assert store.enqueue_on(sql.connection, new_job(key="k", after_failure="retry")).retried
        sql.connection.rollback()
    assert store.reads.get(id) == before


@pytest.mark.parametrize("engine", ["postgres"])
@BOTH_WAYS  # on a caller's connection, the insert that is tried first wakes one by the trigger
def test_a_retry_by_key_wakes_a_worker(store: Store, settings: Settings, enqueue: Enqueue) -> None:
    assert isinstance(store, PostgresStore)
    ended_job(store)
    with psycopg.connect(settings.url, autocommit=True) as ear:
        ear.execute(listen_everywhere(store))
        assert enqueue(store, new_job(key="k", after_failure="retry"))[0].retried
        # The first job's own may come late: whoever enqueues does not wait for it.
        assert any(notice.payload == "q" for notice in ear.notifies(timeout=5))


@BOTH_WAYS
@pytest.mark.parametrize("mode", ["retry", "return"])
def test_sixteen_submitters_after_a_failure_agree(
    store: Store, stores: Callable[..., Store], clock: Clock, enqueue: Enqueue, mode: Any
) -> None:
    id = ended_job(store)
    own = [stores(clock=clock) for _ in range(16)]
    answers = at_once(16, lambda number: enqueue(own[number], new_job(key="k", after_failure=mode))[0])
    assert {answer.id for answer in answers} == {id}
    assert not any(answer.created for answer in answers)
    assert sum(answer.retried for answer in answers) == (mode == "retry")
    assert store.reads.get(id).life == (2 if mode == "retry" else 1)


def test_submitters_of_all_modes_at_once_leave_one_unfinished_job(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    own = [stores(clock=clock) for _ in range(9)]
    modes: list[Any] = ["new", "retry", "return"] * 3
    for n in range(8):
        id = ended_job(store, key=f"k{n}", queue=f"q{n}")

        def act(number: int, n: int = n) -> Enqueued:
            job = new_job(key=f"k{n}", queue=f"q{n}", after_failure=modes[number])
            return (in_bulk if number > 4 else one_by_one)(own[number], job)[0]

        answers = at_once(9, act)
        assert sum(answer.created or answer.retried for answer in answers) == 1
        [job] = [job for job in store.reads.jobs(queue=f"q{n}") if job.state is State.QUEUED]
        assert job.holds_key
        assert {answer.id for answer in answers} <= {id, job.id}
        assert {answer.id for answer, mode in zip(answers, modes, strict=True) if mode != "return"} == {job.id}
        store.operator.cancel(job.id)


def test_bulk_retries_by_key_in_opposite_order_do_not_deadlock(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    keys = [f"k{n:03}" for n in range(200)]
    in_bulk(store, *(new_job(key=key) for key in keys))
    own = [stores(clock=clock) for _ in range(4)]
    for life in (2, 3):
        assert store.operator.bulk("cancel", parse("state:queued")).changed == len(keys)

        def submit(number: int) -> list[Enqueued]:
            mine = keys if number % 2 else keys[::-1]
            return in_bulk(own[number], *(new_job(key=key, after_failure="retry") for key in mine))

        answers = at_once(4, submit)
        assert sum(answer.retried for mine in answers for answer in mine) == len(keys)
        assert {job.life for job in store.reads.jobs(limit=1000)} == {life}


# -- many at once ---------------------------------------------------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("before", ["nothing", "a failed job", "an old result"])
def test_sixteen_submitters_of_one_key_make_one_job(
    store: Store, stores: Callable[..., Store], clock: Clock, enqueue: Enqueue, before: str
) -> None:
    if before != "nothing":
        held = a_running_job(store, key="k")
        if before == "a failed job":
            store.attempts.fail(ref(held), BOOM)
        else:
            store.attempts.succeed(ref(held))
    clock.advance(60)
    own = [stores(clock=clock) for _ in range(16)]
    answers = at_once(16, lambda number: enqueue(own[number], new_job(key="k", reuse=30.0))[0])
    assert sum(answer.created for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1
    assert sum(job.holds_key for job in store.reads.jobs()) == 1


def test_bulk_inserts_in_opposite_order_do_not_deadlock(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    keys = [f"k{n:03}" for n in range(300)]
    own = [stores(clock=clock) for _ in range(4)]

    def submit(number: int) -> list[Enqueued]:
        mine = keys if number % 2 else keys[::-1]
        return in_bulk(own[number], *(new_job(key=key) for key in mine))

    for _ in range(2):  # the second time over jobs that gave their keys up
        answers = at_once(4, submit)
        assert sum(answer.created for mine in answers for answer in mine) == len(keys)
        live = [job for job in store.reads.jobs(limit=1000) if job.holds_key]
        assert sorted(job.key or "" for job in live) == keys
        for job in live:
            store.operator.cancel(job.id)


@pytest.mark.parametrize("before", ["it has the key", "a finished job has it", "nobody has it"])
def test_submitters_and_retries_of_one_key_never_make_two_unfinished_jobs(
    store: Store, stores: Callable[..., Store], clock: Clock, before: str
) -> None:  # enqueue x retry
    own = [stores(clock=clock) for _ in range(6)]
    for n in range(10):
        kind: dict[str, Any] = {"task": f"t{n}", "key": f"k{n}", "queue": f"q{n}"}
        held = a_running_job(store, **kind)
        store.attempts.fail(ref(held), BOOM)
        if before != "it has the key":
            newer = a_running_job(store, **kind)
            store.attempts.succeed(ref(newer))
            if before == "nobody has it":
                store.operator.delete(str(newer.id))

        def act(number: int, kind: dict[str, Any] = kind, id: str = str(held.id)) -> str:
            if number > 0:
                return own[number].enqueue(new_job(**kind)).id
            try:
                return own[0].operator.retry(id).value
            except Refused:
                return "refused"

        answers = at_once(6, act)
        unfinished = [job.id for job in store.reads.jobs(queue=f"q{n}") if job.state is State.QUEUED]
        assert set(answers[1:]) == set(unfinished)
        assert len(unfinished) == 1
        assert (answers[0] == "queued") == (unfinished == [str(held.id)])
        assert sum(job.holds_key for job in store.reads.jobs(queue=f"q{n}")) == 1


GENERATIONS = {"those before have the keys": 1, "nobody has the keys": 2, "newer ones have the keys": 3}


@pytest.mark.parametrize("before", GENERATIONS)
@pytest.mark.parametrize("other", ["an enqueue", "a retry"])
def test_a_bulk_retry_and_others_of_the_same_keys_do_not_deadlock(
    store: Store, stores: Callable[..., Store], clock: Clock, before: str, other: str
) -> None:
    keys = [f"k{n * 7 % 150}" for n in range(150)]
    own = [stores(clock=clock) for _ in range(2)]
    for _ in range(4):
        made: list[list[int]] = []
        for _ in range(GENERATIONS[before]):
            made.append([int(done.id) for done in in_bulk(store, *(new_job(key=key) for key in keys))])
            assert store.operator.bulk("cancel", parse("state:queued")).changed == len(keys)
        if before == "nobody has the keys":
            in_bulk(store, *(new_job(key=key) for key in keys))
            store.operator.bulk("cancel", parse("state:queued"))
            for job in store.reads.jobs(limit=len(keys)):
                store.operator.delete(job.id)

        def act(number: int, made: list[list[int]] = made) -> int:
            if number == 0:
                return len(own[0].operator.act("retry", made[0], Call("retry", "")))
            if other == "a retry":
                return len(own[1].operator.act("retry", made[-1][::-1], Call("retry", "")))
            return sum(done.created for done in in_bulk(own[1], *(new_job(key=key) for key in sorted(keys))))

        assert sum(at_once(2, act)) == len(keys), "each key has one"
        queued = [job for job in store.reads.jobs(limit=1000) if job.state is State.QUEUED]
        assert sorted(job.key or "" for job in queued) == sorted(keys)
        assert all(job.holds_key for job in queued)
        store.operator.bulk("cancel", parse("state:queued"))
        for chunk in store.reads.matching(parse("state:cancelled")):
            store.operator.act("delete", chunk, Call("delete", ""), unfinished=False)
