"""What can be wrong with a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.doctor import Level, examine, sqlite
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.doctor.examined import only
from tests.factories import new_job

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])


def test_a_file_that_is_not_there_is_an_error_and_is_not_made(settings: Settings, tmp_path: Path) -> None:
    finding = only(settings)
    assert (finding.code, finding.level) == ("HF4001", Level.ERROR)
    assert "there is no file" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_database_is_an_error(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_text("not a database, by far not: " * 100)
    finding = only(settings)
    assert finding.code == "HF4001"
    assert "is not a SQLite database" in finding.found


def test_a_directory_is_no_file(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    assert "is a directory" in only(settings).found
    assert only(replace(settings, url="sqlite://host/jobs.db")).code == "HF4001"


def test_a_network_file_system_is_an_error(healthy: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "file_system_of", lambda path: "nfs4")
    finding = only(healthy)
    assert (finding.code, finding.level) == ("HF4401", Level.ERROR)
    assert "(nfs4)" in finding.found


def test_a_log_that_a_reader_holds_up_is_told(healthy: Settings, path: Path) -> None:
    store = open_store(replace(healthy, synchronous="off"))
    with closing(store), closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from holdfast_jobs").fetchone()
        for chunk in store.enqueue_many(new_job(args=b'"' + b"x" * 1000 + b'"', delay=3600.0) for _ in range(2000)):
            assert chunk
        finding = only(healthy, log=1_000_000)
        assert (finding.code, finding.level) == ("HF4402", Level.WARNING)


def test_another_journal_mode_is_told(healthy: Settings, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma journal_mode = delete").fetchone() == ("delete",)
    finding = only(healthy)
    assert (finding.code, finding.level) == ("HF4403", Level.WARNING)
    assert "delete" in finding.found
    store = open_store(healthy)
    store.schema.migrate()
    store.close()
    assert "WAL" in next(one.found for one in examine(healthy) if one.code == "HF4403"), "the fix is a fix"


@pytest.mark.parametrize("setting", ["normal", "off"])
def test_commits_that_do_not_wait_for_the_disk_are_told(healthy: Settings, setting: str) -> None:
    finding = only(replace(healthy, synchronous=setting))
    assert (finding.code, finding.level) == ("HF4404", Level.WARNING)
    assert setting in finding.found


def test_a_disk_that_is_nearly_full_is_told(healthy: Settings) -> None:
    finding = only(healthy, disk_low=10**18)
    assert (finding.code, finding.level) == ("HF4405", Level.WARNING)
    finding = only(healthy, disk_full=10**18)
    assert (finding.code, finding.level) == ("HF4405", Level.ERROR)
