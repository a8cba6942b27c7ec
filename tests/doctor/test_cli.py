"""`holdfast doctor`, run as a user and a deployment run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.doctor import CODES
from holdfast.settings import Settings
from tests.cli.shell import Shell
from tests.contract.places import raw


@pytest.fixture
def shell(tmp_path: Path, healthy: Settings) -> Shell:
    return Shell(tmp_path, healthy)


def test_a_healthy_database_passes_in_every_format(shell: Shell) -> None:
    done = shell("doctor")
    assert done.stdout.splitlines()[0].split()[:2] == ["ok", "HF4001"]
    assert "0 errors" in done.stderr
    found = json.loads(shell("doctor", "-o", "json").stdout)
    assert {finding["code"] for finding in found} <= set(CODES)
    assert set(found[0]) == {"code", "level", "found", "meaning", "fix"}
    assert {finding["level"] for finding in found} <= {"ok", "warning"}
    lines = shell("doctor", "app:hf", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["code"] for line in lines] == [finding["code"] for finding in found]


def test_an_error_gates_a_deployment_and_tells_the_fix(shell: Shell, healthy: Settings) -> None:
    with raw(healthy) as sql:
        sql("drop table {pauses}")
    done = shell("doctor", "app:hf", code=1)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("error")]
    assert "missing: table" in line
    assert "fix: Put it back: " in done.stdout
    found = json.loads(shell("doctor", "-o", "json", code=1).stdout)
    assert [finding["code"] for finding in found if finding["level"] == "error"] == ["HF4101"]


def test_warnings_count_where_that_is_asked_for(shell: Shell, healthy: Settings) -> None:
    with raw(healthy) as sql:
        sql("create index mine on {jobs} (state)")
    assert "HF4103" in shell("doctor").stdout
    shell("doctor", "--strict", code=1)


def test_an_unreachable_database_is_a_finding_not_a_traceback(shell: Shell, engine: str) -> None:
    url = "sqlite:///nowhere.db" if engine == "sqlite" else "postgresql://postgres@127.0.0.1:1/none"
    done = shell("doctor", "--url", url, code=1)
    assert done.stdout.split()[:2] == ["error", "HF4001"]
    assert "Traceback" not in done.stderr
