"""What must be reached, beside what was: each bar once, with how its figure is got from the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.growth import CROWDS, FIGURES

Figures = dict[str, Any]  # of one engine
Figure = Callable[[Figures], float | None]  # None: not measured


@dataclass(frozen=True)
class Bar:
    name: str
    text: str
    figure: Figure
    limits: dict[str, float]  # by engine
    at_least: bool

    def found(self, engine: str, figures: Figures) -> dict[str, Any]:
        figure, limit = self.figure(figures), self.limits[engine]
        reached = None if figure is None else figure >= limit if self.at_least else figure <= limit
        bar = f"{'>=' if self.at_least else '<='} {limit:g}"
        return {"text": self.text, "figure": figure, "bar": bar, "reached": reached}


def at_least(name: str, text: str, figure: Figure, **limits: float) -> Bar:
    return Bar(name, text, figure, limits, True)


def at_most(name: str, text: str, figure: Figure, **limits: float) -> Bar:
    return Bar(name, text, figure, limits, False)


def value(path: str) -> Figure:
    """`a.b` is b within a."""

    def figure(figures: Figures) -> float | None:
        found: Any = figures
        for name in path.split("."):
            found = None if found is None else found.get(name)
        return None if found is None else float(found)

    return figure


def ratio(above: str, below: str) -> Figure:
    def figure(figures: Figures) -> float | None:
        over, under = value(above)(figures), value(below)(figures)
        return None if over is None or under is None else over / under

    return figure


def _growth() -> Iterator[Bar]:
    for kind in CROWDS:
        for key in FIGURES:
            figure, name = value(f"{key}_with_1m_{kind}_to_fresh"), key.removesuffix("_ms")
            text = f"{name.replace('_', ' ')}, with 1m {kind} / fresh"
            yield at_least(f"{name}_with_1m_{kind}", text, figure, sqlite=0.9, postgres=0.9)


ONE, BULK = ratio("enqueue_one", "raw_insert"), ratio("enqueue_bulk", "raw_copy")
TWO = ratio("drain_two_workers", "drain_held")
PROCESS = ratio("drain_one_process", "drain_in_worker")
PROCESSES = ratio("drain_two_processes", "drain_one_process")
ADOPTED, BESIDE = ratio("drain_adopted", "drain_native"), ratio("drain_beside_adopted", "drain_native")
INSERT = ratio("foreign_insert.adopted", "foreign_insert.plain")
PROGRESS = value("progress_call_ns.progress_with_note")
NOTIFIED = ratio("enqueuers_16.with_notification", "enqueuers_16.without_notification")

SUBMIT, STATUS = ratio("over_http.submit", "over_http.enqueue"), ratio("over_http.status", "over_http.job")

RATIOS = (
    at_least("drain_to_raw_cycle", "drain / raw cycle", ratio("drain", "raw_cycle"), sqlite=0.3, postgres=1.2),
    at_least("enqueue_one_to_raw_insert", "enqueue one / raw insert", ONE, sqlite=0.7, postgres=0.75),
    at_least("enqueue_bulk_to_raw_copy", "enqueue bulk / raw copy", BULK, postgres=0.6),
    at_least("http_submit_to_enqueue", "submit over HTTP / enqueue", SUBMIT, sqlite=0.05, postgres=0.05),
    at_least("http_status_to_job", "status over HTTP / hf.job", STATUS, sqlite=0.02, postgres=0.05),
    at_least("two_workers_to_one", "two workers / one", TWO, sqlite=1.0, postgres=1.0),
    at_least("process_to_in_worker", "one runner process / handlers in the worker", PROCESS, sqlite=0.9, postgres=0.9),
    at_least("two_processes_to_one", "two runner processes / one", PROCESSES, sqlite=1.0, postgres=1.0),
    at_least("enqueuers_16_notified", "16 enqueuers, notifying / not", NOTIFIED, postgres=0.8),
    at_least("adopted_to_native", "drain, adopted / native", ADOPTED, sqlite=0.5, postgres=0.45),
    at_least(
        "native_beside_adopted", "native drain beside an adopted table / alone", BESIDE, sqlite=0.97, postgres=0.97
    ),
    at_least("foreign_insert_adopted", "another program's insert, adopted / plain", INSERT, postgres=0.5),
    *_growth(),
    at_most(
        "worker_memory", "worker, 1m jobs / a tenth of them", value("worker_memory.growth"), sqlite=1.1, postgres=1.1
    ),
    at_most("stream_memory", "enqueuer, 1m jobs / a tenth", value("stream_memory.growth"), sqlite=1.1, postgres=1.1),
    at_most("pinned_snapshot", "claim p99, pinned / before", value("pinned_snapshot.ratio"), postgres=5.0),
    at_most("pinned_snapshot_after", "claim p99, after / before", value("pinned_snapshot.ratio_after"), postgres=1.5),
)
LIMITS = (
    at_most("run_now_p95", "run_now beside a batch, p95, ms", value("run_now_ms.p95"), sqlite=100.0, postgres=100.0),
    at_most("pickup_p50", "pick-up when idle, p50, ms", value("pickup_ms.p50"), sqlite=15.0),
    at_most(
        "adopted_pickup_p50",
        "adopted row, commit to handler's end, p50, ms",
        value("adopted_pickup_ms.p50"),
        postgres=5.0,
    ),
    at_most(
        "adopting",
        "another program's slowest write while 1m rows are adopted, ms",
        value("adopting.write_max_ms"),
        sqlite=200.0,
        postgres=200.0,
    ),
    at_most(
        "dashboard",
        "slowest page of the dashboard over 1m jobs, p95, ms",
        value("dashboard_ms.p95"),
        sqlite=200.0,
        postgres=200.0,
    ),
    at_most("idle_statements", "idle statements a minute", value("idle_statements_per_minute"), postgres=6.0),
    at_most("import", "time to import Holdfast, ms", value("import_ms"), sqlite=100.0, postgres=100.0),
    at_most("idle_cpu", "idle CPU, %", value("idle_cpu_percent"), sqlite=0.2, postgres=0.2),
    at_most("progress_call", "ctx.progress with a note, ns", PROGRESS, sqlite=1000.0, postgres=1000.0),
)


def ratios(engine: str, figures: Figures) -> dict[str, float | None]:
    return {bar.name: bar.figure(figures) for bar in RATIOS if engine in bar.limits}


def bars(engine: str, figures: Figures) -> dict[str, dict[str, Any]]:
    """By name: what was found, what was asked for, and whether it is reached (None: not measured)."""
    return {bar.name: bar.found(engine, figures) for bar in (*RATIOS, *LIMITS) if engine in bar.limits}
