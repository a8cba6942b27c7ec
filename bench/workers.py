"""Plain `holdfast worker` processes with default settings, watched from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.app import TIMES, hf
from holdfast.errors import HoldfastError

APP = "bench.app:hf"
ROOT = Path(__file__).parents[1]  # where workers find this package
PATIENCE = 120.0  # seconds without any progress after which a run is given up
LOOK_EVERY = 0.1  # seconds


def environment(times: Path | None = None) -> dict[str, str]:
    """What a process of ours needs to know to work on the same target."""
    where = {"HOLDFAST_URL": hf.settings.url, "HOLDFAST_SCHEMA": hf.settings.schema}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, **where, "PYTHONPATH": path, **({} if times is None else {TIMES: str(times)})}


class WorkerProcess:
    """A worker and the processes it runs handlers in: what it takes, they take together."""

    def __init__(
        self, times: Path | None = None, processes: int | None = None, app: str = APP, **settings: int
    ) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        options = [] if processes is None else ["--processes", str(processes)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "holdfast", "worker", app, *options],
            env={**environment(times), **{f"HOLDFAST_{name.upper()}": str(v) for name, v in settings.items()}},
            stderr=self._said,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def must_live(self) -> None:
        if self._process.poll() is not None:
            self._said.seek(0)
            raise HoldfastError(f"the benchmark's worker ended: {self._said.read().decode(errors='replace')[-2000:]}")

    def _pids(self) -> list[int]:
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [self.pid, *(int(pid) for one in threads for pid in (one / "children").read_text().split())]

    def cpu_seconds(self) -> float:
        """The processes' CPU clocks; their numbers are made of the pids as clock_getcpuclockid(3) of Linux does."""
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids())

    def rss_mb(self) -> float:
        return sum(rss_mb(pid) for pid in self._pids())

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(PATIENCE)
        self._said.close()


@contextmanager
def working(
    count: int = 1, *, times: Path | None = None, processes: int | None = None, app: str = APP, **settings: int
) -> Iterator[Sequence[WorkerProcess]]:
    with ExitStack() as stack:
        workers = []
        for _ in range(count):
            workers.append(WorkerProcess(times, processes, app, **settings))
            stack.callback(workers[-1].stop)
        yield workers


def wait_until(condition: Callable[[], bool], workers: Sequence[WorkerProcess], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        for worker in workers:
            worker.must_live()
        if time.monotonic() > deadline:
            raise HoldfastError(f"the benchmark's workers did not get there within {patience:g} s")
        time.sleep(LOOK_EVERY)


def all_up(workers: Sequence[WorkerProcess]) -> None:
    wait_until(lambda: {worker.pid for worker in workers} <= {known.pid for known in hf.store.workers.all()}, workers)


def rss_mb(pid: int) -> float:
    """None of it is left of a process that has ended, before its parent asked how."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
