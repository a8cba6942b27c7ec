"""How long a job waits for its handler in each way to run workers: notified, polling, or drained by cron.

    HOLDFAST_URL=sqlite:////tmp/modes.db python -m bench.modes --minutes 2

Jobs come at irregular moments, one at a time. Each mode runs for so many minutes, and a drain for two of its periods at
least. Prints the table of docs/metrics.md."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.app import RECORD, hf, timed
from bench.workers import APP, environment

SETTLE = 3.0  # seconds until a worker that has started is idle


Running = subprocess.Popen[bytes]


class Mode(NamedTuple):
    """`period`: seconds between two polls or two drains; None: none is needed."""

    name: str
    stated: str
    period: float | None
    drain: bool = False


MODES = (
    Mode("a worker that is notified", "under 1 s", None),
    Mode("a worker that polls every 1.5 s", "1.5 s on average", 1.5),
    Mode("a worker that polls every 5 s", "up to 5-10 s", 5.0),
    Mode("a drain by cron, every 30 s", "15 s on average", 30.0, drain=True),
    Mode("a drain by cron, every minute", "30 s on average, up to 60 s", 60.0, drain=True),
)


def measure(mode: Mode, seconds: float) -> list[float]:
    """How long each job waited, in seconds."""
    with tempfile.TemporaryDirectory(prefix="holdfast-modes-") as directory:
        times = Path(directory) / "times"
        running = _drains(mode, times) if mode.drain else _worker(mode, times)
        with running as process:
            time.sleep(0.0 if mode.drain else SETTLE)
            until = time.monotonic() + (max(seconds, 2 * (mode.period or 0)) if mode.drain else seconds)
            count = 0
            while time.monotonic() < until:
                timed.enqueue(time.monotonic_ns())
                count += 1
                time.sleep(random.uniform(0.2, 1.0) * (mode.period or 0.5) / (10 if mode.drain else 1))  # noqa: S311
            while not times.exists() or times.stat().st_size < count * RECORD.size:
                if process.poll() is not None:
                    raise SystemExit(f"what runs the jobs ended with status {process.returncode}")
                time.sleep(0.1)
        return [(ran - asked) / 1e9 for asked, ran in RECORD.iter_unpack(times.read_bytes())]


@contextmanager
def _worker(mode: Mode, times: Path) -> Iterator[Running]:
    polls = {"HOLDFAST_LISTEN": "false", "HOLDFAST_POLL_BASE": str(mode.period), "HOLDFAST_POLL_MAX": str(mode.period)}
    with _running([sys.executable, "-m", "holdfast", "worker", APP], times, polls if mode.period else {}) as one:
        yield one


@contextmanager
def _drains(mode: Mode, times: Path) -> Iterator[Running]:
    """As cron does: in each period one, from its beginning on."""
    line = f"while true; do '{sys.executable}' -m holdfast drain {APP} & sleep {mode.period}; wait; done"
    with _running(["sh", "-c", line], times, {}) as one:
        yield one


@contextmanager
def _running(command: list[str], times: Path, more: dict[str, str]) -> Iterator[Running]:
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, env={**environment(times), **more}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)


def row(mode: Mode, waited: Sequence[float]) -> str:
    figures = (statistics.mean(waited), statistics.median(waited), max(waited))
    shown = " | ".join(f"{1000 * one:.0f} ms" if one < 1 else f"{one:.1f} s" for one in figures)
    return f"| {mode.name} | {shown} | {len(waited)} | {mode.stated} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="for each mode")
    parser.add_argument("--only", help="modes with this in their names")
    given = parser.parse_args()
    hf.migrate()
    print("| | mean | median | longest | jobs | stated |")
    print("|---|---|---|---|---|---|")
    for mode in MODES:
        if given.only is None or given.only in mode.name:
            print(row(mode, measure(mode, given.minutes * 60)), flush=True)
    hf.close()


if __name__ == "__main__":
    main()
