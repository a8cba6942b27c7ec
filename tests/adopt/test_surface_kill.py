"""Real workers on an adopted table, ended by SIGKILL in the middle: rows go back to waiting, and each is done once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.adopt.legacy import MAPPED, Legacy
from tests.waiting import wait_until

APP = """
import os, time
from pathlib import Path
from holdfast import Holdfast, JobContext

hf = Holdfast()
home = Path(__file__).parent
audits = hf.adopt({table!r}, **{mapping!r})


@audits.task(retry=0)
def analyse(ctx: JobContext, row: dict) -> dict:
    with (home / "ledger").open("a") as ledger:
        ledger.write(f"start {{row['id']}}\\n")
    while not (home / "go").exists():
        time.sleep(0.01)
    with (home / "ledger").open("a") as ledger:
        ledger.write(f"done {{row['id']}}\\n")
    return {{"score": row["id"]}}
"""
PATIENCE = 60.0


class Workers:
    def __init__(self, app: Holdfast, home: Path) -> None:
        self._home = home
        settings = app.settings
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")} | {
            "HOLDFAST_URL": settings.url, "HOLDFAST_SCHEMA": settings.schema, "HOLDFAST_LEASE": "4",
            "HOLDFAST_HEARTBEAT": "1", "HOLDFAST_CONCURRENCY": "4", "HOLDFAST_THREADS": "4",
        }  # fmt: skip

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        log = (self._home / "log").open("ab")
        command = [sys.executable, "-m", "holdfast", "worker", str(self._home / "app.py")]
        with log, subprocess.Popen(command, env=self._environment, stdout=log, stderr=log) as process:
            try:
                yield process
            finally:
                process.kill()

    def traces(self, what: str) -> Counter[str]:
        ledger = self._home / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return Counter(line.split()[1] for line in lines if line.startswith(what))


@pytest.mark.parametrize("killed", [1, 2])
def test_a_killed_workers_rows_are_done_once(hf: Holdfast, legacy: Legacy, tmp_path: Path, killed: int) -> None:
    given: Any = MAPPED
    (tmp_path / "app.py").write_text(APP.format(table=legacy.table, mapping=given))
    hf.adopt(legacy.table, **given).install()
    workers = Workers(hf, tmp_path)
    ids = [legacy.insert(f"https://{n}.example") for n in range(3)]
    with ExitStack() as stack:
        victims = [stack.enter_context(workers.started()) for _ in range(killed)]
        ids += [legacy.insert("https://later.example")]
        wait_until(lambda: len(workers.traces("start")) == 4, timeout=PATIENCE)
        assert {legacy.word(id) for id in ids} == {"processing"}
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        stack.enter_context(workers.started())
        wait_until(lambda: all(count >= 2 for count in workers.traces("start").values()), timeout=PATIENCE)
        (tmp_path / "go").touch()
        wait_until(lambda: {legacy.word(id) for id in ids} == {"completed"}, timeout=PATIENCE)
    assert [legacy.row(id)["score"] for id in ids] == ids
    assert all(legacy.row(id)["worker_id"] is None for id in ids)
    assert set(workers.traces("done").values()) == {1}
