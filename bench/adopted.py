"""What an adopted table costs: working it, working other jobs beside it, and inserting into it as another program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.adopted_app import audits
from bench.app import PAD, RECORD, hf
from bench.drain import drain
from bench.latency import PICKUP_EVERY, SPREAD, percentiles
from bench.target import Target
from bench.workers import all_up, environment, wait_until, working

APP = "bench.adopted_app:hf"
ADOPT = "from bench.adopted_app import audits; audits.install()"
WRITES = (
    "insert into bench_audits (pad) values ('')",
    "update bench_audits set status = 'completed', pad = 'x' where id = (select max(id) from bench_audits)",
)
WRITE_EVERY = 0.005  # seconds
QUIET_WRITES = 1000  # before the table is adopted
WARM = 20  # rows before the ones that are timed
TABLE = """create table bench_audits (
    id {serial} primary key, pad text not null, status text not null default 'pending',
    created_at {instant} default {now}, attempts integer not null default 0, worker text, started_at {instant},
    last_heartbeat {instant}, updated_at {instant}, error text, asked_ns bigint)"""
TYPES = {
    "sqlite": {"serial": "integer", "instant": "text", "now": "current_timestamp"},
    "postgres": {
        "serial": "bigint generated always as identity", "instant": "timestamptz", "now": "clock_timestamp()",
    },
}  # fmt: skip


def _make(target: Target) -> None:
    target.fresh()
    target.rows("drop table if exists bench_audits")
    target.rows(TABLE.format(**TYPES[target.engine]))


def _insert(target: Target, rows: int) -> None:
    text = "insert into bench_audits (pad) select :pad from {series}".format(**target.words)  # noqa: S608 - ours
    target.rows(text, n=rows, pad=PAD)


def adopted_drain(target: Target, rows: int) -> float:
    """One plain worker, started when the rows are there."""
    _make(target)
    _insert(target, rows)
    hf.store.adopted.install(audits.mapping)
    ids = range(1, rows + 1)
    target.settle()
    with working(app=APP) as workers:
        wait_until(lambda: not target.unfinished(ids), workers)
    assert target.rows("select count(*) from bench_audits where status = 'completed'") == [(rows,)]
    return rows / target.seconds_worked(ids)


def drain_beside(target: Target, jobs: int) -> float:
    """Native jobs, where a table is adopted."""
    _make(target)
    hf.store.adopted.install(audits.mapping)
    return drain(target, target.fill(jobs)).rate


def foreign_insert(target: Target, rows: int) -> dict[str, float]:
    """Rows a second that another program inserts with one statement, before and after the table is adopted."""
    _make(target)
    figures = {}
    for name in ("plain", "adopted"):
        target.settle(analyse=False)
        began = time.perf_counter()
        _insert(target, rows)
        figures[name] = rows / (time.perf_counter() - began)
        target.rows("delete from bench_audits")
        hf.store.adopted.install(audits.mapping)
    return figures


def commit_to_start(target: Target, count: int) -> dict[str, float]:
    """From another program's insert to the handler's end, one row at a time, for a worker that has nothing else to
    do."""
    _make(target)
    hf.store.adopted.install(audits.mapping)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        times = Path(directory) / "times"
        with working(times=times, app=APP) as workers:
            all_up(workers)
            for n in range(WARM + count):
                target.rows("insert into bench_audits (pad, asked_ns) values ('', :asked)", asked=time.monotonic_ns())
                time.sleep(PICKUP_EVERY * (1 + (n * SPREAD) % 1))
            wait_until(lambda: times.exists() and times.stat().st_size == RECORD.size * (WARM + count), workers)
        took = sorted(RECORD.iter_unpack(times.read_bytes()))[WARM:]
    return percentiles([(ended - asked) / 1e6 for asked, ended in took], 50, 95)


def adopting(target: Target, rows: int) -> dict[str, float]:
    """Adopt a table of so many rows, of which a tenth wait, while other programs write to it: how long that takes, and
    how long the slowest of their writes took before and meanwhile."""
    _make(target)
    _insert(target, rows)
    target.rows("update bench_audits set status = 'completed' where id % 10 > 0")
    target.settle()
    with _writing(target) as took:
        wait_until(lambda: len(took) > QUIET_WRITES, [])
        before = len(took)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", ADOPT], env=environment(), check=True)  # noqa: S603 - our own program
        seconds = time.perf_counter() - began
    [(jobs,)] = target.rows("select count(*) from @jobs where source is not null")
    assert jobs >= rows / 10
    return {
        "seconds": seconds, "writes": float(len(took) - before),
        "write_max_ms_before": max(took[:before]), "write_max_ms": max(took[before:]),
    }  # fmt: skip


@contextmanager
def _writing(target: Target) -> Iterator[list[float]]:
    """Two programs that insert and update, a row in each transaction. Yields the milliseconds that each write took."""
    took: list[float] = []
    ended = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with closing(target.connect()) as connection:
                while not ended.wait(WRITE_EVERY):
                    for text in WRITES:
                        began = time.perf_counter()
                        connection.execute(text)
                        took.append((time.perf_counter() - began) * 1e3)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield took
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    for error in failed:
        raise error


def leave(target: Target) -> None:
    target.fresh()
    target.rows("drop table if exists bench_audits")
