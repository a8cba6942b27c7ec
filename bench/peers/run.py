"""One contender at work on a fresh database. Its processes have sessions of their own and end with the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.contenders import Contender
from bench.peers.databases import Database
from bench.peers.tally import Tally, read_tally

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
GRACE = 5.0  # seconds a worker gets to stop by itself
FEW, TRIES = 20, 20  # jobs until each of several idle workers got one


class RunFailed(Exception):
    """A contender did not get there; the message says how far it came."""


@dataclass(frozen=True)
class Bench:
    """What all runs share: how each contender is called, and where they may write."""

    home: Path
    commands: Mapping[tuple[str, str], list[str]]


class Run:
    def __init__(self, bench: Bench, contender: Contender, database: Database, place: Path, tuning: str) -> None:
        self.contender = contender
        self.database = database
        self.place = place
        self._command = bench.commands[contender.engine, contender.name]
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
            "HOLDFAST_URL": database.url,
            "BENCH_URL": database.url,
            "BENCH_RUN": str(place),
            "BENCH_TUNING": tuning,
            "BENCH_HOME": str(bench.home / contender.name),
        }
        self.workers: list[subprocess.Popen[bytes]] = []

    def ask(self, command: str, *arguments: int) -> dict[str, Any]:
        """Have the adapter do something and say what it measured."""
        asked = [*self._command, command, *map(str, arguments)]
        try:
            done = subprocess.run(
                asked, env=self._environment, cwd=self.place, capture_output=True, text=True, timeout=PATIENCE,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{command} took longer than {PATIENCE:g} s") from None
        if done.returncode:
            raise RunFailed(f"{command} failed: {done.stderr.strip()[-800:]}")
        return dict(json.loads(done.stdout)) if done.stdout.strip() else {}

    def start_worker(self) -> subprocess.Popen[bytes]:
        with (self.place / "log").open("ab") as log:
            worker = subprocess.Popen(
                [*self._command, "work"], env=self._environment, cwd=self.place, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self.workers.append(worker)
        return worker

    def start_ready_workers(self, count: int) -> None:
        """Workers each of which has run a job already."""
        for _ in range(count):
            self.start_worker()
        sent = 0
        for _ in range(TRIES):
            sent += self.ask("bulk", FEW)["jobs"]
            self.wait_until(lambda: self.tally().count >= sent, "ran its first jobs")  # noqa: B023 - waited for here
            if self.tally().processes >= count:
                return
        raise RunFailed(f"after {sent} jobs not each of {count} workers had run one")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Meanwhile its workers stand still, and afterwards go on at the same moment."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, number)

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """As kill -9 would, the processes it started included."""
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.workers.remove(worker)

    def stop(self) -> None:
        for worker in self.workers:
            worker.terminate()
        deadline = time.monotonic() + GRACE
        for worker in list(self.workers):
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, deadline - time.monotonic()))
            self.kill(worker)

    def tally(self) -> Tally:
        return read_tally(self.place)

    def pending(self) -> bool:
        return self.database.any_row(self.contender.pending)

    def wait_until(self, reached: Callable[[], bool], goal: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not reached():
            if any(worker.poll() is not None for worker in self.workers):
                raise RunFailed(f"a worker ended before it {goal}: {self._log()}")
            if time.monotonic() > deadline:
                raise RunFailed(f"it had not {goal} after {patience:g} s; {self.tally().count} jobs ran: {self._log()}")
            time.sleep(0.004)

    def cpu_seconds(self) -> float | None:
        """What its workers have used, with the processes they started; None where /proc doesn't tell."""
        sessions = {worker.pid for worker in self.workers}
        ticks = [ticks for session, ticks in _processes() if session in sessions]
        return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None

    def _log(self) -> str:
        return (self.place / "log").read_text(errors="replace").strip()[-800:]


def _processes() -> Iterator[tuple[int, int]]:
    """Session and CPU ticks of every process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(") ")[2].split()
            yield int(fields[3]), int(fields[11]) + int(fields[12])


@contextmanager
def stopping(run: Run) -> Iterator[Run]:
    try:
        yield run
    finally:
        run.stop()
