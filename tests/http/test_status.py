"""Looking at a job, waiting for it, and steering it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from holdfast import Holdfast, Job, JobContext, State
from holdfast.http import watch
from holdfast.job import handle
from holdfast.model.job import JobRecord
from holdfast.model.token import Claims, sign
from tests.http.asking import Ask, bearer, statements
from tests.running import await_state, working
from tests.waiting import wait_until

STATUS = """id task state attempt max_attempts created_at run_at started_at finished_at cancel_requested pause_requested
progress result error"""


@contextmanager
def asked_meanwhile(ask: Ask, path: str, **options: Any) -> Iterator[list[httpx2.Response]]:
    """A request on another thread; its answer is there when the block ends."""
    answers: list[httpx2.Response] = []
    thread = threading.Thread(target=lambda: answers.append(ask.get(path, **options)))
    thread.start()
    yield answers
    thread.join(60)
    assert answers


def test_a_status_tells_what_a_client_needs(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    tasked.drain()
    shown = ask.get(f"/v1/jobs/{made['id']}", headers=bearer(made["token"]))
    assert shown.headers["cache-control"] == "no-store"
    assert set(shown.json()) == set(STATUS.split())
    assert (shown.json()["state"], shown.json()["result"], shown.json()["attempt"]) == ("succeeded", 3, 1)
    failed = ask.submit("fail", args={"message": "no such order"}).json()
    tasked.drain()
    status = ask.get(f"/v1/jobs/{failed['id']}", headers=bearer(failed["token"])).json()
    assert (status["state"], status["result"]) == ("failed", None)
    assert status["error"] == {"code": "ValueError", "message": "no such order"}


def test_a_status_costs_one_read(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    with statements(tasked) as run:
        assert ask.get(f"/v1/jobs/{made['id']}", headers=bearer(made["token"])).status_code == 200
    assert run == ["get"]


def test_what_is_unchanged_is_not_sent_again(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1})
    headers = bearer(made.json()["token"])
    same = ask.get(f"/v1/jobs/{made.json()['id']}", headers={**headers, "If-None-Match": made.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    tasked.drain()
    other = ask.get(f"/v1/jobs/{made.json()['id']}", headers={**headers, "If-None-Match": made.headers["etag"]})
    assert (other.status_code, other.json()["state"]) == (200, "succeeded")
    assert other.headers["etag"] != made.headers["etag"]


def test_a_long_poll_ends_when_the_job_does(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    started = time.monotonic()
    with asked_meanwhile(ask, f"/v1/jobs/{made['id']}?wait=50", headers=bearer(made["token"])) as answers:
        tasked.drain()
    assert answers[0].json()["result"] == 3
    assert time.monotonic() - started < 30


def test_a_long_poll_with_an_etag_ends_with_the_next_change(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1})
    headers = {**bearer(made.json()["token"]), "If-None-Match": made.headers["etag"]}
    with asked_meanwhile(ask, f"/v1/jobs/{made.json()['id']}?wait=50", headers=headers) as answers:
        tasked.job(made.json()["id"]).pause()
    assert (answers[0].status_code, answers[0].json()["state"]) == (200, "paused")


def test_a_long_poll_ends_in_time(ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1})
    place, headers = f"/v1/jobs/{made.json()['id']}", bearer(made.json()["token"])
    assert ask.get(f"{place}?wait=0.3", headers=headers).json()["state"] == "queued"
    same = ask.get(f"{place}?wait=0.3", headers={**headers, "If-None-Match": made.headers["etag"]})
    assert same.status_code == 304
    for wrong in ("soon", "-1", "61", "nan", "inf", "1e999"):
        assert ask.get(f"{place}?wait={wrong}", headers=headers).status_code == 422


def test_a_waiting_client_learns_that_its_job_was_deleted(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    with asked_meanwhile(ask, f"/v1/jobs/{made['id']}?wait=50", headers=bearer(made["token"])) as answers:
        tasked.store.operator.delete(made["id"])
    assert answers[0].status_code == 404


def test_events_follow_a_job_to_its_end(hasty: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    waits = counted_waits(monkeypatch)

    @hasty.task(http=True)
    def count(ctx: JobContext, to: int) -> int:
        ctx.progress(1, total=to, note="begun")
        assert go.wait(30)
        return to

    ask = Ask(hasty.asgi(open="submitter"))
    made = ask.submit("count", args={"to": 4}).json()
    path = f"/v1/jobs/{made['id']}/events?token={made['token']}"
    with working(hasty), asked_meanwhile(ask, path) as answers:
        wait_until(lambda: any(known.progress for known in waits), "the client was told, and waits for more")
        go.set()
    assert answers[0].headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answers[0].text.splitlines() if line.startswith("data: ")]
    assert events[0]["state"] in ("queued", "running")  # as it is when the client comes
    assert any(event["state"] == "running" and (event["progress"] or {}).get("fraction") == 0.25 for event in events)
    assert (events[-1]["state"], events[-1]["result"]) == ("succeeded", 4)
    assert sum(event["state"] == "succeeded" for event in events) == 1
    # An EventSource comes back, and is told that there is no more.
    last = [line[4:] for line in answers[0].text.splitlines() if line.startswith("id: ")][-1]
    assert ask.get(path, headers={"Last-Event-ID": last}).status_code == 204
    assert ask.get(path, headers={"Last-Event-ID": "before"}).status_code == 200


def test_a_token_steers_only_where_the_task_allows_it(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    refused = ask.post(f"/v1/jobs/{made['id']}/cancel", headers=bearer(made["token"]))
    assert (refused.status_code, refused.json()["code"]) == (403, "HF1502")
    other = ask.submit("fail", args={"message": "x"}).json()
    for verb, state in (("pause", "paused"), ("resume", "queued"), ("cancel", "cancelled")):
        done = ask.post(f"/v1/jobs/{other['id']}/{verb}", headers=bearer(other["token"]), json={"reason": "enough"})
        assert (done.status_code, done.json()["state"]) == (200, state)
    assert tasked.job(other["id"]).record.asked_why == "enough"
    again = ask.post(f"/v1/jobs/{other['id']}/pause", headers=bearer(other["token"]))
    assert (again.status_code, again.json()["code"]) == (409, "HF1302")
    calls = [(call.verb, call.by, call.what) for call in tasked.audit()]
    by = ("the holder of its token", f"id:{other['id']}")
    assert calls == [(verb, *by) for verb in ("pause", "cancel", "resume", "pause")]


def test_a_running_job_is_asked_to_stop(hasty: Holdfast) -> None:
    @hasty.task(http=["cancel"])
    def spin(ctx: JobContext) -> None:
        while not ctx.should_stop():
            time.sleep(0.01)

    ask = Ask(hasty.asgi(open="submitter"))
    with working(hasty):
        made = ask.submit("spin").json()
        job = hasty.job(made["id"])
        await_state(job, State.RUNNING)
        asked = ask.post(f"/v1/jobs/{job.id}/cancel", headers=bearer(made["token"])).json()
        assert asked["cancel_requested"] or asked["state"] == "cancelled"
        await_state(job, State.CANCELLED)


WAITING = 5000


def test_thousands_of_waiting_clients_cost_a_few_reads_a_second_and_write_nothing(
    tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tasked.enqueue_many(tasked.tasks["add"].bind(n) for n in range(WAITING))
    tokens = tokens_of(jobs)
    waits = counted_waits(monkeypatch)

    async def main() -> None:
        clock = asyncio.get_running_loop().time
        async with ask.client() as client:
            with statements(tasked) as run:
                began = clock()
                clients = {
                    id: asyncio.create_task(client.get(f"/v1/jobs/{id}?wait=60", headers=bearer(token)))
                    for id, token in tokens.items()
                }
                while len(waits) < WAITING:  # noqa: ASYNC110 - they come one after the other
                    await asyncio.sleep(0.05)
                assert set(run) <= {"marks", "list", "signing_secret"}
                assert len(run) / (clock() - began) < 20, "those that begin to wait are read together"
                run.clear()
                began = clock()
                while len(run) < 10:  # noqa: ASYNC110 - another task fills it
                    await asyncio.sleep(0.01)
                took = clock() - began
                assert set(run) == {"marks"}
                assert len(run) / took < 20
                # One that changes is told, and the others go on waiting.
                run.clear()
                await asyncio.to_thread(jobs[7].cancel)
                assert (await clients[jobs[7].id]).json()["state"] == "cancelled"
                assert run.count("list") == 1
            told = [task.result().json()["state"] for task in clients.values() if task.done()]
            assert [state for state in told if state != "queued"] == ["cancelled"], "a slow machine takes over a minute"
            for task in clients.values():
                task.cancel()
            await asyncio.gather(*clients.values(), return_exceptions=True)

    asyncio.run(main())


def counted_waits(monkeypatch: pytest.MonkeyPatch) -> list[JobRecord]:
    """What every wait that has begun knows of its job."""
    begun: list[JobRecord] = []
    original = watch.Watch.changed

    async def changed(self: watch.Watch, known: JobRecord, seconds: float, **options: Any) -> JobRecord | None:
        begun.append(known)
        return await original(self, known, seconds, **options)

    monkeypatch.setattr(watch.Watch, "changed", changed)
    return begun


def test_clients_that_come_back_for_more_are_read_together(tasked: Holdfast, ask: Ask) -> None:
    """A wait has an end, and whoever still waits asks again: thousands of clients, hundreds of requests a second."""
    many, times = 100, 3
    tokens = tokens_of(tasked.enqueue_many(tasked.tasks["add"].bind(n) for n in range(many)))

    async def follow(client: httpx2.AsyncClient, id: str, token: str) -> list[int]:
        await asyncio.sleep(0.01 * int(id))  # they come one by one
        seen = await client.get(f"/v1/jobs/{id}", headers=bearer(token))
        headers = {**bearer(token), "If-None-Match": seen.headers["etag"]}
        return [
            (await client.get(f"/v1/jobs/{id}?wait=0.3", headers=headers)).status_code for _ in range(times)
        ]  # fmt: skip

    async def main() -> list[list[int]]:
        async with ask.client() as client:
            return await asyncio.gather(*(follow(client, id, token) for id, token in tokens.items()))

    began = time.monotonic()
    with statements(tasked) as run:
        assert asyncio.run(main()) == [[304] * times] * many
    again = [name for name in run if name != "get"]
    assert set(again) <= {"marks", "list", "signing_secret"}
    took = time.monotonic() - began
    assert len(again) <= 3 + took / watch.GATHER + took / watch.TICK
    assert len(again) < many * times


def test_a_job_is_not_there_or_foreign_for_clients_that_wait_as_for_others(tasked: Holdfast, ask: Ask) -> None:
    made = [ask.submit("add", args={"a": 1}).json() for _ in range(2)]
    stranger = bearer(made[1]["token"])
    gone = ask.get(f"/v1/jobs/{made[0]['id']}", headers=stranger)
    viewer = Ask(tasked.asgi(open="viewer"))
    assert gone.status_code == 404
    for answer in (
        ask.get(f"/v1/jobs/{made[0]['id']}?wait=5", headers=stranger),
        *(viewer.get(f"/v1/jobs/{id}?wait=5") for id in ("999", "x", "1" * 30, "%EF%BC%91")),
    ):
        assert (answer.status_code, answer.content) == (404, gone.content)
    forged = sign(tasked.store.credentials.signing_secret(), Claims(made[0]["id"], datetime.now(UTC), "read"))
    assert ask.get(f"/v1/jobs/{made[0]['id']}?wait=5", headers=bearer(forged)).content == gone.content


@pytest.mark.parametrize("shape", ['W/"{}"', '"{}-gzip"', '"another", W/"{}"'])
def test_proxies_may_change_an_etag_as_they_do(ask: Ask, shape: str) -> None:
    """Else a client that waits would be answered at once, and ask again, and again."""
    made = ask.submit("add", args={"a": 1})
    known = shape.format(made.headers["etag"].strip('"'))
    headers = {**bearer(made.json()["token"]), "If-None-Match": known}
    assert ask.get(f"/v1/jobs/{made.json()['id']}?wait=0.1", headers=headers).status_code == 304
    headers["If-None-Match"] = shape.format("0" * 24)
    assert ask.get(f"/v1/jobs/{made.json()['id']}?wait=0.1", headers=headers).status_code == 200


def tokens_of(jobs: list[Job[Any]]) -> dict[str, str]:
    """A token for each of these jobs, made without reading each."""
    app = jobs[0]._app
    records = app.store.reads.records([int(job.id) for job in jobs])
    return {record.id: handle(app, record).token() for record in records}


@pytest.mark.parametrize("verb", ["cancel", "pause", "resume"])
def test_an_operator_needs_no_token(tasked: Holdfast, verb: str) -> None:
    key = tasked.create_api_key("ops", "operator")
    job = tasked.tasks["hidden"].enqueue()
    if verb == "resume":
        job.pause()
    done = Ask(tasked.asgi()).post(f"/v1/jobs/{job.id}/{verb}", headers=bearer(key))
    assert done.status_code == 200
    assert (tasked.audit()[0].verb, tasked.audit()[0].by) == (verb, "API key ops")
