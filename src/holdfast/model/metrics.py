"""What is measured, made from counts, depths and workers: figures as JSON has them. Values and pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from holdfast.model.alerts import Alert
from holdfast.model.drain import Drain, drain
from holdfast.model.health import health_of
from holdfast.model.job import COUNTED, Depth, WorkerRecord
from holdfast.model.record import Record
from holdfast.model.rollups import Count, histogram, percentile

WINDOW = timedelta(minutes=10)  # that rates and percentiles are about
# What drains are about, if so many jobs finished in it: many that came at once are soon no longer taken for a stream.
LATELY, ENOUGH = timedelta(minutes=3), 10
ENDED = ("succeeded", "failed", "cancelled")
MOST_LABELS = 50  # values of one label; what is rarer is counted under OTHER
OTHER = "other"
MOST_ATTEMPTS = 10


class Measured(msgspec.Struct, frozen=True):
    """What was read of a database, to make figures from."""

    at: datetime
    depths: list[Depth]
    workers: list[WorkerRecord]
    totals: list[Count]  # ever
    recent: list[Count]  # in the minutes since `since`
    since: datetime
    alerts: list[Alert]  # that have begun and not ended

    @property
    def minutes(self) -> float:
        return max(1.0, (self.at - self.since).total_seconds() / 60)


def drains(depths: Iterable[Depth], recent: Sequence[Count], since: datetime, now: datetime) -> dict[str, Drain]:
    """By queue. `recent`: what happened in the minutes since `since`."""
    due: Counter[str] = Counter()
    more: set[str] = set()  # than were counted
    for depth in depths:
        due[depth.queue] += depth.due
        if depth.due > COUNTED:
            more.add(depth.queue)
    lately = max(since, now.replace(second=0, microsecond=0) - LATELY)
    all_flow = _flow(recent)
    late_flow = _flow(count for count in recent if count.at is not None and count.at >= lately)
    found = {}
    for queue, jobs in due.items():
        enough = late_flow.ended[queue] >= ENOUGH
        flow, began = (late_flow, lately) if enough else (all_flow, since)
        minutes = max(1.0, (now - began).total_seconds() / 60)
        found[queue] = drain(jobs, flow.came[queue] / minutes, flow.ended[queue] / minutes, more=queue in more)
    return found


class _Flow(NamedTuple):
    """By queue, how many jobs came and how many workers finished."""

    came: Counter[str]
    ended: Counter[str]


def _flow(counts: Iterable[Count]) -> _Flow:
    flow = _Flow(Counter(), Counter())
    for count in counts:
        if count.what in ("enqueued", "restarted"):
            flow.came[count.queue] += count.n
        elif count.what in ("succeeded", "failed") or (count.what, count.detail) == ("cancelled", "running"):
            flow.ended[count.queue] += count.n
    return flow


# The figures.


class QueueDepth(Record, frozen=True):
    """Queued jobs of a queue: all, those due now, and for how long the oldest of these has been due. No more than
    10,000 of a kind are counted."""

    queued: int
    due: int
    oldest_due_seconds: float | None
    drain: Drain


class RunTimes(Record, frozen=True):
    """How long attempts took that ended by themselves in the last ten minutes, in milliseconds."""

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class PendingWork(Record, frozen=True):
    """Items of work that checkpoints count as pending: of running jobs, and of all unfinished ones."""

    running: int
    unfinished: int


class Metrics(Record, frozen=True):
    """All figures at one instant. What ends in `_total` was counted since the schema was made. Rates and durations are
    of the last ten minutes; what workers tell of their polls, of the last minute."""

    at: datetime
    queue_depth: dict[str, QueueDepth]  # by queue
    processing_duration_ms: dict[str, RunTimes]  # by task
    retry_total: dict[str, int]  # by the number of the attempt that failed
    failed_total: dict[str, int]  # by error code
    processing_rate: dict[str, float]  # jobs finished a minute, by queue
    retry_rate: dict[str, float]  # retries per attempt started, by queue
    polls_per_minute: int
    jobs_found_per_poll: float | None
    claim_success_rate: float | None
    avg_claim_latency: float | None  # milliseconds
    consecutive_errors: int
    total_pending: PendingWork
    recovered_total: int
    lost_claims_total: int
    cache_hits_total: int
    workers: int
    unhealthy_workers: int
    alerts: list[Alert]


def metrics_of(measured: Measured) -> Metrics:
    polls = health_of(measured.workers, measured.at).metrics
    totals, recent = measured.totals, measured.recent
    ended = by(recent, "queue", *ENDED)
    retried, started = by(recent, "queue", "retried"), by(recent, "queue", "started")
    return Metrics(
        at=measured.at,
        queue_depth=depths_by_queue(measured),
        processing_duration_ms={task: durations(recent, task) for task in sorted(by(recent, "task", "run"))},
        retry_total=dict(sorted(attempts(totals).items(), key=lambda item: (len(item[0]), item[0]))),
        failed_total=bounded(by(totals, "detail", "failed")),
        processing_rate={queue: round(n / measured.minutes, 3) for queue, n in sorted(ended.items())},
        retry_rate={queue: round(retried[queue] / n, 4) for queue, n in sorted(started.items())},
        polls_per_minute=polls.polls_per_minute,
        jobs_found_per_poll=polls.jobs_found_per_poll,
        claim_success_rate=polls.claim_success_rate,
        avg_claim_latency=polls.avg_claim_latency,
        consecutive_errors=polls.consecutive_errors,
        total_pending=PendingWork(
            sum(depth.pending_running for depth in measured.depths), sum(depth.pending for depth in measured.depths)
        ),
        recovered_total=total(totals, "rescued"),
        lost_claims_total=total(totals, "lost_claim"),
        cache_hits_total=total(totals, "cache_hit"),
        workers=polls.workers,
        unhealthy_workers=polls.unhealthy_workers,
        alerts=measured.alerts,
    )


def depths_by_queue(measured: Measured) -> dict[str, QueueDepth]:
    emptied = drains(measured.depths, measured.recent, measured.since, measured.at)
    found = {}
    for queue in sorted(emptied):
        own = [depth for depth in measured.depths if depth.queue == queue]
        due = sum(depth.due for depth in own)
        oldest = min((depth.oldest_due_at for depth in own if depth.oldest_due_at), default=None)
        age = None if oldest is None else round(max(0.0, (measured.at - oldest).total_seconds()), 3)
        found[queue] = QueueDepth(due + sum(depth.scheduled for depth in own), due, age, emptied[queue])
    return found


def durations(counts: Iterable[Count], task: str | None = None) -> RunTimes:
    """`task`: of this one alone."""
    ran = [count for count in counts if count.what == "run" and task in (None, count.task)]
    found, n = histogram(ran, "run"), sum(count.n for count in ran)
    p50, p95, p99 = (percentile(found, p) for p in (50, 95, 99))
    mean = sum(count.total for count in ran) / n if n else None
    return RunTimes(n, *(value if value is None else round(value, 3) for value in (mean, p50, p95, p99)))


def attempts(counts: Iterable[Count]) -> dict[str, int]:
    """Retries by the number of the attempt; those from the tenth on together."""
    found: Counter[str] = Counter()
    for number, n in by(counts, "detail", "retried").items():
        many = not number.isdecimal() or int(number) >= MOST_ATTEMPTS
        found[f"{MOST_ATTEMPTS}+" if many else number] += n
    return found


def total(counts: Iterable[Count], what: str) -> int:
    return sum(count.n for count in counts if count.what == what)


def by(counts: Iterable[Count], field: str, *whats: str) -> Counter[Any]:
    """How often these things happened, by a field of the count."""
    found: Counter[Any] = Counter()
    for count in counts:
        if count.what in whats:
            found[getattr(count, field)] += count.n
    return found


def bounded(counted: Counter[Any], most: int = MOST_LABELS) -> dict[str, int]:
    """The most frequent ones, and the rest as one."""
    kept = dict(counted.most_common(most))
    if rest := sum(counted.values()) - sum(kept.values()):
        kept[OTHER] = kept.get(OTHER, 0) + rest
    return dict(sorted(kept.items()))
