"""The page on events, logs and secrets, run from top to bottom, and what it says compared with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import events
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "logging.md"
ENQUEUES = """
with testing.store(hf) as kit:
    send.using(correlation_id="req-7").enqueue("you")
    kit.run_due()
"""


def test_every_snippet_of_the_page_runs(tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(snippets) == 3
    (tmp_path / "page.py").write_text("\n".join([snippets[0], ENQUEUES, snippets[2]]))
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "*** was refused, using ***\n"
    assert "INFO sending to you job=1 attempt=1 for=req-7\n" in done.stderr
    assert "4111" not in done.stderr
    assert "k-12345" not in done.stderr


def test_the_listener_on_the_page_hears_of_every_job_of_a_worker_with_its_defaults(
    settings: Settings, tmp_path: Path
) -> None:
    [code] = re.findall(r"```python\n# metrics.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "metrics.py").write_text(code.replace('Holdfast("sqlite:///jobs.db")', "Holdfast()"))
    others = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    environment = {**others, "HOLDFAST_URL": settings.url, "HOLDFAST_SCHEMA": settings.schema}
    with closing(open_store(settings)) as store:
        store.schema.migrate()
    subprocess.run([sys.executable, "metrics.py"], cwd=tmp_path, env=environment, check=True, timeout=60)
    output = tmp_path / "output"
    with output.open("wb") as stdout:
        worker = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "worker", "metrics.py"], cwd=tmp_path, env=environment, stdout=stdout
        )

    def heard(name: str) -> list[str]:
        lines = [line for line in output.read_text().splitlines() if line.startswith(name)]
        return sorted(job for line in lines for job in re.findall(r"'([^']+)'", line))

    try:
        wait_until(lambda: len(heard("claimed")) >= 3 and len(heard("succeeded")) >= 3, "six words about three jobs")
    finally:
        worker.terminate()
        assert worker.wait(60) == 0
    assert len(set(heard("claimed"))) == 3
    assert heard("claimed") == heard("succeeded"), "each once"


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
