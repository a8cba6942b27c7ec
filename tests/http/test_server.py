"""`holdfast serve`, with real sockets, real signals and a real outage."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from sse_starlette.sse import AppStatus

from holdfast import Holdfast
from holdfast.http import server as http_server
from holdfast.http.server import Server
from tests.chaos.fleet import birth_of, children_of
from tests.http.asking import bearer
from tests.servers import own_postgres
from tests.waiting import PATIENCE, wait_until

APP = """
import time
from pathlib import Path
from holdfast import Holdfast, Secret

hf = Holdfast()

@hf.task(http=True)
def add(a: int, b: int = 2) -> int:
    return a + b

@hf.task(http=["cancel"], max_attempts=1)
def pay(card: Secret[str], password: str) -> None:
    raise ValueError(f"{card} was refused, with {password}")
"""


def family_of(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(one for child in children for one in family_of(child))]


def sockets_of(pid: int) -> int:
    links = Path(f"/proc/{pid}/fd").iterdir()
    found = 0
    for link in links:
        with suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(link).startswith("socket:")
    return found


class Serving:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        said = next((line for line in self.log.splitlines() if line.startswith("serving ")), "")
        return said.partition(" on ")[2].partition("/v1;")[0]

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def worker(self) -> int:
        [pid] = children_of(self.process.pid)
        return pid

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def serving(
    home: Path, *arguments: str, url: str = "sqlite:///jobs.db", app: str = APP, **more: str
) -> Iterator[Serving]:
    """`more`: environment variables."""
    (home / "app.py").write_text(app)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with (home / "said.log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "app:hf", "--port", "0", *arguments], cwd=home,
            env={**environment, "HOLDFAST_URL": url, **more}, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    started = Serving(process, home / "said.log")
    try:
        wait_until(lambda: started.url or process.poll() is not None, timeout=3 * PATIENCE)
        yield started
    finally:
        family = family_of(process.pid)
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(birth_of, family)))


def submit(client: httpx2.Client, task: str = "add", **options: Any) -> httpx2.Response:
    return client.post(f"/v1/tasks/{task}/jobs", **{"json": {"args": {"a": 1}}, **options})


def test_one_command_serves_and_works_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        made = submit(client)
        assert made.status_code == 202, server.log
        place, token = str(made.url.join(made.headers["location"])), bearer(made.json()["token"])
        done = client.get(f"{place}?wait=50", headers=token)
        assert (done.json()["state"], done.json()["result"]) == ("succeeded", 3), server.log
        with client.stream("GET", f"{place}/events", headers=token) as events:
            assert "succeeded" in events.read().decode()
        family = family_of(server.process.pid)
        assert family
        assert server.stop() == 0, server.log
        wait_until(lambda: not any(map(birth_of, family)))
        assert "stopped; 1 job done" in server.log


def test_without_a_worker_jobs_wait(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as server, server.client() as client:
        assert submit(client).status_code == 202
        assert children_of(server.process.pid) == []
        assert client.get("/v1/jobs/1").json()["state"] == "queued", "on this machine no token is needed"
        assert server.stop() == 0, server.log


def begun(url: str, what: str, body: str = "", **headers: str) -> socket.socket:
    """A request that is sent, and whose answer is read later."""
    place = urlsplit(url)
    all_headers = {
        "Host": "localhost", "Connection": "close", "Content-Type": "application/json",
        "Content-Length": str(len(body)), **headers,
    }  # fmt: skip
    lines = [f"{what} HTTP/1.1", *(f"{name}: {text}" for name, text in all_headers.items()), "", body]
    asking = socket.create_connection((place.hostname or "", place.port or 0), timeout=PATIENCE)
    asking.sendall("\r\n".join(lines).encode())
    return asking


def answer_to(asking: socket.socket) -> tuple[int, str]:
    """Its status and the rest of it, once all of it is there."""
    with asking:
        text = b"".join(iter(lambda: asking.recv(65_536), b"")).decode()
    return int(text[9:12]), text


def test_waiting_clients_are_answered_when_a_server_stops(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as server, server.client() as client:
        tag = {"If-None-Match": submit(client).headers["etag"]}
        before = sockets_of(server.process.pid)
        waiting = [
            begun(server.url, "GET /v1/jobs/1?wait=60"),
            begun(server.url, "GET /v1/jobs/1?wait=60", **tag),
            begun(server.url, "GET /v1/jobs/1/events"),
            begun(server.url, "POST /v1/tasks/add/jobs?wait=60", '{"args": {"a": 1}}'),
            begun(server.url, "POST /v1/tasks/add/jobs", '{"args": ', **{"Content-Length": "100"}),
        ]
        wait_until(lambda: sockets_of(server.process.pid) >= before + len(waiting))
        wait_until(lambda: client.get("/v1/jobs/2").status_code == 200)
        assert server.stop() == 0, server.log
        (status, job), (same, _), (stream, events), (made, submitted), (late, refused) = map(answer_to, waiting)
        assert (status, same, stream, made, late) == (200, 304, 200, 202, 503)
        assert '"state":"queued"' in job
        assert events.count("event: status") == 1
        assert events.endswith("\r\n0\r\n\r\n"), "it ends as a whole answer does"
        assert '"token":"hfj_' in submitted, "it is not lost"
        assert '"code":"HF1514"' in refused
        assert "Traceback" not in server.log


def test_a_server_that_is_killed_takes_its_worker_along(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        wait_until(lambda: "\nworker " in server.log)
        worker = server.worker()
        server.process.kill()
        wait_until(lambda: not birth_of(worker))


def test_a_worker_that_dies_ends_the_server(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        wait_until(lambda: "\nworker " in server.log)
        os.kill(server.worker(), signal.SIGKILL)
        assert server.process.wait(60) == 1
        assert "the worker beside the server ended with status -9" in server.log


def test_a_server_that_others_can_reach_needs_a_rule(tmp_path: Path) -> None:
    others = ("--host", "0.0.0.0", "--no-worker")
    with serving(tmp_path, *others) as server:
        assert server.process.wait(60) == 2
        assert server.log.startswith("HF1117 ")
    with serving(tmp_path, *others, "--open", "submitter") as server, server.client() as client:
        assert submit(client).status_code == 202
        assert submit(client, headers={"Host": "evil.example"}).status_code == 421
        assert submit(client, headers={"Host": socket.gethostname()}).status_code == 202
        assert client.get("/v1/jobs/1").status_code == 403
    key = subprocess.run(
        [sys.executable, "-m", "holdfast", "keys", "create", "ci", "--role", "admin", "--url", "sqlite:///jobs.db"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    with serving(tmp_path, *others) as server, server.client() as client:
        assert submit(client).status_code == 401, "a loopback client of a server for others has no more rights"
        assert submit(client, headers=bearer(key)).status_code == 202
        taken = urlsplit(server.url).port
        again = subprocess.run(
            [sys.executable, "-m", "holdfast", "serve", "app:hf", "--port", str(taken), "--host", "0.0.0.0"],
            cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "HOLDFAST_URL": "sqlite:///jobs.db"},
            check=False,
        )  # fmt: skip
        assert (again.returncode, again.stderr[:7]) == (2, "HF1118 ")


def test_more_names_can_be_allowed(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker", "--allow-host", "jobs.example") as server, server.client() as client:
        assert submit(client, headers={"Host": "jobs.example"}).status_code == 202
        assert submit(client, headers={"Host": "evil.example"}).status_code == 421


def test_a_server_behind_a_proxy_that_says_nothing_can_be_closed(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker", "--open", "nobody") as server, server.client() as client:
        assert submit(client).status_code == client.get("/v1/jobs").status_code == 401
        key = Holdfast(f"sqlite:///{tmp_path}/jobs.db").create_api_key("shop", "submitter")
        made = submit(client, headers=bearer(key))
        assert made.status_code == 202
        assert client.get("/v1/jobs/1", headers=bearer(made.json()["token"])).status_code == 200
    with serving(tmp_path, "--no-worker", "--open", "submitter") as server, server.client() as client:
        assert submit(client).status_code == 202
        assert client.get("/v1/jobs").status_code == 403, "what was said counts, also on this machine"


def test_http_as_old_proxies_speak_it_is_not_of_this_machine(tasked: Holdfast) -> None:
    with served(tasked) as address:
        for version, answered in ((b"1.0", b"401"), (b"1.1", b"200")):
            with socket.create_connection(address, timeout=30) as client:
                client.sendall(b"GET /v1/jobs HTTP/" + version + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert client.recv(1000)[9:12] == answered


def test_clients_can_not_fill_the_log(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-worker") as server:
        place = urlsplit(server.url)
        before = server.log
        for sent in (
            b"nonsense\r\n\r\n",
            b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\n\r\n",
        ):
            with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as client:
                client.sendall(sent)
                assert client.recv(1000).startswith(b"HTTP/1.1 ")
        assert server.log == before


@pytest.mark.parametrize(
    ("asked", "answered_first"),
    [(b"POST /v1/nothing", True), (b"GET /v1/jobs/1/events", True), (b"GET /livez", False)],
)
def test_nonsense_within_a_request_does_not_fill_the_log(tmp_path: Path, asked: bytes, answered_first: bool) -> None:
    with serving(tmp_path, "--no-worker") as server:
        with server.client() as first:
            assert submit(first).status_code == 202
        place, before = urlsplit(server.url), server.log
        head, nonsense = asked + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"nonsense\r\n"
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as client:
            client.sendall(head if answered_first else head + nonsense)
            assert client.recv(10_000).startswith(b"HTTP/1.1 ")
            if answered_first:
                client.sendall(nonsense)
            while client.recv(10_000):
                pass
        assert server.stop() == 0
        assert server.log == before


def test_more_connections_than_there_is_room_for_cost_neither_the_log_nor_the_database(tmp_path: Path) -> None:
    """Half of the files are for connections here. Clients that have one are served, and so is the database."""
    files = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (120, 120))\n"
    with serving(tmp_path, "--no-worker", app=files + APP) as server, server.client() as first:
        assert submit(first).status_code == 202
        place = urlsplit(server.url)
        before, held = server.log, []
        try:
            for _ in range(400):
                client = socket.create_connection((place.hostname or "", place.port or 0), timeout=30)
                client.sendall(b"GET /v1/jobs/1?wait=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                held.append(client)
            wait_until(lambda: "there is room for 60 connections" in server.log)
            wait_until(lambda: sockets_of(server.process.pid) < 80, "the others were hung up on")
            assert [submit(first).status_code for _ in range(20)] == [202] * 20
        finally:
            for client in held:
                client.close()
        said = server.log.removeprefix(before)
        assert said.count("\n") == 1, said
        with server.client() as another:
            wait_until(lambda: _answers(another), "there is room again")


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/livez").status_code == 200
    except httpx2.TransportError:
        return False


def test_a_proxy_lets_go_of_an_idle_connection_before_the_server_does(tasked: Holdfast) -> None:
    """Else it may send a request into one that the server is closing. nginx and others keep it for 60 seconds."""
    server = Server(tasked, "127.0.0.1", 0)
    server.socket.close()
    assert server.config.timeout_keep_alive > 60


def test_a_server_takes_as_many_connections_as_it_may(tasked: Holdfast) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 40
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        with served(tasked):
            now, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert now == min(before[1], http_server.FILES) > few


@contextmanager
def served(app: Holdfast) -> Iterator[tuple[str, int]]:
    """In this process, so that its limits can be set."""
    server = Server(app, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run_until_stopped)
    thread.start()
    try:
        yield server.socket.getsockname()[:2]
    finally:
        server.stop()
        thread.join(30)
        AppStatus.should_exit = False  # of this process: streams in it would end at once from now on


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # it asks no database
def test_a_client_that_sends_its_headers_slowly_is_cut_off(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEADERS_TIMEOUT", 1.0)  # we have to be faster
    with served(tasked) as address:
        for begun in (b"", b"GET /v1/jobs/1 HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(address, timeout=30) as client:
                client.sendall(begun)
                assert client.recv(100) == b""
        # After a request that was answered, too; and one that is answered slowly is not cut off.
        tasked.tasks["add"].enqueue(1)
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"GET /v1/jobs/1?wait=1.5 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 200 OK")
            client.settimeout(30)
            client.sendall(b"GET ")
            rest = b"".join(iter(lambda: client.recv(10_000), b""))
            assert b"HTTP/1.1" not in rest
        # One that was refused before its body was there need not send the rest of it, and is not waited for either.
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(b"POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
            assert client.recv(10_000).startswith(b"HTTP/1.1 404 ")
            client.sendall(b"x")
            while client.recv(10_000):
                pass


def test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_read(tasked: Holdfast) -> None:
    with served(tasked) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(
            b"POST /v1/tasks/add/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answered = b""
        while more := client.recv(10_000):
            answered += more
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1 ") == 1


def test_answers_don_t_wait_for_acknowledgements(tasked: Holdfast) -> None:
    """On a connection that is kept, each would take 40 ms more."""
    with Server(tasked, "127.0.0.1", 0).socket as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_huge_headers_are_refused(tasked: Holdfast) -> None:
    with served(tasked) as address, socket.create_connection(address, timeout=30) as client:
        client.sendall(b"GET /v1/jobs/1 HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000)
        assert client.recv(1000)[9:12] in (b"400", b"431")


def test_an_outage_is_told_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    with own_postgres(synchronous_commit="on") as database:
        Holdfast(database.url, pinned=True).migrate()
        with serving(tmp_path, "--no-worker", url=database.url) as server, server.client() as client:
            first = submit(client, headers={"Idempotency-Key": "1"}).json()
            database.stop("immediate")
            try:
                away = submit(client, headers={"Idempotency-Key": "2"})
                assert (away.status_code, away.headers["retry-after"]) == (503, "2")
                assert client.get("/v1/jobs/1").status_code == 503
            finally:
                database.start()
            wait_until(lambda: submit(client, headers={"Idempotency-Key": "2"}).status_code == 202)
            again = submit(client, headers={"Idempotency-Key": "1"}).json()
            assert (again["id"], again["created"]) == (first["id"], False)
            with Holdfast(database.url, pinned=True) as app:
                assert app.count() == 2


LOUD = """
from holdfast import Holdfast

