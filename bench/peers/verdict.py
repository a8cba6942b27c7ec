"""What the figures say: who wins a row, and which bars are reached. Pure functions of what was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.peers.contenders import OURS, POSTGRES, SQLITE

BEST_PEER = "best peer"

Measured = Mapping[str, Sequence[float]]
"""Of one metric on one engine: contender -> its figure in every repetition; infinite: not within the time given."""
Figures = Mapping[str, Mapping[str, Measured]]
"""engine -> metric -> measured."""


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    more_is_better: bool = False


METRICS = (
    Metric("enqueue_one", "enqueue one, jobs/s", more_is_better=True),
    Metric("enqueue_bulk", "enqueue bulk, jobs/s", more_is_better=True),
    Metric("drain", "drain, one worker, jobs/s", more_is_better=True),
    Metric("drain_two_workers", "drain, two workers, jobs/s", more_is_better=True),
    Metric("pickup_p50_ms", "pick-up when idle, p50 ms"),
    Metric("pickup_p95_ms", "pick-up when idle, p95 ms"),
    Metric("steady_p50_ms", "steady 500 jobs/s, p50 ms"),
    Metric("steady_p99_ms", "steady 500 jobs/s, p99 ms"),
    Metric("idle_statements_per_minute", "idle, statements/minute"),
    Metric("idle_cpu_percent", "idle, CPU %"),
    Metric("rerun_seconds", "runs again after kill -9, s"),
)


@dataclass(frozen=True)
class Bar:
    """What Holdfast must reach: `limit` times another's figure, or times its own other metric, or `limit` itself."""

    engine: str
    metric: str
    limit: float
    peer: str | None = None
    own: str | None = None


BARS = (
    Bar(POSTGRES, "drain", 1.6, peer="graphile"),
    Bar(POSTGRES, "drain", 3.0, peer="pgqueuer"),
    Bar(POSTGRES, "drain_two_workers", 1.0, own="drain"),
    Bar(POSTGRES, "enqueue_one", 2.0, peer="pgqueuer"),
    Bar(POSTGRES, "enqueue_bulk", 1.5, peer="pgqueuer"),
    Bar(POSTGRES, "pickup_p50_ms", 0.8, peer=BEST_PEER),
    Bar(POSTGRES, "steady_p50_ms", 0.75, peer=BEST_PEER),
    Bar(POSTGRES, "steady_p99_ms", 0.75, peer=BEST_PEER),
    Bar(POSTGRES, "idle_statements_per_minute", 6.0),
    Bar(POSTGRES, "idle_cpu_percent", 0.2),
    Bar(POSTGRES, "rerun_seconds", 2.0),
    Bar(SQLITE, "drain", 10.0, peer="huey"),
    Bar(SQLITE, "pickup_p50_ms", 15.0),
    Bar(SQLITE, "rerun_seconds", 2.0),
)


@dataclass(frozen=True)
class Judgement:
    """A bar and what was found: our figure, as a ratio if the bar is one. None: something was not measured."""

    bar: Bar
    found: float | None

    @property
    def reached(self) -> bool | None:
        if self.found is None:
            return None
        more = metric_named(self.bar.metric).more_is_better
        return self.found >= self.bar.limit if more else self.found <= self.bar.limit


@dataclass(frozen=True)
class Ranking:
    """Who is first by median, and how many times better than its rival: than us, or if we are first, than the next.
    Close: the ranges of the two overlap, so another run may turn them round."""

    winner: str
    rival: str | None
    times_better: float
    close: bool


def metric_named(name: str) -> Metric:
    return next(metric for metric in METRICS if metric.name == name)


def medians(measured: Measured) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in measured.items() if values}


def rank(metric: Metric, measured: Measured) -> Ranking | None:
    """None if nobody was measured, or nobody got there."""
    middle = medians(measured)
    order = sorted(middle, key=lambda name: middle[name], reverse=metric.more_is_better)
    if not order or math.isinf(middle[order[0]]):
        return None
    winner = order[0]
    if len(order) == 1:
        return Ranking(winner, None, 1.0, close=False)
    rival = OURS if OURS in order[1:] else order[1]
    ratio = times_better(metric, middle[winner], middle[rival])
    return Ranking(winner, rival, ratio, close=_overlap(measured[winner], measured[rival]))


def times_better(metric: Metric, one: float, other: float) -> float:
    better, worse = (one, other) if metric.more_is_better else (other, one)
    if better == worse:
        return 1.0
    return better / worse if worse else math.inf


def judge(bar: Bar, figures: Figures) -> Judgement:
    engine = figures.get(bar.engine, {})
    middle = medians(engine.get(bar.metric, {}))
    ours = middle.pop(OURS, None)
    if bar.own is not None:
        return Judgement(bar, _ratio(ours, medians(engine.get(bar.own, {})).get(OURS)))
    if bar.peer is None:
        return Judgement(bar, ours)
    if bar.peer == BEST_PEER:
        best = max if metric_named(bar.metric).more_is_better else min
        return Judgement(bar, _ratio(ours, best(middle.values(), default=None)))
    return Judgement(bar, _ratio(ours, middle.get(bar.peer)))


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return min(one) <= max(other) and min(other) <= max(one)
