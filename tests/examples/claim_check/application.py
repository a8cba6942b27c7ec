"""The application on a database of its own, with the stand-in for its model, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.claim_check import app, database
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.claim_check.standin import StandIn
from tests.examples.processes import REPOSITORY, STARTING, Start, fresh_database, starting
from tests.http.asking import Ask
from tests.waiting import wait_until

__all__ = ["REPOSITORY", "Start"]

OLD_CLAIM = "select * from claim_next_job()"


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    with fresh_database(engine, tmp_path) as url:
        yield url


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


@pytest.fixture
def start(tmp_path: Path, url: str, standin: StandIn) -> Iterator[Start]:
    with starting("examples.claim_check", tmp_path, url, model_of(standin)) as start:
        yield start


@contextmanager
def serving(start: Start, *options: str, **environment: str) -> Iterator[httpx2.Client]:
    server = start("serve", "--port", "0", *options, **environment)
    limits = httpx2.Limits(max_connections=64)
    with httpx2.Client(base_url=server.said("http://"), timeout=60, limits=limits) as client:
        yield client


def workers_up(hf: Holdfast, number: int) -> None:
    wait_until(lambda: len(hf.workers()) == number, f"{number} workers", timeout=STARTING)
