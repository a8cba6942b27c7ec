"""Error groups from a program: what handlers raise in every kind of runner, and what is done about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import BadArguments, ErrorGroup, Fail, Holdfast, Retry
from holdfast.model.filter import BadFilter
from tests.waiting import wait_until


def test_an_incident_with_three_causes_shows_three_groups(hf: Holdfast) -> None:
    def connect(host: str) -> None:
        raise ConnectionError(f"can't reach {host}:5432")

    @hf.task(max_attempts=1)
    def sync(n: int) -> None:
        if n % 3 == 0:
            connect(f"10.0.0.{n}")
        if n % 3 == 1:
            raise Fail(f"customer {n} has no address", code="NO_ADDRESS")
        raise ValueError(f"order '{n}' is broken")

    jobs = [sync.enqueue(n) for n in range(8)]
    hf.drain()
    found = hf.error_groups()
    assert sorted((group.error_code, group.jobs) for group in found) == [
        ("ConnectionError", 3),
        ("NO_ADDRESS", 3),
        ("ValueError", 2),
    ]
    assert [group.tasks for group in found] == [("sync",)] * 3
    assert all(isinstance(group, ErrorGroup) for group in found)
    away = next(group for group in found if group.error_code == "ConnectionError")
    assert (away.example, away.error_message) == (jobs[6].id, "can't reach 10.0.0.6:5432")
    assert [record.id for record in hf.jobs(f"group:{away.id}")] == [jobs[n].id for n in (6, 3, 0)]
    assert hf.error_groups("task:none") == []
    assert len(hf.error_groups(limit=1)) == 1

    assert hf.retry(f"group:{away.id}", limit=2, spread=timedelta(hours=1)).changed == 2
    due = [hf.jobs(f"id:{jobs[n].id}")[0].record.run_at for n in (0, 3)]
    assert 1799 < (due[1] - due[0]).total_seconds() < 1801
    assert [record.id for record in hf.jobs(f"group:{away.id}")] == [jobs[6].id]


def test_the_same_message_from_two_places_is_two_groups(hf: Holdfast) -> None:
    def here() -> None:
        raise OSError("gone")

    def there() -> None:
        raise OSError("gone")

    @hf.task(max_attempts=1)
    def call(first: bool) -> None:
        (here if first else there)()

    for first in (True, False, True):
        call.enqueue(first)
    hf.drain()
    assert [group.jobs for group in hf.error_groups()] == [2, 1]


def test_a_job_that_is_tried_again_is_in_a_group_of_its_state(hf: Holdfast) -> None:
    @hf.task(max_attempts=2)
    def task() -> None:
        raise Retry("not yet", after=3600)

    job = task.enqueue()
    hf.drain()
    assert hf.error_groups() == []
    [group] = hf.error_groups("state:retrying")
    assert (group.error_code, group.example) == ("RETRY", job.id)


def test_a_success_after_an_error_is_in_no_group(hf: Holdfast) -> None:
    fails = [True, False]

    @hf.task(retry=0)
    def task() -> int:
        if fails.pop(0):
            raise OSError("once")
        return 1

    job = task.enqueue()
    wait_until(lambda: bool(hf.drain()) and job.refresh().state == "succeeded")
    record = hf.jobs()[0].record
    assert (record.error_code, record.error_fingerprint) == (None, None)
    assert hf.error_groups("state:succeeded") == []


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda hf: hf.error_groups(7), BadArguments, "a filter is a text"),
        (lambda hf: hf.error_groups(limit=0), BadArguments, "limit must be a whole number of 1 to"),
        (lambda hf: hf.error_groups("group:x"), BadFilter, "names no group of errors"),
        (lambda hf: hf.retry("state:failed", limit=True), BadArguments, "retry: limit must be a whole number"),
        (
            lambda hf: hf.retry("state:failed", spread="often"),
            BadArguments,
            "retry: spread must be 0 or more seconds",
        ),
        (lambda hf: hf.retry("state:failed", spread=-1), BadArguments, "retry: spread must be 0 or more seconds"),
        (lambda hf: hf.retry("", limit=1), BadFilter, "would match every job"),
    ],
)
def test_bad_values_are_refused_with_what_to_do(hf: Holdfast, call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call(hf)
