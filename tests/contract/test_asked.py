"""Who asked for a pause or a cancel, and why, is kept with the job, whatever state it is in and however it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.why import PATIENCE
from holdfast.store.base import Ref, Store
from holdfast.store.why import why
from tests.contract.places import reclaim
from tests.factories import BOOM, LEASE, Clock, a_queued_job, a_running_job, ref

ENDS: dict[str, Callable[[Store, Ref], object]] = {
    "stop": lambda store, ref: store.attempts.stop(ref),
    "park": lambda store, ref: store.attempts.park(ref),
    "release": lambda store, ref: store.attempts.release(ref),
    "reschedule": lambda store, ref: store.attempts.reschedule(ref, 5, BOOM),
    "fail": lambda store, ref: store.attempts.fail(ref, BOOM),
}


def asked(job: JobRecord) -> tuple[str | None, str | None]:
    return job.asked_by, job.asked_why


@pytest.mark.parametrize("verb", ENDS)
def test_the_words_of_a_cancel_outlive_the_attempt_it_was_asked_of(store: Store, clock: Clock, verb: str) -> None:
    held = a_running_job(store)
    at = clock.now
    store.operator.cancel(str(held.id), "ordered twice", "ops")
    clock.advance(1)
    ENDS[verb](store, ref(held))
    job = store.reads.get(str(held.id))
    assert (job.state, asked(job), job.asked_at) == (State.CANCELLED, ("ops", "ordered twice"), at)
    if verb in ("stop", "park", "release"):  # else the attempt has an error of its own to tell of
        assert (job.error_code, job.error_message) == ("CANCELLED", "ordered twice")
    [reason] = why(store, job.id)
    assert "by ops" in reason.text
    assert "ordered twice" in reason.text
    assert (reason.details["by"], reason.details["why"]) == ("ops", "ordered twice")


def test_the_history_of_a_cancelled_attempt_says_why(store: Store) -> None:
    held = a_running_job(store)
    store.operator.cancel(str(held.id), "ordered twice")
    store.attempts.stop(ref(held))
    [attempt] = store.reads.attempts(str(held.id))
    assert (attempt.outcome, attempt.error_code, attempt.error_message) == ("cancelled", "CANCELLED", "ordered twice")


def test_a_handler_that_cancels_itself_is_quoted_and_so_is_who_asked(store: Store) -> None:
    held = a_running_job(store)
    store.operator.cancel(str(held.id), "ordered twice", "ops")
    store.attempts.stop(ref(held), "nothing to do")
    job = store.reads.get(str(held.id))
    assert (job.error_message, asked(job)) == ("nothing to do", ("ops", "ordered twice"))
    assert "ordered twice" in why(store, job.id)[0].text


def test_a_rescue_keeps_the_words_of_a_request(store: Store, clock: Clock) -> None:
    held, other = a_running_job(store), a_running_job(store)
    store.operator.cancel(str(held.id), "ordered twice", "ops")
    store.operator.pause(str(other.id), "until monday", "ops")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    cancelled, paused = store.reads.get(str(held.id)), store.reads.get(str(other.id))
    assert (cancelled.state, asked(cancelled)) == (State.CANCELLED, ("ops", "ordered twice"))
    assert (paused.state, asked(paused)) == (State.PAUSED, ("ops", "until monday"))


def test_a_dismissed_job_keeps_its_error_and_says_why_it_was_dismissed(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.fail(ref(held), BOOM)
    store.operator.cancel(str(held.id), "known, and harmless", "ops")
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_code, asked(job)) == (State.CANCELLED, "Boom", ("ops", "known, and harmless"))
    [reason] = why(store, job.id)
    assert "Boom: it broke" in reason.text
    assert "known, and harmless" in reason.text


def test_without_words_a_cancel_still_says_something(store: Store) -> None:
    held, queued = a_running_job(store), a_queued_job(store)
    for id in (str(held.id), queued):
        store.operator.cancel(id)
    store.attempts.stop(ref(held))
    for id in (str(held.id), queued):
        job = store.reads.get(id)
        assert (job.error_message, asked(job)) == ("cancelled on request", (None, None))


def test_a_paused_job_says_since_when_by_whom_and_why_until_it_is_resumed(store: Store, clock: Clock) -> None:
    held, queued = a_running_job(store), a_queued_job(store)
    at = clock.now
    for id in (str(held.id), queued):
        store.operator.pause(id, "until monday", "ops")
    clock.advance(7)
    store.attempts.park(ref(held))
    for id in (str(held.id), queued):
        job = store.reads.get(id)
        assert (job.state, asked(job), job.asked_at) == (State.PAUSED, ("ops", "until monday"), at)
        text = why(store, id)[0].text
        assert text.startswith("the job itself is paused by ops (until monday) since 2030-01-01 00:00:00 UTC (7s ago)")
        store.operator.resume(id)
        job = store.reads.get(id)
        assert (asked(job), job.asked_at) == ((None, None), None)


def test_who_asked_first_stays_and_a_cancel_is_stronger(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    id = str(held.id)
    store.operator.pause(id, "first")
    began = clock.now
    clock.advance(5)
    store.operator.pause(id, "second", "late")
    job = store.reads.get(id)
    assert (asked(job), job.asked_at) == (("late", "first"), began)  # who had not said may add it
    store.operator.cancel(id, "no longer wanted", "boss")
    store.operator.pause(id, "third", "x")
    store.operator.resume(id)  # takes back the pause, not the cancel
    job = store.reads.get(id)
    assert (asked(job), job.cancel_requested) == (("boss", "no longer wanted"), True)
    assert job.asked_at == clock.now


def test_another_life_begins_without_old_requests(store: Store) -> None:
    id = a_queued_job(store)
    store.operator.cancel(id, "a mistake", "ops")
    store.operator.retry(id)
    assert asked(store.reads.get(id)) == (None, None)


def test_a_pause_that_was_taken_back_holds_nothing_whatever_its_handler_heard(store: Store) -> None:
    """The handler was told and parks; meanwhile someone resumed the job, and was told that it runs."""
    held = a_running_job(store)
    store.operator.pause(str(held.id))
    assert store.operator.resume(str(held.id)) is State.RUNNING
    store.attempts.park(ref(held))
    job = store.reads.get(str(held.id))
    assert (job.state, job.attempt) == (State.QUEUED, 0)
    assert reclaim(store, held.id).attempt == 1


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_why_says_how_long_a_request_was_not_obeyed(store: Store, clock: Clock, verb: str) -> None:
    held = a_running_job(store, lease=10 * LEASE)
    {"pause": store.operator.pause, "cancel": store.operator.cancel}[verb](str(held.id), "too loud", "ops")
    clock.advance(1)
    reason = why(store, str(held.id))[-1]
    assert reason.code.value == f"{verb.upper()}_REQUESTED"
    assert "1s ago by ops (too loud), and will at the next place its handler looks" in reason.text
    clock.advance(PATIENCE + 36)
    reason = why(store, str(held.id))[-1]
    assert "42s ago by ops (too loud), and has not yet" in reason.text
    assert "keeps its slot and lease until it returns" in reason.text
    assert reason.details["waits_seconds"] == 42
