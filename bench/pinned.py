"""What an idle transaction elsewhere does to claims: it pins the horizon, so that nothing that dies can be cleaned away
while it lasts.

A steady load runs throughout. Claims are timed by a prober that enqueues, claims and finishes a job of its own task in
the same queue: the store's own claim, which walks past the remains of the load's jobs as the worker's claims do."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from bench.app import hf
from bench.latency import Load, loaded, percentiles
from bench.sizes import Sizes
from bench.target import PostgresTarget
from holdfast.model.job import NewJob, Wants
from holdfast.store.base import Ref

PROBE_EVERY = 0.1  # seconds
WINDOW = 60.0  # seconds, the longest, over which a percentile is taken
TASK = "probe"


class Probes:
    """Claims' own times, as (when, milliseconds)."""

    def __init__(self) -> None:
        self.took: list[tuple[int, float]] = []

    def probe(self) -> None:
        store = hf.store
        store.enqueue(NewJob(task=TASK, args=b"{}"))
        wants = Wants(fence=str(uuid.uuid4()), worker=TASK, tasks=(TASK,), limit=1, lease=60.0)
        began = time.monotonic_ns()
        [job] = store.attempts.claim(wants).jobs
        self.took.append((began, (time.monotonic_ns() - began) / 1e6))
        store.attempts.succeed(Ref(job.id, wants.fence))


def pinned_snapshot(target: PostgresTarget, sizes: Sizes) -> dict[str, float]:
    window = min(WINDOW, sizes.pinned_seconds / 2)
    with loaded() as load:
        with _busy(load, sizes.steady_rate) as probes:
            time.sleep(window)
            ends = {"baseline": time.monotonic_ns()}
            with psycopg.connect(target.url) as elsewhere:
                elsewhere.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                elsewhere.execute("select count(*) from pg_class")  # from here on it has a snapshot
                time.sleep(sizes.pinned_seconds)
                ends["pinned"] = time.monotonic_ns()
            time.sleep(sizes.recovery_seconds + window)
            ends["after"] = time.monotonic_ns()
        pickups = load.finished()
    figures = {}
    for name, end in ends.items():
        figures[f"{name}_p99_ms"] = _p99(probes.took, end, window)
        figures[f"{name}_pickup_p99_ms"] = _p99(pickups, end, window)
    figures["ratio"] = figures["pinned_p99_ms"] / figures["baseline_p99_ms"]
    figures["ratio_after"] = figures["after_p99_ms"] / figures["baseline_p99_ms"]
    return figures


@contextmanager
def _busy(load: Load, rate: float) -> Iterator[Probes]:
    probes = Probes()
    ended = threading.Event()
    failed: list[BaseException] = []

    def until_ended(step: Callable[[], object]) -> None:
        try:
            while not ended.is_set():
                step()
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    def enqueue() -> None:
        load.steadily(rate, 1.0)

    def probe() -> None:
        probes.probe()
        ended.wait(PROBE_EVERY)

    threads = [threading.Thread(target=until_ended, args=(step,)) for step in (enqueue, probe)]
    for thread in threads:
        thread.start()
    try:
        yield probes
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _p99(took: list[tuple[int, float]], end: int, window: float) -> float:
    """Over what began in the last `window` seconds before `end`."""
    return percentiles([ms for began, ms in took if end - window * 1e9 <= began <= end], 99)["p99"]
