"""The application on a database of its own, with the stand-in for its model, in this process and in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from examples.claim_check import app, database
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.claim_check.standin import StandIn
from tests.http.asking import Ask
from tests.servers import in_database, new_schema, shared_postgres
from tests.waiting import PATIENCE, wait_until

REPOSITORY = Path(__file__).parents[3]
OLD_CLAIM = "select * from claim_next_job()"
_numbers = count()


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/claim-check.db"
        return
    name = new_schema()
    with psycopg.connect(shared_postgres(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield in_database(shared_postgres(), name)
        connection.execute(f"drop database {name} with (force)".encode())


def model_of(standin: StandIn) -> dict[str, str]:
    """The environment that leads the application to it."""
    return {"CLAIM_CHECK_MODEL_URL": standin.url, "CLAIM_CHECK_MODEL_DELAY_UNIT": "0.01"}


@pytest.fixture
def hf(url: str, standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """The application, set up on a fresh database. Its jobs are run by `hf.drain()`."""
    for name, value in model_of(standin).items():
        monkeypatch.setenv(name, value)
    before = app.hf.settings
    app.hf.reconfigure(url=url, synchronous="off", after_job_delay=0.0, grace=5.0)
    app.set_up()
    yield app.hf
    app.hf.close()
    app.hf.settings = before


@pytest.fixture
def sql(engine: str, url: str) -> Iterator[Database]:
    """A connection of the old system's."""
    database.create(url)
    db = Database(engine, url)
    yield db
    db.close()


@pytest.fixture
def ask(hf: Holdfast) -> Ask:
    from examples.claim_check.web import web

    return Ask(web)


def submit(ask: Ask | httpx2.Client, **product: Any) -> dict[str, Any]:
    answer = ask.post("/functions/v1/analyze_product", json=product)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def status(ask: Ask | httpx2.Client, job: dict[str, Any], **other: str) -> dict[str, Any]:
    query = {"job_id": job["job_id"], "job_token": job["job_token"], **other}
    answer = ask.get("/functions/v1/job_status", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


class Process(subprocess.Popen[bytes]):
    """`python -m examples.claim_check …`, and what it wrote."""

    module = "examples.claim_check"

    def __init__(self, home: Path, *command: str, **environment: str) -> None:
        self._log = home / f"{command[0]}-{next(_numbers)}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with self._log.open("wb") as output:
            super().__init__(
                [sys.executable, "-m", self.module, *command], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env={**clean, **environment},
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self, prefix: str) -> str:
        """The first line that begins so."""

        def found() -> str | None:
            assert self.poll() is None, self.log
            return next((line for line in self.log.splitlines() if line.startswith(prefix)), None)

        return str(wait_until(found, f"{prefix!r} in {self._log.name}"))


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, url: str, standin: StandIn) -> Iterator[Start]:
    """Starts a process of the application; it ends with the test."""
    started: list[Process] = []

    def start(*command: str, **environment: str) -> Process:
        given = {"HOLDFAST_URL": url, "HOLDFAST_SYNCHRONOUS": "off", "HOLDFAST_GRACE": "2", **environment}
        started.append(Process(tmp_path, *command, **model_of(standin), **given))
        return started[-1]

    yield start
    stop(started)


def stop(started: list[Process]) -> None:
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for process in started:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"it did not stop:\n{process.log}") from None


@contextmanager
def serving(start: Start, *options: str, **environment: str) -> Iterator[httpx2.Client]:
    server = start("serve", "--port", "0", *options, **environment)
    limits = httpx2.Limits(max_connections=64)
    with httpx2.Client(base_url=server.said("http://"), timeout=60, limits=limits) as client:
        yield client


def workers_up(hf: Holdfast, number: int) -> None:
    wait_until(lambda: len(hf.workers()) == number, f"{number} workers")
