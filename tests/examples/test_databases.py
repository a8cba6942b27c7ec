"""An application's own database beside Holdfast."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples import databases
from holdfast import HoldfastError
from tests.examples.processes import REPOSITORY, fresh_database

PROGRAMS = 8
EXAMPLES = ["claim_check", "crawl", "site_audit"]


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    with fresh_database(engine, tmp_path) as url:
        yield url


@contextmanager
def application(example: str, url: str) -> Iterator[Any]:
    """Its module `app`, which is to use this database for a while."""
    app = importlib.import_module(f"examples.{example}.app")
    before = app.hf.settings
    app.hf.reconfigure(url=url)
    try:
        yield app
    finally:
        app.hf.close()
        app.hf.settings = before


def test_programs_that_start_together_may_all_create_the_tables(url: str) -> None:
    together = threading.Barrier(PROGRAMS)

    def start(program: int) -> None:
        together.wait(20)
        databases.create(url, REPOSITORY / "examples/claim_check")

    with ThreadPoolExecutor(PROGRAMS) as programs:
        list(programs.map(start, range(PROGRAMS)))
    with databases.connect(url) as db:
        assert db.execute("select count(*) from analysis_jobs").fetchone()[0] == 0


def test_each_statement_is_committed(url: str) -> None:
    with databases.connect(url) as db:
        db.execute("create table words (word text)")
        db.execute("insert into words values ('kept')")
        with databases.connect(url) as other:
            assert other.execute("select word from words").fetchone()[0] == "kept"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_is_checkpointed_by_holdfast_only(url: str) -> None:
    """Old SQLite libraries may corrupt a file that others checkpoint, too."""
    with databases.connect(url) as db:
        assert db.execute("pragma wal_autocheckpoint").fetchone()[0] == 0


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("postgresql://me:secret@127.0.0.1:1/none", "can't reach postgresql://me:\\*\\*\\*@127.0.0.1:1/none"),
        ("mysql://me:secret@db.example/none", "'mysql://me:\\*\\*\\*@db.example/none' is not one of sqlite:///file.db"),
        ("sqlite:////no/such/directory/file.db", "the directory /no/such/directory does not exist"),
    ],
)
def test_a_database_that_is_not_there_is_named(example: str, place: str, said: str) -> None:
    """As Holdfast says it, and not as the driver does, which repeats passwords."""
    with application(example, place) as app, pytest.raises(HoldfastError, match=said):
        app.set_up()


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_is_readable_by_its_owner_only(example: str, url: str) -> None:
    with application(example, url) as app:
        app.set_up()
    assert Path(url.removeprefix("sqlite:///")).stat().st_mode & 0o077 == 0
