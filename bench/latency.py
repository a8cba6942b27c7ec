"""How long a job takes from the call of enqueue to its handler: alone, and under a steady load."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.app import PAD, RECORD, batch, hf, noop, timed
from bench.workers import WorkerProcess, all_up, wait_until, working

PICKUP_EVERY = 0.04  # seconds
BATCH, BATCH_SECONDS = 3000, 0.25  # jobs beside those that somebody waits for, and how long each takes
SPREAD = 0.618  # of that, by which the calls are moved against each other, so that they keep no step with any poll


class Load:
    """Enqueues `timed` jobs and knows how long each took."""

    def __init__(self, times: Path, workers: Sequence[WorkerProcess]) -> None:
        self._times = times
        self.workers = workers
        self.enqueued = 0

    def enqueue(self) -> None:
        timed.enqueue(time.monotonic_ns())
        self.enqueued += 1

    def steadily(self, rate: float, seconds: float) -> float:
        """Enqueue at this rate; returns the rate that was reached."""
        began = time.monotonic()
        count = 0
        while (due := began + count / rate) < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            self.enqueue()
            count += 1
        return count / max(seconds, time.monotonic() - began)

    def finished(self) -> list[tuple[int, float]]:
        """When each was asked for (nanoseconds) and how long it took (milliseconds), once all are done."""
        wait_until(lambda: self._count() >= self.enqueued, self.workers)
        records = RECORD.iter_unpack(self._times.read_bytes())
        return [(asked, (ended - asked) / 1e6) for asked, ended in records]

    def took(self, since: int) -> list[float]:
        return [ms for asked, ms in self.finished() if asked >= since]

    def _count(self) -> int:
        return self._times.stat().st_size // RECORD.size if self._times.exists() else 0


@contextmanager
def loaded() -> Iterator[Load]:
    """A worker that is up and has its plans made, and a load for it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        times = Path(directory) / "times"
        with working(times=times) as workers:
            all_up(workers)
            load = Load(times, workers)
            load.steadily(20, 1.0)
            load.finished()
            yield load


def pickup(load: Load, count: int) -> dict[str, float]:
    """Jobs one at a time, for a worker that has nothing else to do."""
    since = time.monotonic_ns()
    for n in range(count):
        load.enqueue()
        time.sleep(PICKUP_EVERY * (1 + (n * SPREAD) % 1))
    return percentiles(load.took(since), 50, 95, 99)


def under_load(load: Load, rate: float, seconds: float) -> dict[str, float]:
    since = time.monotonic_ns()
    reached = load.steadily(rate, seconds)
    return {"rate": reached, **percentiles(load.took(since), 50, 99)}


def run_now(count: int) -> dict[str, float]:
    """No-ops that somebody waits for, while the worker has a batch to do: from the call to the result."""
    hf.enqueue_many(batch.bind(BATCH_SECONDS) for _ in range(BATCH))
    try:
        noop.run_now(PAD, deadline=60)  # starts the slots
        took = []
        for n in range(count):
            began = time.monotonic()
            noop.run_now(PAD, deadline=60)
            took.append(1000 * (time.monotonic() - began))
            time.sleep(PICKUP_EVERY * (1 + (n * SPREAD) % 1))
    finally:
        hf.close()
    return percentiles(took, 50, 95, 99)


def percentiles(took: Sequence[float], *wanted: int) -> dict[str, float]:
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return {f"p{percent}": cuts[percent - 1] for percent in wanted}
