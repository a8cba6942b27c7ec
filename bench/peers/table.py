"""The figures as text: a Markdown table for each engine, then the bars."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench.peers.contenders import CONTENDERS, OURS
from bench.peers.rows import RATE, RERUN_CAP
from bench.peers.verdict import (
    BARS,
    BEST_PEER,
    METRICS,
    Figures,
    Judgement,
    Measured,
    Metric,
    judge,
    metric_named,
    rank,
)

ENGINES = {
    "postgres": "PostgreSQL, default durability (fsync on)",
    "sqlite": "SQLite, write-ahead log, synchronous = FULL",
}
TITLES = {contender.name: contender.title for contender in CONTENDERS}


def report(figures: Figures, notes: Sequence[str]) -> str:
    parts = [_engine_table(ENGINES[engine], measured) for engine, measured in figures.items()]
    bars = [judge(bar, figures) for bar in BARS if bar.metric in figures.get(bar.engine, {})]
    parts.append("Bars\n\n" + _markdown(["engine", "bar", "found", "verdict"], [_bar_cells(bar) for bar in bars]))
    parts.append("Bars against the raw limits of the database: make bench.")
    if remarks := [*_short_rates(figures), *notes]:
        parts.append("Notes\n\n" + "\n".join(f"- {remark}" for remark in remarks))
    return "\n\n".join(parts)


def _engine_table(title: str, measured: Mapping[str, Measured]) -> str:
    names = [name for name in TITLES if any(name in figures for figures in measured.values())]
    head = ["median (min-max)", *(TITLES[name] for name in names), "who wins"]
    rows = [
        [
            metric.title,
            *(_cell(measured[metric.name].get(name, ())) for name in names),
            winner(metric, measured[metric.name]),
        ]
        for metric in METRICS
        if metric.name in measured
    ]
    return f"{title}\n\n" + _markdown(head, rows)


def winner(metric: Metric, measured: Measured) -> str:
    """Who wins; said loudly if it isn't us."""
    ranking = rank(metric, measured)
    if ranking is None:
        return "nobody"
    name = TITLES[ranking.winner]
    if ranking.rival is None:
        return f"{name}, measured alone"
    lead = _lead(ranking.times_better)
    noise = "; within the noise" if ranking.close else ""
    return f"{'' if ranking.winner == OURS else 'LOST to '}{name}, {lead} {TITLES[ranking.rival]}{noise}"


def _bar_cells(judgement: Judgement) -> list[str]:
    bar = judgement.bar
    metric = metric_named(bar.metric)
    sign = ">=" if metric.more_is_better else "<="
    other = {None: None, BEST_PEER: f"the {BEST_PEER}"}.get(bar.peer, TITLES.get(bar.peer or ""))
    if bar.own:
        other = f"our own {metric_named(bar.own).title.removesuffix(', jobs/s')}"
    wanted = f"{sign} {bar.limit:g}" + (f" x {other}" if other else "")
    found = "-" if judgement.found is None else _figure(judgement.found) + (" x" if other else "")
    verdict = {True: "reached", False: "NOT REACHED", None: "not measured"}[judgement.reached]
    return [bar.engine, f"{metric.title} {wanted}", found, verdict]


def _short_rates(figures: Figures) -> Iterator[str]:
    """Who enqueues too slowly is under less load than the others, and its waits are flattered."""
    for engine, measured in figures.items():
        for name, rates in measured.get("steady_enqueued", {}).items():
            enqueued = statistics.median(rates)
            if enqueued < 0.97 * RATE:
                yield f"{TITLES[name]} on {engine} enqueued only {enqueued:,.0f} of {RATE} jobs/s in the steady rows"


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = _figure(statistics.median(values))
    low, high = _figure(min(values)), _figure(max(values))
    return middle if low == high else f"{middle} ({low}-{high})"


def _figure(value: float) -> str:
    if math.isinf(value):
        return f"> {RERUN_CAP:g}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _lead(ratio: float) -> str:
    if ratio == 1:
        return "equal to"
    if math.isinf(ratio):
        return "beyond comparison with"
    return f"{ratio:.2f} x better than" if ratio < 10 else f"{ratio:,.0f} x better than"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
