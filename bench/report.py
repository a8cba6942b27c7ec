"""The figures as text for people."""

from __future__ import annotations

from typing import Any

from bench.growth import keys as growth_keys

NAMES = {
    "raw_cycle": "raw cycle (claim and complete by UPDATE), jobs/s",
    "raw_insert": "raw insert, one a commit, jobs/s",
    "raw_copy": "raw COPY, jobs/s",
    "drain": "drain, one worker, jobs/s",
    "drain_held": "drain, one worker that was up before, jobs/s",
    "drain_two_workers": "drain, two workers that were up before, jobs/s",
    "drain_in_worker": "drain, handlers in the worker's own process, jobs/s",
    "drain_one_process": "drain, one runner process, jobs/s",
    "drain_two_processes": "drain, two runner processes, jobs/s",
    "rss_mb": "worker's memory after the drain, MB",
    "isolated_job_ms": "a job in a process of its own, one at a time, ms",
    "enqueue_one": "enqueue one, jobs/s",
    "enqueue_bulk": "enqueue bulk, jobs/s",
    "over_http": "over HTTP and in Python, calls/s",
    "enqueuers_16": "16 enqueuers, jobs/s",
    "pickup_ms": "pick-up when idle, ms",
    "latency_under_load_ms": "enqueue to handler's end under load, ms",
    "drain_native": "drain, in turns with the next two, jobs/s",
    "drain_adopted": "drain of an adopted table, rows/s",
    "drain_beside_adopted": "drain of native jobs beside an adopted table, jobs/s",
    "foreign_insert": "another program's insert, plain and adopted, rows/s",
    "adopted_pickup_ms": "another program's insert to the handler's end, ms",
    "run_now_ms": "run_now beside a batch of 3,000 jobs, ms",
    "idle_statements_per_minute": "idle worker, statements a minute",
    "idle_cpu_percent": "idle worker, CPU %",
    "progress_call_ns": "ctx.progress and ctx.track, ns a call",
    "import_ms": "from holdfast import Holdfast, ms",
    **{key: key.replace("_", " ") + ("" if "_ms_" in key or "_to_" in key else ", jobs/s") for key in growth_keys()},
    "adopting": "adopting 1m rows beside other programs that write",
    "dashboard_ms": "pages of the dashboard over 1m jobs, ms",
    "worker_memory": "worker's memory over 1m jobs",
    "stream_memory": "enqueuer's memory over 1m jobs",
    "pinned_snapshot": "claims while a snapshot is pinned",
}
SQLITE_NAMES = NAMES | {"raw_copy": "raw executemany in one transaction, jobs/s"}
WIDE = 52


def report(document: dict[str, Any]) -> str:
    lines = [_pairs(document["machine"]), _pairs(document["versions"])]
    for engine in ("sqlite", "postgres"):
        if engine in document:
            lines += ["", f"{engine} ({_pairs(document['settings'][engine])})", *_figures(engine, document[engine])]
            lines += ["", f"  {'reached?':<{WIDE}}{'figure':>10}  bar", *_bars(document[engine]["bars"])]
    return "\n".join(lines)


def _figures(engine: str, figures: dict[str, Any]) -> list[str]:
    spread = figures["spread"]
    lines = []
    for key, name in (SQLITE_NAMES if engine == "sqlite" else NAMES).items():
        if key in figures:
            lines.append(f"  {name:<{WIDE}}{_shown(figures[key]):>10}{_range(spread.get(key))}")
    return lines


def _shown(figure: Any) -> str:
    if figure is None:
        return "-"
    if isinstance(figure, dict):
        return "  ".join(f"{part.replace('_', ' ')} {_shown(value)}" for part, value in figure.items())
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def _range(spread: Any) -> str:
    if not spread or "min" not in spread:
        return ""
    return f"  ({_shown(spread['min'])} to {_shown(spread['max'])})"


def _bars(bars: dict[str, dict[str, Any]]) -> list[str]:
    words = {True: "yes", False: "NO", None: "not measured"}
    return [
        f"  {bar['text']:<{WIDE}}{_shown(bar['figure']):>10}  {bar['bar']:<8}  {words[bar['reached']]}"
        for bar in bars.values()
    ]


def _pairs(values: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in values.items())
