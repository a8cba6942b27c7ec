"""Metrics as Prometheus reads them: seconds, counters that end in `_total`, and as labels queues, tasks, outcomes,
error codes and numbers of attempts: never ids or arguments, and of each label a bounded number of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.model.alerts import ADVICE
from holdfast.model.drain import EMPTY
from holdfast.model.health import health_of
from holdfast.model.metrics import (
    ENDED,
    OTHER,
    WINDOW,
    Measured,
    QueueDepth,
    attempts,
    bounded,
    by,
    depths_by_queue,
    metrics_of,
    total,
)
from holdfast.model.rollups import BOUNDS, INFINITE, Count

MEDIA_TYPE = CONTENT_TYPE_LATEST
NO_JOBS = QueueDepth(0, 0, None, EMPTY)
MOST_PLACES = 200  # pairs of queue and task; the rest is counted under OTHER

Place = tuple[str, str]


def exposition(measured: Measured) -> bytes:
    """The text that is scraped."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(measured))
    return bytes(generate_latest(registry))


class _Once(Collector):
    def __init__(self, measured: Measured) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        return families(self._measured)


def families(measured: Measured) -> Iterator[Metric]:
    yield from _queues(measured)
    yield from _jobs(measured)
    yield from _polls(measured)
    yield _gauge("holdfast_alerts", "Alerts that stand now", "alert", _alerts(measured))


def _queues(measured: Measured) -> Iterator[Metric]:
    depths = dict.fromkeys(sorted(by(measured.totals, "queue", "enqueued")), NO_JOBS) | depths_by_queue(measured)
    kept = set(bounded(Counter({queue: one.queued + 1 for queue, one in depths.items()}), MOST_PLACES))
    queued, due, age, left = (
        GaugeMetricFamily(name, text, labels=["queue"])
        for name, text in (
            ("holdfast_queue_depth", "Jobs that are queued, counted up to 10,000"),
            ("holdfast_queue_due", "Jobs that are due now, counted up to 10,000"),
            ("holdfast_oldest_runnable_age_seconds", "How long the oldest due job has been due"),
            (
                "holdfast_drain_seconds",
                "When the due jobs will be done, at the rate of the last minutes; +Inf: never",
            ),
        )
    )
    for queue, one in sorted(depths.items()):
        if queue in kept:
            queued.add_metric([queue], one.queued)
            due.add_metric([queue], one.due)
            age.add_metric([queue], one.oldest_due_seconds or 0.0)
            left.add_metric([queue], float("inf") if one.drain.seconds is None else one.drain.seconds)
    yield from (queued, due, age, left)
    metrics = metrics_of(measured)
    minutes = f"{WINDOW.total_seconds() / 60:g} minutes"
    finished = {queue: metrics.processing_rate.get(queue, 0.0) for queue in sorted(depths) if queue in kept}
    retried = {queue: rate for queue, rate in metrics.retry_rate.items() if queue in kept}
    yield _gauge("holdfast_processing_rate", f"Jobs finished a minute, in the last {minutes}", "queue", finished)
    yield _gauge("holdfast_retry_rate", f"Retries per attempt started, in the last {minutes}", "queue", retried)
    yield _gauge(
        "holdfast_pending_items", "Items of work that checkpoints count as pending", "jobs",
        {"running": metrics.total_pending.running, "unfinished": metrics.total_pending.unfinished},
    )  # fmt: skip


def _jobs(measured: Measured) -> Iterator[Metric]:
    totals = measured.totals
    places = bounded_places(totals)
    finished = CounterMetricFamily("holdfast_jobs", "Jobs that finished", labels=["queue", "task", "outcome"])
    # Also those that never happened: from a counter that appears with its first failures, no increase can be told.
    known = sorted({_place(count, places) for count in totals if count.what in ("enqueued", *ENDED)})
    for outcome in ENDED:
        ended = _by_place(totals, places, outcome)
        for place in known:
            finished.add_metric([*place, outcome], ended[place])
    yield finished
    yield _counter_by_place("holdfast_jobs_enqueued", "Jobs that were enqueued", totals, places, "enqueued")
    yield _counter_by_place("holdfast_attempts_started", "Attempts that were started", totals, places, "started")
    yield _counter("holdfast_retries", "Attempts that failed and are tried again", "attempt", attempts(totals))
    codes = bounded(by(totals, "detail", "failed"))
    yield _counter("holdfast_failed", "Jobs that failed for good", "code", codes)
    yield _one("holdfast_recovered", "Attempts taken back from workers that were gone", total(totals, "rescued"))
    yield _one("holdfast_leases_expired", "The same: attempts whose worker's lease ended", total(totals, "rescued"))
    yield _one("holdfast_lost_claims", "Claims in which others were quicker", total(totals, "lost_claim"))
    yield _one("holdfast_cache_hits", "Enqueues that got an earlier result", total(totals, "cache_hit"))
    yield _histogram("holdfast_job_wait_seconds", "How long jobs had been due at their start", totals, places, "wait")
    yield _histogram("holdfast_job_run_seconds", "How long attempts took", totals, places, "run")


