"""`holdfast bench`: a small run on each database, and nothing left of it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import psycopg
import pytest

from holdfast.cli import bench, cli
from holdfast.cli.bench_app import hf
from tests.servers import shared_postgres

COMMAND = ("bench", "--jobs", "100", "--rounds", "2")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PICKUPS", 3)
    monkeypatch.setattr(bench, "LOOK_EVERY", 0.02)
    monkeypatch.setattr(hf, "settings", hf.settings)


def run(*options: str) -> None:
    cli([*COMMAND, *options], standalone_mode=False)


def possible(printed: str) -> None:
    figures = json.loads(printed)
    assert figures["jobs"] == 100
    for name in bench.NAMES:
        assert 0 < figures[name]["min"] <= figures[name]["median"] <= figures[name]["max"] < 1e7


def test_beside_a_file_every_figure_is_printed_and_the_file_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "jobs.db"
    there.write_bytes(b"mine")
    run("--url", f"sqlite:///{there}", "-o", "json")
    possible(capfd.readouterr().out)
    assert list(tmp_path.iterdir()) == [there]
    assert there.read_bytes() == b"mine"


def test_without_a_url_a_temporary_file_is_used_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    run()
    printed = capfd.readouterr().out
    assert all(name in printed for name in bench.NAMES.values())
    assert list(tmp_path.glob("holdfast-bench-*")) == []


def test_on_postgres_it_leaves_no_schema(capfd: pytest.CaptureFixture[str]) -> None:
    query = "select nspname from pg_namespace where nspname = %s"
    run("--url", shared_postgres(), "-o", "json")
    possible(capfd.readouterr().out)
    assert hf.settings.schema.startswith("bench_")
    with psycopg.connect(shared_postgres()) as db:
        assert db.execute(query, (hf.settings.schema,)).fetchall() == []
