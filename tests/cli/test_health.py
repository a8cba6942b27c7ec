"""`holdfast worker --http` and `holdfast health`: real processes, one asking the other."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from holdfast.errors import BadSettings
from holdfast.model.polling import MOST_ERRORS
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.worker import mandate
from holdfast.worker.mandate import Meters
from holdfast.worker.probes import AT_ONCE, Pages, Probes
from tests.cli.forking import run_holdfast
from tests.waiting import wait_until

APP = """
import time
from holdfast import Holdfast

hf = Holdfast()

@hf.task
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""


class Worker:
    def __init__(self, home: Path, process: subprocess.Popen[bytes]) -> None:
        self.home = home
        self.process = process

    @property
    def said(self) -> str:
        return (self.home / "said.log").read_text()

    @property
    def address(self) -> str:
        found = re.search(r"http://(\S+)/health", self.said)
        return found[1] if found else ""

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(f"http://{self.address}{path}", timeout=20.0, trust_env=False)

    def health(self, *options: str) -> subprocess.CompletedProcess[str]:
        return run_holdfast(
            ["health", "--http", self.address, *options], cwd=self.home, env=dict(os.environ), timeout=60
        )


@contextmanager
def a_worker(home: Path, *options: str) -> Iterator[Worker]:
    (home / "app.py").write_text(APP)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with (home / "said.log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "app:hf", *options], cwd=home, env=environment, stdout=said,
            stderr=said, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        yield Worker(home, process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with a_worker(tmp_path_factory.mktemp("home"), "--http", "127.0.0.1:0") as started:
        wait_until(lambda: started.address and started.get("/health").status_code == 200)
        wait_until(lambda: started.get("/health").json()["metrics"]["polls_per_minute"])
        yield started


def test_a_worker_tells_how_it_is(worker: Worker) -> None:
    answer = worker.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "healthy")
    assert answer.json()["metrics"]["polls_per_minute"] >= 1
    assert [worker.get(path).status_code for path in ("/livez", "/readyz", "/elsewhere")] == [200, 200, 404]
    assert httpx2.post(f"http://{worker.address}/health", trust_env=False).status_code == 501


def test_health_asks_it(worker: Worker) -> None:
    for options, said in ((), "healthy"), (("--live",), "ok"), (("--ready",), "ok"):
        done = worker.health(*options)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")
    assert json.loads(worker.health("-o", "json").stdout)["status"] == "healthy"


def test_a_worker_exports_metrics(worker: Worker) -> None:
    assert worker.get("/v1/metrics").json()["polls_per_minute"] >= 1
    answer = worker.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=1.0.0")
    assert "holdfast_polls_per_minute" in answer.text


def test_probes_are_not_logged(worker: Worker) -> None:
    said = worker.said
    for path in ("/health", "/livez", "/elsewhere"):
        worker.get(path)
    with socket.create_connection(worker.address.split(":")) as rude:  # type: ignore[arg-type]
        rude.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
        rude.recv(1000)
    assert worker.said == said


def test_a_page_of_another_site_whose_name_leads_here_reads_nothing(worker: Worker) -> None:
    answer = httpx2.get(f"http://{worker.address}/health", headers={"Host": "evil.example"}, trust_env=False)
    assert (answer.status_code, "metrics" in answer.text) == (421, False)


def test_clients_that_say_nothing_take_no_more_than_their_places(worker: Worker) -> None:
    host, port = worker.address.split(":")
    before = len(os.listdir(f"/proc/{worker.process.pid}/task"))
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(4 * AT_ONCE)]
        gone = [one for one in idle if closed(one)]
        assert len(os.listdir(f"/proc/{worker.process.pid}/task")) <= before + AT_ONCE
        assert len(gone) >= 3 * AT_ONCE
    wait_until(lambda: tried(worker) == 200, "it answers again")


def closed(connection: socket.socket) -> bool:
    connection.settimeout(0.5)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def tried(worker: Worker) -> int:
    try:
        return worker.get("/health").status_code
    except httpx2.TransportError:
        return 0


def test_a_worker_that_is_not_there_or_stopped_is_not_healthy(tmp_path: Path) -> None:
    with a_worker(tmp_path, "--http", "127.0.0.1:0") as worker:
        wait_until(lambda: worker.address)
        os.kill(worker.process.pid, signal.SIGSTOP)
        began = time.monotonic()
        done = worker.health("--live")
        assert (done.returncode, time.monotonic() - began < 10) == (1, True)
        assert "does not answer" in done.stderr
        os.kill(worker.process.pid, signal.SIGCONT)
        wait_until(lambda: worker.health("--live").returncode == 0)
    done = worker.health()
    assert (done.returncode, "HF1515" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "number"),
    [
        (["--http", "0.0.0.0:0"], "HF1117"),
        (["--http", "127.0.0.1"], "HF1101"),
        (["--http", "127.0.0.1:99999"], "HF1101"),
        (["--http", "no.such.host.example:8081", "--http-open"], "HF1118"),
        (["--http-open"], "HF1101"),
    ],
)
def test_where_it_can_not_listen_it_does_not_start(tmp_path: Path, options: list[str], number: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = run_holdfast(["worker", "app:hf", *options], cwd=tmp_path, env=dict(os.environ), timeout=60)
    assert (done.returncode, done.stderr[:6]) == (2, number)


def test_it_listens_for_others_only_if_told(kept: Store) -> None:
    with pytest.raises(BadSettings):
        Probes("0.0.0.0:0")
    probes = Probes("0.0.0.0:0", open=True)
    with probes.answering(Pages(kept, Meters())):
        port = probes.url.rpartition(":")[2]
        answer = httpx2.get(f"http://127.0.0.1:{port}/livez", headers={"Host": "worker.pod"}, trust_env=False)
        assert answer.status_code == 200


def test_a_worker_whose_loop_is_stuck_is_not_alive_and_one_that_fails_is_alive_but_unhealthy(kept: Store) -> None:
    meters = Meters()
    pages = Pages(kept, meters)
    meters.consecutive_errors = MOST_ERRORS
    assert (pages.live()[0], pages.health()[0]) == (200, 503)
    meters.consecutive_errors = 0
    assert (pages.live()[0], pages.health()[0]) == (200, 200)
    meters.turned -= mandate.STUCK
    assert pages.live()[0] == 503


def test_a_worker_without_its_tables_is_not_ready(settings: Settings, kept: Store) -> None:
    probes = Probes("127.0.0.1:0")
    with probes.answering(Pages(kept, Meters())):
        assert httpx2.get(f"{probes.url}/readyz", trust_env=False).status_code == 200
        kept.schema.drop()
        answer = httpx2.get(f"{probes.url}/readyz", trust_env=False)
        assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