hf = Holdfast()

@hf.task(http=["output"], isolation="process", max_attempts=2, retry=0)
def shout(word: str) -> str:
    print(word, flush=True)
    if word == "no":
        raise ValueError(word)
    return word

@hf.task(http=True, isolation="process")
def whisper(word: str) -> None:
    print(word, flush=True)
"""


def test_output_comes_with_the_events_for_those_who_may_see_it(tmp_path: Path) -> None:
    with serving(tmp_path, app=LOUD) as server, server.client() as client:

        def followed(task: str, word: str, **headers: str) -> list[tuple[str, Any]]:
            made = submit(client, task, json={"args": {"word": word}}).json()
            answer = client.get(f"/v1/jobs/{made['id']}/events", headers=headers or bearer(made["token"]))
            told = [line for line in answer.text.splitlines() if line.startswith(("event", "data"))]
            lines = [line.partition(": ")[2] for line in told]
            return [(event, json.loads(data)) for event, data in zip(lines[::2], lines[1::2], strict=True)]

        told = followed("shout", "hello")
        assert told[-2] == ("output", {"attempt": 1, "output": "hello\n"}), "before the status by which clients leave"
        assert (told[-1][0], told[-1][1]["state"]) == ("status", "succeeded")
        outputs = [data for event, data in followed("shout", "no") if event == "output"]
        assert outputs[-1] == {"attempt": 2, "output": "no\n"}
        assert "output" not in [event for event, _ in followed("whisper", "secret")]
        # Who comes when all is over gets it, too; and a role needs no leave of the task.
        late = client.get("/v1/jobs/3/events").text
        assert 'data: {"attempt":1,"output":"secret\\n"}' in late


CANARY = "c4n4ry"
JSON = {"Content-Type": "application/json"}


def test_no_secret_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        secret = {"card": f"{CANARY}-card", "password": f"{CANARY}-pw"}
        made = submit(client, "pay", json={"args": secret}).json()
        token = made["token"]
        assert client.get("/v1/jobs/1?wait=50", headers=bearer(token)).json()["state"] == "failed"
        answers = [
            client.get(f"/v1/jobs/1/events?token={token}"),
            client.get("/v1/jobs/2", headers=bearer(token)),
            client.post("/v1/jobs/1/cancel", headers=bearer(token)),
            client.get("/v1/jobs/1", headers=bearer(f"hfk_{'0' * 12}_{CANARY}")),
            submit(client, "pay", json={"args": {"card": [f"{CANARY}-card"], "password": f"{CANARY}-pw"}}),
            submit(client, "pay", json={"args": {"card": f"{CANARY}\x00", "password": "x"}}),
            submit(client, "pay", content=json.dumps({"args": secret})[:-3], headers=JSON),
            client.get("/v1/jobs/1?token=" + token, headers={"X-Forwarded-For": "1.2.3.4"}),
        ]  # fmt: skip
        assert server.stop() == 0
        assert "1 job done, 1 of them failed" in server.log
        for text in (server.log, *(answer.text for answer in answers)):
            assert CANARY not in text
            assert token not in text
