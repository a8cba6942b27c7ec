"""Runs the benchmark on each engine in one go, so that its figures may be compared; prints absolute figures and
ratios."""

from __future__ import annotations

import os
import platform
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from holdfast.bench.app import hf, noop, pickup
from holdfast.bench.raw import noop_job, rate, raw_postgres, raw_sqlite
from holdfast.embedded import EmbeddedPostgres
from holdfast.errors import HoldfastError
from holdfast.model.lifecycle import State

SINGLES = 1_000  # enqueues one at a time
PICKUPS = 100
PICKUP_EVERY = 0.05  # seconds
PATIENCE = 120.0
SETTLE = 12.0  # seconds until the server has counted what idle connections did before

RATIOS = {
    "drain / raw cycle": ("drain", "raw_cycle"),
    "enqueue one / raw insert": ("enqueue_one", "raw_insert"),
    "enqueue bulk / raw bulk": ("enqueue_bulk", "raw_bulk"),
}


def measure(*, jobs: int, engines: Sequence[str], url: str | None, idle: float) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "machine": {
            "cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform(),
            "sqlite": sqlite3.sqlite_version,
        },
        "settings": {"jobs": jobs, "workers": 1, "concurrency": hf.settings.concurrency},
    }  # fmt: skip
    for engine in engines:
        with ExitStack() as stack:
            _say(f"{engine}: setting up")
            if engine == "sqlite":
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))
                hf.reconfigure(url=f"sqlite:///{place}/bench.db")
            else:
                _open_postgres(stack, url)
                figures["machine"]["postgres"] = _server_version()
            stack.callback(hf.close)
            figures[engine] = _measure_engine(engine, jobs, idle)
    return figures


def _open_postgres(stack: ExitStack, url: str | None) -> None:
    if url is None:
        server = EmbeddedPostgres()
        stack.callback(server.destroy)
        url = server.url
    schema = f"bench_{uuid.uuid4().hex[:8]}"
    hf.reconfigure(url=url, schema=schema)
    hf.migrate()
    stack.callback(_drop_schema, url, schema)


def _measure_engine(engine: str, jobs: int, idle: float) -> dict[str, Any]:
    store = hf.store
    _say(f"{engine}: raw limits")
    raw = raw_sqlite if engine == "sqlite" else raw_postgres
    figures: dict[str, Any] = raw(store, jobs, SINGLES)
    _say(f"{engine}: enqueue")
    figures["enqueue_one"] = rate(SINGLES, lambda: [noop.enqueue("x" * 80) for _ in range(SINGLES)])
    _empty()
    bulk = [noop_job()] * jobs
    figures["enqueue_bulk"] = rate(jobs, lambda: [None for _ in store.enqueue_many(iter(bulk))])
    _say(f"{engine}: drain of {jobs:,} jobs")
    figures["drain"] = _drain(jobs)
    _say(f"{engine}: pick-up by an idle worker")
    with _worker():
        figures["pickup_ms"] = _pickups()
    if engine == "postgres":
        _say(f"{engine}: an idle worker, for {idle:g} s")
        figures["idle_statements_per_minute"] = _idle_statements(idle)
    figures["ratios"] = {name: figures[a] / figures[b] for name, (a, b) in RATIOS.items()}
    return figures


def _drain(jobs: int) -> float:
    """From the first start to the last finish, as the database saw them, in one worker process."""
    with _worker():
        _wait(lambda: _succeeded() >= jobs)
    first = last = hf.jobs(limit=1)[0]
    before = None
    while page := hf.jobs(limit=200, before=before):
        first = min(first, *page, key=lambda job: job.started_at or job.created_at)
        last = max(last, *page, key=lambda job: job.finished_at or job.created_at)
        before = page[-1].id
    assert first.started_at is not None
    assert last.finished_at is not None
    return jobs / (last.finished_at - first.started_at).total_seconds()


def _pickups() -> dict[str, float]:
    pickup.enqueue(time.monotonic_ns()).wait(PATIENCE)  # it is awake and its plans are made
    jobs = []
    for _ in range(PICKUPS):
        jobs.append(pickup.enqueue(time.monotonic_ns()))
        time.sleep(PICKUP_EVERY)
    took = sorted(job.wait(PATIENCE) / 1e6 for job in jobs)
    cuts = statistics.quantiles(took, n=100)
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98]}


def _idle_statements(seconds: float) -> float:
    """Transactions of the database while a worker idles: each statement of ours is one. Our own reading is taken
    off. Nothing else is connected, and the tables are in order, so that no vacuum is counted."""
    hf.close()
    _vacuum()
    with _worker():
        hf.close()
        time.sleep(SETTLE)
        before = _transactions()
        began = time.monotonic()
        time.sleep(seconds)
        used = _transactions() - before - 1
        return max(0.0, used * 60 / (time.monotonic() - began))


def _vacuum() -> None:
    import psycopg

    with psycopg.connect(hf.settings.url, autocommit=True) as db:
        db.execute("vacuum analyze")


def _transactions() -> int:
    import psycopg

    with psycopg.connect(hf.settings.url, autocommit=True) as db:
        row = db.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _succeeded() -> int:
    return sum(row["jobs"] for row in hf.store.counts() if row["state"] == State.SUCCEEDED)


def _empty() -> None:
    """Run what waits, so that the next figure starts from nothing due."""
    hf.drain()


@contextmanager
def _worker() -> Iterator[None]:
    environment = {**os.environ, "HOLDFAST_URL": hf.settings.url, "HOLDFAST_SCHEMA": hf.settings.schema}
    command = [sys.executable, "-m", "holdfast", "worker", "holdfast.bench.app:hf"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)  # noqa: S603 - our own arguments
    try:
        _wait(lambda: bool(hf.store.workers()))
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise HoldfastError(f"the benchmark's worker did not get there within {PATIENCE:g} s")
        time.sleep(0.05)


def _server_version() -> str:
    import psycopg

    with psycopg.connect(hf.settings.url) as db:
        return db.info.parameter_status("server_version") or ""


def _drop_schema(url: str, schema: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'drop schema if exists "{schema}" cascade'.encode())


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def report(figures: dict[str, Any]) -> str:
    """The figures as text."""
    lines = ["  ".join(f"{name} {value}" for name, value in figures["machine"].items())]
    for engine in ("sqlite", "postgres"):
        found = figures.get(engine)
        if found is None:
            continue
        lines.append(f"\n{engine}")
        for name, value in found.items():
            if name == "pickup_ms":
                lines.append(f"  {'idle pick-up, ms':<28}" + "  ".join(f"{k} {v:.1f}" for k, v in value.items()))
            elif name == "idle_statements_per_minute":
                lines.append(f"  {'idle statements / minute':<28}{value:.1f}")
            elif name != "ratios":
                lines.append(f"  {name.replace('_', ' ') + ', jobs/s':<28}{value:,.0f}")
        lines += [f"  {name:<28}{value:.2f}" for name, value in found["ratios"].items()]
    return "\n".join(lines)
