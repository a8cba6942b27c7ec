"""`holdfast ui`: the dashboard of any database."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.contract.places import raw
from tests.factories import a_queued_job


@contextmanager
def looking(shell: Shell, *arguments: str) -> Iterator[httpx2.Client]:
    said = shell.directory / "ui.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "ui", *arguments], cwd=shell.directory, env=shell.environment,
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        url = str(wait_until(lambda: process.poll() is not None or re.search(r"http://127\S+", said.read_text())))
        assert process.poll() is None, said.read_text()
        [url] = re.findall(r"http://127\S+", said.read_text())
        with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield client
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, said.read_text()
    finally:
        process.kill()
        process.wait()


def files(place: Path) -> set[str]:
    """Without SQLite's log, which whoever opens a file may leave beside it."""
    return {path.name for path in place.iterdir()} - {"jobs.db-wal", "jobs.db-shm", "ui.log"}


def test_it_looks_at_a_database_without_its_application_and_changes_nothing(shell: Shell, kept: Store) -> None:
    a_queued_job(kept, queue="mail")
    (shell.directory / "app.py").unlink()
    before = files(shell.directory)
    with looking(shell) as client:
        page = client.get("/queues")
        assert (page.status_code, "mail" in page.text) == (200, True)
        assert 'method="post"' not in page.text
        refused = client.post("/queues/pause", data={"queue": "mail"})
        assert refused.status_code == 403
        assert client.post("/v1/pauses", json={"kind": "queue", "name": "mail"}).status_code == 403
    assert kept.pauses.all() == []
    assert files(shell.directory) == before


def test_a_key_makes_nobody_more_than_a_viewer(shell: Shell, kept: Store) -> None:
    key = kept.credentials.add_key("ops", "admin")
    with looking(shell) as client:
        for headers in ({"Cookie": f"holdfast_key={key}"}, {"Authorization": f"Bearer {key}"}):
            assert client.post("/queues/pause", data={"queue": "mail"}, headers=headers).status_code == 403


def test_it_operates_when_asked_to(shell: Shell, kept: Store) -> None:
    a_queued_job(kept, queue="mail")
    with looking(shell, "--operate") as client:
        assert 'method="post"' in client.get("/queues").text
        done = client.post("/queues/pause", data={"queue": "mail", "back": "/queues"})
        assert done.status_code == 303
        [pause] = kept.pauses.all()
        assert pause.name == "mail"


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_it_creates_no_file_and_migrates_none(shell: Shell, tmp_path: Path) -> None:
    before = set(shell.directory.iterdir())
    refused = shell("ui", "sqlite:///none.db", code=2)
    assert "HF1109" in refused.stderr
    assert set(shell.directory.iterdir()) == before
    (shell.directory / "empty.db").touch()
    refused = shell("ui", "sqlite:///empty.db", code=6)
    assert "has no Holdfast tables" in refused.stderr
    assert (shell.directory / "empty.db").stat().st_size == 0
    assert set(shell.directory.iterdir()) - before == {shell.directory / "empty.db"}


def test_a_schema_of_another_version_is_named(shell: Shell, kept: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("update {meta} set version = 0")
    refused = shell("ui", code=6)
    assert "is at 0, this version needs" in refused.stderr


def test_two_databases_are_one_too_many(shell: Shell) -> None:
    assert "which one?" in shell("ui", "sqlite:///a.db", "--url", "sqlite:///b.db", code=2).stderr
