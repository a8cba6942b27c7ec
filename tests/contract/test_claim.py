from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.errors import StoreError
from holdfast.model.job import Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import given_back
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import at_once, everything, raw
from tests.factories import BOOM, HOUR, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, new_job, ref, wants

TASKS = ("greet", "scan", "ship")


def ids(store: Store, limit: int = 100, **options: object) -> list[str]:
    return [str(job.id) for job in claim(store, limit, **{"tasks": TASKS, **options}).jobs]


# -- order ----------------------------------------------------------------------------------------------------------


def test_jobs_come_by_priority_then_due_time_then_id_across_tasks_and_queues(store: Store, clock: Clock) -> None:
    shuffle = random.Random(7)
    expected = []
    for n in range(60):
        priority, delay = shuffle.randint(-2, 2), shuffle.randint(0, 5)
        id = a_queued_job(
            store, task=shuffle.choice(TASKS), queue=shuffle.choice("abc"), priority=priority, delay=delay
        )
        expected.append((-priority, delay, n, id))
    clock.advance(10)
    assert ids(store) == [id for *_, id in sorted(expected)]


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_batches_one_after_the_other_keep_the_order(store: Store, clock: Clock, batch: int) -> None:
    shuffle = random.Random(batch)
    expected = []
    for n in range(20):
        priority, delay = shuffle.randint(0, 3), shuffle.randint(0, 3)
        id = a_queued_job(store, task=shuffle.choice(TASKS), priority=priority, delay=delay)
        expected.append((-priority, delay, n, id))
    clock.advance(10)
    taken: list[str] = []
    while more := ids(store, batch):
        assert len(more) <= batch
        taken += more
    assert taken == [id for *_, id in sorted(expected)]


@pytest.mark.parametrize("seed", range(4))
def test_many_lanes_of_uneven_length_give_their_jobs_in_order(store: Store, clock: Clock, seed: int) -> None:
    draw = random.Random(seed)
    lanes = [(f"q{draw.randrange(8)}", task, draw.randint(-2, 2)) for task in TASKS for _ in range(15)]
    jobs = []
    for queue, task, priority in set(lanes):
        start = draw.randrange(50)
        spread = draw.choice([0, 0, 3, 60])  # many due at one moment, soon after each other, or all along
        for _ in range(draw.choice([1, 2, 5, 20, 150])):
            jobs.append(new_job(task=task, queue=queue, priority=priority, delay=start + draw.randint(0, spread)))
    draw.shuffle(jobs)
    for _ in store.enqueue_many(jobs):
        pass
    clock.advance(80)
    due = [job for job in store.reads.jobs(limit=len(jobs)) if job.run_at <= clock.now]
    expected = [job.id for job in sorted(due, key=lambda job: (-job.priority, job.run_at, int(job.id)))]
    while expected:
        n = draw.choice([1, 7, 40, 300])
        assert ids(store, n) == expected[:n]
        del expected[:n]
    assert ids(store) == []


def test_a_claim_takes_no_more_than_its_limit_and_returns_what_it_moved(store: Store) -> None:
    for n in range(50):
        a_queued_job(store, task=TASKS[n % 3], queue="ab"[n % 2], priority=n % 4)
    taken = ids(store, 7)
    assert len(taken) == 7
    assert sorted(job.id for job in store.reads.jobs(state=State.RUNNING)) == sorted(taken)
    assert claim(store, 0).jobs == []


def test_an_empty_claim_leaves_no_lease(store: Store, settings: Settings) -> None:
    a_queued_job(store, delay=5)
    assert claim(store).jobs == []
    with raw(settings) as sql:
        assert sql("select count(*) from {leases}") == [(0,)]


# -- what a claim sets and returns ----------------------------------------------------------------------------------


