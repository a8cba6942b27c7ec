"""What the handler did -> which verb follows, with which values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Cancel, Fail, Retry, Snooze
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import (
    LONGEST_DELAY,
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Outcome,
    clean,
    describe,
    given_back,
    kept,
    parked,
    raised,
    returned,
    stopped,
)
from holdfast.model.retry import Custom, Fixed, RetryPolicy

POLICY = Fixed((11.0,))
GIVES_UP = Custom(lambda attempt, error: None)


def held(attempt: int = 1, max_attempts: int = 3) -> ClaimedJob:
    return ClaimedJob(7, "fence", "greet", "mail", b"{}", attempt, max_attempts)


# what was raised, attempt, policy -> verb, the history's word, delay, error code
DECISIONS: list[tuple[BaseException, int, RetryPolicy, str, str, float, str | None]] = [
    (ValueError("x"), 1, POLICY, "reschedule", "errored", 11, "ValueError"),
    (ValueError("x"), 2, POLICY, "reschedule", "errored", 11, "ValueError"),
    (ValueError("x"), 3, POLICY, "fail", "errored", 0, "ValueError"),
    (ValueError("x"), 4, POLICY, "fail", "errored", 0, "ValueError"),
    (ValueError("x"), 1, GIVES_UP, "fail", "errored", 0, "ValueError"),
    (Retry(after=5), 1, POLICY, "reschedule", "errored", 5, "RETRY"),
    (Retry(after=timedelta(minutes=2)), 1, POLICY, "reschedule", "errored", 120, "RETRY"),
    (Retry(code="API_ERROR"), 1, POLICY, "reschedule", "errored", 11, "API_ERROR"),
    (Retry(after=0), 1, POLICY, "reschedule", "errored", 0, "RETRY"),
    (Retry(), 1, POLICY, "reschedule", "errored", 11, "RETRY"),
    (Retry(), 1, GIVES_UP, "fail", "errored", 0, "RETRY"),
    (Retry(after=5), 1, GIVES_UP, "reschedule", "errored", 5, "RETRY"),
    (Retry(after=5), 3, POLICY, "fail", "errored", 0, "RETRY"),
    (Fail("bad input"), 1, POLICY, "fail", "errored", 0, "FAILED"),
    (Fail("bad input", code="SCHEMA_VALIDATION_FAILED"), 1, POLICY, "fail", "errored", 0, "SCHEMA_VALIDATION_FAILED"),
    (Snooze(30), 1, POLICY, "release", "snoozed", 30, None),
    (Snooze(30), 3, POLICY, "release", "snoozed", 30, None),
    (Cancel("not needed"), 1, POLICY, "stop", "cancelled", 0, "CANCELLED"),
    (Cancel(), 3, GIVES_UP, "stop", "cancelled", 0, "CANCELLED"),
]


@pytest.mark.parametrize(("error", "attempt", "policy", "verb", "word", "delay", "code"), DECISIONS)
def test_what_was_raised_decides(
    error: BaseException, attempt: int, policy: RetryPolicy, verb: str, word: str, delay: float, code: str | None
) -> None:
    outcome = raised(held(attempt), error, policy)
    assert (outcome.verb, outcome.id, outcome.fence) == (verb, 7, "fence")
    assert (outcome.attempt, outcome.delay) == (word, delay)
    assert (outcome.error and outcome.error.code) == code
    if outcome.error is not None:
        assert str(error) in outcome.error.message


def test_a_timeout_is_charged_like_an_error_and_called_by_its_name() -> None:
    outcome = raised(held(), TimeoutError("took 9 s"), POLICY, attempt="timed_out")
    assert (outcome.verb, outcome.attempt) == ("reschedule", "timed_out")


def test_what_was_returned_succeeds() -> None:
    assert returned(held(), b"1") == Outcome("succeed", 7, "fence", None, b"1")
    assert returned(held(), None) == Outcome("succeed", 7, "fence")


def test_what_is_given_back_is_history_only_if_it_started() -> None:
    assert given_back(held(), started=True) == Outcome("release", 7, "fence", "released")
    assert given_back(held(), started=False) == Outcome("release", 7, "fence", None)


def test_requests_obeyed() -> None:
    assert parked(held()) == Outcome("park", 7, "fence", "parked")
    assert stopped(held()) == Outcome("stop", 7, "fence", "cancelled")  # the store knows who asked, and why


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_a_retry_policy_that_breaks_costs_the_default_delay_not_the_outcome(kind: type[BaseException]) -> None:
    def broken(attempt: int, error: BaseException) -> float:
        raise kind("in the policy")

    outcome = raised(held(), ValueError("in the handler"), Custom(broken))
    assert outcome.verb == "reschedule"
    assert 0 <= outcome.delay <= 5
    assert outcome.error is not None
    assert outcome.error.code == "ValueError"
    assert "in the handler" in outcome.error.message
    assert f"{kind.__name__}: in the policy" in outcome.error.message


@pytest.mark.parametrize(
    ("answer", "delay"), [(float("inf"), LONGEST_DELAY), (float("nan"), 0), (-3.0, 0), (1e300, LONGEST_DELAY)]
)
def test_a_delay_no_database_could_reckon_with_is_brought_to_one_it_can(answer: float, delay: float) -> None:
    class Odd:
        def delay(self, attempt: int, error: BaseException) -> float | None:
            return answer

    class Later(Snooze):
        def __init__(self) -> None:
            Exception.__init__(self)
            self.after = answer

    assert raised(held(), ValueError(), Odd()).delay == delay
    assert raised(held(), Later(), POLICY).delay == delay


def test_a_delay_is_a_number_whatever_a_policy_says() -> None:
    class Odd:
        def delay(self, attempt: int, error: BaseException) -> float | None:
            return True

    delay = raised(held(), ValueError(), Odd()).delay
    assert (type(delay), delay) == (float, 1.0)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise self.args[0]


@pytest.mark.parametrize("broken", [RuntimeError, SystemExit])
def test_an_error_without_words_is_told_by_its_name(broken: type[BaseException]) -> None:
    assert describe(ValueError(), "ValueError").message == "ValueError"
    told = raised(held(), Unspeakable(broken), POLICY).error
    assert told is not None
    assert f"can't be shown: {broken.__name__}" in told.message


def test_long_texts_are_cut_where_they_matter_least() -> None:
    told = describe(ValueError("m" * 10_000), "c" * 1000)
    assert (len(told.message), len(told.code)) == (MESSAGE_LIMIT, 200)
    assert told.traceback is not None
    assert len(told.traceback) <= TRACEBACK_LIMIT
    assert told.traceback.rstrip().endswith("m"), "the end of a traceback says most"


def test_a_message_of_any_length_leaves_room_for_where_it_was_raised() -> None:
    try:
        raise ValueError("m" * 100_000)
    except ValueError as error:
        told = describe(error, "ValueError")
    assert told.traceback is not None
    assert len(told.traceback) <= TRACEBACK_LIMIT
    assert "test_outcome.py" in told.traceback
    assert kept(told) == told, "cut once, it stays as it is"


def test_a_traceback_names_the_line_and_no_local_values() -> None:
    def handler() -> None:
        password = "hunter" + "2"
        raise LookupError(len(password))

    with pytest.raises(LookupError) as caught:
        handler()
    told = describe(caught.value, "LookupError")
    assert "raise LookupError(len(password))" in (told.traceback or "")
    assert "hunter2" not in (told.traceback or "")


@pytest.mark.parametrize(("text", "kept"), [("a\x00b", "a␀b"), ("a\ud800b", "a?b"), ("é漢🦀", "é漢🦀"), ("", "")])
def test_text_is_made_fit_for_a_database(text: str, kept: str) -> None:
    assert clean(text) == kept
    assert clean(text).encode().decode() == kept


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), timedelta(seconds=-1), 1e12, "soon", "5", [1]])
def test_a_handler_cannot_ask_for_a_delay_that_makes_no_sense(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"Retry\(after=…\) needs a delay of 0 or more seconds, a timedelta"):
        Retry("x", after=wrong)
    with pytest.raises(ValueError, match=r"Snooze\(…\) needs a delay of 0 or more seconds"):
        Snooze(wrong)
