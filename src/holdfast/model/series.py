"""What charts show: how many jobs came and ended in each minute (or longer stretch) of the last hour, day, week or
month, and how long they waited and ran. Values and pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

from holdfast.model.record import Record
from holdfast.model.rollups import NOTHING, Bucket, percentile

Span = Literal["hour", "day", "week", "month"]
Split = Literal["outcome", "queue"]
SPANS: tuple[Span, ...] = get_args(Span)
SPLITS: tuple[Split, ...] = get_args(Split)
# What is read for a span: the grain of the rollups, the seconds of each stretch, and how many stretches.
GRAINS: Mapping[Span, tuple[str, int, int]] = {
    "hour": ("minute", 60, 60), "day": ("15min", 900, 96), "week": ("3h", 10_800, 56), "month": ("3h", 10_800, 240)
}  # fmt: skip
OUTCOMES = ("succeeded", "failed", "cancelled")
MOST_QUEUES = 7  # that have a line of their own
OTHERS = "other queues"
MATURE = 0.25  # of a stretch: the current one is shown once so much of it is over, else its rate jumps about


class Line(Record, frozen=True):
    """A line of a chart: a value for each stretch, or None where nothing is known."""

    name: str
    values: list[float | None]


class Series(Record, frozen=True):
    """`at`: when each stretch of `seconds` began. `jobs`: a minute, by outcome with those `enqueued`, or those that
    ended by queue. `wait`, `run`: milliseconds, p50 and p95 of all, or p95 by queue."""

    span: Span
    by: Split
    seconds: int
    at: list[datetime]
    jobs: list[Line]
    wait: list[Line]
    run: list[Line]


def began(span: Span, now: datetime) -> list[datetime]:
    """When each stretch of this span began, up to the current one."""
    _, seconds, count = GRAINS[span]
    last = int(now.timestamp()) // seconds * seconds
    return [datetime.fromtimestamp(last - seconds * back, UTC) for back in reversed(range(count))]


def series(
    span: Span, by: Split, rows: Sequence[Mapping[str, Any]], now: datetime, most: int = MOST_QUEUES
) -> Series:  # fmt: skip
    """`rows`: `at`, `queue`, `what`, `detail`, `n`, `total`, as they are counted."""
    seconds, at = GRAINS[span][1], began(span, now)
    place = {moment: index for index, moment in enumerate(at)}
    within = [row for row in rows if row["at"] in place]
    counts = Counter[tuple[str, int]]()  # of each line
    histograms: dict[tuple[str, str, int], dict[str, Bucket]] = {}  # by `wait` or `run`, and line
    names = _queues(within, most) if by == "queue" else {}
    for row in within:
        what, index = row["what"], place[row["at"]]
        line = names.get(row["queue"], OTHERS) if by == "queue" else what
        if what in ("wait", "run"):
            key = (what, line if by == "queue" else "", index)
            buckets = histograms.setdefault(key, {})
            buckets[row["detail"]] = buckets.get(row["detail"], NOTHING).plus(row["n"], row["total"])
        elif by == "outcome" or what in OUTCOMES:
            counts[line, index] += row["n"]
    lines = list(dict.fromkeys(names.values())) if by == "queue" else [*OUTCOMES, "enqueued"]
    rates = [Line(line, _rates((counts[line, index] for index in range(len(at))), at, seconds, now)) for line in lines]

    def times(what: str) -> list[Line]:
        wanted = [(line, line, 95) for line in lines] if by == "queue" else [("", "p50", 50), ("", "p95", 95)]
        return [
            Line(name, [percentile(histograms.get((what, line, index), {}), p) for index in range(len(at))])
            for line, name, p in wanted
        ]

    return Series(span, by, seconds, at, rates, times("wait"), times("run"))


def _queues(rows: Iterable[Mapping[str, Any]], most: int) -> dict[str, str]:
    """Each queue's line: its own, or that of all others."""
    ended = Counter[str]()
    for row in rows:
        ended[row["queue"]] += row["n"] if row["what"] in OUTCOMES else 0
    queues = [queue for queue, _ in sorted(ended.items(), key=lambda item: (-item[1], item[0]))]
    own = sorted(queues[:most])
    return {**{queue: queue for queue in own}, **dict.fromkeys(queues[most:], OTHERS)}


def _rates(counted: Iterable[int], at: Sequence[datetime], seconds: int, now: datetime) -> list[float | None]:
    """Jobs a minute. The current stretch is not over."""
    values: list[float | None] = []
    for n, moment in zip(counted, at, strict=True):
        lasted = min(float(seconds), (now - moment) / timedelta(seconds=1))
        values.append(round(n / lasted * 60, 2) if lasted >= MATURE * seconds else None)
    return values