def test_a_claim_charges_the_attempt_and_says_who_holds_the_job(store: Store, clock: Clock) -> None:
    id = a_queued_job(store, args=b'{"x":1}', queue="mail", priority=4, max_attempts=2, correlation_id="c-1")
    clock.advance(3)
    wanted = wants(worker="w7")
    claimed = store.attempts.claim(wanted)
    [held] = claimed.jobs
    assert (str(held.id), held.fence, held.task, held.queue) == (id, wanted.fence, "greet", "mail")
    assert (held.args, held.attempt, held.max_attempts) == (b'{"x":1}', 1, 2)
    assert (held.priority, held.checkpoint, held.correlation_id) == (4, None, "c-1")
    assert not claimed.more
    job = store.reads.get(id)
    assert (job.state, job.worker, job.fence, job.attempt) == (State.RUNNING, "w7", wanted.fence, 1)
    assert job.started_at == clock.now


def test_each_claim_has_a_fence_of_its_own(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.release(ref(held))
    [again] = claim(store).jobs
    assert again.fence != held.fence


# -- what is not taken ----------------------------------------------------------------------------------------------


def test_run_at_is_honoured_by_every_claim_path(store: Store, clock: Clock) -> None:
    """By delay, by instant, after a reschedule, a snooze, a change and a resume."""
    later = clock.now + timedelta(seconds=30)
    delayed, dated = a_queued_job(store, delay=30), a_queued_job(store, run_at=later)
    changed = a_queued_job(store)
    store.operator.change(changed, delay=30)
    paused = a_queued_job(store, delay=30)
    store.operator.pause(paused)
    store.operator.resume(paused)
    rescheduled, snoozed = a_queued_job(store, task="scan"), a_queued_job(store, task="scan")
    first, second = claim(store, 2, tasks=["scan"]).jobs
    store.attempts.reschedule(ref(first), 30, BOOM)
    store.attempts.release(ref(second), delay=30)
    assert ids(store) == []
    clock.advance(29.999)
    assert ids(store) == []
    clock.advance(0.001)
    assert sorted(ids(store)) == sorted([delayed, dated, changed, paused, rescheduled, snoozed])


def test_unknown_tasks_stay_queued_untouched(store: Store) -> None:
    id = a_queued_job(store, task="from the future", priority=100)
    mine = a_queued_job(store)
    before = everything(store, id)
    assert ids(store) == [mine]
    assert ids(store, tasks=()) == []
    assert everything(store, id) == before


def test_only_the_queues_served_are_taken_from(store: Store) -> None:
    a, b, c = (a_queued_job(store, queue=queue) for queue in "abc")
    assert ids(store, queues=()) == []
    assert ids(store, queues=("nobody's",)) == []
    assert ids(store, queues=("c", "a")) == [a, c]
    assert ids(store) == [b]


def test_a_queue_named_twice_is_one_queue(store: Store) -> None:
    a = a_queued_job(store, queue="a")
    claimed = claim(store, 5, queues=("a", "a"))
    assert [str(job.id) for job in claimed.jobs] == [a]
    assert not claimed.more


@pytest.mark.parametrize("name", ["it's", 'say "hi"', "%s %(x)s", "naïve ☃", "a:b", "{x}", "", " ", "@jobs", ":now"])
def test_names_are_data(store: Store, name: str) -> None:
    id = a_queued_job(store, task=name, queue=name, tags=(name,), key=name, correlation_id=name)
    assert ids(store, tasks=(name,), queues=(name,)) == [id]
    job = store.reads.get(id)
    assert (job.task, job.queue, job.tags, job.key, job.correlation_id) == (name, name, (name,), name, name)


# -- pauses of queues and tasks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [("queue", "mail"), ("task", "scan")])
def test_a_paused_queue_or_task_takes_no_new_attempts(store: Store, clock: Clock, kind: str, name: str) -> None:
    held_up = a_queued_job(store, queue="mail", task="scan", priority=50)
    other = a_queued_job(store, queue="web", task="greet")
    store.pauses.add(kind, name, by="usr", reason="the mail server is down")
    [pause] = store.pauses.all()
    assert (pause.kind, pause.name, pause.by, pause.reason, pause.until) == (
        kind, name, "usr", "the mail server is down", None,
    )  # fmt: skip
    assert pause.created_at == clock.now
    assert ids(store) == [other]
    assert store.pauses.drop(kind, name) is True
    assert store.pauses.drop(kind, name) is False
    assert store.pauses.all() == []
    assert ids(store) == [held_up]


@pytest.mark.parametrize("by", ["until", "delay"])
def test_a_pause_with_an_end_ends_by_itself(store: Store, clock: Clock, by: str) -> None:
    id = a_queued_job(store, queue="mail")
    if by == "until":
        store.pauses.add("queue", "mail", until=clock.now + timedelta(seconds=MINUTE))
    else:
        store.pauses.add("queue", "mail", delay=MINUTE)
    [pause] = store.pauses.all()
    assert pause.until == clock.now + timedelta(seconds=MINUTE)
    claimed = claim(store)
    assert claimed.jobs == []
    assert claimed.next_due == pytest.approx(MINUTE)
    clock.advance(MINUTE)
    assert store.pauses.all() == []
    assert ids(store) == [id]


def test_what_runs_goes_on_in_a_paused_queue(store: Store) -> None:
    held = a_running_job(store, queue="mail")
    store.pauses.add("queue", "mail")
    store.attempts.succeed(ref(held))
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


def test_pausing_again_replaces_who_why_and_until(store: Store) -> None:
    store.pauses.add("task", "greet", by="usr", reason="first", delay=MINUTE)
    store.pauses.add("task", "greet", by="bob", reason="second")
    [pause] = store.pauses.all()
    assert (pause.by, pause.reason, pause.until) == ("bob", "second", None)


def test_a_queue_and_a_task_of_the_same_name_are_two_things(store: Store) -> None:
    a_queued_job(store, task="greet", queue="mail")
    store.pauses.add("queue", "greet")
    store.pauses.add("task", "mail")
    assert len(ids(store)) == 1


# -- when to look next ----------------------------------------------------------------------------------------------


def next_due(store: Store, limit: int = 1, **options: object) -> float | None:
    return claim(store, limit, **{"tasks": TASKS, **options}).next_due


def test_with_nothing_to_wait_for_no_time_is_told(store: Store) -> None:
    assert next_due(store) is None
    a_queued_job(store, task="unknown here", delay=5)
    a_queued_job(store, queue="other", delay=5)
    assert next_due(store, queues=["mine"]) is None


def test_an_empty_claim_tells_when_the_next_job_falls_due(store: Store, clock: Clock) -> None:
    a_queued_job(store, delay=90, priority=50)
    a_queued_job(store, delay=30, task="scan", queue="other")
    assert next_due(store) == pytest.approx(30)
    clock.advance(29)
    assert next_due(store) == pytest.approx(1)


def test_a_claim_that_took_something_tells_of_the_next_one_in_the_same_lane(store: Store) -> None:
    a_queued_job(store)
    a_queued_job(store, delay=40)
    a_queued_job(store, delay=50, priority=1)
    assert next_due(store) == pytest.approx(40)
    assert next_due(store) == pytest.approx(40)


def test_the_end_of_a_pause_counts_as_a_due_time(store: Store) -> None:
    a_queued_job(store, queue="mail")
    a_queued_job(store, delay=HOUR)
    store.pauses.add("queue", "mail", delay=20)
    assert next_due(store) == pytest.approx(20)


def test_a_look_tells_the_same(store: Store, clock: Clock) -> None:
    look = store.look("w1", TASKS, None)
    assert (look.next_due, look.next_lease_end, look.expired_leases, look.expired_jobs) == (None, None, False, False)
    a_queued_job(store, delay=30)
    a_queued_job(store, delay=10, task="unknown here")
    a_queued_job(store, delay=15, queue="other", expires_in=16)
    assert store.look("w1", TASKS, ["default"]).next_due == pytest.approx(30)
    assert store.look("w1", TASKS, None).next_due == pytest.approx(15)
    clock.advance(17)
    look = store.look("w1", TASKS, None)
    assert look.next_due is not None
    assert look.next_due <= 0
    assert look.expired_jobs
    store.retention.expire()
    assert not store.look("w1", TASKS, None).expired_jobs
    a_running_job(store, lease=12)
    look = store.look("w1", TASKS, None)
    assert look.next_lease_end == pytest.approx(12)
    clock.advance(12.5)
    assert store.look("w1", TASKS, None).expired_leases


# -- expiry ---------------------------------------------------------------------------------------------------------


def test_a_job_past_its_expiry_is_never_claimed_but_cancelled_as_expired(store: Store, clock: Clock) -> None:
    late, fine = a_queued_job(store, expires_in=10, priority=9), a_queued_job(store, expires_in=100)
    clock.advance(11)
    assert ids(store) == [fine]
    [row] = store.retention.expire()
    assert str(row["id"]) == late
    job = store.reads.get(late)
    assert (job.state, job.error_code, job.attempt) == (State.CANCELLED, "EXPIRED", 0)
    assert job.finished_at == clock.now
    assert store.retention.expire() == []


def test_a_job_started_in_time_keeps_its_later_attempts(store: Store, clock: Clock) -> None:
    held = a_running_job(store, expires_in=10)
    clock.advance(11)
    store.attempts.reschedule(ref(held), 0, BOOM)
    assert store.retention.expire() == []
    assert ids(store) == [str(held.id)]


@pytest.mark.parametrize("how", ["released", "snoozed", "parked", "lost", "not begun"])
def test_a_job_that_was_started_expires_no_more(store: Store, clock: Clock, how: str) -> None:
    """However often it is given back: by a deployment, a pause, a Snooze, a worker that died among others."""
    a_queued_job(store, expires_in=5)
    [held] = claim(store, held=1).jobs
    match how:
        case "released":
            store.attempts.release(ref(held))
        case "snoozed":
            store.attempts.release(ref(held), 1.0)
        case "parked":
            store.operator.pause(str(held.id))
            store.attempts.park(ref(held))
        case "lost":
            clock.advance(LEASE + 1)
            assert len(store.rescues.rescue()) == 1
        case _:
            store.exchange([given_back(held, started=False)], None)
    clock.advance(10)
    if how == "parked":
        store.operator.resume(str(held.id))
    expired = [str(row["id"]) for row in store.retention.expire()]
    assert expired == ([str(held.id)] if how == "not begun" else [])
    assert len(claim(store).jobs) == (how != "not begun")


def test_expiry_goes_in_bounded_steps(store: Store, clock: Clock) -> None:
    for _ in range(5):
        a_queued_job(store, expires_in=1)
    clock.advance(2)
    assert [len(store.retention.expire(limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_expired_jobs_in_front_hide_no_others(store: Store, clock: Clock) -> None:
    for _ in range(60):
        a_queued_job(store, expires_in=1)
    fine = a_queued_job(store)
    clock.advance(2)
    assert ids(store, 1) == [fine]


# -- many at once ---------------------------------------------------------------------------------------------------


def test_concurrent_claimers_take_different_jobs(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    jobs = 240
    for chunk in store.enqueue_many(new_job(task=TASKS[n % 3], priority=n % 2) for n in range(jobs)):
        assert len(chunk) == jobs
    own = [stores(clock=clock) for _ in range(8)]

    def drain(number: int) -> list[str]:
        mine: list[str] = []
        while True:
            claimed = claim(own[number], 4, tasks=TASKS, worker=f"w{number}")
            mine += [str(job.id) for job in claimed.jobs]
            if not claimed.jobs and not claimed.more:
                return mine

    taken = [id for mine in at_once(8, drain) for id in mine]
    left = ids(store)  # an empty claim is no proof that none is left: others may have held the locks
    assert len(taken + left) == jobs
    assert len(set(taken + left)) == jobs
    assert {job.attempt for job in store.reads.jobs(limit=jobs)} == {1}


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
def test_a_claim_passes_by_a_row_that_somebody_else_has_locked(store: Store, settings: Settings) -> None:
    locked, free = a_queued_job(store, priority=5), a_queued_job(store)
    with raw(settings) as sql:
        sql("select 1 from {jobs} where id = ? for update", int(locked))
        claimed = claim(store, 2)
        assert [str(job.id) for job in claimed.jobs] == [free]
        assert claimed.more, "there was more than could be locked"
    assert ids(store) == [locked]


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
@pytest.mark.parametrize("held", [30, 400])
def test_a_claim_gets_past_what_others_have_locked_in_many_lanes(
    store: Store, settings: Settings, clock: Clock, held: int
) -> None:
    made = [a_queued_job(store, task=TASKS[n % 3], queue="ab"[n % 2], delay=n / 1000) for n in range(held + 25)]
    clock.advance(10)
    with raw(settings) as sql:
        sql("select 1 from {jobs} where id <= ? for update", int(made[held - 1]))
        first, second, third = (claim(store, 10, tasks=TASKS) for _ in range(3))
        assert [str(job.id) for job in first.jobs] == made[held : held + 10]
        assert [str(job.id) for job in second.jobs] == made[held + 10 : held + 20]
        assert [str(job.id) for job in third.jobs] == made[held + 20 :]
        assert third.more, "there was more than could be locked"
        assert claim(store, 10, tasks=TASKS).more
    assert ids(store, 10) == made[:10]


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has no row locks
def test_what_was_locked_keeps_its_place(store: Store, settings: Settings) -> None:
    """Whether a row is locked can't be read from it: one whose locks are gone looks the same as long as an older
    transaction is under way."""
    made = [a_queued_job(store, task=TASKS[n % 3]) for n in range(30)]
    with raw(settings) as older:
        older("create temporary table written (id int) on commit drop")
        with raw(settings) as sql:
            sql("select 1 from {jobs} where id <= ? for update", int(made[19]))
        assert [ids(store, 5) for _ in range(6)] == [made[n : n + 5] for n in range(0, 30, 5)]


def test_a_claim_asked_again_by_its_fence_tells_the_same(store: Store) -> None:
    for n in range(5):
        a_queued_job(store, priority=n, args=b'{"n":1}')
    wanted = wants(3)
    jobs = store.attempts.claim(wanted).jobs
    assert store.claim_of(wanted.fence).jobs == jobs
    store.attempts.succeed(ref(jobs[0]))
    assert store.claim_of(wanted.fence).jobs == jobs[1:]
    assert store.claim_of(wants().fence).jobs == []


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite's commits have no reply to lose
def test_a_claim_looked_up_before_it_happened_never_will(store: Store, clock: Clock, settings: Settings) -> None:
    id = a_queued_job(store)
    wanted = wants()
    assert store.claim_of(wanted.fence).jobs == []
    with pytest.raises(StoreError):
        store.attempts.claim(wanted)
    assert store.reads.get(id).state is State.QUEUED
    assert ids(store) == [id], "others are not hindered"
    clock.advance(HOUR)
    store.rescues.rescue()
    with raw(settings) as sql:
        assert sql("select count(*) from {leases}") == [(0,)]


def test_the_same_fence_never_claims_twice(store: Store) -> None:
    """A claim sent again after a lost reply takes nothing on top: the fence is the primary key of its lease."""
    a_queued_job(store)
    a_queued_job(store)
    wanted: Wants = wants()
    [held] = store.attempts.claim(wanted).jobs
    with pytest.raises(StoreError):
        store.attempts.claim(wanted)
    assert store.claim_of(wanted.fence).jobs == [held]
    assert [job.state for job in store.reads.jobs()] == [State.QUEUED, State.RUNNING]


def test_correlation_ids_belong_to_jobs_not_to_batches(store: Store) -> None:
    """What is claimed together keeps what each came with."""
    for n in range(3):
        a_queued_job(store, correlation_id=f"c{n}")
    assert [job.correlation_id for job in claim(store, 3).jobs] == ["c0", "c1", "c2"]


def test_a_batch_is_leased_once_and_what_waits_in_hand_stays_its_holders(store: Store, clock: Clock) -> None:
    """A job claimed with others and started last is renewed with them, so its lease does not run out."""
    for _ in range(3):
        a_queued_job(store)
    wanted = wants(3)
    jobs = store.attempts.claim(wanted).jobs
    for _ in range(6):
        clock.advance(LEASE / 2)
        standing, concerns = store.attempts.renew([wanted.fence], [ref(job) for job in jobs], LEASE)
        assert (standing, concerns) == ({wanted.fence}, [])
        assert store.rescues.rescue() == []
    store.attempts.succeed(ref(jobs[2]))
