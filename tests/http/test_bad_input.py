"""What hostile or broken clients send, and what they get while the database is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, StoreUnavailable
from holdfast.errors import OutcomeUnknown
from holdfast.http import bodies
from tests.http.asking import Ask, bearer
from tests.running import Heard
from tests.waiting import PATIENCE, wait_until

JSON = {"Content-Type": "application/json"}


def send(ask: Ask, content: bytes | str, **headers: str) -> httpx2.Response:
    return ask.post("/v1/tasks/add/jobs", content=content, headers={**JSON, **headers})


def nested(levels: int) -> bytes:
    return b'{"args": {"a": ' + b"[" * levels + b"]" * levels + b"}}"


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"x" * 1_000_001, 413, "HF1505"),
        (b"{", 400, "HF1503"),
        (b"[1]", 422, "HF1202"),
        (b"null", 422, "HF1202"),
        (b'{"args": {"a": 1}} {}', 400, "HF1503"),
        (b'{"args": {"a": 1, "a": 2}}', 400, "HF1503"),
        (b'{"args": {"a": 1}, "args": {"a": 2}}', 400, "HF1503"),
        (b'{"args": {"a": NaN}}', 400, "HF1503"),
        (b'{"args": {"a": -Infinity}}', 400, "HF1503"),
        (b'{"args": {"a": 1e999}}', 422, "HF1202"),
        (b'{"args": {"a": ' + b"9" * 5000 + b"}}", 400, "HF1503"),
        (b'{"args": {"a": 1}, "delay": 1e999}', 422, "HF1202"),
        (nested(60), 422, "HF1202"),
        (nested(70), 400, "HF1503"),
        (nested(400_000), 400, "HF1503"),
        (b'{"args": {"a": "\xff"}}', 400, "HF1503"),
        (b'{"args": {"a": 1}, "key": "\\ud800"}', 422, "HF1202"),
        (b'{"args": {"a": 1}, "key": "\\u0000"}', 422, "HF1202"),
        (b'{"args": {"a": 1}, "key": ""}', 422, "HF1202"),
        (b'{"args": {"a": 1}, "colour": "red"}', 422, "HF1202"),
        (b'{"args": {"a": 1}, "priority": true}', 422, "HF1202"),
        (b'{"args": {"a": 1}, "\\ud800": 1}', 422, "HF1202"),
        (b'{"args": {"a": 1, "\\udfff": 1}}', 422, "HF1202"),
    ],
)
def test_what_can_not_be_read_is_refused(tasked: Holdfast, ask: Ask, content: bytes, status: int, code: str) -> None:
    refused = send(ask, content)
    assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert refused.headers["content-type"] == "application/problem+json"
    assert tasked.count() == 0


def test_text_that_no_database_keeps_is_refused_wherever_it_is(tasked: Holdfast) -> None:
    @tasked.task(http=True)
    def say(text: str, more: Any = None) -> None: ...

    ask = Ask(tasked.asgi(open="submitter"))
    for wrong in ("\\u0000", "a\\u0000b", "\\ud800"):
        for body in (f'{{"text": "{wrong}"}}', f'{{"text": "x", "more": [{{"{wrong}": 1}}]}}'):
            refused = ask.post("/v1/tasks/say/jobs", content=f'{{"args": {body}}}', headers=JSON)
            assert (refused.status_code, refused.json()["code"]) == (422, "HF1202")
    deepest = f'{{"args": {{"text": "x", "more": {"[" * 63}{"]" * 63}}}}}'
    assert ask.post("/v1/tasks/say/jobs", content=deepest, headers=JSON).status_code == 202


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; x=y", ""])
def test_only_json_is_read(tasked: Holdfast, ask: Ask, kind: str) -> None:
    """A page of another site may send these without asking first."""
    refused = send(ask, b'{"args": {"a": 1}}', **{"Content-Type": kind})
    assert (refused.status_code, refused.json()["code"]) == (415, "HF1504")
    assert send(ask, b'{"args": {"a": 1}}', **{"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 202


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_body_makes_the_server_fail(ask: Ask, content: bytes | str) -> None:
    assert send(ask, content).status_code in (400, 422)


async def drop_by_drop(after: asyncio.Event) -> AsyncIterator[bytes]:
    yield b'{"args": '
    await after.wait()
    yield b'{"a": 1}}'


def test_a_client_that_sends_slowly_is_not_waited_for(
    tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> list[httpx2.Response]:
        never = asyncio.Event()
        async with ask.client() as client:
            return [
                await client.post(
                    f"/v1/tasks/add/jobs{path}", content=drop_by_drop(never), headers={"Content-Type": kind}
                )
                for path, kind in (("", "application/json"), ("/bulk", "application/jsonl"))
            ]

    monkeypatch.setattr(bodies, "BODY_TIMEOUT", 0.2)
    monkeypatch.setattr("holdfast.http.submit.BODY_TIMEOUT", 0.2)
    for answer in asyncio.run(main()):
        assert (answer.status_code, answer.json()["code"]) == (408, "HF1506")
    assert tasked.count() == 0


def test_a_client_that_goes_away_leaves_nothing_or_a_whole_job(tasked: Holdfast) -> None:
    """At every point of the exchange: while it sends, and while it is answered."""
    asgi = tasked.asgi(open="submitter")
    body = b'{"args": {"a": 1}}'

    async def submit(path: str, kind: bytes, messages: list[dict[str, Any]], *, hears: bool) -> None:
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"content-type", kind), (b"host", b"x"), (b"transfer-encoding", b"chunked")],
            "http_version": "1.1", "scheme": "http", "client": ("192.0.2.7", 1), "server": ("x", 80), "root_path": "",
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if not hears:
                raise OSError("it hung up")

        try:
            await asgi(scope, receive, send)
        except OSError:
            assert not hears

    for path, kind in (("/v1/tasks/add/jobs", b"application/json"), ("/v1/tasks/add/jobs/bulk", b"application/jsonl")):
        before = tasked.count()
        for sent in (b"", body[:5], body):
            asyncio.run(submit(path, kind, [{"type": "http.request", "body": sent, "more_body": True}], hears=True))
            assert tasked.count() == before
        whole = [{"type": "http.request", "body": body, "more_body": False}]
        asyncio.run(submit(path, kind, whole, hears=False))
        assert tasked.count() == before + 1


def test_a_client_that_goes_away_is_not_waited_for(tasked: Holdfast) -> None:
    """Else whoever comes and goes could have thousands of waits kept for a minute each."""
    job = tasked.tasks["add"].enqueue(1)
    asgi = tasked.asgi(open="admin", run_now=False)
    sent: list[Any] = []

    async def ask(method: str, path: str, body: bytes = b"") -> None:
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"wait=60",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
            "http_version": "1.1", "scheme": "http", "client": ("192.0.2.7", 1), "server": ("x", 80), "root_path": "",
        }  # fmt: skip
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        async with asyncio.timeout(PATIENCE):
            await asgi(scope, receive, send)

    asyncio.run(ask("GET", f"/v1/jobs/{job.id}"))
    asyncio.run(ask("POST", "/v1/tasks/add/jobs", b'{"args": {"a": 1}}'))
    assert [message["status"] for message in sent if "status" in message] == [499, 499]
    assert tasked.count() == 2, "the job that it submitted is there"


@pytest.fixture
def away(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database answers nothing, as the driver tells it. (test_server.py stops a real one.)"""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OutcomeUnknown("the server closed the connection of postgresql://u:c4n4ry@h/d")

    tasked.store.credentials.signing_secret()
    for way in ("read", "write", "transaction"):
        monkeypatch.setattr(tasked.store.db, way, refuse)
    monkeypatch.setattr(tasked.store.enqueueing, "enqueue", refuse)


