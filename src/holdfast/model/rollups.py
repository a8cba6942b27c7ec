"""What is counted about jobs, and how histograms are read. Pure: the store keeps the counts (store/rollups.py)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import NamedTuple

import msgspec

# The upper bounds of the histograms' buckets, in milliseconds. Each holds what took less than its bound, and at least
# the bound before.
BOUNDS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_600_000)
INFINITE = "inf"  # the bound of the last bucket
LABELS = (*map(str, BOUNDS), INFINITE)

DAY = 86_400.0
# Seconds for which rows of a grain are kept; totals stay for ever. Those of 15 minutes and of 3 hours are for charts,
# by queue alone, so that a month with many tasks is read in a moment.
KEPT = {"minute": DAY, "hour": 90 * DAY, "15min": 2 * DAY, "3h": 90 * DAY}
CHARTED = ("enqueued", "succeeded", "failed", "cancelled", "wait", "run")


class Count(msgspec.Struct, frozen=True):
    """How often something happened to jobs of a task in a queue, in the minute or hour that began at `at` (None: ever).

    `what`, with its `detail`:
      enqueued   a job was inserted
      started    an attempt began
      succeeded  a job succeeded
      failed     a job failed for good; with its error code
      cancelled  a job was cancelled; with the state that it was in
      retried    an attempt failed and the job is tried again; with the number of the attempt
      rescued    an attempt was taken back from a worker that was gone
      released   an attempt was given back and not charged, or parked
      restarted  a finished job began another life; with the state that it was in
      error      an attempt ended with an error; with the fingerprint of its group, in totals without
      lost_claim a claim found due jobs that others had locked, and got none; only in totals, without queue and task
      cache_hit  an enqueue was given the result of a job that had succeeded before
      wait       an attempt began; with the bucket of how long the job had been due. `total`: milliseconds
      run        a handler ended by itself; with the bucket of how long the attempt took. `total`: milliseconds"""

    at: datetime | None
    queue: str
    task: str
    what: str
    detail: str
    n: int
    total: float


def bucket(milliseconds: float) -> str:
    """The label of the bucket that this duration is in."""
    return LABELS[bisect_right(BOUNDS, milliseconds)]


class Bucket(NamedTuple):
    """How many durations are in a bucket of a histogram, and their sum in milliseconds."""

    n: int = 0
    total: float = 0.0

    def plus(self, n: int, total: float) -> Bucket:
        return Bucket(self.n + n, self.total + total)


Histogram = Mapping[str, Bucket]  # by label
NOTHING = Bucket()


def histogram(counts: Iterable[Count], what: str) -> dict[str, Bucket]:
    """The buckets of a histogram, `wait` or `run`, that hold something."""
    found: dict[str, Bucket] = {}
    for count in counts:
        if count.what == what:
            found[count.detail] = found.get(count.detail, NOTHING).plus(count.n, count.total)
    return found


def percentile(histogram: Histogram, p: float) -> float | None:
    """The duration in milliseconds below which `p` percent of a histogram lie: an estimate, as if the durations in a
    bucket were spread evenly around their mean, as far as the bucket reaches. None: the histogram is empty."""
    wanted = sum(bucket.n for bucket in histogram.values()) * p / 100
    below = 0
    found = None
    for label, (low, high) in zip(LABELS, pairwise((0.0, *BOUNDS, inf)), strict=True):
        n, total = histogram.get(label, NOTHING)
        if not n:
            continue
        mean = min(max(total / n, low), high)
        spread = min(mean - low, high - mean)
        found = mean + spread * (2 * min(1.0, (wanted - below) / n) - 1)
        below += n
        if below >= wanted:
            break
    return found
