from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_demonstration_kills_a_worker_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "demo", "--jobs", "1500", "--keep", str(tmp_path / "demo.db")],
        text=True, capture_output=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    figures = {line.split()[0]: int(line.split()[1].replace(",", "")) for line in _summary(done.stdout)}
    assert figures["accepted"] > 1400
    assert figures["succeeded"] + figures["failed"] == figures["accepted"]
    assert figures["failed"] > 0
    assert figures["retried"] > 0
    assert figures["recovered"] > 0
    assert figures["lost"] == figures["doubled"] == 0
    assert "kill -9" in done.stdout
    assert "its result was there at once" in done.stdout


def test_the_demonstration_fails_if_a_job_was_lost(tmp_path: Path) -> None:
    """The summary is counted from the database: a row that vanished is noticed."""
    code = (
        "import sqlite3, sys\n"
        "from pathlib import Path\n"
        "from holdfast.demo import show\n"
        "class Robbed(show.Demo):\n"
        "    def _enqueue_same_key(self):\n"
        "        with sqlite3.connect(self._path) as db:\n"
        "            db.execute('delete from holdfast_jobs where id = 7')\n"
        "        db.close()\n"
        "show.Demo = Robbed\n"
        f"sys.exit(show.run(300, Path({str(tmp_path / 'demo.db')!r})))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, timeout=180, check=False)
    assert done.returncode == 1, done.stdout + done.stderr


def _summary(output: str) -> list[str]:
    return [line for line in output.partition("counted from the database:")[2].splitlines() if line.startswith("  ")]
