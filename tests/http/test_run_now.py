"""`?wait=` on submit: the job runs before all others, and the answer has its outcome if that comes in time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.tasks.options import NOW_QUEUE
from tests.http.asking import Ask, bearer
from tests.http.test_server import serving
from tests.running import Heard, working
from tests.waiting import PATIENCE

ADD = "/v1/tasks/add/jobs"


def test_the_answer_has_the_result(tasked: Holdfast, ask: Ask) -> None:
    made = ask.post(f"{ADD}?wait=60", json={"args": {"a": 1}})
    assert (made.status_code, made.json()["state"], made.json()["result"]) == (200, "succeeded", 3)
    assert "retry-after" not in made.headers
    assert tasked.job(made.json()["id"]).record.queue == NOW_QUEUE
    seen = ask.get(f"/v1/jobs/{made.json()['id']}", headers=bearer(made.json()["token"]))
    assert seen.headers["etag"] == made.headers["etag"]


def test_a_failure_is_told(ask: Ask) -> None:
    made = ask.post("/v1/tasks/fail/jobs?wait=60", json={"args": {"message": "no"}})
    assert (made.status_code, made.json()["state"]) == (200, "failed")
    assert made.json()["error"]["message"].endswith("no")


def test_past_the_deadline_it_goes_on_and_is_followed_by_its_token(tasked: Holdfast, ask: Ask) -> None:
    go = threading.Event()

    @tasked.task(http=True)
    def slow() -> str:
        assert go.wait(PATIENCE)
        return "done"

    made = ask.post("/v1/tasks/slow/jobs?wait=0.3", json={})
    assert (made.status_code, made.headers["retry-after"]) == (202, "1")
    go.set()
    done = ask.get(f"/v1/jobs/{made.json()['id']}?wait=50", headers=bearer(made.json()["token"]))
    assert (done.json()["result"], done.json()["attempt"]) == ("done", 1)


def test_a_repeated_request_is_told_the_outcome_of_the_first(ask: Ask) -> None:
    first, again = (
        ask.post(f"{ADD}?wait=60", json={"args": {"a": 1}}, headers={"Idempotency-Key": "k"}) for _ in range(2)
    )
    assert (again.status_code, again.json()["id"], again.json()["result"]) == (200, first.json()["id"], 3)


@pytest.mark.parametrize("wait", ["-1", "61", "soon", "nan"])
def test_a_bad_wait_enqueues_nothing(tasked: Holdfast, ask: Ask, wait: str) -> None:
    assert ask.post(f"{ADD}?wait={wait}", json={"args": {"a": 1}}).status_code == 422
    assert tasked.count() == 0


@pytest.mark.parametrize("option", [{"delay": 5}, {"priority": 7}])
def test_options_that_make_no_sense_are_refused(ask: Ask, option: dict[str, int]) -> None:
    refused = ask.post(f"{ADD}?wait=1", json={"args": {"a": 1}, **option})
    assert refused.status_code == 422
    assert f"leave out {next(iter(option))}" in refused.json()["detail"]


def test_a_web_process_that_runs_no_jobs_leaves_it_to_workers(tasked: Holdfast, heard: Heard) -> None:
    ask = Ask(tasked.asgi(open="submitter", run_now=False))
    assert ask.post(f"{ADD}?wait=0.2", json={"args": {"a": 1}}).status_code == 202
    assert not heard.of("worker_started")
    with working(tasked):
        assert ask.post(f"{ADD}?wait=60", json={"args": {"a": 1}}).json()["result"] == 3


def test_served_with_a_worker_and_without(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as server, server.client() as client:
        assert client.post(f"{ADD}?wait=0.2", json={"args": {"a": 1}}).status_code == 202
        assert server.stop() == 0, server.log
        assert "worker" not in server.log
    with serving(tmp_path) as server, server.client() as client:
        made = client.post(f"{ADD}?wait=50", json={"args": {"a": 1}})
        assert (made.status_code, made.json()["result"]) == (200, 3), server.log
        assert server.stop() == 0, server.log
