"""Health over HTTP: who is healthy, and what a monitor gets when the database is away."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.model.alerts import Finding
from holdfast.model.polling import Polling
from tests.http.asking import Ask
from tests.running import working
from tests.waiting import wait_until

WELL = Polling(polls_per_minute=3, jobs_found_per_poll=2.0, claims_tried=3, claims_won=2, claim_success_rate=0.667)


def worker(app: Holdfast, id: str, polling: Polling) -> None:
    app.store.workers.register(id=id, name="w", host="h", pid=1, queues=None, tasks=["add"], slots=1)
    app.store.look(id, ["add"], None, polling=polling)


def test_without_a_worker_nobody_looks_for_jobs(tasked: Holdfast) -> None:
    answer = Ask(tasked.asgi()).get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "unhealthy")
    assert answer.json()["metrics"]["workers"] == 0


def test_a_working_worker_is_healthy(tasked: Holdfast) -> None:
    with working(tasked):
        ask = Ask(tasked.asgi())
        wait_until(lambda: ask.get("/health").json()["metrics"]["polls_per_minute"])
        answer = ask.get("/health")
    assert answer.status_code == 200
    assert answer.json()["status"] == "healthy"
    assert answer.json()["metrics"] | {"polls_per_minute": 0, "jobs_found_per_poll": 0, "idle_seconds": 0} == {
        "polls_per_minute": 0, "jobs_found_per_poll": 0, "claims_tried": 0, "claims_won": 0, "claim_success_rate": None,
        "avg_claim_latency": None, "consecutive_errors": 0, "idle_seconds": 0, "workers": 1, "unhealthy_workers": 0,
    }  # fmt: skip


def test_who_only_wants_to_know_whether_we_are_up_may_ask_with_head(tasked: Holdfast) -> None:
    worker(tasked, "w1", WELL)
    for path in ("/health", "/livez", "/readyz"):
        answer = Ask(tasked.asgi())("HEAD", path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    ("polling", "status"),
    [
        (WELL, 200),
        (Polling(polls_per_minute=9, consecutive_errors=4), 200),
        (Polling(polls_per_minute=9, consecutive_errors=5), 503),
        (Polling(polls_per_minute=0, idle_seconds=61.0), 503),
    ],
)
def test_the_rule_of_health(tasked: Holdfast, polling: Polling, status: int) -> None:
    worker(tasked, "w1", polling)
    answer = Ask(tasked.asgi()).get("/health")
    assert (answer.status_code, answer.json()["metrics"]["consecutive_errors"]) == (status, polling.consecutive_errors)


def test_one_healthy_worker_is_enough_and_the_others_are_counted(tasked: Holdfast) -> None:
    worker(tasked, "w1", WELL)
    worker(tasked, "w2", Polling(polls_per_minute=9, consecutive_errors=7))
    answer = Ask(tasked.asgi()).get("/health")
    found: dict[str, Any] = answer.json()["metrics"]
    assert answer.status_code == 200
    assert (found["workers"], found["unhealthy_workers"], found["consecutive_errors"]) == (2, 1, 0)
    assert (found["polls_per_minute"], found["jobs_found_per_poll"], found["claim_success_rate"]) == (3, 2.0, 0.667)


def test_while_the_database_is_away_the_server_lives_and_is_neither_ready_nor_healthy(
    tasked: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(tasked, "w1", WELL)
    ask = Ask(tasked.asgi())
    assert [ask.get(path).status_code for path in ("/livez", "/readyz", "/health")] == [200, 200, 200]

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("connection refused")

    monkeypatch.setattr(tasked.store.db, "read", away)
    monkeypatch.setattr(tasked.store.schema, "check", away)
    assert [ask.get(path).status_code for path in ("/livez", "/readyz", "/health")] == [200, 503, 503]
    assert ask.get("/health").json()["status"] == "unhealthy"


def test_a_schema_that_does_not_fit_is_not_ready(hf: Holdfast, settings: Any) -> None:
    hf.store.schema.drop()
    assert Ask(hf.asgi()).get("/readyz").status_code == 503


# -- metrics and alerts ------------------------------------------------------------------------------------------------


def test_metrics_over_http(tasked: Holdfast) -> None:
    with working(tasked):
        tasked.tasks["fail"].enqueue("x")
        assert tasked.tasks["add"].enqueue(1).wait(timeout=20) == 3
        wait_until(lambda: tasked.metrics().failed_total)
    ask = Ask(tasked.asgi(open="viewer"))
    found = ask.get("/v1/metrics").json()
    assert found["failed_total"] == {"ValueError": 1}
    assert found["processing_duration_ms"].keys() == {"add", "fail"}
    assert found["processing_rate"]["default"] > 0
    read = ask.get("/metrics")
    assert read.headers["content-type"].startswith("text/plain; version=1.0.0")
    assert 'holdfast_jobs_total{outcome="succeeded",queue="default",task="add"} 1.0' in sorted_labels(read.text)
    refused = Ask(tasked.asgi())
    assert [refused.get(path).status_code for path in ("/metrics", "/v1/metrics", "/v1/alerts")] == [401] * 3


def sorted_labels(text: str) -> str:
    return re.sub(r"{(.*?)}", lambda found: "{" + ",".join(sorted(found[1].split(","))) + "}", text)


def test_without_the_package_prometheus_learns_what_to_install(
    tasked: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith(("prometheus_client.", "holdfast.prometheus"))]:
        monkeypatch.delitem(sys.modules, name)
    answer = Ask(tasked.asgi(open="viewer")).get("/metrics")
    assert (answer.status_code, "pip install 'holdfast[prometheus]'" in answer.json()["detail"]) == (501, True)
    assert Ask(tasked.asgi(open="viewer")).get("/v1/metrics").status_code == 200


def test_alerts_over_http(tasked: Holdfast) -> None:
    begun = tasked.store.alerts.begin(
        Finding("job_age", "mail", "the oldest due job of queue mail waits for 2h", 7200.0)
    )
    assert begun is not None
    ask = Ask(tasked.asgi(open="viewer"))
    [alert] = ask.get("/v1/alerts").json()["alerts"]
    assert (alert["name"], alert["subject"], alert["value"], alert["ended_at"]) == ("job_age", "mail", 7200.0, None)
    assert 'holdfast_alerts{alert="job_age"} 1.0' in ask.get("/metrics").text
    assert [one["name"] for one in ask.get("/v1/metrics").json()["alerts"]] == ["job_age"]
    [standing] = tasked.store.alerts.standing()
    tasked.store.alerts.end(standing)
    assert ask.get("/v1/alerts").json()["alerts"][0]["ended_at"]
    assert ask.get("/v1/metrics").json()["alerts"] == []
    assert ask.get("/v1/queues").json()["queues"] == []


def test_queues_say_when_they_will_be_empty(tasked: Holdfast) -> None:
    tasked.tasks["add"].enqueue(1)
    [queue] = Ask(tasked.asgi(open="viewer")).get("/v1/queues").json()["queues"]
    drain = queue["drain"]
    assert (drain["seconds"], drain["text"], drain["ended"]) == (None, "growing: never at this rate", 0.0)
    assert drain["came"] > 0
