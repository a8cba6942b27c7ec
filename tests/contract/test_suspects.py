"""Crashes in company: the first two in a row are charged to nobody, the second time the job is known as a suspect and
runs in a process of its own, from the third on each is charged."""

from __future__ import annotations

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.model.rescue import runs_isolated
from holdfast.store.base import Store
from tests.factories import BOOM, LEASE, Clock, a_queued_job, a_running_job, claim, ref, wants


def crash_together(store: Store, clock: Clock, jobs: int = 2, times: int = 1, **options: object) -> list[ClaimedJob]:
    """That many jobs of one claim, whose worker went silent with all of them, so many times in a row."""
    for _ in range(jobs):
        a_queued_job(store, **options)
    held: list[ClaimedJob] = []
    for _ in range(times):
        held = store.attempts.claim(wants(jobs)).jobs
        assert len(held) == jobs
        clock.advance(LEASE + 1)
        assert len(store.rescues.rescue()) == jobs
    return held


def test_a_crash_in_company_is_charged_to_nobody(store: Store, clock: Clock) -> None:
    held = crash_together(store, clock, 3, max_attempts=1)
    for job in (store.reads.get(str(one.id)) for one in held):
        assert (job.state, job.attempt, job.crashes, job.suspicion) == (State.QUEUED, 0, 0, 1)
        assert job.error_code == "LOST"
        [attempt] = store.reads.attempts(job.id)
        assert (attempt.outcome, attempt.number, attempt.worker) == ("lost", 1, "w1")


def test_after_a_first_loss_they_are_due_at_once_and_taken_together(store: Store, clock: Clock) -> None:
    lost = crash_together(store, clock, 3)
    urgent = a_queued_job(store, priority=1)
    claimed = claim(store, 10)
    assert [str(job.id) for job in claimed.jobs] == [urgent, *(str(job.id) for job in lost)]
    assert not any(runs_isolated(job.suspicion) for job in claimed.jobs)


def test_after_a_second_loss_in_a_row_the_claim_tells_that_they_need_a_process_each(store: Store, clock: Clock) -> None:
    lost = crash_together(store, clock, 2, times=2)
    other = a_queued_job(store)
    asked = wants(10)
    claimed = store.attempts.claim(asked)
    told = {str(job.id): runs_isolated(job.suspicion) for job in claimed.jobs}
    assert told == {**{str(job.id): True for job in lost}, other: False}
    assert {job.attempt for job in claimed.jobs} == {1}, "none was charged"
    looked_up = store.claim_of(asked.fence)
    assert {str(job.id): runs_isolated(job.suspicion) for job in looked_up.jobs} == told


def test_they_are_known_by_a_claim_of_the_lanes_a_worker_was_told_of(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 2, times=2)
    scan = a_queued_job(store, task="scan")
    lanes = [("default", "greet", 0), ("default", "scan", 0)]
    assert [job.suspicion for job in claim(store, 1, told=lanes[:1]).jobs] == [2]
    claimed = claim(store, 5, tasks=("greet", "scan"), told=lanes).jobs
    assert {job.task: job.suspicion for job in claimed} == {"greet": 2, "scan": 0}
    assert str(claimed[-1].id) == scan


def test_a_third_loss_in_a_row_is_charged_whatever_the_company(store: Store, clock: Clock) -> None:
    lost = crash_together(store, clock, 2, times=3, max_attempts=5)
    for job in (store.reads.get(str(one.id)) for one in lost):
        assert (job.state, job.attempt, job.crashes, job.error_code) == (State.QUEUED, 1, 1, "CRASHED")
        assert runs_isolated(job.suspicion)
        assert [attempt.outcome for attempt in store.reads.attempts(job.id)] == ["lost", "lost", "crashed"]


