"""What is counted about jobs, and how histograms are read. Pure: the store keeps the counts (store/rollups.py)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import pairwise

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
      error      an attempt ended with an error; with the fingerprint of its group
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


def histogram(counts: Iterable[Count], what: str) -> dict[str, int]:
    """How many of these counts are in each bucket of a histogram, `wait` or `run`; all buckets in order."""
    found = dict.fromkeys(LABELS, 0)
    for count in counts:
        if count.what == what:
            found[count.detail] += count.n
    return found


def percentile(histogram: Mapping[str, int], p: float) -> float | None:
    """The duration in milliseconds below which `p` percent of a histogram lie: an estimate, by a straight line
    within the bucket. None: it is empty. What is in the last bucket counts as its lower bound."""
    wanted = sum(histogram.values()) * p / 100
    if not any(histogram.values()):
        return None
    below = 0.0
    for label, (low, high) in zip(LABELS, pairwise((0, *BOUNDS, BOUNDS[-1])), strict=True):
        n = histogram.get(label, 0)
        if n and below + n >= wanted:
            return low + (high - low) * (wanted - below) / n
        below += n
    return float(BOUNDS[-1])
