"""The clients, against a real `holdfast serve`."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    BadSettings,
    Holdfast,
    JobFailed,
    JobNotFound,
    RequestRefused,
    ServerUnavailable,
    State,
    UnknownTask,
    WaitTimeout,
)
from holdfast.http import AsyncClient, Client, JobStatus
from holdfast.settings import Settings
from tests.http.test_mounting import PAGE
from tests.http.test_server import Serving, serving
from tests.waiting import PATIENCE

LONG = 3 * PATIENCE  # a server and a worker have to start

APP = """
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from holdfast import Holdfast, JobContext

hf = Holdfast()

@hf.task(http=True)
def add(a: int, b: int = 2) -> int:
    return a + b

@hf.task(http=True)
def audit(url: str) -> dict[str, int]:
    return {"score": len(url)}

@hf.task(http=["cancel", "pause", "resume"])
def crawl(ctx: JobContext, go: str) -> str:
    ctx.progress(1, total=2, note="half")
    while not Path(go).exists():
        time.sleep(0.01)
    return "done"

@hf.task(http=True, max_attempts=1, name="mail: send?")
def fail() -> None:
    raise ValueError("no such address")
"""


@pytest.fixture
def server(settings: Settings, tmp_path: Path) -> Iterator[Serving]:
    app = Holdfast(settings.url, schema=settings.schema, pinned=True)
    app.migrate()
    with serving(tmp_path, url=settings.url, app=APP, HOLDFAST_SCHEMA=settings.schema) as started:
        yield started


@pytest.fixture
def client(server: Serving) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def test_submit_follow_and_steer(client: Client, tmp_path: Path) -> None:
    job = client.submit("add", {"a": 1}, correlation_id="c")
    assert (job.created, job.token[:4]) == (True, "hfj_")
    assert repr(job) == f"<Submitted job {job.id}: add queued>", "without its token"
    assert client.wait(job, timeout=LONG) == 3
    assert client.status(job).state is State.SUCCEEDED
    assert client.status(job.id, job.token).result == 3

    now = client.submit("add", {"a": 40}, wait="60s")
    assert (now.state, now.result) == (State.SUCCEEDED, 42)

    # Each change is told, and the last one is the end.
    updates: list[JobStatus] = []

    def note(update: JobStatus) -> None:
        updates.append(update)
        if update.progress is not None:
            (tmp_path / "go").touch()

    crawling = client.submit("crawl", {"go": str(tmp_path / "go")})
    assert client.wait(crawling, timeout=LONG, on_update=note) == "done"
    assert updates[-1].state is State.SUCCEEDED
    assert next(one.progress.note for one in updates if one.progress is not None) == "half"
    assert all(one != other for one, other in pairwise(updates))

    failed = client.submit("mail: send?")
    with pytest.raises(JobFailed, match="no such address") as raised:
        client.wait(failed, timeout=LONG)
    assert (raised.value.job_id, raised.value.code) == (failed.id, "ValueError")

    later = client.submit("crawl", {"go": "never"}, delay="1h", priority=3)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=f"job {later.id} is queued after 0.5 s; it goes on"):
        client.wait(later, timeout=0.5)
    assert 0.5 <= time.monotonic() - began < PATIENCE
    assert client.pause(later).state is State.PAUSED
    assert client.resume(later).state is State.QUEUED
    assert client.cancel(later.id, later.token, reason="not needed").state is State.CANCELLED
    with pytest.raises(JobFailed, match="cancelled"):
        client.wait(later)


def test_errors_are_those_of_python(client: Client) -> None:
    with pytest.raises(BadArguments, match="unexpected keyword argument"):
        client.submit("add", {"a": 1, "c": 3})
    with pytest.raises(UnknownTask, match="declared with http=True"):
        client.submit("hidden")
    with pytest.raises(JobNotFound):
        client.status("4711")
    job = client.submit("add", {"a": 1}, idempotency_key="k")
    assert client.submit("add", {"a": 1}, idempotency_key="k").id == job.id
    with pytest.raises(RequestRefused, match="other arguments") as refused:
        client.submit("add", {"a": 2}, idempotency_key="k")
    assert (refused.value.status, refused.value.number) == (422, "HF1509")
    with pytest.raises(JobNotFound), Client(client.url) as other:
        other.status(job.id, "hfj_forged")
    with pytest.raises(RequestRefused, match="API key is wrong"), Client(client.url, key="hfk_x_y") as other:
        other.status(job.id)
    with pytest.raises(BadArguments, match="can't be sent as JSON"):
        client.submit("add", {"a": object()})
    for wrong in ({"delay": -1}, {"wait": "soon"}):
        with pytest.raises(BadArguments, match=f"submit: {next(iter(wrong))} must be"):
            client.submit("add", {"a": 1}, **wrong)


def test_the_asynchronous_one_does_the_same(server: Serving, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient(server.url) as client:
            jobs = await asyncio.gather(*(client.submit("add", {"a": n}) for n in range(20)))
            results = await asyncio.gather(*(client.wait(job, timeout=LONG) for job in jobs))
            assert results == [n + 2 for n in range(20)]
            seen: list[State] = []

            async def note(update: JobStatus) -> None:
                await asyncio.sleep(0)
                seen.append(update.state)

            now = await client.submit("add", {"a": 1}, wait=60)
            assert await client.wait(now, on_update=note) == 3
            assert seen == [State.SUCCEEDED]
            later = await client.submit("crawl", {"go": "never"}, delay=3600)
            assert (await client.pause(later)).state is State.PAUSED
            assert (await client.resume(later)).state is State.QUEUED
            assert (await client.cancel(later)).state is State.CANCELLED
            assert (await client.status(later)).state is State.CANCELLED
            with pytest.raises(UnknownTask):
                await client.submit("hidden")

    asyncio.run(main())


def test_the_example_of_the_page(server: Serving, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n# client.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "client.py", "exec"), names)
    assert names["score"]("https://example.org", server.url) == {"score": 19}
    assert capsys.readouterr().out.splitlines()[-1].strip() == "succeeded"


def test_both_have_the_same_methods() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in vars(kind).items() if not name.startswith("_")
        }  # fmt: skip

    assert public(Client) == public(AsyncClient)


# -- what real servers do rarely ---------------------------------------------------------------------------------------


@contextmanager
def answering(*answers: tuple[int, dict[str, str], str]) -> Iterator[tuple[str, list[float]]]:
    """A server with these answers, the last of them for ever; and when it was asked."""
    asked: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(time.monotonic())
            status, headers, body = answers[min(len(asked), len(answers)) - 1]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/prefix", asked
        finally:
            server.shutdown()
            thread.join()


DONE = (
    '{"id":"1","task":"add","state":"succeeded","attempt":1,"max_attempts":3,"created_at":"2031-01-01T00:00:00Z",'
    '"run_at":"2031-01-01T00:00:00Z","started_at":null,"finished_at":null,"cancel_requested":false,'
    '"pause_requested":false,"progress":null,"result":{"n":1},"error":null,"from_a_newer_version":1}'
)
AWAY = '{"title":"x","status":503,"detail":"the database is away","code":"HF3002"}'


def test_a_server_that_is_away_is_asked_again_when_it_says_so() -> None:
    with answering((503, {"Retry-After": "1"}, AWAY), (502, {}, "<html>"), (200, {}, DONE)) as (url, asked):
        with Client(url) as client:
            assert client.wait("1", "hfj_x", timeout=PATIENCE) == {"n": 1}
        assert len(asked) == 3
        assert all(later - sooner >= 1 for sooner, later in pairwise(asked))


def test_an_answer_that_comes_at_once_and_says_nothing_new_is_not_asked_for_again_at_once() -> None:
    """A proxy changed the ETag, so the server does not wait for a change."""
    queued = DONE.replace("succeeded", "queued")
    told: list[str] = []
    with answering((200, {"ETag": '"1"'}, queued), (200, {"ETag": '"2"'}, queued), (200, {}, DONE)) as (url, asked):
        with Client(url) as client:
            assert client.wait("1", timeout=PATIENCE, on_update=lambda job: told.append(job.state)) == {"n": 1}
        assert told == ["queued", "succeeded"]
        assert asked[2] - asked[1] >= 1


def test_a_server_that_does_not_wait_is_not_asked_again_at_once() -> None:
    """It stops, or something in between answers for it."""
    queued = DONE.replace("succeeded", "queued")
    with answering((200, {"ETag": '"1"'}, queued), (304, {}, ""), (200, {}, DONE)) as (url, asked):
        with Client(url) as client:
            assert client.wait("1", timeout=PATIENCE) == {"n": 1}
        assert asked[2] - asked[1] >= 1


def test_a_wait_ends_in_time_though_the_server_asks_for_more() -> None:
    with answering((503, {"Retry-After": "600"}, AWAY)) as (url, _), Client(url) as client:
        began = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"job 1 is not known after 0\.3 s"):
            client.wait("1", timeout=0.3)
        assert time.monotonic() - began < PATIENCE


def test_answers_of_something_else_are_recognised() -> None:
    for status, body in ((200, "<html>"), (200, "{}"), (404, "nothing"), (301, "")):
        with answering((status, {}, body)) as (url, _), Client(url) as client:
            with pytest.raises(RequestRefused, match="is the URL right") as raised:
                client.status("1")
            assert raised.value.status == status


def test_no_answer_at_all() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with Client(url, timeout=0.2) as client, pytest.raises(ServerUnavailable, match="no answer came"):
            client.status("1")
    with Client(url) as client:
        with pytest.raises(ServerUnavailable, match=r"no answer came from http://127.* Is the server up\?"):
            client.status("1")
        with pytest.raises(WaitTimeout):
            client.wait("1", timeout=0.2)


@pytest.mark.parametrize("wrong", ["localhost:8000", "ftp://x", "", "http://[", "http://"])
def test_a_url_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(BadSettings, match="looks like"):
        Client(wrong)


def test_the_url_may_end_as_people_write_it() -> None:
    with Client("http://localhost:8000/jobs/v1/", key="hfk_secret") as client:
        assert repr(client) == "<Client http://localhost:8000/jobs>"
