"""The page on testing: its files, written out and run by pytest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def files() -> dict[str, str]:
    """Each snippet begins with the name of its file."""
    found = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) == PAGE.read_text().count("```python")
    return dict(found)


def test_every_snippet_of_the_page_passes(tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"], cwd=tmp_path, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_a_retrying_task_is_tested_in_ten_lines() -> None:
    [body] = re.findall(r"def test_.*\n((?:    .*\n)+)", files()["test_mail.py"])
    assert len(body.splitlines()) <= 10


def test_the_message_on_the_page_is_the_message(tmp_path: Path) -> None:
    [shown] = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mail.py").write_text(files()["mail.py"])
    code = (
        "from datetime import UTC, datetime\nfrom holdfast import testing\nfrom mail import hf, send, sign_up\n"
        "with testing.store(hf, now=datetime(2026, 11, 16, 3, tzinfo=UTC)) as kit:\n"
        "    sign_up.enqueue('new@example.org', password='correct horse')\n    kit.run_due()\n"
        "    kit.assert_enqueued(send, to='you')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.stderr.endswith(shown), done.stderr