def test_three_charged_crashes_in_a_row_quarantine_it(store: Store, clock: Clock) -> None:
    lost = crash_together(store, clock, 2, times=5, max_attempts=9)
    for job in (store.reads.get(str(one.id)) for one in lost):
        assert (job.state, job.attempt, job.crashes, job.error_code) == (State.FAILED, 3, 3, "QUARANTINED")


def test_two_leases_of_one_worker_are_company_too(store: Store, clock: Clock) -> None:
    one, two = a_running_job(store, worker="w1"), a_running_job(store, worker="w1")
    clock.advance(LEASE + 1)
    assert {rescued.charged for rescued in store.rescues.rescue()} == {False}
    assert store.reads.get(str(one.id)).suspicion == store.reads.get(str(two.id)).suspicion == 1


def test_what_a_worker_had_in_hand_when_last_heard_of_decides(store: Store, clock: Clock) -> None:
    for _ in range(2):
        a_queued_job(store)
    first, second = claim(store, 2).jobs
    store.attempts.succeed(ref(first))
    store.attempts.renew([second.fence], [ref(second)], LEASE)  # only one is left, and that was told
    clock.advance(LEASE + 1)
    [rescued] = store.rescues.rescue()
    assert rescued.charged


def test_jobs_of_different_workers_are_no_company(store: Store, clock: Clock) -> None:
    a_running_job(store, worker="w1")
    a_running_job(store, worker="w2")
    clock.advance(LEASE + 1)
    assert {rescued.charged for rescued in store.rescues.rescue()} == {True}


def test_a_poison_job_blames_itself_and_not_its_neighbours(store: Store, clock: Clock) -> None:
    poison, innocent = crash_together(store, clock, 2, times=2)
    taken = {job.id: job for job in claim(store, 10).jobs}
    assert all(runs_isolated(job.suspicion) for job in taken.values()), "so each gets a process of its own"
    store.attempts.succeed(ref(taken[innocent.id]))
    held = taken[poison.id]
    for _ in range(3):
        store.attempts.renew([held.fence], [ref(held)], LEASE)
        clock.advance(LEASE + 1)
        store.rescues.rescue()
        held = next(iter(claim(store, 10).jobs), held)
    job = store.reads.get(str(poison.id))
    assert (job.state, job.error_code, job.crashes) == (State.FAILED, "QUARANTINED", 3)
    neighbour = store.reads.get(str(innocent.id))
    assert (neighbour.state, neighbour.attempt, neighbour.crashes) == (State.SUCCEEDED, 1, 0)


def test_an_attempt_that_ends_in_words_clears_the_suspect(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 2, times=2)
    [held] = claim(store).jobs
    store.attempts.reschedule(ref(held), 0, BOOM)
    assert store.reads.get(str(held.id)).suspicion == 0
    taken = {job.id: job.suspicion for job in claim(store, 10).jobs}
    assert taken.pop(held.id) == 0
    assert list(taken.values()) == [2]


def test_a_suspect_that_never_began_stays_one(store: Store, clock: Clock) -> None:
    crash_together(store, clock, 2, times=2)
    [held] = claim(store).jobs
    store.attempts.release(ref(held))
    assert store.reads.get(str(held.id)).suspicion == 2


def test_a_suspect_can_be_paused_cancelled_changed_and_deleted(store: Store, clock: Clock) -> None:
    paused, cancelled, changed, deleted = crash_together(store, clock, 4, times=2)
    store.operator.pause(str(paused.id))
    store.operator.cancel(str(cancelled.id))
    store.operator.change(str(changed.id), delay=30)
    store.operator.delete(str(deleted.id))
    assert claim(store, 10).jobs == []
    assert claim(store).next_due == pytest.approx(30)
    clock.advance(30)
    assert [(job.id, job.suspicion) for job in claim(store, 10).jobs] == [(changed.id, 2)]
    store.operator.resume(str(paused.id))
    assert [(job.id, job.suspicion) for job in claim(store, 10).jobs] == [(paused.id, 2)]
