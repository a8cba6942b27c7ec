"""`?wait=` on submit: the job runs before all others, and the answer has its outcome if that comes in time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, StoreUnavailable
from holdfast.http import submit
from holdfast.tasks.options import NOW_QUEUE
from tests.http.asking import Ask, bearer, statements
from tests.http.test_server import serving
from tests.http.test_status import counted_waits
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


def test_clients_that_wait_for_long_share_their_reads(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "SOON", 0.1)
    asgi = tasked.asgi(open="submitter", run_now=False)
    waits = counted_waits(monkeypatch)
    many = 30

    async def main() -> list[httpx2.Response]:
        async with Ask(asgi).client() as client:
            clients = [asyncio.create_task(client.post(f"{ADD}?wait=60", json={"args": {"a": n}})) for n in range(many)]
            while len(waits) < many:  # noqa: ASYNC110 - they come one after the other
                await asyncio.sleep(0.02)
            with statements(tasked) as run:
                while run.count("marks") < 5:  # noqa: ASYNC110 - another task fills it
                    await asyncio.sleep(0.02)
            assert set(run) == {"marks"}
            await asyncio.to_thread(tasked.drain)
            return await asyncio.gather(*clients)

    answers = asyncio.run(main())
    assert [(answer.status_code, answer.json()["result"]) for answer in answers] == [(200, n + 2) for n in range(many)]


def test_past_the_deadline_nobody_asks_why(tasked: Holdfast) -> None:
    ask = Ask(tasked.asgi(open="submitter", run_now=False))
    ask.submit("add", args={"a": 1})  # the connections are there
    with statements(tasked) as run:
        assert ask.post(f"{ADD}?wait=0.1", json={"args": {"a": 1}}).status_code == 202
    assert set(run) <= {"get", "await", "transaction"}


def test_an_outage_during_the_wait_does_not_cost_the_token(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "SOON", 0.1)

    def away(ids: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(tasked.store.reads, "marks", away)
    made = Ask(tasked.asgi(open="submitter", run_now=False)).post(f"{ADD}?wait=0.6", json={"args": {"a": 1}})
    assert (made.status_code, made.json()["created"]) == (202, True)
    assert made.json()["token"].startswith("hfj_")


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
