"""The application on a database of its own, in this process and in others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.crawl import app
from examples.crawl.database import Database
from holdfast import Holdfast, Job
from tests.examples.claim_check.application import url
from tests.examples.crawl.site import Site
from tests.examples.processes import Process, Start, starting
from tests.waiting import wait_until

__all__ = ["Process", "Start", "url"]

HASTE = {"CRAWL_ALLOW_PRIVATE": "1", "CRAWL_FIRST_RETRY": "0.05", "CRAWL_TIMEOUT": "1"}
# A worker beats, looks and lets go soon; the preset's own numbers are ten seconds, a minute, two minutes.
HASTY_WORKER = {
    "HOLDFAST_POLL_BASE": "0.1", "HOLDFAST_POLL_MAX": "0.1", "HOLDFAST_HEARTBEAT": "0.2", "HOLDFAST_GRACE": "5",
    "HOLDFAST_SYNCHRONOUS": "off",
}  # fmt: skip


@pytest.fixture
def hf(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """The application, set up on a fresh database. Its jobs are run by `hf.drain()`."""
    for name, value in HASTE.items():
        monkeypatch.setenv(name, value)
    before = app.hf.settings
    app.hf.reconfigure(url=url, synchronous="off", grace=5.0)
    app.set_up()
    yield app.hf
    app.hf.close()
    app.hf.settings = before


@pytest.fixture
def db(hf: Holdfast, url: str) -> Iterator[Database]:
    """What others see."""
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def start(tmp_path: Path, hf: Holdfast, url: str) -> Iterator[Start]:
    with starting("examples.crawl", tmp_path, url, {**HASTE, **HASTY_WORKER}) as start:
        yield start


def crawl(site: Site, path: str = "/", **options: Any) -> Job[None]:
    return app.submit(site.url + path, **{"delay": 0.0, **options})


def stored(db: Database, job: Job[None]) -> dict[str, str]:
    """The path of each stored page, and the digest of its content."""
    assert job.source_id is not None
    rows = db.rows("select url, sha256 from crawl_pages where crawl_id = :id", id=job.source_id)
    found = {"/" + row["url"].split("/", 3)[3]: row["sha256"] for row in rows}
    assert len(found) == len(rows)
    return found


def ended(db: Database, job: Job[None]) -> dict[str, tuple[str, str | None]]:
    """What became of each address that is no stored page: its state, and why."""
    rows = db.rows(
        "select url, state, reason from crawl_urls where crawl_id = :id and state <> 'done' and kind = 'page'",
        id=job.source_id,
    )
    return {"/" + row["url"].split("/", 3)[3]: (row["state"], row["reason"]) for row in rows}


def word(db: Database, job: Job[None]) -> str:
    return str(db.value("select status from crawl_jobs where id = :id", id=job.source_id))


def await_word(db: Database, job: Job[None], *words: str, timeout: float = 60.0) -> str:
    wait_until(lambda: word(db, job) in words, f"the crawl to be {' or '.join(words)}", timeout=timeout)
    return word(db, job)


def environment(url: str) -> dict[str, str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("HOLDFAST_", "CRAWL_", "PYTEST"))}
    return {**clean, **HASTE, "HOLDFAST_URL": url}
