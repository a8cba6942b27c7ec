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
from typing import Any

from holdfast.bench.app import hf
from holdfast.bench.bars import Figures, bars, ratios
from holdfast.bench.drain import drain, drain_held
from holdfast.bench.enqueue import enqueue_bulk, enqueue_one, enqueuers
from holdfast.bench.growth import growth
from holdfast.bench.growth import keys as growth_keys
from holdfast.bench.idle import idle
from holdfast.bench.importing import import_ms
from holdfast.bench.isolated import isolated_job_ms
from holdfast.bench.latency import loaded, pickup, under_load
from holdfast.bench.memory import stream_memory, worker_memory
from holdfast.bench.place import Place, PostgresPlace, opened
from holdfast.bench.progress import progress_call_ns
from holdfast.bench.raw import raw_of
from holdfast.bench.readings import Readings
from holdfast.bench.sizes import Sizes


def measure(engines: Sequence[str], *, url: str | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    sizes = sizes or Sizes()
    document: dict[str, Any] = {
        "machine": _machine(),
        "versions": {"holdfast": version("holdfast"), "python": platform.python_version()},
        "settings": {"sizes": asdict(sizes), "worker": _worker_settings()},
    }
    for engine in engines:
        _say(f"{engine}: setting up")
        with opened(engine, url) as place:
            document["versions"] |= place.versions()
            document["settings"][engine] = place.server_settings()
            document[engine] = _measure_engine(place, sizes)
    return document


def _measure_engine(place: Place, sizes: Sizes) -> Figures:
    readings = Readings()
    for n in range(sizes.rounds):
        _say(f"{place.engine}: raw limits and ourselves in turn, round {n + 1} of {sizes.rounds}")
        _round(place, sizes, readings)
    if place.engine == "postgres":
        _say(f"{place.engine}: many enqueuers")
        place.fresh()
        with enqueuers() as many:
            for _ in range(sizes.rounds):
                readings.add("enqueuers_16", many.compare(2 * sizes.singles))
    for n in range(sizes.rounds):
        _say(f"{place.engine}: latency, round {n + 1} of {sizes.rounds}")
        place.fresh()
        with loaded() as load:
            readings.add("pickup_ms", pickup(load, sizes.pickups))
            readings.add("latency_under_load_ms", under_load(load, sizes.steady_rate, sizes.steady_seconds))
    seconds = sizes.idle_seconds / (1 if place.engine == "postgres" else 3)  # on SQLite there is only its CPU to read
    _say(f"{place.engine}: an idle worker, for {seconds:g} s")
    place.fresh()
    once = idle(place, seconds) | _long(place, sizes, readings)
    figures = readings.medians() | once
    return figures | {
        "ratios": ratios(place.engine, figures),
        "bars": bars(place.engine, figures),
        "spread": readings.spread(),
    }


def _long(place: Place, sizes: Sizes, readings: Readings) -> Figures:
    """What takes minutes; null where it isn't asked for."""
    once: Figures = {"worker_memory": None, "stream_memory": None}
    if place.engine == "postgres":
        once["pinned_snapshot"] = None
    if not sizes.long:
        return dict.fromkeys(growth_keys()) | once
    _say(f"{place.engine}: with {sizes.crowd:,} rows")
    growth(place, sizes, readings)
    _say(f"{place.engine}: memory over {sizes.crowd:,} jobs")
    place.fresh()
    once["stream_memory"] = stream_memory(sizes.crowd)
    once["worker_memory"] = worker_memory(place, sizes.crowd)
    if isinstance(place, PostgresPlace):
        from holdfast.bench.pinned import pinned_snapshot

        _say(f"{place.engine}: a snapshot pinned for {sizes.pinned_seconds:g} s")
        place.fresh()
        once["pinned_snapshot"] = pinned_snapshot(place, sizes)
    return once


def _round(place: Place, sizes: Sizes, readings: Readings) -> None:
    raw = raw_of(place)
    place.fresh()
    readings.add("raw_cycle", raw.cycle(sizes.jobs))
    place.fresh()
    drained = drain(place, place.fill(sizes.jobs))
    readings.add("drain", drained.rate)
    readings.add("rss_mb", drained.rss_mb)
    for name, workers, processes in (
        ("drain_held", 1, None),
        ("drain_two_workers", 2, None),
        ("drain_in_worker", 1, 0),
        ("drain_one_process", 1, 1),
        ("drain_two_processes", 1, 2),
    ):
        place.fresh()
        readings.add(name, drain_held(place, place.fill(sizes.compared), workers, processes))
    place.fresh()
    readings.add("isolated_job_ms", isolated_job_ms(place, sizes.isolated))
    readings.add("progress_call_ns", progress_call_ns())
    readings.add("import_ms", import_ms())
    for name, work, jobs in (
        ("raw_insert", raw.insert, sizes.singles),
        ("enqueue_one", enqueue_one, sizes.singles),
        ("raw_copy", raw.copy, sizes.bulk),
        ("enqueue_bulk", enqueue_bulk, sizes.bulk),
    ):
        place.fresh()
        place.settle()
        readings.add(name, work(jobs))


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
