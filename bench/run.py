"""Runs the benchmark on each engine in one go, so that its figures may be compared."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from bench.adopted import adopted_drain, adopting, commit_to_start, drain_beside, foreign_insert, leave
from bench.app import hf
from bench.bars import Figures, bars, ratios
from bench.dashboard import dashboard
from bench.drain import drain, drain_held
from bench.enqueue import enqueue_bulk, enqueue_one, enqueuers
from bench.growth import growth
from bench.growth import keys as growth_keys
from bench.idle import idle
from bench.importing import import_ms
from bench.isolated import isolated_job_ms
from bench.latency import loaded, pickup, run_now, under_load
from bench.memory import stream_memory, worker_memory
from bench.over_http import over_http
from bench.progress import progress_call_ns
from bench.raw import raw_of
from bench.readings import Readings
from bench.sizes import Sizes
from bench.target import PostgresTarget, Target, opened


def measure(engines: Sequence[str], *, url: str | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    sizes = sizes or Sizes()
    document: dict[str, Any] = {
        "machine": _machine(),
        "versions": {"holdfast": version("holdfast"), "python": platform.python_version()},
        "settings": {"sizes": asdict(sizes), "worker": _worker_settings()},
    }
    for engine in engines:
        _say(f"{engine}: setting up")
        with opened(engine, url) as target:
            document["versions"] |= target.versions()
            document["settings"][engine] = target.server_settings()
            document[engine] = _measure_engine(target, sizes)
    return document


def _measure_engine(target: Target, sizes: Sizes) -> Figures:
    readings = Readings()
    for n in range(sizes.rounds):
        _say(f"{target.engine}: raw limits and ourselves in turn, round {n + 1} of {sizes.rounds}")
        _round(target, sizes, readings)
    if target.engine == "postgres":
        _say(f"{target.engine}: many enqueuers")
        target.fresh()
        with enqueuers() as many:
            for _ in range(sizes.rounds):
                readings.add("enqueuers_16", many.compare(2 * sizes.singles))
    for n in range(sizes.rounds):
        _say(f"{target.engine}: latency, round {n + 1} of {sizes.rounds}")
        target.fresh()
        with loaded() as load:
            readings.add("pickup_ms", pickup(load, sizes.pickups))
            readings.add("latency_under_load_ms", under_load(load, sizes.steady_rate, sizes.steady_seconds))
            readings.add("run_now_ms", run_now(sizes.pickups))
    for n in range(sizes.rounds):
        _say(f"{target.engine}: an adopted table, round {n + 1} of {sizes.rounds}")
        target.fresh()
        readings.add("drain_native", drain(target, target.fill(sizes.compared)).rate)
        readings.add("drain_adopted", adopted_drain(target, sizes.compared))
        readings.add("drain_beside_adopted", drain_beside(target, sizes.compared))
        readings.add("foreign_insert", foreign_insert(target, sizes.jobs))
        readings.add("adopted_pickup_ms", commit_to_start(target, sizes.pickups))
    leave(target)
    seconds = sizes.idle_seconds / (1 if target.engine == "postgres" else 3)  # on SQLite there is only its CPU to read
    _say(f"{target.engine}: an idle worker, for {seconds:g} s")
    target.fresh()
    once = idle(target, seconds) | _long(target, sizes, readings)
    figures = readings.medians() | once
    return figures | {
        "ratios": ratios(target.engine, figures),
        "bars": bars(target.engine, figures),
        "spread": readings.spread(),
    }


def _long(target: Target, sizes: Sizes, readings: Readings) -> Figures:
    """What takes minutes; null where it isn't asked for."""
    once: Figures = {"worker_memory": None, "stream_memory": None, "adopting": None, "dashboard_ms": None}
    if target.engine == "postgres":
        once["pinned_snapshot"] = None
    if not sizes.long:
        return dict.fromkeys(growth_keys()) | once
    _say(f"{target.engine}: with {sizes.crowd:,} rows")
    growth(target, sizes, readings)
    _say(f"{target.engine}: adopting {sizes.crowd:,} rows")
    once["adopting"] = adopting(target, sizes.crowd)
    leave(target)
    _say(f"{target.engine}: the dashboard over {sizes.crowd:,} jobs")
    target.fresh()
    once["dashboard_ms"] = slowest(dashboard(target, sizes))
    _say(f"{target.engine}: memory over {sizes.crowd:,} jobs")
    target.fresh()
    once["stream_memory"] = stream_memory(sizes.crowd)
    once["worker_memory"] = worker_memory(target, sizes.crowd)
    if isinstance(target, PostgresTarget):
        from bench.pinned import pinned_snapshot

        _say(f"{target.engine}: a snapshot pinned for {sizes.pinned_seconds:g} s")
        target.fresh()
        once["pinned_snapshot"] = pinned_snapshot(target, sizes)
    return once


def slowest(pages: dict[str, float]) -> dict[str, float]:
    return {"p95": max(pages.values()), "median_page_p95": median(pages.values())}


def _round(target: Target, sizes: Sizes, readings: Readings) -> None:
    raw = raw_of(target)
    target.fresh()
    readings.add("raw_cycle", raw.cycle(sizes.jobs))
    target.fresh()
    drained = drain(target, target.fill(sizes.jobs))
    readings.add("drain", drained.rate)
    readings.add("rss_mb", drained.rss_mb)
    for name, workers, processes in (
        ("drain_held", 1, None),
        ("drain_two_workers", 2, None),
        ("drain_in_worker", 1, 0),
        ("drain_one_process", 1, 1),
        ("drain_two_processes", 1, 2),
    ):
        target.fresh()
        readings.add(name, drain_held(target, target.fill(sizes.compared), workers, processes))
    target.fresh()
    readings.add("isolated_job_ms", isolated_job_ms(target, sizes.isolated))
    readings.add("progress_call_ns", progress_call_ns())
    readings.add("import_ms", import_ms())
    for name, work, jobs in (
        ("raw_insert", raw.insert, sizes.singles),
        ("enqueue_one", enqueue_one, sizes.singles),
        ("raw_copy", raw.copy, sizes.bulk),
        ("enqueue_bulk", enqueue_bulk, sizes.bulk),
    ):
        target.fresh()
        target.settle()
        readings.add(name, work(jobs))
    target.fresh()
    readings.add("over_http", over_http(sizes.requests))


def _machine() -> dict[str, Any]:
    model = re.search(r"^model name\s*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    return {
        "cpus": os.cpu_count(),
        "cpu": model[1] if model else platform.processor(),
        "memory_gb": round(int(memory[1]) / 2**20, 1) if memory else None,
        "system": platform.platform(),
    }


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""


def _worker_settings() -> dict[str, Any]:
    return {name: value for name, value in asdict(hf.settings).items() if name not in ("url", "schema", "app")}


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
