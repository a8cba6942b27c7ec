"""`holdfast why`, run as a user runs it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import new_job


def test_why_tells_every_reason_in_every_format(shell: Shell, kept: Store) -> None:
    job = kept.enqueue(new_job("double", queue="mail", run_at=datetime.now(UTC) + timedelta(hours=1))).id
    kept.pauses.add("queue", "mail", by="ops", reason="provider down")
    lines = shell("why", job).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["SCHEDULED", "QUEUE_PAUSED", "NO_WORKER"]
    assert "queue mail is paused by ops (provider down)" in lines[1]
    found = json.loads(shell("why", job, "-o", "json").stdout)
    assert [reason["code"] for reason in found] == ["SCHEDULED", "QUEUE_PAUSED", "NO_WORKER"]
    assert set(found[0]) == {"code", "text", "blocks", "details"}
    assert found[1]["details"] == {"queue": "mail", "by": "ops", "reason": "provider down", "until": None}
    assert datetime.fromisoformat(found[0]["details"]["until"]) > datetime.now(UTC)
    rows = shell("why", job, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(row)["code"] for row in rows] == ["SCHEDULED", "QUEUE_PAUSED", "NO_WORKER"]


def test_a_job_that_is_not_there_is_exit_code_3_with_a_guess_why(shell: Shell, kept: Store) -> None:
    done = shell("why", "999", code=3)
    assert done.stdout.startswith("NOT_FOUND")
    [reason] = json.loads(shell("why", "abc", "-o", "json", code=3).stdout)
    assert reason["code"] == "NOT_FOUND"


def test_a_queue_is_summed_up_and_the_window_stated(shell: Shell, kept: Store) -> None:
    for _ in range(3):
        kept.enqueue(new_job("double", queue="mail"))
    kept.enqueue(new_job("double", queue="mail", delay=60))
    done = shell("why", "--queue", "mail")
    assert "looked at 4 unfinished jobs of queue mail" in done.stderr
    table = [line.split()[:2] for line in done.stdout.splitlines()]
    assert table == [["reason", "jobs"], ["SCHEDULED", "1"], ["NO_WORKER", "4"]]
    found = json.loads(shell("why", "--queue", "mail", "-o", "json").stdout)
    assert (found["queue"], found["looked_at"], found["complete"], found["window"]) == ("mail", 4, True, 10_000)
    assert [(reason["code"], reason["jobs"]) for reason in found["reasons"]] == [("SCHEDULED", 1), ("NO_WORKER", 4)]
    assert len(shell("why", "--queue", "mail", "-o", "jsonl").stdout.splitlines()) == 2


@pytest.mark.parametrize("arguments", [(), ("1", "--queue", "mail")])
def test_either_a_job_or_a_queue_is_named(shell: Shell, kept: Store, arguments: tuple[str, ...]) -> None:
    assert "name a job" in shell("why", *arguments, code=2).stderr
