"""An application's own database beside Holdfast."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples import databases
from tests.examples.processes import REPOSITORY, fresh_database

PROGRAMS = 8


@pytest.fixture
def url(engine: str, tmp_path: Path) -> Iterator[str]:
    with fresh_database(engine, tmp_path) as url:
        yield url


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
