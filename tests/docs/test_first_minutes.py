"""A new user's first five minutes: a fresh environment, nothing but the wheel, an empty directory, the quickstart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Session, snippets

PACKAGES = 20  # at most, with everything they need


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, and what it asks for, from the configured index."""
    place = tmp_path_factory.mktemp("first-minutes")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", str(place), str(ROOT)], text=True, capture_output=True, check=False
    )
    assert built.returncode == 0, built.stderr
    [wheel] = place.glob("holdfast-*.whl")
    venv.create(place / "env", symlinks=True)
    python = place / "env" / "bin" / "python"
    installed = subprocess.run(
        [*pip, "--python", str(python), "install", str(wheel)], text=True, capture_output=True, check=False
    )
    assert installed.returncode == 0, installed.stderr
    return place / "env"


def listed(environment: Path) -> list[str]:
    found = environment.glob("lib/python*/site-packages/*.dist-info")
    return sorted(path.name.partition("-")[0] for path in found)


def test_the_quickstart_runs_with_nothing_but_the_wheel(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to where it asks for a driver for PostgreSQL."""
    assert len(listed(environment)) <= PACKAGES
    assert "psycopg" not in listed(environment)
    directory = tmp_path / "empty"
    directory.mkdir()
    session = Session(directory, bin=environment / "bin")
    began = time.monotonic()
    try:
        page = [snippet for snippet in snippets(ROOT / "docs" / "quickstart.md") if "[postgres]" not in snippet.code]
        assert len(page) >= 6
        for snippet in page:
            session.run(snippet)
    finally:
        session.close()
    assert time.monotonic() - began < 60, "from the first line to the last"


def test_five_lines_of_code_and_two_commands() -> None:
    install, app, worker, enqueue, *_ = snippets(ROOT / "docs" / "quickstart.md")
    assert install.code.startswith("pip install")
    code = [line for line in app.code.splitlines() if line and not line.startswith("#")]
    assert len(code) == 5
    assert len(worker.code.splitlines()) == len(enqueue.code.splitlines()) == 1
    assert enqueue.expected == "Hello, world!\n"


def test_without_the_driver_postgresql_says_what_to_install(environment: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment / "bin" / "holdfast", "migrate", "--url", "postgresql://localhost/x"], cwd=tmp_path, text=True,
        capture_output=True, check=False, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'holdfast[postgres]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_wheel_holds_its_sql_and_its_types(environment: Path) -> None:
    [package] = environment.glob("lib/python*/site-packages/holdfast")
    assert (package / "py.typed").exists()
    ours = {path.relative_to(ROOT / "src" / "holdfast") for path in (ROOT / "src" / "holdfast").rglob("*.sql")}
    assert {path.relative_to(package) for path in package.rglob("*.sql")} == ours