@pytest.mark.usefixtures("away")
def test_while_the_database_is_away_clients_are_told_to_come_back(tasked: Holdfast, ask: Ask, heard: Heard) -> None:
    for answer in (ask.submit("add", args={"a": 1}), Ask(tasked.asgi(open="viewer")).get("/v1/jobs/1")):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["code"] == StoreUnavailable.number or answer.json()["code"] == OutcomeUnknown.number
        assert "c4n4ry" not in answer.text
        assert "postgresql://" not in answer.text, "strangers need not know where the database is"
    ask.submit("add", args={"a": 1})
    [told] = heard.of("http_failed")[:1]
    assert len(heard.of("http_failed")) == 2, "once for each application"
    assert "c4n4ry" not in told["error"]
    assert "postgresql://" in told["error"], "who runs the server does"


def test_a_wait_goes_on_through_an_outage(tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    monkeypatch.setattr("holdfast.http.watch.AWAY", 0.1)
    reads, failed = tasked.store.reads, []
    marks = reads.marks

    def broken(ids: Any) -> Any:
        failed.append(1)
        if len(failed) > 2:
            monkeypatch.setattr(reads, "marks", marks)
            tasked.job(made["id"]).cancel()
        raise StoreUnavailable("away")

    monkeypatch.setattr(reads, "marks", broken)
    answer = ask.get(f"/v1/jobs/{made['id']}?wait=50", headers=bearer(made["token"]))
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


def test_a_wait_that_ends_in_an_outage_says_so(tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ask.submit("add", args={"a": 1}).json()

    def broken(ids: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr("holdfast.http.watch.TICK", 0.01)  # it fails in time
    monkeypatch.setattr(tasked.store.reads, "marks", broken)
    answer = ask.get(f"/v1/jobs/{made['id']}?wait=1", headers=bearer(made["token"]))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")


def test_an_error_of_ours_tells_the_client_nothing(tasked: Holdfast, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("c4n4ry")

    monkeypatch.setattr(tasked, "find_task", broken)
    answer = ask.submit("add", args={"a": 1})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "c4n4ry" not in answer.text


@pytest.mark.parametrize(
    "path", ["/v1/jobs/1%00", "/v1/jobs/-1", "/v1/jobs/%EF%BC%91", "/v1/jobs/" + "9" * 30, "/v1/jobs/1.0"]
)
def test_an_id_that_can_not_be_one_is_no_job(tasked: Holdfast, path: str) -> None:
    tasked.tasks["add"].enqueue(1)
    answer = Ask(tasked.asgi(open=True)).get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "HF1301")


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(ask: Ask, method: str) -> None:
    for path in ("/v1/jobs/1/events", "/v1/jobs/1", "/v1/tasks/add/jobs"):
        answer = ask(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] in ("GET", "POST")


@pytest.mark.parametrize("path", ["/v1/jobs/1/", "/v1/jobs/1/events/", "/v1//jobs/1", "/v1"])
def test_a_path_that_is_not_quite_right_leads_nowhere(ask: Ask, path: str) -> None:
    """A redirect would be made from the Host header, and send tokens to wherever that points."""
    answer = ask.get(path, headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (404, "HF1510")


def test_many_submit_at_once_under_one_key(tasked: Holdfast, ask: Ask) -> None:
    async def main() -> list[httpx2.Response]:
        async with ask.client() as client:
            body = {"args": {"a": 1}}
            return await asyncio.gather(
                *(client.post("/v1/tasks/add/jobs", json=body, headers={"Idempotency-Key": "one"}) for _ in range(20))
            )

    answers = asyncio.run(main())
    assert {answer.status_code for answer in answers} == {202}
    assert [answer.json()["created"] for answer in answers].count(True) == 1
    assert tasked.count() == 1


def test_what_is_spooled_to_disk_is_gone_afterwards(
    tasked: Holdfast, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.http.submit.IN_MEMORY", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lines = '{"args": {"a": 1}}\n' * 1000
    made = ask.post("/v1/tasks/add/jobs/bulk", content=lines, headers={"Content-Type": "application/jsonl"})
    assert (made.status_code, tasked.count()) == (202, 1000)
    wait_until(lambda: not list(tmp_path.glob("tmp*")))
