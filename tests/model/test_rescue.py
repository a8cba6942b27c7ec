"""What becomes of a job whose worker went silent, as a table."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.lifecycle import TRANSITIONS, State
from holdfast.model.rescue import runs_isolated, verdict

Q, F, P, C = State.QUEUED, State.FAILED, State.PAUSED, State.CANCELLED
LONE: dict[str, Any] = {
    "attempt": 1, "max_attempts": 3, "crashes": 0, "suspicion": 0, "cancel": False, "pause": False, "company": False,
    "quarantine_after": 3,
}  # fmt: skip

# the case, what differs from a first lone crash -> state, attempt, crashes, suspicion, charged, code
TABLE: list[tuple[str, dict[str, Any], tuple[Any, ...]]] = [
    ("a first lone crash", {}, (Q, 1, 1, 0, True, "CRASHED")),
    ("a second one", {"attempt": 2, "crashes": 1}, (Q, 2, 2, 0, True, "CRASHED")),
    ("third in a row", {"attempt": 3, "max_attempts": 9, "crashes": 2}, (F, 3, 3, 0, True, "QUARANTINED")),
    ("the last attempt", {"attempt": 3}, (F, 3, 1, 0, True, "CRASHED")),
    ("both at once", {"attempt": 3, "crashes": 2}, (F, 3, 3, 0, True, "QUARANTINED")),
    ("more crashes than allowed", {"max_attempts": 9, "crashes": 5}, (F, 1, 6, 0, True, "QUARANTINED")),
    ("no quarantine", {"crashes": 8, "quarantine_after": 0}, (Q, 1, 9, 0, True, "CRASHED")),
    ("in company", {"company": True}, (Q, 0, 0, 1, False, "LOST")),
    ("in company again", {"company": True, "suspicion": 1}, (Q, 0, 0, 2, False, "LOST")),
    ("a third time", {"company": True, "suspicion": 2}, (Q, 1, 1, 2, True, "CRASHED")),
    ("a fifth time", {"company": True, "suspicion": 2, "crashes": 2}, (F, 1, 3, 2, True, "QUARANTINED")),
    ("a third time, last attempt", {"company": True, "suspicion": 2, "attempt": 3}, (F, 3, 1, 2, True, "CRASHED")),
    ("company, last attempt", {"company": True, "attempt": 3}, (Q, 2, 0, 1, False, "LOST")),
    ("company, crashed before", {"company": True, "crashes": 2}, (Q, 0, 2, 1, False, "LOST")),
    ("lost once, then alone", {"suspicion": 1}, (Q, 1, 1, 1, True, "CRASHED")),
    ("a suspect alone", {"suspicion": 2}, (Q, 1, 1, 2, True, "CRASHED")),
    ("asked to pause", {"pause": True}, (P, 1, 1, 0, True, "CRASHED")),
    ("asked to pause, company", {"pause": True, "company": True}, (P, 0, 0, 1, False, "LOST")),
    ("asked to pause, last attempt", {"pause": True, "attempt": 3}, (F, 3, 1, 0, True, "CRASHED")),
    ("asked to stop", {"cancel": True}, (C, 1, 1, 0, True, "CRASHED")),
    ("asked to stop, last attempt", {"cancel": True, "attempt": 3}, (C, 3, 1, 0, True, "CRASHED")),
    ("asked both", {"cancel": True, "pause": True, "company": True}, (C, 0, 0, 1, False, "LOST")),
]


@pytest.mark.parametrize(("case", "given", "expected"), TABLE, ids=[case for case, *_ in TABLE])
def test_the_verdict(case: str, given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    end = verdict(**{**LONE, **given})
    assert (end.state, end.attempt, end.crashes, end.suspicion, end.charged, end.error.code) == expected
    assert end.state in TRANSITIONS["rescue"][1]


def test_the_word_for_attempts_used_up_is_the_sources_own() -> None:  # section 2 [S3]
    assert verdict(**{**LONE, "attempt": 3}).error.message == "Job crashed and exceeded max retries"


def test_what_goes_back_can_always_be_claimed() -> None:
    for attempt in range(1, 5):
        for max_attempts in range(attempt, 5):
            for company in (True, False):
                for pause in (True, False):
                    given = {"attempt": attempt, "max_attempts": max_attempts, "company": company, "pause": pause}
                    end = verdict(**{**LONE, **given})
                    if end.state in (Q, P):
                        assert end.attempt < max_attempts


def test_once_may_be_chance_the_second_time_it_gets_a_process_of_its_own() -> None:
    assert [runs_isolated(suspicion) for suspicion in range(4)] == [False, False, True, True]
