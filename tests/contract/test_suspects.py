"""Crashes in company: who was there is a suspect, uncharged, and runs alone until cleared (DESIGN 3.3, F10, F11)."""

from __future__ import annotations

import pytest

from holdfast.model.job import Held
from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from tests.factories import BOOM, HOUR, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, ref, wants


def crash_together(store: Store, clock: Clock, jobs: int = 2, **options: object) -> list[Held]:
    """That many jobs of one claim, whose worker went silent."""
    for _ in range(jobs):
        a_queued_job(store, **options)
    held = store.claim(wants(jobs, held=1)).jobs  # one already in hand: so no suspect is taken alone instead
    assert len(held) == jobs
    clock.advance(LEASE + 1)
    assert len(store.rescue()) == jobs
    return held


def test_a_crash_in_company_is_charged_to_nobody(store: Store, clock: Clock) -> None:
    held = crash_together(store, clock, 3, max_attempts=1)
    for job in (store.get(str(one.id)) for one in held):
        assert (job.state, job.attempt, job.crashes, job.suspicion) == (State.QUEUED, 0, 0, 1)
        assert job.error_code == "LOST"
        [attempt] = store.attempts(job.id)
        assert (attempt.outcome, attempt.number, attempt.worker) == ("lost", 1, "w1")


def test_two_leases_of_one_worker_are_company_too(store: Store, clock: Clock) -> None:
    one, two = a_running_job(store, worker="w1"), a_running_job(store, worker="w1")
    clock.advance(LEASE + 1)
    assert {rescued.charged for rescued in store.rescue()} == {False}
    assert store.get(str(one.id)).suspicion == store.get(str(two.id)).suspicion == 1


def test_what_a_worker_had_in_hand_when_last_heard_of_decides(store: Store, clock: Clock) -> None:
    for _ in range(2):
        a_queued_job(store)
    first, second = claim(store, 2).jobs
    store.succeed(ref(first))
    store.renew([second.fence], [ref(second)], LEASE)  # only one is left, and that was told
    clock.advance(LEASE + 1)
    [rescued] = store.rescue()
    assert rescued.charged


def test_jobs_of_different_workers_are_no_company(store: Store, clock: Clock) -> None:
    a_running_job(store, worker="w1")
    a_running_job(store, worker="w2")
    clock.advance(LEASE + 1)
    assert {rescued.charged for rescued in store.rescue()} == {True}


def test_a_suspect_is_taken_alone_by_a_worker_with_empty_hands(store: Store, clock: Clock) -> None:
    suspects = crash_together(store, clock, 2)
    a_queued_job(store, priority=100)
    claimed = claim(store, 10)
    assert claimed.alone
    assert [job.id for job in claimed.jobs] == [suspects[0].id]
    assert not claimed.hold_back


def test_a_worker_with_something_in_hand_takes_others_and_knows_when_company_is_allowed(
    store: Store, clock: Clock
) -> None:
    suspects = crash_together(store, clock, 2)
    other = a_queued_job(store)
    claimed = claim(store, 10, held=1)
    assert [str(job.id) for job in claimed.jobs] == [other]
    assert (claimed.alone, claimed.hold_back) == (False, False)
    assert claimed.next_due == pytest.approx(1.0)
    clock.advance(1)
    claimed = claim(store, 10, held=1)
    assert [job.id for job in claimed.jobs] == [job.id for job in suspects]
    assert not claimed.alone


def test_after_its_lapse_a_suspect_is_a_job_like_any_other(store: Store, clock: Clock) -> None:
    """Else a lone worker would run all jobs of a crashed one after the other, for ever one at a time."""
    suspects = crash_together(store, clock, 3)
    urgent = a_queued_job(store, priority=1)
    clock.advance(1)
    claimed = claim(store, 10)
    assert [str(job.id) for job in claimed.jobs] == [urgent, *(str(job.id) for job in suspects)]
    assert not claimed.alone


@pytest.mark.parametrize(("crashes", "lapse"), [(1, 1.0), (2, MINUTE), (3, None), (4, None)])
def test_the_oftener_it_was_there_the_longer_it_waits_to_be_alone(
    store: Store, clock: Clock, crashes: int, lapse: float | None
) -> None:
    first, second = crash_together(store, clock, 2)
    for crash in range(2, crashes + 1):
        # Together again, as in a fleet that is never idle: let the time to be alone pass, or make it pass.
        clock.advance(MINUTE)
        taken = claim(store, 2, held=1).jobs
        if len(taken) < 2:  # never in company again: so one after the other by the same worker, which dies with both
            taken = claim(store, 1).jobs + claim(store, 1).jobs
        assert {job.id for job in taken} == {first.id, second.id}
        clock.advance(LEASE + 1)
        store.rescue()
        assert store.get(str(first.id)).suspicion == crash
    assert store.get(str(first.id)).attempt == 0
    claimed = claim(store, 10, held=1)
    assert claimed.jobs == []
    if lapse is None:
        assert claimed.hold_back, "a suspect waits for a worker with nothing else in hand"
        clock.advance(24 * HOUR)
        assert claim(store, 10, held=1).jobs == []
    else:
        assert not claimed.hold_back
        assert claimed.next_due == pytest.approx(lapse)
        clock.advance(lapse)
        assert len(claim(store, 10, held=1).jobs) == 2


