"""The scene of `make examples`."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.examples.claim_check.application import REPOSITORY


def test_the_scene_ends_well_and_counts_what_it_did(engine: str, url: str) -> None:
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("HOLDFAST_", "CRAWL_", "PYTEST"))}
    place = {"HOLDFAST_SYNCHRONOUS": "off"} if engine == "sqlite" else {"HOLDFAST_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", "examples.crawl", "scene"], cwd=REPOSITORY, env={**clean, **place},
        text=True, capture_output=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "completed: 250 pages, each once; 1 dead link" in done.stdout
    assert "2 crashes; 0 pending." in done.stdout
    assert done.stderr == ""
