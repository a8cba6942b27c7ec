"""What comes from a handler's process is checked before anything is done with it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, Error, Outcome
from holdfast.model.stack import Taken, taken
from holdfast.runners.arrivals import Arrivals, span
from holdfast.runners.wire import Garbled, StartFailed
from holdfast.tasks.attempt import Attempt

HELD = ClaimedJob(7, "f1", "task", "default", b'{"card": "4111-1111", "$secret": ["card"]}', 1, 3)
ARRIVALS = Arrivals(max_result=1000, url="postgresql://u:hunter2@h/d")
FAILED = Outcome("fail", 7, "f1", "errored", error=Error("BOOM", "it broke", "Traceback", "task"))


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (b"\xff", "not JSON"),
        (b'"\xff\xfe"', "not JSON"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"1 2", "not JSON"),
        (b"NaN", "not JSON"),
        (b"[-Infinity]", "not JSON"),
        (b"1e400", "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b'"\x00"', "not JSON"),
        (b"9" * 999, None),
        (b'"\\u0000"', "NUL"),
        (b"[" * 65 + b"]" * 65, "nested"),
        (b"[" * 990, "nested"),
        (b'"' + b"x" * 1000 + b'"', "1,002 bytes"),
        (b'{"a": [1, null, "\xe2\x98\x83"]}', None),
    ],
)
def test_a_result_that_can_t_be_kept_fails_its_job(result: bytes, why: str | None) -> None:
    said = Outcome("succeed", 7, "f1", None, result)
    decided = ARRIVALS.outcome(HELD, said)
    assert decided is not None
    if why is None:
        assert decided == said
    else:
        assert (decided.verb, decided.attempt, decided.result) == ("fail", "errored", None)
        assert decided.error is not None
        assert decided.error.code == "RESULT_UNFIT"
        assert why in decided.error.message


def test_an_error_is_cleaned_cut_and_tells_no_secret() -> None:
    text = "a\x00 password=hunter2 card 4111-1111 postgresql://u:hunter2@h/d " + "x" * 10**6
    decided = ARRIVALS.outcome(HELD, replace(FAILED, error=Error("E" * 300 + "hunter2", text, text[::-1] + text[:100])))
    assert decided is not None
    assert decided.error is not None
    assert len(decided.error.code) == 200
    assert len(decided.error.message) == MESSAGE_LIMIT
    assert decided.error.message.startswith("a␀ password=*** card *** postgresql://u:***@h/d xxx")
    assert len(decided.error.traceback or "") == TRACEBACK_LIMIT
    assert "hunter2" not in str(decided)
    assert "4111" not in str(decided)


@pytest.mark.parametrize(
    ("changed", "delay"), [({"delay": math.nan}, 0.0), ({"delay": math.inf}, 1e9), ({"delay": -5.0}, 0.0)]
)
def test_a_delay_is_one_that_a_database_can_reckon_with(changed: dict[str, Any], delay: float) -> None:
    decided = ARRIVALS.outcome(HELD, replace(FAILED, verb="reschedule", **changed))
    assert decided is not None
    assert decided.delay == delay


@pytest.mark.parametrize(
    "changed",
    [
        {"id": 8}, {"id": "7"}, {"fence": "f2"}, {"attempt": None}, {"attempt": "crashed"}, {"error": None},
        {"verb": "succeed"}, {"verb": "park"},
    ],
)  # fmt: skip
def test_an_outcome_is_of_the_attempt_itself_and_makes_sense(changed: dict[str, Any]) -> None:
    with pytest.raises(Garbled):
        ARRIVALS.outcome(HELD, replace(FAILED, **changed))


def test_only_what_follows_is_taken_over() -> None:
    """What it wrote is captured, and how far it came is told beside it: neither is for its outcome to say."""
    decided = ARRIVALS.outcome(HELD, replace(FAILED, output="o" * 10**6, progress=(-1, None, "\x00"), result=b"\xff"))
    assert decided == FAILED


@pytest.mark.parametrize(
    ("started", "ended", "began", "left"),
    [
        (12.0, 14.0, 12.0, 14.0), (0.0, 0.0, 0.0, 0.0), (math.nan, 14.0, 0.0, 0.0), (-3.0, 14.0, 0.0, 0.0),
        (1.0, 14.0, 10.0, 14.0), (math.inf, math.inf, 20.0, 20.0), (12.0, math.nan, 12.0, 12.0),
        (14.0, 12.0, 14.0, 14.0), (12.0, 1e300, 12.0, 20.0),
    ],
)  # fmt: skip
def test_nothing_ran_before_it_was_claimed_nor_later(started: float, ended: float, began: float, left: float) -> None:
    assert span(Attempt(HELD, taken=10.0), started, ended, now=20.0) == (began, left)


def test_a_stack_is_cleaned_and_tells_no_secret() -> None:
    said = Taken(1, "t\x00", "at line 1\npassword=hunter2\n").encoded()
    assert taken(ARRIVALS.stack(HELD, said)) == Taken(1, "t␀", "at line 1\npassword=***\n")
    for garbage in (
        "",
        "[]",
        '{"pid":-1,"thread":"","text":""}',
        '{"pid":99999999999,"thread":"","text":""}',
        "[" * 9999,
    ):
        with pytest.raises(Garbled):
            ARRIVALS.stack(HELD, garbage)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("BadSettings", BadSettings), ("JobFailed", HoldfastError), ("annotations", HoldfastError),
        ("Any", HoldfastError), ("nothing", HoldfastError),
    ],
)  # fmt: skip
def test_why_a_process_could_not_begin_is_an_error_of_ours(kind: str, found: type) -> None:
    error = ARRIVALS.start_failed(StartFailed(kind, "password=hunter2" + "x" * 10**5, "HF1101"))
    assert type(error) is found
    assert str(error).startswith("HF1101 password=***")
    assert len(error.message) <= MESSAGE_LIMIT
