"""The page on events, logs and secrets, run from top to bottom, and what it says compared with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import events

PAGE = Path(__file__).parents[2] / "docs" / "logging.md"


def test_every_snippet_of_the_page_runs(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) == 3
    (tmp_path / "page.py").write_text("\n".join(snippets))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"1 by \S+: \['send'\]\n\*\*\* was refused, using \*\*\*\n", done.stdout)
    assert "INFO sending to you job=1 attempt=1 for=req-7\n" in done.stderr
    assert "4111" not in done.stderr
    assert "k-12345" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "environment"), [(["--log-format", "json"], {}), ([], {"HOLDFAST_LOG_FORMAT": "json"})]
)
def test_the_line_of_json_on_the_page_is_one_that_a_worker_writes(
    flags: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "app.py").write_text(
        "import logging\nfrom holdfast import Holdfast\nhf = Holdfast('sqlite:///jobs.db')\n"
        "@hf.task(queue='mail')\ndef send(to: str) -> None:\n"
        "    logging.getLogger('app.mail').warning('sending to %s', to)\n"
        "if __name__ == '__main__':\n    send.using(correlation_id='req-7').enqueue('you')\n"
    )
    subprocess.run([sys.executable, "app.py"], cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "drain", "app:hf", *flags], cwd=tmp_path, text=True, capture_output=True,
        timeout=60, check=True, env={**os.environ, **environment},
    )  # fmt: skip
    expected, written = json.loads(shown), json.loads(done.stderr)
    assert list(written) == list(expected)
    same = ("logger", "message", "task", "queue", "attempt", "correlation_id")
    assert {name: written[name] for name in same} == {name: expected[name] for name in same}


def test_every_verbs_event_is_on_the_page() -> None:
    rows = "\n".join(line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    assert set(events.VERBS.values()) <= set(re.findall(r"`(\w+)`", rows))
