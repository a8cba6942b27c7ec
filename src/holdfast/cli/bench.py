"""`bench`: how fast Holdfast is on the user's own machine and server. Every figure is measured with one plain
`holdfast worker`; `bench/` in the repository measures much more."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from holdfast.cli.base import cli, output_option, print_data, print_table, talk
from holdfast.errors import HoldfastError
from holdfast.model.job import DEFAULT_QUEUE
from holdfast.store.sqlite.connect import path_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast

PAD = "x" * 80
PICKUPS = 50
PICKUP_EVERY = 0.04  # seconds
PATIENCE = 120.0  # seconds after which a run is given up
LOOK_EVERY = 0.1  # seconds
NAMES = {
    "enqueue_one": "enqueue one at a time, jobs/s",
    "enqueue_many": "enqueue many, jobs/s",
    "drain": "drain, one worker, jobs/s",
    "pickup_p50_ms": "pick-up when idle, median, ms",
    "pickup_p99_ms": "pick-up when idle, 99th percentile, ms",
}


@cli.command()
@click.option("--jobs", type=click.IntRange(100, 500_000), default=20_000, show_default=True, help="Jobs in a drain.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Readings of each figure.")
@click.option("--url", help="postgresql://…, or sqlite:///file.db to measure its disk.")
@output_option
def bench(jobs: int, rounds: int, url: str | None, output: str) -> None:
    """Measure how fast jobs get in, get done and get picked up, with one worker on this machine.

    On PostgreSQL it works in a schema of its own, else in a new SQLite file beside the one named, or in the temporary
    directory. Either is removed at the end.

    \b
    Examples:
      holdfast bench --jobs 2000
      holdfast bench --url postgresql://localhost/app -o json
    """
    from holdfast.cli.bench_app import hf

    readings: dict[str, list[float]] = {name: [] for name in NAMES}
    with measured_database(hf, url):
        for n in range(rounds):
            talk(f"{hf.settings.shown_url}: round {n + 1} of {rounds}")
            for name, reading in one_round(jobs).items():
                readings[name].append(reading)
    if output == "table":
        print_table(
            ("figure", "median", "from", "to"),
            [
                (NAMES[name], *(f"{of(values):,.4g}" for of in (statistics.median, min, max)))
                for name, values in readings.items()
            ],
        )
        return
    figures = {
        name: {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for name, values in readings.items()
    }
    about = {"python": platform.python_version(), "cpus": os.cpu_count(), "jobs": jobs, "rounds": rounds}
    print_data([about | figures], output, one=True)


def one_round(jobs: int) -> dict[str, float]:
    """Everything once. The drain starts when the worker is up: the queue stays paused until then."""
    from holdfast.cli.bench_app import hf, noop

    singles = max(50, jobs // 10)
    hf.pause_queue(DEFAULT_QUEUE)
    noop.enqueue(PAD)  # opens the connection
    readings = {
        "enqueue_one": rate(singles, lambda: [noop.enqueue(PAD) for _ in range(singles)]),
        "enqueue_many": rate(jobs, lambda: hf.enqueue_many(noop.bind(PAD) for _ in range(jobs))),
    }
    with working(hf) as check:
        wait_until(lambda: bool(hf.store.workers.all()), check)
        hf.resume_queue(DEFAULT_QUEUE)
        wait_until(lambda: not hf.jobs("state:queued,running", limit=1), check)
        readings["drain"] = drained_per_second(hf, jobs + singles)
        waits = sorted(pickup_ms() for _ in range(PICKUPS))
    readings["pickup_p50_ms"] = statistics.median(waits)
    readings["pickup_p99_ms"] = statistics.quantiles(waits, n=100, method="inclusive")[98]
    return readings


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def drained_per_second(hf: Holdfast, jobs: int) -> float:
    """From the first start to the last finish of the newest jobs, by the database's clock."""
    newest = hf.jobs(limit=jobs)
    started = [job.record.started_at for job in newest if job.record.started_at]
    finished = [job.record.finished_at for job in newest if job.record.finished_at]
    return len(newest) / (max(finished) - min(started)).total_seconds()


def pickup_ms() -> float:
    """From the call of enqueue to the handler, for a worker that has nothing else to do."""
    from holdfast.cli.bench_app import started_at

    time.sleep(PICKUP_EVERY)
    began = time.monotonic_ns()
    return (started_at.enqueue().wait(PATIENCE) - began) / 1e6


@contextmanager
def measured_database(hf: Holdfast, url: str | None) -> Iterator[None]:
    """Point the application at a database that nobody else uses, and remove it at the end."""
    with ExitStack() as stack:
        if url is None or url.startswith("sqlite"):
            if url is not None:
                hf.reconfigure(url=url)
            beside = None if url is None else path_of(hf.settings).parent
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=beside))
            hf.reconfigure(url=f"sqlite:///{Path(directory) / 'bench.db'}")
        else:
            hf.reconfigure(url=url, schema=f"bench_{uuid.uuid4().hex[:8]}")
            stack.callback(drop_schema, hf)
        stack.callback(hf.close)
        hf.migrate()
        yield


def drop_schema(hf: Holdfast) -> None:
    import psycopg

    with psycopg.connect(hf.settings.url, autocommit=True) as db:
        db.execute(f'drop schema if exists "{hf.settings.schema}" cascade'.encode())


@contextmanager
def working(hf: Holdfast) -> Iterator[Callable[[], None]]:
    """One `holdfast worker`. Gives a function that raises if the worker has ended."""
    environment = {**os.environ, "HOLDFAST_URL": hf.settings.url, "HOLDFAST_SCHEMA": hf.settings.schema}
    with tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.cli.bench_app:hf"]
        worker = subprocess.Popen(command, env=environment, stderr=log)  # noqa: S603 - our own program
        try:
            yield lambda: must_live(worker, log)
        finally:
            worker.terminate()
            worker.wait(PATIENCE)


def must_live(worker: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    if worker.poll() is not None:
        log.seek(0)
        raise HoldfastError(f"the worker ended: {log.read().decode(errors='replace')[-2000:]}")


def wait_until(condition: Callable[[], bool], check: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise HoldfastError(f"the worker was not done within {PATIENCE:g} s")
        time.sleep(LOOK_EVERY)
