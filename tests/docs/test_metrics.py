"""The page on health, metrics and alerts: its commands, with another port, as its own may be taken; and the names that
it explains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.modes import MODES
from holdfast.model.metrics import Measured, Metrics
from holdfast.prometheus import families
from tests.docs.snippets import ROOT, snippets
from tests.waiting import wait_until

PAGE = ROOT / "docs" / "metrics.md"
PORT = "127.0.0.1:8081"
REST = {"at", "workers", "unhealthy_workers", "alerts"}  # of the document, but no metrics


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Where the worker of the page answers."""
    [app] = [snippet for snippet in snippets(PAGE) if snippet.file == "app.py"]
    (tmp_path / "app.py").write_text(app.code)
    [line] = re.findall(r"^\$ holdfast (worker .*)$", PAGE.read_text(), re.MULTILINE)
    with (tmp_path / "said.log").open("w") as said:
        worker = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *line.replace(PORT, "127.0.0.1:0").split()], cwd=tmp_path, stderr=said
        )
    try:
        found = wait_until(lambda: re.search(r"http://(\S+)/health", (tmp_path / "said.log").read_text()))
        assert found
        yield found[1]
    finally:
        worker.terminate()
        worker.wait(60)


def test_the_commands_of_the_page_print_what_it_shows(address: str, tmp_path: Path) -> None:
    shown = re.findall(r"^\$ holdfast (health.*)\n(.*)$", PAGE.read_text(), re.MULTILINE)
    assert shown
    for line, printed in shown:

        def done(line: str = line) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "holdfast", *line.split(), "--http", address], cwd=tmp_path, text=True,
                capture_output=True, check=False, env=dict(os.environ),
            )  # fmt: skip

        wait_until(lambda printed=printed: done().stdout.strip() == printed, line)  # type: ignore[misc]


def test_the_page_explains_every_metric_and_no_other() -> None:
    [(table, also)] = re.findall(r"^(\| name \|.*?)\n\nPrometheus also reads (.*?)$", PAGE.read_text(), re.M | re.S)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [name for name, *_ in rows] == [f"`{name}`" for name in Metrics.__struct_fields__ if name not in REST]

    now = datetime.now(UTC)
    exported = {
        family.name.removeprefix("holdfast_") + "_total" * (family.type == "counter")
        for family in families(Measured(now, [], [], [], [], now, []))
    }
    assert set(re.findall(r"`(\w+)`", " ".join([*(last for *_, last in rows), also]))) == exported


def test_the_table_of_latencies_is_of_the_modes_that_are_measured() -> None:
    rows = re.findall(r"^\| (a .*?) \|.*\| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(mode.name, mode.stated) for mode in MODES]
