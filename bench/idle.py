"""What a worker costs that has nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.app import hf
from bench.target import PostgresTarget, Target
from bench.workers import all_up, working

SETTLE = 5.0  # seconds until a new worker has done what it does once


def idle(target: Target, seconds: float) -> dict[str, float | None]:
    with _logging(target), working() as workers:
        all_up(workers)
        hf.close()  # nothing happens at the place but what the worker does
        time.sleep(SETTLE)
        began, cpu, statements = time.monotonic(), workers[0].cpu_seconds(), _logged(target)
        time.sleep(seconds)
        used, passed = workers[0].cpu_seconds() - cpu, time.monotonic() - began
        sent = None if statements is None else (_logged(target) or 0) - statements
    return {
        "idle_statements_per_minute": None if sent is None else 60 * sent / passed,
        "idle_cpu_percent": 100 * used / passed,
    }


@contextmanager
def _logging(target: Target) -> Iterator[None]:
    """Sessions opened meanwhile, the worker's that is, have their statements logged. On a private server only."""
    if not (isinstance(target, PostgresTarget) and target.own_server):
        yield
        return
    target.db.execute("alter role current_user set log_statement = 'all'")
    try:
        yield
    finally:
        target.db.execute("alter role current_user reset log_statement")


def _logged(target: Target) -> int | None:
    if not (isinstance(target, PostgresTarget) and target.own_server):
        return None
    found = target.db.execute(
        "select regexp_count(pg_read_file('log'), 'LOG:  (statement|execute)')", prepare=False
    ).fetchone()
    assert found is not None
    return int(found[0])
