"""From what a handler did to its outcome: the cases a real worker reaches only by chance."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from holdfast import LeaseLost
from holdfast.errors import StoreUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.model.payload import encode
from holdfast.model.retry import DEFAULT_RETRY
from holdfast.runners.execution import on_raise, on_return
from holdfast.tasks.attempt import Attempt, StopAttempt, StopReason
from tests.running import Heard

ENCODED = partial(encode, limit=100)


def an_attempt(*asked: StopReason, told: bool = False) -> Attempt:
    attempt = Attempt(ClaimedJob(1, "f", "greet", "default", b"{}", 1, 3), 5.0)
    for reason in asked:
        attempt.ask(reason)
    attempt.stop_seen = told
    return attempt


STOPS = [
    StopAttempt("pause"),
    asyncio.CancelledError(),
    BaseExceptionGroup("of a task group", [StopAttempt("pause")]),
    BaseExceptionGroup("of two", [StopAttempt("pause"), BaseExceptionGroup("deeper", [asyncio.CancelledError()])]),
]


@pytest.mark.parametrize("error", STOPS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("reason", "verb", "kept_as"),
    [("pause", "park", "parked"), ("cancel", "stop", "cancelled"), ("timeout", "reschedule", "timed_out")],
)
def test_who_ends_because_it_was_asked_to_obeys(
    error: BaseException, reason: StopReason, verb: str, kept_as: str
) -> None:
    outcome = on_raise(an_attempt(reason), error, DEFAULT_RETRY)
    assert outcome is not None
    assert (outcome.verb, outcome.attempt) == (verb, kept_as)


def test_an_error_beside_the_stop_is_an_error() -> None:
    both = BaseExceptionGroup("of two", [StopAttempt("pause"), ValueError("x")])
    outcome = on_raise(an_attempt("pause"), both, DEFAULT_RETRY)
    assert outcome is not None
    assert (outcome.verb, outcome.attempt) == ("reschedule", "errored")


def test_a_cancellation_nobody_asked_for_is_an_error() -> None:
    outcome = on_raise(an_attempt("shutdown"), asyncio.CancelledError(), DEFAULT_RETRY)
    assert outcome is not None
    assert (outcome.verb, outcome.error and outcome.error.code) == ("reschedule", "CancelledError")


def test_at_the_end_of_its_grace_a_cancelled_coroutine_is_given_back() -> None:
    attempt = an_attempt("shutdown")
    attempt.force()
    outcome = on_raise(attempt, asyncio.CancelledError(), DEFAULT_RETRY)
    assert outcome is not None
    assert (outcome.verb, outcome.attempt) == ("release", "released")


@pytest.mark.parametrize("error", [*STOPS, ValueError("x"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_who_lost_the_lease_has_nothing_to_record_and_nothing_to_tell(error: BaseException, heard: Heard) -> None:
    assert on_raise(an_attempt("lost"), error, DEFAULT_RETRY) is None
    assert on_return(an_attempt("cancel", "lost"), "result", DEFAULT_RETRY, ENCODED) is None
    assert heard == []


def test_a_lease_found_lost_by_the_handler_itself_is_not_told_as_its_error(heard: Heard) -> None:
    outcome = on_raise(an_attempt(), LeaseLost("taken over"), DEFAULT_RETRY)
    assert outcome is not None  # the store decides: it finds the fence gone
    assert heard == []


def test_a_stronger_reason_replaces_a_weaker_one_and_never_the_other_way_round() -> None:
    attempt = an_attempt("shutdown")
    asked: list[StopReason] = ["pause", "shutdown", "timeout", "cancel", "pause", "lost", "cancel"]
    assert [attempt.ask(reason) for reason in asked] == [True, False, True, True, False, True, False]
    assert attempt.reason == "lost"


def test_a_result_after_a_request_that_was_heard_is_success_and_none_is_obedience() -> None:
    asked = an_attempt("cancel", told=True)
    ended = on_return(asked, {"done": 1}, DEFAULT_RETRY, ENCODED)
    obeyed = on_return(asked, None, DEFAULT_RETRY, ENCODED)
    unaware = on_return(an_attempt("cancel"), None, DEFAULT_RETRY, ENCODED)
    assert [outcome and outcome.verb for outcome in (ended, obeyed, unaware)] == ["succeed", "stop", "succeed"]


def test_success_recorded_by_the_handler_comes_with_what_follows_if_it_was_not_committed() -> None:
    attempt = an_attempt()
    attempt.recorded = True
    outcome = on_return(attempt, "ignored", DEFAULT_RETRY, ENCODED)
    assert outcome is not None
    assert (outcome.recorded, outcome.verb, outcome.result) == (True, "reschedule", None)
    assert outcome.error is not None
    assert outcome.error.code == "NOT_COMMITTED"


def test_a_group_counts_as_an_outage_only_if_there_is_one_in_it() -> None:
    cancelled = BaseExceptionGroup("of a library", [asyncio.CancelledError()])
    outcome = on_raise(an_attempt(), cancelled, DEFAULT_RETRY)
    assert outcome is not None
    assert outcome.verb == "reschedule"
    outage = BaseExceptionGroup("of a task group", [asyncio.CancelledError(), StoreUnavailable("it is away")])
    outcome = on_raise(an_attempt(), outage, DEFAULT_RETRY)
    assert outcome is not None
    assert (outcome.verb, outcome.attempt) == ("release", "released")
