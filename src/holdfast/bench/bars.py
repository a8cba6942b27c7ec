"""What must be reached, beside what was: each bar once, with how its figure is got from the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]  # of one engine
BOTH = ("sqlite", "postgres")


@dataclass(frozen=True)
class Bar:
    name: str
    text: str
    figure: Callable[[Figures], float | None]
    limits: dict[str, float]  # by engine
    at_least: bool = True

    def said(self, engine: str) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limits[engine]:g}"

    def reached(self, engine: str, figure: float | None) -> bool | None:
        if figure is None:
            return None
        return figure >= self.limits[engine] if self.at_least else figure <= self.limits[engine]


def ratio(above: str, below: str) -> Callable[[Figures], float | None]:
    """Of two figures; `a.b` is b within a. None as long as one of them is not measured."""

    def figure(figures: Figures) -> float | None:
        over, under = value(above)(figures), value(below)(figures)
        return None if over is None or under is None else over / under

    return figure


def value(path: str) -> Callable[[Figures], float | None]:
    def figure(figures: Figures) -> float | None:
        found: Any = figures
        for name in path.split("."):
            found = None if found is None else found.get(name)
        return None if found is None else float(found)

    return figure


def _both(limit: float) -> dict[str, float]:
    return dict.fromkeys(BOTH, limit)


RATIOS = (
    Bar("drain_to_raw_cycle", "drain / raw cycle", ratio("drain", "raw_cycle"), {"sqlite": 0.3, "postgres": 1.2}),
    Bar(
        "enqueue_one_to_raw_insert", "enqueue one / raw insert", ratio("enqueue_one", "raw_insert"),
        {"sqlite": 0.8, "postgres": 0.75},
    ),
    Bar("enqueue_bulk_to_raw_copy", "enqueue bulk / raw copy", ratio("enqueue_bulk", "raw_copy"), {"postgres": 0.6}),
    Bar("two_workers_to_one", "two workers / one", ratio("drain_two_workers", "drain"), _both(1.0)),
    Bar(
        "enqueuers_16_notified", "16 enqueuers, notifying / not",
        ratio("enqueuers_16.with_notification", "enqueuers_16.without_notification"), {"postgres": 0.8},
    ),
)  # fmt: skip

LIMITS = (
    Bar("pickup_p50", "idle pick-up p50, ms", value("pickup_ms.p50"), {"sqlite": 15.0}, at_least=False),
    Bar(
        "idle_statements", "idle statements a minute", value("idle_statements_per_minute"), {"postgres": 6.0},
        at_least=False,
    ),
    Bar("idle_cpu", "idle CPU, %", value("idle_cpu_percent"), _both(0.2), at_least=False),
)  # fmt: skip


def ratios(engine: str, figures: Figures) -> dict[str, float | None]:
    return {bar.name: bar.figure(figures) for bar in RATIOS if engine in bar.limits}


def bars(engine: str, figures: Figures) -> dict[str, dict[str, Any]]:
    """By name: what was found, what was asked for, and whether it is reached (None: not measured)."""
    found = {}
    for bar in (*RATIOS, *LIMITS):
        if engine in bar.limits:
            figure = bar.figure(figures)
            found[bar.name] = {
                "text": bar.text, "figure": figure, "bar": bar.said(engine), "reached": bar.reached(engine, figure),
            }  # fmt: skip
    return found
