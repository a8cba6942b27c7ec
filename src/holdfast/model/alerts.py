"""Alerts: what should make somebody look, judged from the counts. Each begins and ends; while it stands, it is one row,
whoever judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.model.durations import short_duration
from holdfast.model.job import Backlog, WorkerRecord
from holdfast.model.record import Record
from holdfast.model.rollups import Count, histogram, percentile

# name -> what to do
ADVICE = {
    "queue_depth": "start more workers for this queue, or see what slows its jobs down",
    "failed_spike": "look at the most frequent error codes",
    "slow_jobs": "see what the jobs of this task wait for",
    "job_age": "see why it waits: holdfast why --queue",
    "worker_unhealthy": "look at its log, and at its host",
}
SPIKE = timedelta(minutes=10)  # failures in this time,
BEFORE = timedelta(hours=1)  # compared with those in the time before it


class Thresholds(msgspec.Struct, frozen=True):
    """Beyond these an alert begins. 0: never."""

    depth: int = 1000  # due jobs in a queue
    depth_for: float = 600.0  # seconds for which there are more
    failures: int = 5  # jobs that failed for good within ten minutes
    failures_times: float = 3.0  # and so many times the mean of the hour before
    p95: float = 30.0  # seconds below which 95 of 100 attempts of a task end
    age: float = 3600.0  # seconds that a due job waits


class Alert(Record, frozen=True):
    """`subject`: the queue, task or worker that it is about; empty: all of them. `text` says what was found, `advice`
    what to do. `ended_at` is None while it stands."""

    id: str
    name: str
    subject: str
    text: str
    value: float
    started_at: datetime
    ended_at: datetime | None = None

    @property
    def advice(self) -> str:
        return ADVICE.get(self.name, "")


class Finding(msgspec.Struct, frozen=True):
    """Something beyond its threshold. `since`: it counts once it has lasted for so many seconds (`depth_for`)."""

    name: str
    subject: str
    text: str
    value: float
    lasting: float = 0.0


def judged(
    waiting: Sequence[Backlog], workers: Iterable[WorkerRecord], recent: Sequence[Count], now: datetime,
    thresholds: Thresholds,
) -> Iterator[Finding]:  # fmt: skip
    """What is beyond its threshold now. `recent`: the counts of SPIKE and of BEFORE that."""
    yield from _deep(waiting, thresholds)
    yield from _old(waiting, now, thresholds)
    yield from _failing(recent, now, thresholds)
    yield from _slow(recent, now, thresholds)
    for worker in workers:
        if not worker.polls_well(now):
            seen = (now - worker.seen_at).total_seconds()
            text = f"worker {worker.id} was last seen {short_duration(seen)} ago"
            if worker.alive(now):
                text = f"worker {worker.id} does not poll: {worker.polling.consecutive_errors} errors in a row"
            yield Finding("worker_unhealthy", worker.id, text, seen)


def _deep(waiting: Sequence[Backlog], thresholds: Thresholds) -> Iterator[Finding]:
    due: Counter[str] = Counter()
    for kind in waiting:
        due[kind.queue] += kind.due
    for queue, jobs in sorted(due.items()):
        if thresholds.depth and jobs > thresholds.depth:
            text = f"more than {thresholds.depth:,} jobs of queue {queue} are due"
            yield Finding("queue_depth", queue, text, jobs, thresholds.depth_for)


def _old(waiting: Sequence[Backlog], now: datetime, thresholds: Thresholds) -> Iterator[Finding]:
    oldest: dict[str, datetime] = {}
    for kind in waiting:
        oldest[kind.queue] = min(kind.due_at, oldest.get(kind.queue, kind.due_at))
    for queue, at in sorted(oldest.items()):
        age = (now - at).total_seconds()
        if thresholds.age and age > thresholds.age:
            yield Finding("job_age", queue, f"the oldest due job of queue {queue} waits for {short_duration(age)}", age)


def _failing(recent: Sequence[Count], now: datetime, thresholds: Thresholds) -> Iterator[Finding]:
    """A spike, of all queues together."""
    codes, before = Counter[str](), 0
    for count in recent:
        if count.what == "failed" and count.at is not None:
            if count.at > now - SPIKE:
                codes[count.detail] += count.n
            elif count.at > now - SPIKE - BEFORE:
                before += count.n
    failed, usual = codes.total(), before * (SPIKE / BEFORE)
    if thresholds.failures and failed > thresholds.failures and failed > thresholds.failures_times * usual:
        most = ", ".join(f"{code or 'no code'} {n}" for code, n in codes.most_common(3))
        text = f"{failed:,} jobs failed in 10 min, {usual:.3g} before; the most frequent codes: {most}"
        yield Finding("failed_spike", "", text, failed)


def _slow(recent: Sequence[Count], now: datetime, thresholds: Thresholds) -> Iterator[Finding]:
    ran = [count for count in recent if count.what == "run" and count.at is not None and count.at > now - SPIKE]
    for task in sorted({count.task for count in ran}):
        p95 = percentile(histogram((count for count in ran if count.task == task), "run"), 95)
        if thresholds.p95 and p95 is not None and p95 > thresholds.p95 * 1000:
            text = f"of task {task}, 5 of 100 attempts take longer than about {short_duration(p95 / 1000)}"
            yield Finding("slow_jobs", task, text, p95 / 1000)


def changes(
    found: Iterable[Finding], standing: Mapping[tuple[str, str], object]
) -> tuple[list[Finding], list[tuple[str, str]]]:
    """What begins, and which of those that stand end."""
    by_key = {(one.name, one.subject): one for one in found}
    begins = [one for key, one in by_key.items() if key not in standing]
    return begins, [key for key in standing if key not in by_key]
