"""The application on a database of its own, with sites on this machine, in this process and in others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.site_audit import app, database
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.processes import Start, fresh_database, starting
from tests.examples.site_audit.sites import Sites
from tests.http.asking import Ask
from tests.waiting import wait_until

ON_THIS_MACHINE = {"SITE_AUDIT_ALLOW_PRIVATE": "1", "SITE_AUDIT_BACKOFF": "0", "SITE_AUDIT_BROWSER": "none"}


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    with fresh_database(engine, tmp_path) as url:
        yield url


@pytest.fixture
def sites() -> Iterator[Sites]:
    with Sites() as sites:
        yield sites


@pytest.fixture
def hf(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """The application, set up on a fresh database. Its jobs are run by `hf.drain()`, in this process."""
    monkeypatch.setattr(app, "ALLOW_PRIVATE", True)
    monkeypatch.setenv("SITE_AUDIT_BROWSER", "none")  # unless a test is about it
    before = app.hf.settings
    app.hf.reconfigure(url=url, synchronous="off", grace=5.0, processes=0)
    app.set_up()
    yield app.hf
    app.hf.close()
    app.hf.settings = before


@pytest.fixture
def sql(engine: str, url: str, hf: Holdfast) -> Iterator[Database]:
    """A connection of the page that was there before."""
    db = Database(engine, url)
    yield db
    db.close()


@pytest.fixture
def ask(hf: Holdfast) -> Ask:
    from examples.site_audit.web import web

    return Ask(web)


@pytest.fixture
def start(tmp_path: Path, url: str, hf: Holdfast) -> Iterator[Start]:
    with starting("examples.site_audit", tmp_path, url, ON_THIS_MACHINE) as start:
        yield start


def analyze(ask: Ask, address: str) -> str:
    answer = ask.post("/api/audits", json={"url": address})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def document(ask: Ask, id: str) -> dict[str, Any]:
    answer = ask.get(f"/api/audits/{id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def row(sql: Database, id: str) -> dict[str, Any]:
    found = sql.row("select * from audits where id = :id", id=id)
    assert found is not None
    return found


def await_status(sql: Database, id: str, status: str) -> dict[str, Any]:
    wait_until(lambda: row(sql, id)["status"] == status, f"the audit to be {status}")
    return row(sql, id)


def inserted(url: str, address: str) -> str:
    return database.analyze(url, address)
