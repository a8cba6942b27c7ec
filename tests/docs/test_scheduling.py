"""The pages on scheduling and on resources, run from top to bottom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.cron import CATCH_UP, MOST_MISSED, ON_TIME

DOCS = Path(__file__).parents[2] / "docs"


def run(page: str, tmp_path: Path, check: str) -> str:
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (tmp_path / "page.py").write_text("\n".join([*snippets, check]))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_snippet_on_scheduling_runs(tmp_path: Path) -> None:
    check = (
        "assert (soon.refresh().state, later.refresh().result) == ('queued', 'reminded you')\n"
        "assert (stale.refresh().record.expires_at - stale.record.created_at).total_seconds() == 3600\n"
        "assert [cron.name for cron in hf.crons()] == ['report', 'sweep']\n"
        "assert not any(cron.paused for cron in hf.crons())\n"
    )
    _, *lines = run("scheduling.md", tmp_path, check).splitlines()
    assert lines[0].startswith("report 30 6 * * MON-FRI Europe/Berlin [datetime.datetime(")
    assert lines[-1] == "3 pages for the tick of None"


def test_every_snippet_on_resources_runs(tmp_path: Path) -> None:
    lines = run("resources.md", tmp_path, "").splitlines()
    assert lines == [
        "https://example.org/about 1",
        "a worker starts",
        "fails 3, attempt 1 of 1: ValueError('boom')",
        "a worker stops",
        "a worker starts",
        "bill succeeded",
        "a worker stops",
    ]


@pytest.mark.parametrize("word", CATCH_UP)
def test_every_way_to_catch_up_is_explained(word: str) -> None:
    text = (DOCS / "scheduling.md").read_text()
    assert f'`"{word}"`' in text
    assert f"the newest {MOST_MISSED}" in text
    assert (ON_TIME.total_seconds(), "more than a minute late" in text) == (60, True)