def test_a_worker_that_always_has_work_is_told_to_hold_back(store: Store, clock: Clock) -> None:
    """Also in the answer that brings other jobs: else the suspect would wait for ever on a busy worker."""
    first, _ = crash_together(store, clock, 2)
    for _ in range(2):
        clock.advance(MINUTE)
        taken = claim(store, 2, held=1).jobs
        assert len(taken) == 2
        clock.advance(LEASE + 1)
        store.rescue()
    other = a_queued_job(store)
    claimed = claim(store, 10, held=1)
    assert [str(job.id) for job in claimed.jobs] == [other]
    assert claimed.hold_back
    claimed = claim(store, 10, held=0)
    assert (claimed.alone, [job.id for job in claimed.jobs]) == (True, [first.id])


def test_a_poison_job_blames_itself_and_not_its_neighbours(store: Store, clock: Clock) -> None:  # F10, F11, I11
    poison, innocent = crash_together(store, clock, 2, max_attempts=3)
    for _ in range(3):
        claimed = claim(store, 10)
        assert claimed.alone
        while claimed.jobs and claimed.jobs[0].id != poison.id:
            store.succeed(ref(claimed.jobs[0]))
            claimed = claim(store, 10)
        clock.advance(LEASE + 1)
        store.rescue()
    job = store.get(str(poison.id))
    assert (job.state, job.error_code, job.crashes) == (State.FAILED, "QUARANTINED", 3)
    neighbour = store.get(str(innocent.id))
    if neighbour.state is State.QUEUED:
        [held] = claim(store).jobs
        store.succeed(ref(held))
        neighbour = store.get(str(innocent.id))
    assert (neighbour.state, neighbour.attempt, neighbour.crashes) == (State.SUCCEEDED, 1, 0)


def test_an_attempt_that_ends_in_words_clears_the_suspect(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 2)
    [held] = claim(store).jobs
    store.reschedule(ref(held), 0, BOOM)
    assert store.get(str(held.id)).suspicion == 0
    other = a_queued_job(store)
    clock.advance(1)
    taken = claim(store, 10, held=1)
    assert {str(held.id), other} <= {str(job.id) for job in taken.jobs}


def test_a_suspect_can_be_paused_cancelled_changed_and_deleted(store: Store, clock: Clock) -> None:
    paused, cancelled, changed, deleted = crash_together(store, clock, 4)
    store.pause(str(paused.id))
    store.cancel(str(cancelled.id))
    store.change(str(changed.id), delay=30)
    store.delete(str(deleted.id))
    assert claim(store, 10).jobs == []
    assert claim(store).next_due == pytest.approx(30)
    clock.advance(30)
    assert [job.id for job in claim(store, 10).jobs] == [changed.id]
    store.resume(str(paused.id))
    assert [job.id for job in claim(store, 10).jobs] == [paused.id]


@pytest.mark.parametrize("kind", ["queue", "task", "unserved"])
def test_suspects_that_may_not_be_taken_stand_in_nobodys_way(store: Store, clock: Clock, kind: str) -> None:
    crash_together(store, clock, 2, queue="mail")
    if kind == "queue":
        store.hold("queue", "mail")
    elif kind == "task":
        store.hold("task", "greet")
    a_queued_job(store, task="scan")
    tasks = ["scan"] if kind == "unserved" else ["scan", "greet"]
    claimed = claim(store, 10, tasks=tasks)
    assert [job.task for job in claimed.jobs] == ["scan"]
    assert (claimed.alone, claimed.hold_back) == (False, False)
    look = store.look("w1", tasks, None)
    assert look.next_due is None, "a worker that can't take them is not kept awake by them"


def test_a_suspect_counts_as_due_for_a_worker_that_may_take_it(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 2)
    look = store.look("w1", ["greet"], None)
    assert look.next_due is not None
    assert look.next_due <= 0


@pytest.mark.parametrize("engine", ["postgres"])  # where the reading of suspects is bounded
def test_a_thousand_suspects_of_a_paused_queue_hide_no_others(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 1001, queue="mail")
    crash_together(store, clock, 2, queue="web")
    store.hold("queue", "mail")
    clock.advance(1)
    assert [job.queue for job in claim(store, 10).jobs] == ["web", "web"]
