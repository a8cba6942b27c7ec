"""Running jobs during a request."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from holdfast import Fail, Holdfast, Retry, State
from tests.http.asking import Ask, bearer
from tests.http.test_server import served, serving
from tests.waiting import PATIENCE, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


@pytest.fixture
def ops(hf: Holdfast) -> Ask:
    return Ask(hf.asgi(), **bearer(hf.create_api_key("ops", "operator")))


def test_a_drain_says_what_it_did(hf: Holdfast, ops: Ask) -> None:
    @hf.task(max_attempts=2)
    def work(n: int) -> None:
        if n == 1:
            raise Fail("no")
        if n == 2:
            raise Retry(after=0)

    jobs = [work.enqueue(n) for n in range(3)]
    assert ops.post("/v1/drain", json={"seconds": 30}).json() == {"jobs": 3, "failed": 2, "attempts": 4}
    assert [job.refresh().state for job in jobs] == [State.SUCCEEDED, State.FAILED, State.FAILED]
    assert ops.post("/v1/drain").json() == {"jobs": 0, "failed": 0, "attempts": 0}
    assert hf.workers() == [], "it has left"


def test_a_drain_keeps_to_its_budget_and_its_queues(hf: Holdfast, ops: Ask) -> None:
    @hf.task
    def work() -> None: ...

    for queue in ("a", "a", "a", "b"):
        work.using(queue=queue).enqueue()
    assert ops.post("/v1/drain", json={"queues": ["b"]}).json()["jobs"] == 1
    assert ops.post("/v1/drain", json={"jobs": 2}).json()["jobs"] == 2
    assert ops.post("/v1/drain", json={"seconds": 0}).json()["jobs"] == 0
    assert hf.count("state:queued") == 1
    for wrong in ({"seconds": -1}, {"seconds": 3601}, {"jobs": 0}, {"queues": "a"}, {"queues": [""]}, {"second": 1}):
        assert ops.post("/v1/drain", json=wrong).status_code == 422
    assert hf.count("state:queued") == 1


def test_one_drain_at_a_time(hf: Holdfast, ops: Ask) -> None:
    going, end = threading.Event(), threading.Event()

    @hf.task
    def work() -> None:
        going.set()
        end.wait(PATIENCE)

    work.enqueue()
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(ops.post("/v1/drain")))
    first.start()
    try:
        assert going.wait(PATIENCE)
        second = ops.post("/v1/drain")
        assert (second.status_code, second.json()["code"]) == (409, "HF1514")
    finally:
        end.set()
        first.join(PATIENCE)
    assert answers[0].json()["jobs"] == 1
    assert ops.post("/v1/drain").status_code == 200


def test_a_server_that_stops_ends_its_drain_in_good_order(hf: Holdfast) -> None:
    going = threading.Event()

    @hf.task
    async def work() -> None:
        going.set()
        await asyncio.sleep(PATIENCE)

    @hf.task
    def later() -> None: ...

    job, other = work.enqueue(), later.using(priority=-1, delay=0.5).enqueue()
    hf.reconfigure(grace=0.5)
    ask = Ask(hf.asgi(open=True))

    async def stopped() -> None:
        async with ask.client() as client:
            asking = asyncio.create_task(client.post("/v1/drain", json={"seconds": 3600}))
            await asyncio.to_thread(going.wait, PATIENCE)
            asking.cancel()
            answer = await asking
            assert (answer.status_code, answer.json()["code"]) == (503, "HF1514")

    asyncio.run(stopped())
    wait_until(lambda: job.refresh().state is State.QUEUED, "it is given back")
    assert other.refresh().state in (State.QUEUED, State.SUCCEEDED)
    wait_until(lambda: hf.workers() == [])


def shell(line: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_crontab_of_the_page(hf: Holdfast) -> None:
    @hf.task
    def work() -> None: ...

    job = work.enqueue()
    [line] = re.findall(r"^\* \* \* \* \* (curl .*)$", PAGE.read_text(), re.MULTILINE)
    assert "%" not in line, "cron would take it for the end of a line"
    environment = {**os.environ, "KEY": hf.create_api_key("cron", "operator"), "no_proxy": "*"}
    with served(hf) as (host, port):
        url = f"http://{host}:{port}"
        done = shell(line, {**environment, "JOBS": url})
        assert done.returncode == 0, done.stderr
        assert done.stdout == '{"jobs":1,"failed":0,"attempts":1}'
        refused = shell(line, {**environment, "JOBS": url, "KEY": "hfk_wrong"})
        assert refused.returncode == 22, "cron mails what --fail says"
    assert job.refresh().state is State.SUCCEEDED


SLOW = """
import time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast(grace=1.0)

@hf.task(http=True)
def nap() -> None:
    Path("begun").touch()
    time.sleep(60)
"""


def test_a_real_server_that_is_told_to_stop_gives_back_what_it_drains(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker", app=SLOW) as server, server.client() as client:
        assert client.post("/v1/tasks/nap/jobs", json={}).status_code == 202
        asking = threading.Thread(target=lambda: _drained(client), daemon=True)
        asking.start()
        wait_until(lambda: (tmp_path / "begun").exists())
        assert server.stop() == 0, server.log
        asking.join(PATIENCE)
        assert "Traceback" not in server.log
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        record = app.job("1").record
        assert (record.state, record.attempt) == (State.QUEUED, 0), "given back, not lost"
        assert app.workers() == []


def _drained(client: httpx2.Client) -> None:
    with suppress(httpx2.HTTPError):
        client.post("/v1/drain", json={"seconds": 3600})
