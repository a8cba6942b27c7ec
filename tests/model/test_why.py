"""Why a job waits, as a pure decision."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.facts import Facts, WorkerFacts
from holdfast.model.job import Pause
from holdfast.model.lifecycle import State
from holdfast.model.text import nearest
from holdfast.model.why import MEANINGS, POSITIONS, Reason, Why, not_found, reasons

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
IDLE = WorkerFacts(id="w1", queues=None, tasks=("greet",), slots=2)
FULL = replace(IDLE, id="w2", running=2)
JOB = Facts(now=NOW, id="42", queue="mail", task="greet", state=State.QUEUED, due_at=NOW, workers=(IDLE,))
PAUSE = Pause("queue", "mail", None, None, None, NOW)


def told(**changes: Any) -> list[tuple[str, bool]]:
    return [(reason.code.value, reason.blocks) for reason in reasons(replace(JOB, **changes))]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("READY", False)]),
        ({"due_at": NOW + SECOND}, [("SCHEDULED", True)]),
        ({"due_at": NOW + SECOND, "attempt": 1}, [("BACKOFF", True)]),
        ({"expires_at": NOW}, [("EXPIRED", True)]),
        ({"expires_at": NOW + SECOND}, [("READY", False)]),
        ({"expires_at": NOW, "attempt": 1}, [("READY", False)]),
        ({"state": State.PAUSED}, [("PAUSED", True)]),
        ({"state": State.PAUSED, "expires_at": NOW}, [("PAUSED", True)]),
        ({"queue_pause": PAUSE}, [("QUEUE_PAUSED", True)]),
        ({"task_pause": PAUSE}, [("TASK_PAUSED", True)]),
        ({"workers": ()}, [("NO_WORKER", True)]),
        ({"workers": (replace(IDLE, queues=()),)}, [("NO_WORKER", True)]),
        ({"workers": (replace(IDLE, queues=("img",)),)}, [("NO_WORKER", True)]),
        ({"workers": (replace(IDLE, tasks=("meet",)),)}, [("NO_HANDLER", True)]),
        ({"workers": (FULL,)}, [("WORKERS_BUSY", True)]),
        ({"workers": (FULL, IDLE)}, [("READY", False)]),
        ({"ahead": 0}, [("READY", False)]),
        ({"ahead": 3}, [("BEHIND", False)]),
        ({"ahead": 3, "workers": (FULL,)}, [("WORKERS_BUSY", True), ("BEHIND", False)]),
        ({"suspicion": 1}, [("READY", False)]),
        ({"suspicion": 2}, [("SUSPECT", False)]),
        ({"suspicion": 2, "ahead": 3}, [("SUSPECT", False), ("BEHIND", False)]),
        ({"suspicion": 2, "workers": (FULL,)}, [("WORKERS_BUSY", True), ("SUSPECT", False)]),
        ({"state": State.RUNNING, "lease_ends_at": NOW}, [("LEASED", True)]),
        ({"state": State.RUNNING, "lease_ends_at": NOW - SECOND}, [("LEASE_EXPIRED", True)]),
        ({"state": State.RUNNING}, [("LEASE_EXPIRED", True)]),
        (
            {"state": State.RUNNING, "lease_ends_at": NOW, "cancel_requested": True, "pause_requested": True},
            [("LEASED", True), ("CANCEL_REQUESTED", True), ("PAUSE_REQUESTED", True)],
        ),
        ({"state": State.SUCCEEDED, "finished_at": NOW}, [("SUCCEEDED", True)]),
        ({"state": State.FAILED}, [("FAILED", True)]),
        ({"state": State.CANCELLED, "error_code": "EXPIRED", "error_message": "late"}, [("CANCELLED", True)]),
        (
            {
                "state": State.PAUSED, "due_at": NOW + SECOND, "queue_pause": PAUSE, "task_pause": PAUSE, "workers": (),
            },
            [("PAUSED", True), ("SCHEDULED", True), ("QUEUE_PAUSED", True), ("TASK_PAUSED", True), ("NO_WORKER", True)],
        ),
    ],
)  # fmt: skip
def test_every_reason_that_holds_is_told_and_no_other(
    changes: dict[str, Any], expected: list[tuple[str, bool]]
) -> None:
    assert told(**changes) == expected


def test_reasons_come_in_the_order_of_the_enum() -> None:
    order = list(Why)
    everything = reasons(
        replace(
            JOB, state=State.PAUSED, due_at=NOW + SECOND, queue_pause=PAUSE, task_pause=PAUSE, workers=(FULL,), ahead=9
        )
    )
    places = [order.index(reason.code) for reason in everything]
    assert places == sorted(places)
    assert len(places) == 6


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Why)


def test_a_position_beyond_the_bound_says_so() -> None:
    [reason] = reasons(replace(JOB, ahead=POSITIONS))
    assert reason.text.startswith("10,000+ jobs")
    [reason] = reasons(replace(JOB, ahead=1, estimate=90.0))
    assert reason.text == "1 job due before it; at the recent rate it starts in about 90s"
    assert str(reason) == "BEHIND: " + reason.text


def test_jobs_claimed_ahead_are_told_apart_from_taken_slots() -> None:
    def told(*workers: WorkerFacts) -> str:
        [reason] = reasons(replace(JOB, workers=workers))
        return reason.text.partition(";")[0]

    full = "all 2 slots for greet on 1 worker are taken"
    assert told(FULL) == full
    assert told(replace(FULL, running=3)) == f"{full}, and 1 more job they claimed ahead waits"
    ahead = replace(FULL, running=12)
    assert told(FULL, ahead) == "all 4 slots for greet on 2 workers are taken, and 10 more jobs they claimed ahead wait"


def test_nearest_names_are_like_it_or_not_named() -> None:
    assert nearest("sent_mail", {"send_mail", "resize", "send_mails"}) == ["send_mail", "send_mails"]
    assert nearest("greet", {"resize"}) == []
    assert nearest("greet", set()) == []


def test_a_job_that_is_not_there_blocks() -> None:
    reason: Reason
    for id, newest in (("7", None), ("7", 6), ("7", 8), ("x", 8)):
        [reason] = not_found(id, "sqlite:///jobs.db", newest)
        assert (reason.code, reason.blocks) == (Why.NOT_FOUND, True)
        assert f"no job {id} in sqlite:///jobs.db" in reason.text
