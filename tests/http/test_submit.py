"""Submitting over HTTP: one job, and many."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, State
from holdfast.http import submit
from tests.http.asking import Ask, bearer

LINES = {"Content-Type": "application/jsonl"}


def test_a_job_is_submitted_and_its_token_shows_it(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}, priority=7, correlation_id="c-1")
    assert made.status_code == 202
    assert made.headers["retry-after"] == "1"
    body = made.json()
    assert (body["state"], body["created"]) == ("queued", True)
    record = tasked.job(body["id"]).record
    assert (record.priority, record.correlation_id, record.args) == (7, "c-1", b'{"a":1}')
    where = str(made.url.join(made.headers["location"]))
    assert ask.get(where, headers=bearer(body["token"])).json()["id"] == body["id"]


def test_a_delay_is_obeyed(tasked: Holdfast, ask: Ask) -> None:
    id = ask.submit("add", args={"a": 1}, delay=3600).json()["id"]
    record = tasked.job(id).record
    assert 3590 < (record.run_at - record.created_at).total_seconds() < 3610


@pytest.mark.parametrize("task", ["hidden", "missing"])
def test_only_tasks_that_say_so_are_reachable(ask: Ask, task: str) -> None:
    refused = ask.submit(task)
    assert refused.status_code == 404
    assert refused.json()["detail"] == f"there is no task {task!r} here that is declared with http=True"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"args": {"a": "x"}}, "argument `a`"),
        ({"args": {}}, "'a'"),
        ({"args": {"a": 1, "c": 1}}, "'c'"),
        ({"args": {"a": 1, "self": 1}}, "'self'"),
        ({"args": {"a": 1}, "priority": 101}, "priority"),
        ({"args": {"a": 1}, "priority": "1"}, "$.priority"),
        ({"args": {"a": 1}, "delay": -1}, "delay"),
        ({"args": {"a": 1}, "key": "nul\x00"}, "key"),
        ({"args": {"a": 1}, "queue": "mail"}, "queue"),
        ({"args": [1]}, "$.args"),
    ],
)
def test_what_does_not_fit_is_named(tasked: Holdfast, ask: Ask, body: dict[str, object], named: str) -> None:
    refused = ask.post("/v1/tasks/add/jobs", json=body)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert (problem["status"], problem["title"], problem["code"]) == (422, "Unprocessable Entity", "HF1202")
    assert named in problem["detail"]
    assert tasked.count() == 0


def test_a_reused_result_is_answered_at_once(tasked: Holdfast, ask: Ask) -> None:
    @tasked.task(http=True, reuse="forever")
    def square(n: int) -> int:
        return n * n

    first = ask.submit("square", args={"n": 7}, key="7").json()
    joined = ask.submit("square", args={"n": 7}, key="7")
    assert joined.status_code == 202
    assert (joined.json()["id"], joined.json()["created"]) == (first["id"], False)
    tasked.drain()
    reused = ask.submit("square", args={"n": 7}, key="7")
    assert reused.status_code == 200
    assert (reused.json()["id"], reused.json()["result"]) == (first["id"], 49)
    assert "retry-after" not in reused.headers


def test_who_joined_a_job_can_only_read_it(ask: Ask) -> None:
    made, joined = (ask.submit("fail", args={"message": "no"}, key="k").json() for _ in range(2))
    place = f"/v1/jobs/{made['id']}"
    assert ask.get(place, headers=bearer(joined["token"])).status_code == 200
    refused = ask.post(f"{place}/cancel", headers=bearer(joined["token"]))
    assert (refused.status_code, refused.json()["code"]) == (403, "HF1502")
    assert ask.post(f"{place}/cancel", headers=bearer(made["token"])).json()["state"] == "cancelled"


def test_a_repeated_request_is_told_what_became_of_the_first(tasked: Holdfast, ask: Ask) -> None:
    again = {"Idempotency-Key": "order-1"}
    first = ask.submit("fail", args={"message": "no"}, headers=again)
    assert first.status_code == 202
    tasked.drain()
    second = ask.submit("fail", args={"message": "no"}, headers=again)
    assert (second.status_code, second.json()["state"], second.json()["id"]) == (200, "failed", first.json()["id"])
    assert second.json()["error"]["message"] == "no"
    assert tasked.count() == 1


def test_a_repeated_request_with_other_arguments_is_refused(tasked: Holdfast, ask: Ask) -> None:
    again = {"Idempotency-Key": "order-1"}
    ask.submit("add", args={"a": 1}, headers=again)
    other = ask.submit("add", args={"a": 2}, headers=again)
    assert (other.status_code, other.json()["code"]) == (422, "HF1509")
    assert "token" not in other.text
    two = ask.submit("add", args={"a": 2}, key="x", headers=again)
    assert (two.status_code, two.json()["code"]) == (422, "HF1202")
    assert tasked.count() == 1


def test_many_are_submitted_as_lines(tasked: Holdfast, ask: Ask) -> None:
    lines = "\n".join(f'{{"args": {{"a": {n}}}, "key": "{n % 700}"}}' for n in range(1200)) + "\n\n"
    made = ask.post("/v1/tasks/add/jobs/bulk", content=lines, headers=LINES)
    assert (made.status_code, made.headers["content-type"]) == (202, "application/jsonl")
    rows = [line for line in made.text.splitlines() if line]
    assert len(rows) == 1200
    assert tasked.count() == 700
    first, last = json.loads(rows[0]), json.loads(rows[-1])
    assert (first["created"], last["created"]) == (True, False)
    assert ask.get(f"/v1/jobs/{last['id']}", headers=bearer(last["token"])).json()["state"] == "queued"
    assert tasked.job(first["id"]).args == {"a": 0}


@pytest.mark.parametrize(
    ("line", "status"), [('{"args": {"a": "x"}}', 422), ("{", 400), ('{"args": {}, "args": {"a": 1}}', 400)]
)
def test_one_bad_line_and_none_is_enqueued(tasked: Holdfast, ask: Ask, line: str, status: int) -> None:
    lines = '{"args": {"a": 1}}\n' * 3 + line + "\n"
    refused = ask.post("/v1/tasks/add/jobs/bulk", content=lines, headers=LINES)
    assert refused.status_code == status
    assert "line 4:" in refused.json()["detail"]
    assert tasked.count() == 0


def test_many_have_keys_of_their_own(tasked: Holdfast, ask: Ask) -> None:
    refused = ask.post("/v1/tasks/add/jobs/bulk", content="{}", headers={**LINES, "Idempotency-Key": "1"})
    assert (refused.status_code, refused.json()["code"]) == (422, "HF1202")


def test_too_many_lines_are_refused(tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "MAX_JOBS", 3)
    refused = ask.post("/v1/tasks/add/jobs/bulk", content='{"args": {"a": 1}}\n' * 4, headers=LINES)
    assert (refused.status_code, refused.json()["code"]) == (413, "HF1505")
    monkeypatch.setattr(submit, "MAX_BULK", 10)
    refused = ask.post("/v1/tasks/add/jobs/bulk", content='{"args": {"a": 1}}\n', headers=LINES)
    assert (refused.status_code, refused.json()["code"]) == (413, "HF1505")
    assert tasked.count() == 0


def test_the_job_is_the_same_as_one_from_python(tasked: Holdfast, ask: Ask) -> None:
    over_http = tasked.job(ask.submit("add", args={"a": 1, "b": 3}).json()["id"]).record
    here = tasked.tasks["add"].enqueue(1, b=3).refresh().record
    assert (over_http.args, over_http.queue, over_http.max_attempts) == (here.args, here.queue, here.max_attempts)
    tasked.drain()
    assert tasked.job(over_http.id).state is State.SUCCEEDED
