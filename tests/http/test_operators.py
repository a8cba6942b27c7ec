"""What operators see and do over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, JobContext, Secret, State
from tests.http.asking import Ask, bearer
from tests.running import working
from tests.waiting import wait_until


@pytest.fixture
def ops(tasked: Holdfast) -> Ask:
    """Asks with the key of an admin."""
    return Ask(tasked.asgi(), **bearer(tasked.create_api_key("ops", "admin")))


def ok(ask: Ask, method: str, path: str, **options: Any) -> Any:
    answer = ask(method, path, **options)
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def failed(app: Holdfast, count: int = 1, message: str = "x") -> list[str]:
    ids = [app.tasks["fail"].enqueue(message).id for _ in range(count)]
    app.drain()
    return ids


# -- look --------------------------------------------------------------------------------------------------------------


def test_a_list_is_paged_by_the_last_id(tasked: Holdfast, ops: Ask) -> None:
    ids = [tasked.tasks["add"].using(queue="mail", tags=["a"]).enqueue(n).id for n in range(7)]
    tasked.tasks["fail"].enqueue("x")
    seen: list[str] = []
    page = {"next": ""}
    while page["next"] is not None:
        before = {"before": page["next"]} if page["next"] else {}
        page = ok(ops, "GET", "/v1/jobs", params={"filter": "task:add tag:a", "limit": "3", **before})
        seen += [job["id"] for job in page["jobs"]]
    assert seen == ids[::-1]
    [first, *_] = ok(ops, "GET", "/v1/jobs", params={"filter": f"id:{ids[0]}"})["jobs"]
    assert (first["queue"], first["state"], first["tags"]) == ("mail", "queued", ["a"])
    assert "args" not in first
    assert ok(ops, "GET", "/v1/jobs/count", params={"filter": "queue:mail"}) == {"jobs": 7}
    assert ok(ops, "GET", "/v1/jobs/count") == {"jobs": 8}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("filter=nonsense", "write qualifier:value"),
        ("filter=state:lost", "there is no state 'lost'"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=many", "limit"),
        ("limit=1&limit=2", "twice"),
        ("before=x", "before"),
        ("fliter=state:failed", "fliter"),
        ("filter=%00", "not a character"),
    ],
)
def test_a_wrong_query_is_refused_and_named(ops: Ask, query: str, said: str) -> None:
    answer = ops.get(f"/v1/jobs?{query}")
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_a_history_has_everything_but_secrets(hf: Holdfast) -> None:
    @hf.task(max_attempts=2, retry=0)
    def pay(ctx: JobContext, card: Secret[str], cents: int) -> None:
        ctx.step("session", lambda: {"password": card, "cents": cents})
        raise ValueError("no")

    ask = Ask(hf.asgi(), **bearer(hf.create_api_key("ops", "viewer")))
    job = pay.using(key="k", tags=["t"]).enqueue("4111222233334444", 5)
    hf.drain()
    job.retry("again", by="me")
    shown = ok(ask, "GET", f"/v1/jobs/{job.id}/history")
    assert (shown["args"]["cents"], shown["args"]["card"], shown["key"]) == (5, "***", "k")
    assert [(one["life"], one["number"], one["outcome"]) for one in shown["attempts"]] == [
        (1, 1, "errored"), (1, 2, "errored")
    ]  # fmt: skip
    assert "ValueError" in shown["attempts"][0]["traceback"]
    assert [(one["verb"], one["by"], one["reason"]) for one in shown["audit"]] == [("retry", "me", "again")]
    [step] = shown["steps"]
    assert (step["name"], step["result"]) == ("session", {"password": "***", "cents": 5})
    assert "fence" not in str(shown)
    assert "4111222233334444" not in str(shown)
    assert ask.get("/v1/jobs/99/history").status_code == ask.get("/v1/jobs/99/why").status_code == 404
    reasons = ok(ask, "GET", f"/v1/jobs/{job.id}/why")["reasons"]
    assert "NO_WORKER" in [reason["code"] for reason in reasons]


def test_error_groups(tasked: Holdfast, ops: Ask) -> None:
    ids = failed(tasked, 3)
    [group] = ok(ops, "GET", "/v1/error-groups")["groups"]
    assert (group["jobs"], group["tasks"], group["example"]) == (3, ["fail"], ids[-1])
    found = ok(ops, "GET", "/v1/jobs", params={"filter": f"group:{group['id']}"})["jobs"]
    assert [job["id"] for job in found] == ids[::-1]
    assert {job["error_group"] for job in found} == {group["id"]}


def test_queues_tasks_and_workers(tasked: Holdfast, ops: Ask) -> None:
    tasked.tasks["add"].using(queue="mail").enqueue(1)
    [queue] = ok(ops, "GET", "/v1/queues")["queues"]
    assert (queue["queue"], queue["due"], queue["running"]) == ("mail", 1, 0)
    tasks = {task["task"]: task["due"] for task in ok(ops, "GET", "/v1/tasks")["tasks"]}
    assert tasks == {"add": 1, "fail": 0, "hidden": 0}
    assert ok(ops, "GET", "/v1/workers") == {"workers": []}
    with working(tasked) as worker:
        [shown] = wait_until(lambda: ok(ops, "GET", "/v1/workers")["workers"])
        assert (shown["id"], shown["state"]) == (worker.id, "up")
        stopping = ok(ops, "POST", "/v1/workers/stop", json={"worker": shown["name"], "reason": "deploy"})
        assert stopping == {"workers": [worker.id]}
        wait_until(lambda: ok(ops, "GET", "/v1/workers")["workers"] == [])
    assert ops.post("/v1/workers/stop", json={"worker": "nobody"}).status_code == 404


# -- one job -----------------------------------------------------------------------------------------------------------


def test_one_job_is_steered_and_the_audit_says_by_whom(tasked: Holdfast, ops: Ask) -> None:
    [id] = failed(tasked)
    place = f"/v1/jobs/{id}"
    assert ok(ops, "POST", f"{place}/retry", json={"reason": "fixed"})["state"] == "queued"
    run_at = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    changes = {"queue": "slow", "priority": 7, "tags": ["x"], "run_at": run_at.isoformat(), "reason": "later"}
    assert ok(ops, "POST", f"{place}/change", json=changes)["state"] == "queued"
    record = tasked.job(id).record
    assert (record.queue, record.priority, record.tags, record.run_at) == ("slow", 7, ("x",), run_at)
    assert ops.post(f"{place}/delete", json={"reason": "too early"}).status_code == 409
    assert ok(ops, "POST", f"{place}/cancel")["state"] == "cancelled"
    assert ok(ops, "POST", f"{place}/delete", json={"reason": "tidy"}) == {"id": id, "state": "cancelled"}
    assert ops.get(place).status_code == 404
    done = ok(ops, "GET", "/v1/audit", params={"job": id})["calls"]
    assert [(call["verb"], call["reason"]) for call in done[::-1]] == [
        ("retry", "fixed"), ("change", "later"), ("delete", "too early"), ("cancel", None), ("delete", "tidy")
    ]  # fmt: skip
    assert {call["by"] for call in done} == {"API key ops"}


def test_a_failed_job_is_dismissed_and_keeps_its_error(tasked: Holdfast, ops: Ask) -> None:
    [id] = failed(tasked)
    shown = ok(ops, "POST", f"/v1/jobs/{id}/cancel")
    assert (shown["state"], shown["error"]["message"]) == ("cancelled", "x")


def test_a_job_is_replayed_with_edited_arguments(tasked: Holdfast, ops: Ask) -> None:
    old = tasked.tasks["add"].enqueue(1, b=5)
    answer = ops.post(f"/v1/jobs/{old.id}/replay", json={"args": {"a": 10}, "reason": "a typo"})
    assert answer.status_code == 202
    where = answer.url.join(answer.headers["location"])
    assert where.path == f"/v1/jobs/{answer.json()['id']}"
    tasked.drain()
    assert ok(ops, "GET", str(where))["result"] == 15
    for wrong in ({"a": "x"}, {"c": 1}, {"self": 1}):
        assert ops.post(f"/v1/jobs/{old.id}/replay", json={"args": wrong}).status_code == 422
    assert tasked.count() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"priority": 101}, {"priority": "high"}, {"queue": ""}, {"delay": -1}, {"tags": "a"}, {"state": "failed"},
        {"run_at": "tomorrow"}, {"run_at": "2030-01-31T12:00:00"}, {"delay": 1, "run_at": "2030-01-31T12:00:00Z"},
        {"delay": 1e300},
    ],
)  # fmt: skip
def test_a_change_that_makes_no_sense_is_refused(tasked: Holdfast, ops: Ask, wrong: dict[str, Any]) -> None:
    job = tasked.tasks["add"].enqueue(1).refresh()
    assert ops.post(f"/v1/jobs/{job.id}/change", json=wrong).status_code == 422
    assert tasked.job(job.id).record == job.record


# -- many jobs ---------------------------------------------------------------------------------------------------------


def test_many_jobs_are_looked_at_and_then_changed(tasked: Holdfast, ops: Ask) -> None:
    ids = failed(tasked, 7)
    tasked.tasks["fail"].using(delay=60).enqueue("x")
    seen = ok(ops, "POST", "/v1/bulk/preview", json={"verb": "retry", "filter": "task:fail since:1h"})
    assert (seen["jobs"], seen["refused"], seen["capped"]) == (7, 1, False)
    assert [job["id"] for job in seen["examples"]] == ids[:1:-1]
    assert tasked.count("state:failed") == 7, "a preview changes nothing"
    body = {"filter": seen["filter"], "expected": seen["jobs"], "reason": "back again"}
    some = ok(ops, "POST", "/v1/bulk/retry", json={**body, "limit": 2, "spread": 60})
    assert some == {"changed": 2, "refused": 1, "asked": 0}
    assert ok(ops, "POST", "/v1/bulk/retry", json=body) == {"changed": 5, "refused": 3, "asked": 0}
    filter = {"filter": "task:fail", "expected": 8}
    assert ok(ops, "POST", "/v1/bulk/change", json={**filter, "priority": 3, "tags": []})["changed"] == 8
    assert {job.record.priority for job in tasked.jobs()} == {3}
    assert ok(ops, "POST", "/v1/bulk/pause", json=filter)["changed"] == 8
    assert ok(ops, "POST", "/v1/bulk/resume", json=filter)["changed"] == 8
    assert ok(ops, "POST", "/v1/bulk/cancel", json=filter)["changed"] == 8
    assert ok(ops, "POST", "/v1/bulk/delete", json=filter)["changed"] == 8
    assert tasked.count() == 0
    calls = ok(ops, "GET", "/v1/audit", params={"by": "API key ops"})["calls"]
    assert [call["verb"] for call in calls] == ["delete", "cancel", "resume", "pause", "change", "retry", "retry"]
    assert all(call["ended_at"] for call in calls)


@pytest.mark.parametrize("verb", ["cancel", "pause", "change"])
def test_more_jobs_than_were_seen_are_not_changed(tasked: Holdfast, ops: Ask, verb: str) -> None:
    jobs = [tasked.tasks["add"].enqueue(n) for n in range(3)]
    seen = ok(ops, "POST", "/v1/bulk/preview", json={"verb": verb, "filter": "task:add"})
    jobs.append(tasked.tasks["add"].enqueue(4))
    more = {"priority": 9} if verb == "change" else {}
    body = {"filter": seen["filter"], "expected": seen["jobs"], **more}
    answer = ops.post(f"/v1/bulk/{verb}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (409, "HF1513")
    assert "4 jobs, and 3 were expected" in answer.json()["detail"]
    assert {(job.refresh().state, job.record.priority) for job in jobs} == {(State.QUEUED, 0)}
    assert tasked.audit(verb=verb) == []
    for wrong in ({"filter": "", "expected": 9}, {"filter": "task:add"}, {"filter": "x", "expected": 9}):
        assert ops.post(f"/v1/bulk/{verb}", json={**more, **wrong}).status_code == 422


def test_a_preview_says_when_it_stopped_counting(
    tasked: Holdfast, ops: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("holdfast.operations.COUNTED", 500)
    tasked.enqueue_stream(tasked.tasks["add"].bind(n) for n in range(1200))
    seen = ok(ops, "POST", "/v1/bulk/preview", json={"verb": "cancel", "filter": "task:add"})
    assert (seen["jobs"], seen["capped"]) == (500, True)
    body = {"filter": seen["filter"], "expected": seen["jobs"]}
    assert ok(ops, "POST", "/v1/bulk/cancel", json=body)["changed"] == 1200


# -- pauses and crons --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"), [("queue", "a/b?c"), ("task", "add"), ("cron", "nightly"), ("filter", "args.a:42")]
)
def test_a_pause_is_added_listed_and_ended(tasked: Holdfast, ops: Ask, kind: str, name: str) -> None:
    tasked.schedule("nightly", tasked.tasks["add"].bind(1), cron="0 3 * * *")
    body = {"kind": kind, "name": name, "reason": "provider down"}
    made = ok(ops, "POST", "/v1/pauses", json={**body, "seconds": 3600})
    [listed] = ok(ops, "GET", "/v1/pauses")["pauses"]
    assert (listed["kind"], listed["name"], listed["by"]) == (kind, name, "API key ops")
    assert listed["until"] == made["until"] is not None
    assert ok(ops, "POST", "/v1/pauses/end", json=body) == {"ended": True}
    assert ok(ops, "POST", "/v1/pauses/end", json=body) == {"ended": False}
    assert ok(ops, "GET", "/v1/pauses") == {"pauses": []}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"kind": "world", "name": "x"}, 422), ({"kind": "queue"}, 422),
        ({"kind": "filter", "name": "state:failed"}, 422),
        ({"kind": "cron", "name": "x"}, 404), ({"kind": "queue", "name": "x", "until": "2020-01-01T00:00:00Z"}, 422),
        ({"kind": "queue", "name": "x", "seconds": 1, "until": "2090-01-01T00:00:00Z"}, 422),
        ({"kind": "queue", "name": "x", "seconds": 1e300}, 422), ({"kind": "queue", "name": "x\0"}, 422),
    ],
)  # fmt: skip
def test_a_pause_that_makes_no_sense_is_refused(ops: Ask, wrong: dict[str, Any], status: int) -> None:
    assert ops.post("/v1/pauses", json=wrong).status_code == status
    assert ok(ops, "GET", "/v1/pauses") == {"pauses": []}


def test_a_schedule_is_added_listed_run_and_removed(tasked: Holdfast, ops: Ask) -> None:
    body = {"name": "s", "task": "add", "args": {"a": 1}, "cron": "30 6 * * *", "timezone": "Europe/Berlin"}
    made = ok(ops, "POST", "/v1/crons/schedule", json={**body, "queue": "slow", "priority": 2})
    assert (made["queue"], made["priority"], made["args"]) == ("slow", 2, {"a": 1})
    [listed] = ok(ops, "GET", "/v1/crons")["crons"]
    assert (listed["name"], listed["declared"], listed["next_at"]) == ("s", False, made["next_at"])
    run = ops.post("/v1/crons/run", json={"name": "s"})
    assert run.url.join(run.headers["location"]).path == f"/v1/jobs/{run.json()['id']}"
    tasked.drain()
    assert tasked.job(run.json()["id"]).result == 3
    assert ok(ops, "POST", "/v1/crons/unschedule", json={"name": "s"}) == {"ended": True}
    assert ok(ops, "POST", "/v1/crons/unschedule", json={"name": "s"}) == {"ended": False}
    assert ops.post("/v1/crons/run", json={"name": "s"}).status_code == 404
    refused: list[dict[str, Any]] = [{"cron": "soon"}, {"timezone": "Moon"}, {"args": {}}, {"name": ""}]
    for wrong in refused:
        assert ops.post("/v1/crons/schedule", json={**body, **wrong}).status_code == 422
    assert ops.post("/v1/crons/schedule", json={**body, "task": "x"}).status_code == 404
    assert tasked.crons() == []


def test_the_audit_is_paged(tasked: Holdfast, ops: Ask) -> None:
    for n in range(5):
        tasked.pause_queue(f"q{n}", by="me")
    first = ok(ops, "GET", "/v1/audit", params={"by": "me", "limit": "3"})
    rest = ok(ops, "GET", "/v1/audit", params={"by": "me", "limit": "3", "before": first["next"]})
    assert [call["what"] for call in first["calls"] + rest["calls"]] == ["q4", "q3", "q2", "q1", "q0"]
    assert rest["next"] is None
    for wrong in ("verb=explode", "since=yesterday", "before=x"):
        assert ops.get(f"/v1/audit?{wrong}").status_code == 422
