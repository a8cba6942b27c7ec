"""The scene of `make examples`, and the command line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.claim_check.application import REPOSITORY, Start, model_of
from tests.examples.claim_check.standin import StandIn


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("HOLDFAST_", "CLAIM_CHECK_", "PYTEST"))}
    return subprocess.run(
        [sys.executable, "-m", "examples.claim_check", *command], cwd=REPOSITORY, env={**clean, **environment},
        text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_scene_ends_well_and_counts_what_it_did(engine: str, url: str) -> None:
    done = run("scene", **({} if engine == "sqlite" else {"HOLDFAST_URL": url}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "200 submissions, 1 job, 1 call of the model." in done.stdout
    assert "on its second attempt" in done.stdout
    assert "failed for good: SCHEMA_VALIDATION_FAILED, 1 attempt" in done.stdout
    assert "6 answers at once" in done.stdout
    assert "6 done, 1 failed" in done.stdout
    assert "a stand-in answers" in done.stdout, "nobody shall think that a model did"
    assert done.stderr == ""


def test_a_claim_is_submitted_and_followed_from_the_command_line(start: Start, url: str, standin: StandIn) -> None:
    place = {"HOLDFAST_URL": url, **model_of(standin)}
    start("worker")
    submitted = run("submit", "--wait", "Works overnight.", **place)
    assert submitted.returncode == 0, submitted.stderr
    shown = json.loads(submitted.stdout)
    assert (shown["status"], shown["attempts"]) == ("done", 1)
    asked = run("status", shown["job_id"], shown["job_token"], **place)
    assert json.loads(asked.stdout) == shown
    wrong = run("status", shown["job_id"], shown["job_id"], **place)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "has no row" in wrong.stderr


def test_the_commands_of_operators_take_the_application_from_the_environment(url: str) -> None:
    set_up = run("submit", "Works overnight.", HOLDFAST_URL=url)
    assert set_up.returncode == 0, set_up.stderr
    place = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_APP": "examples.claim_check.app:hf"}
    for command, said in ((["doctor"], "analysis_jobs: table, triggers"), (["jobs", "list"], "analysis_jobs")):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *command], cwd=REPOSITORY, env=place, text=True, capture_output=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_without_a_model_nothing_starts(command: str, url: str) -> None:
    done = run(command, *(["--port", "0"] if command == "serve" else []), HOLDFAST_URL=url)
    assert done.returncode == 1
    assert "CLAIM_CHECK_MODEL_URL is the address of the model's API" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "said"), [("often", "MAX_ATTEMPTS is how often a job is tried"), ("0", "max_attempts")]
)
def test_a_wrong_number_of_attempts_is_named(tmp_path: Path, given: str, said: str) -> None:
    done = run("submit", "a claim", HOLDFAST_URL=f"sqlite:///{tmp_path}/claims.db", MAX_ATTEMPTS=given)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_port_that_is_taken_is_named(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--no-worker", "--port", port, HOLDFAST_URL=url)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"can't listen on 127.0.0.1, port {port}: Address already in use" in done.stderr
    assert "choose another with --host or --port" in done.stderr
    assert "Traceback" not in done.stderr
