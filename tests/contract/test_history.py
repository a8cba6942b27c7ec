"""Attempts as history: keyed by job and fence, true after any number of lost replies."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.errors import LeaseLost, ValueRefused
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome, Verb, given_back
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import everything, raw, reclaim
from tests.factories import BOOM, LEASE, Clock, a_running_job, claim, ref

ENDINGS: dict[str, tuple[Verb, str | None, Error | None]] = {
    "succeeded": ("succeed", None, None),
    "errored": ("reschedule", "errored", BOOM),
    "timed_out": ("reschedule", "timed_out", Error("TIMEOUT", "took too long")),
    "failed": ("fail", "errored", BOOM),
    "released": ("release", "released", None),
    "snoozed": ("release", "snoozed", None),
    "parked": ("park", "parked", None),
    "cancelled": ("stop", "cancelled", Error("CANCELLED", "on request")),
}


def outcome(ending: str, held: object) -> Outcome:
    verb, word, error = ENDINGS[ending]
    return Outcome(verb, held.id, held.fence, word, error=error)  # type: ignore[attr-defined]


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending != "succeeded"])
def test_an_attempt_that_did_not_succeed_leaves_one_row(store: Store, clock: Clock, ending: str) -> None:
    held = a_running_job(store, worker="w9")
    started = clock.now
    clock.advance(7)
    assert store.exchange([outcome(ending, held)], None, [held.fence]).lost == []
    [attempt] = store.reads.attempts(str(held.id))
    _, word, error = ENDINGS[ending]
    assert (attempt.job_id, attempt.fence, attempt.worker) == (str(held.id), held.fence, "w9")
    assert (attempt.life, attempt.number, attempt.outcome) == (1, 1, word)
    assert (attempt.started_at, attempt.ended_at) == (started, clock.now)
    assert (attempt.error_code, attempt.error_message) == (error and error.code, error and error.message)
    assert attempt.traceback == (error and error.traceback)


def test_success_leaves_no_attempt_row(store: Store, clock: Clock) -> None:
    held = a_running_job(store, worker="w9")
    started = clock.now
    clock.advance(7)
    store.attempts.succeed(ref(held), b"1")
    assert store.reads.attempts(str(held.id)) == []
    job = store.reads.get(str(held.id))
    assert (job.started_at, job.finished_at, job.worker, job.attempt) == (started, clock.now, "w9", 1)
    assert (job.fence, job.error_code) == (held.fence, None)


@pytest.mark.parametrize("way", ["alone", "with a result", "on the handler's connection"])
def test_a_job_that_succeeds_after_all_shows_no_error(store: Store, settings: Settings, way: str) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 0, BOOM)
    assert store.reads.get(str(held.id)).error_code == BOOM.code
    again = reclaim(store, held.id)
    if way == "on the handler's connection":
        with raw(settings) as sql:
            store.attempts.succeed_on(sql.connection, ref(again), b"1")
    else:
        store.attempts.succeed(ref(again), b"1" if way == "with a result" else None)
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_code, job.error_message) == (State.SUCCEEDED, None, None)
    [before] = store.reads.attempts(str(held.id))
    assert (before.error_code, before.error_message) == (BOOM.code, BOOM.message)


def test_what_never_started_leaves_no_row(store: Store) -> None:
    held = a_running_job(store)
    store.exchange([Outcome("release", held.id, held.fence, None)], None, [held.fence])
    job = store.reads.get(str(held.id))
    assert (job.state, job.attempt) == (State.QUEUED, 0)
    assert store.reads.attempts(str(held.id)) == []


def test_history_counts_lives_and_attempts_and_outlives_a_retry(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=2)
    id = str(held.id)
    clock.advance(1)
    store.attempts.reschedule(ref(held), 0, BOOM)
    store.attempts.fail(ref(reclaim(store, held.id)), BOOM)
    assert store.operator.retry(id) is State.QUEUED
    clock.advance(1)
    store.attempts.release(ref(reclaim(store, held.id)))
    clock.advance(1)
    reclaim(store, held.id)
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    store.operator.cancel(id)
    store.operator.retry(id)
    clock.advance(1)
    store.attempts.succeed(ref(reclaim(store, held.id)))
    told = [(attempt.life, attempt.number, attempt.outcome) for attempt in store.reads.attempts(id)]
    assert told == [
        (1, 1, "errored"), (1, 2, "errored"), (2, 1, "released"), (2, 1, "crashed"),
    ]  # fmt: skip
    assert len({attempt.fence for attempt in store.reads.attempts(id)}) == 4
    job = store.reads.get(id)
    assert (job.state, job.life, job.attempt) == (State.SUCCEEDED, 3, 1)


@pytest.mark.parametrize("started", [True, False])
def test_a_release_is_not_charged_and_a_reschedule_is(store: Store, started: bool) -> None:
    held = a_running_job(store, max_attempts=2)
    for _ in range(5):
        word = "released" if started else None
        store.exchange([Outcome("release", held.id, held.fence, word)], None, [held.fence])
        held = reclaim(store, held.id)
        assert held.attempt == 1
    store.operator.pause(str(held.id))
    store.attempts.park(ref(held))
    store.operator.resume(str(held.id))
    held = reclaim(store, held.id)
    assert held.attempt == 1
    store.attempts.reschedule(ref(held), 0, BOOM)
    assert reclaim(store, held.id).attempt == 2


@pytest.mark.parametrize("then", ["at once", "after the next claim", "after a retry"])
@pytest.mark.parametrize("ending", [*ENDINGS, "unstarted"])
def test_an_outcome_sent_again_after_a_lost_reply_changes_nothing_and_is_not_lost(
    store: Store, ending: str, then: str
) -> None:
    held = a_running_job(store)
    sent = Outcome("release", held.id, held.fence) if ending == "unstarted" else outcome(ending, held)
    assert store.exchange([sent], None, [held.fence]).lost == []
    job = store.reads.get(str(held.id))
    if then == "after the next claim" and job.state is State.PAUSED:
        store.operator.resume(str(held.id))
    if then == "after the next claim":
        claim(store)
    if then == "after a retry" and job.state in (State.FAILED, State.CANCELLED):
        store.operator.retry(str(held.id))
    before = everything(store, held.id)
    for _ in range(2):
        again = store.exchange([sent], None, [held.fence])
        assert (again.lost, again.requeued) == ([], set())
        assert everything(store, held.id) == before


def test_a_replay_among_new_outcomes_hurts_none_of_them(store: Store) -> None:
    one, two = a_running_job(store), a_running_job(store)
    first = Outcome("succeed", one.id, one.fence, result=b"1")
    store.exchange([first], None)
    done = store.exchange([first, Outcome("succeed", two.id, two.fence, result=b"2")], None)
    assert done.lost == []
    assert [job.result for job in store.reads.jobs()] == [b"2", b"1"]


def test_a_replay_with_another_result_does_not_change_the_first(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held), b'"first"')
    before = everything(store, held.id)
    store.attempts.succeed(ref(held), b'"second"')
    store.attempts.succeed(ref(held), None)
    assert everything(store, held.id) == before


def test_a_replay_after_the_job_was_deleted_is_lost(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held))
    store.operator.delete(str(held.id))
    with pytest.raises(LeaseLost, match="deleted"):
        store.attempts.succeed(ref(held))


def test_a_dismissed_failure_keeps_its_error_and_its_replay(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.fail(ref(held), BOOM)
    failed = store.reads.get(str(held.id))
    store.operator.cancel(str(held.id))
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_code, job.finished_at) == (State.CANCELLED, "Boom", failed.finished_at)
    assert job == replace(failed, state=State.CANCELLED, failed_at=None, error_fingerprint=None, asked_at=job.asked_at)
    store.attempts.fail(ref(held), BOOM)
    assert store.reads.get(str(held.id)) == job


def test_last_error_and_history_are_plain_columns(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 5, Error("E1", "first"))
    job = store.reads.get(str(held.id))
    assert (job.error_code, job.error_message, job.state) == ("E1", "first", State.QUEUED)


@pytest.mark.parametrize("delay", [float("inf"), float("nan"), 1e300])
def test_a_delay_that_nobody_can_reckon_with_is_a_value_that_is_refused(store: Store, delay: float) -> None:
    held = a_running_job(store)
    with pytest.raises(ValueRefused):
        store.exchange([given_back(held, started=True, delay=delay)], None)
    assert store.reads.get(str(held.id)).state is State.RUNNING