def _polls(measured: Measured) -> Iterator[Metric]:
    health = health_of(measured.workers, measured.at)
    polls = health.metrics
    alive = [worker for worker in measured.workers if worker.alive(measured.at)]
    for name, text, value in (
        ("holdfast_healthy", "1: a worker polls, with success", float(health.healthy)),
        ("holdfast_workers", "Registered workers", polls.workers),
        ("holdfast_unhealthy_workers", "Those that are not heard of, or do not poll", polls.unhealthy_workers),
        ("holdfast_worker_slots", "Attempts that workers can run at once", sum(worker.slots for worker in alive)),
        ("holdfast_polls_per_minute", "Polls in the last 60 seconds", polls.polls_per_minute),
        ("holdfast_jobs_found_per_poll", "Jobs found, mean of those polls", polls.jobs_found_per_poll),
        ("holdfast_claim_success_rate", "Claims won per claim tried, in those polls", polls.claim_success_rate),
        (
            "holdfast_claim_latency_seconds", "From a poll to its jobs, mean of those polls that got some",
            None if polls.avg_claim_latency is None else polls.avg_claim_latency / 1000,
        ),
        ("holdfast_consecutive_errors", "Polls that failed in a row; the worst worker's", polls.consecutive_errors),
    ):  # fmt: skip
        gauge = GaugeMetricFamily(name, text)
        if value is not None:
            gauge.add_metric([], value)
        yield gauge


def _alerts(measured: Measured) -> dict[str, int]:
    standing = Counter(alert.name for alert in measured.alerts)
    return {name: standing[name] for name in ADVICE}


def bounded_places(counts: Iterable[Count]) -> set[Place]:
    """The pairs of queue and task that have a label of their own: the busiest."""
    seen: Counter[Place] = Counter()
    for count in counts:
        if count.what == "enqueued":
            seen[count.queue, count.task] += count.n
    return {place for place, _ in seen.most_common(MOST_PLACES)}


def _by_place(counts: Iterable[Count], places: set[Place], what: str) -> Counter[Place]:
    found: Counter[Place] = Counter()
    for count in counts:
        if count.what == what:
            found[_place(count, places)] += count.n
    return found


def _place(count: Count, places: set[Place]) -> Place:
    place = count.queue, count.task
    return place if place in places else (OTHER, OTHER)


def _histogram(name: str, text: str, totals: list[Count], places: set[Place], what: str) -> Metric:
    found: dict[Place, Counter[str]] = {}
    sums: Counter[Place] = Counter()
    for count in totals:
        if count.what == what:
            place = _place(count, places)
            found.setdefault(place, Counter())[count.detail] += count.n
            sums[place] += count.total / 1000  # type: ignore[assignment]
    metric = HistogramMetricFamily(name, text, labels=["queue", "task"])
    for place, buckets in sorted(found.items()):
        below, cumulative = 0, []
        for bound in BOUNDS:
            below += buckets[str(bound)]
            cumulative.append((str(bound / 1000), float(below)))
        cumulative.append(("+Inf", float(below + buckets[INFINITE])))
        metric.add_metric([*place], cumulative, float(sums[place]))
    return metric


def _counter_by_place(name: str, text: str, totals: list[Count], places: set[Place], what: str) -> Metric:
    counter = CounterMetricFamily(name, text, labels=["queue", "task"])
    for place, n in sorted(_by_place(totals, places, what).items()):
        counter.add_metric([*place], n)
    return counter


def _counter(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    counter = CounterMetricFamily(name, text, labels=[label])
    for value, n in values.items():
        counter.add_metric([value], n)
    return counter


def _gauge(name: str, text: str, label: str, values: dict[str, int] | dict[str, float]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=[label])
    for value, n in values.items():
        gauge.add_metric([value], n)
    return gauge


def _one(name: str, text: str, value: int) -> Metric:
    return CounterMetricFamily(name, text, value=value)
