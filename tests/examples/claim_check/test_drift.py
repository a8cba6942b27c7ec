"""The table changes under the program, as it once did: its second processor broke over other words, columns, tables and
a claim function of another name, and nobody was told. `holdfast doctor` tells of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.doctor import Finding, Level
from tests.adopt.systems.database import Database
from tests.examples.claim_check.application import REPOSITORY, status, submit
from tests.http.asking import Ask


class Drift(NamedTuple):
    said: str
    made: tuple[str, ...]
    mended: tuple[str, ...]
    code: str = "HF4501"
    only_on: str = ""


def renamed(old: str, new: str) -> Drift:
    rename = "alter table analysis_jobs rename column {} to {}"
    return Drift(old, (rename.format(old, new),), (rename.format(new, old),))


def words(allowed: str) -> tuple[str, ...]:
    check = "analysis_jobs_status_check"
    return (
        f"alter table analysis_jobs drop constraint {check}",
        f"alter table analysis_jobs add constraint {check} check (status in ({allowed})) not valid",
    )


TABLE = (REPOSITORY / "examples/claim_check/schema_sqlite.sql").read_text().partition(";")[0]
DRIFTS = {
    "statuses were renamed": Drift(
        "running", words("'queued', 'processing', 'completed', 'failed'"),
        words("'queued', 'running', 'done', 'failed'"), only_on="postgres",
    ),
    "the status column was renamed": renamed("status", "state"),
    "the time of the claim was renamed": renamed("claimed_at", "started_at"),
    "the input was renamed": renamed("input_value", "product_input"),
    "the key was renamed": renamed("cache_key", "fingerprint"),
    "the token was renamed": renamed("job_token", "user_id"),
    "the result was renamed": renamed("result_json", "analysis_result"),
    "a column was dropped": Drift(
        "perplexity_latency_ms", ("alter table analysis_jobs drop column perplexity_latency_ms",),
        ("alter table analysis_jobs add column perplexity_latency_ms int",),
    ),
    "the table was renamed": Drift(
        "analysis_jobs", ("alter table analysis_jobs rename to analysis_results",),
        ("alter table analysis_results rename to analysis_jobs",),
    ),
    "the table was dropped": Drift("analysis_jobs", ("drop table analysis_jobs",), ()),
    "the table was built anew, with other statuses": Drift(
        "running", ("drop table analysis_jobs", TABLE.replace("'running', 'done'", "'processing', 'completed'")), (),
        only_on="sqlite",
    ),
    "the claim function was renamed": Drift(
        "claim_next_job", ("alter function claim_next_job rename to acquire_next_job",),
        ("alter function acquire_next_job rename to claim_next_job",), "HF4601", "postgres",
    ),
    "the claim function takes something else": Drift(
        "claim_next_job",
        (
            "drop function claim_next_job",
            "create function claim_next_job(worker text) returns int language sql as 'select 1'",
        ),
        (), "HF4601", "postgres",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DRIFTS)
def test_the_doctor_tells_of_it(name: str, engine: str, hf: Holdfast, ask: Ask, sql: Database) -> None:
    drift = DRIFTS[name]
    if drift.only_on not in ("", engine):
        pytest.skip(f"this is how it happens on {drift.only_on}")
    job = submit(ask, text="a claim")
    assert problems(hf) == []
    for statement in drift.made:
        sql.changed(statement)
    found = problems(hf)
    assert [one.found for one in found if one.code == drift.code and drift.said in one.found], found
    for statement in drift.mended:
        sql.changed(statement)
    if drift.mended:
        # What fits is worked again. A table that was rebuilt or renamed gets its triggers back.
        hf.adopted["analysis_jobs"].install()
        assert problems(hf) == []
        hf.drain()
        assert status(ask, job)["status"] == "done"


def problems(hf: Holdfast) -> list[Finding]:
    return [finding for finding in hf.doctor() if finding.level is Level.ERROR]


@pytest.mark.parametrize("drift", [None, "a column was dropped"])
def test_the_command_gates_a_deployment(drift: str | None, hf: Holdfast, url: str, sql: Database) -> None:
    for statement in DRIFTS[drift].made if drift else ():
        sql.changed(statement)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "examples.claim_check.app:hf", "-o", "json"], cwd=REPOSITORY,
        env={**os.environ, "HOLDFAST_URL": url, "HOLDFAST_SYNCHRONOUS": "full"}, text=True, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    errors = [finding["code"] for finding in json.loads(done.stdout) if finding["level"] == "error"]
    assert (done.returncode, set(errors)) == ((1, {"HF4501"}) if drift else (0, set()))
