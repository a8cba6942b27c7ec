"""The scene of `make examples`, and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from holdfast import Holdfast
from tests.examples.processes import REPOSITORY, Start
from tests.examples.site_audit.application import ON_THIS_MACHINE
from tests.examples.site_audit.sites import Sites


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("HOLDFAST_", "SITE_AUDIT_", "PYTEST"))}
    return subprocess.run(
        [sys.executable, "-m", "examples.site_audit", *command], cwd=REPOSITORY, env={**clean, **environment},
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_scene_ends_well_and_counts_what_it_did(engine: str, url: str) -> None:
    """On PostgreSQL it is played twice: the audits of the first time are still there."""
    for place in [{}] if engine == "sqlite" else [{"HOLDFAST_URL": url}] * 2:
        done = run("scene", **place)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "findings are gone, 0 are new" in done.stdout
        assert "the page itself was read 1 time" in done.stdout
        assert "Failed after 3 attempts, ever further apart: SITE_ERROR" in done.stdout
        assert "24 completed, 1 failed" in done.stdout
        assert done.stderr == ""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_site_is_audited_from_the_command_line(start: Start, hf: Holdfast, url: str, sites: Sites) -> None:
    place = {"HOLDFAST_URL": url, **ON_THIS_MACHINE}
    start("worker")
    done = run("analyze", "--wait", sites.good("/"), **place)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert (shown["status"], shown["site"]) == ("completed", f"{sites.url}/")
    assert json.loads(run("status", shown["id"], **place).stdout) == shown
    assert run("sites", "https://a.example", "https://B.example/x", **place).stdout.split() == [
        "https://a.example/", "https://b.example/x",
    ]  # fmt: skip
    assert run("sites", "--remove", "https://a.example", **place).stdout.split() == ["https://b.example/x"]
    for command in (["analyze", "ftp://a"], ["status", "none"]):
        wrong = run(*command, **place)
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert wrong.stderr.startswith("error: ")
        assert "Traceback" not in wrong.stderr
