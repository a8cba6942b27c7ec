"""The figures: by their exact names, true to what happened, and readable for Prometheus."""

from __future__ import annotations

import re

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.model.drain import drain
from holdfast.model.filter import Filter
from holdfast.model.job import COUNTED
from holdfast.model.metrics import ENDED, Metrics, metrics_of
from holdfast.model.outcome import Error, Outcome
from holdfast.model.polling import Polling
from holdfast.prometheus import MOST_PLACES, exposition
from holdfast.store.base import Store
from holdfast.store.metrics import measure
from tests.factories import BOOM, HOUR, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, new_job, ref

NAMES = {
    "queue_depth", "processing_duration_ms", "retry_total", "failed_total", "processing_rate", "retry_rate",
    "polls_per_minute", "jobs_found_per_poll", "claim_success_rate", "avg_claim_latency", "consecutive_errors",
    "total_pending", "recovered_total", "lost_claims_total", "cache_hits_total",
}  # fmt: skip


def measured(store: Store) -> Metrics:
    return metrics_of(measure(store))


def samples(store: Store) -> dict[str, float]:
    """As Prometheus reads them: `name{label="value"}` and the value."""
    return {
        f"{sample.name}{{{','.join(f'{name}={value}' for name, value in sorted(sample.labels.items()))}}}": sample.value
        for family in text_string_to_metric_families(exposition(measure(store)).decode())
        for sample in family.samples
    }


@pytest.fixture
def busy(store: Store, clock: Clock) -> Store:
    """A store in which something of everything has happened."""
    clock.advance(30)
    for seconds in (0.02, 0.2, 2.0, 20.0):
        held = a_running_job(store, queue="mail", lease=HOUR)
        clock.advance(seconds)
        store.attempts.succeed(ref(held))
    held = a_running_job(store, queue="mail", max_attempts=2)
    store.attempts.reschedule(ref(held), 0.0, BOOM)
    [held] = claim(store).jobs
    store.attempts.fail(ref(held), Error("Timeout", "too slow"))
    a_running_job(store, max_attempts=3, worker="dead", task="crash")
    clock.advance(2 * LEASE)
    store.rescues.rescue()
    [held] = claim(store, tasks=["crash"], lease=HOUR).jobs
    store.attempts.checkpoint(ref(held), b"{}", pending=7)
    store.rollups.lost_claims(2)
    store.rollups.lost_claims(1)
    a_queued_job(store, queue="mail", task="later", delay=HOUR)
    a_queued_job(store, queue="mail", task="due")
    clock.advance(5)
    store.workers.register(id="w1", name="w1", host="h", pid=1, queues=None, tasks=["greet"], slots=4)
    store.look("w1", ["greet"], None, polling=Polling(12, 1.5, 8, 6, 0.75, 12.5, 1, 0.0))
    return store


def test_all_fifteen_are_there_by_their_exact_names(store: Store) -> None:
    found = msgspec.to_builtins(measured(store))
    assert found.keys() >= NAMES
    assert len(NAMES) == 15


def test_the_figures_are_those_of_what_happened(busy: Store) -> None:
    found = measured(busy)
    depth = found.queue_depth["mail"]
    assert (depth.queued, depth.due, depth.oldest_due_seconds) == (2, 1, 5.0)
    assert found.retry_total == {"1": 1}
    assert found.failed_total == {"Timeout": 1}
    ran = found.processing_duration_ms["greet"]
    assert ran.count == 6
    assert ran.p50 is not None
    assert ran.p95 is not None
    assert ran.p50 <= 300 < 3000 < ran.p95 <= 30000
    assert found.retry_rate == {"default": 0.0, "mail": pytest.approx(1 / 6, abs=0.001)}
    assert found.processing_rate["mail"] == pytest.approx(5 / 11.5, abs=0.1)
    assert (found.total_pending.running, found.total_pending.unfinished) == (7, 7)
    assert (found.recovered_total, found.lost_claims_total, found.cache_hits_total) == (1, 3, 0)
    assert (found.polls_per_minute, found.jobs_found_per_poll, found.claim_success_rate) == (12, 1.5, 0.75)
    assert (found.avg_claim_latency, found.consecutive_errors) == (12.5, 1)
    assert (found.workers, found.unhealthy_workers, found.alerts) == (1, 0, [])


def test_they_survive_folding_and_the_deletion_of_jobs(busy: Store, clock: Clock) -> None:
    before = msgspec.to_builtins(measured(busy))
    busy.rollups.fold()
    assert msgspec.to_builtins(measured(busy)) == before
    clock.advance(HOUR)
    busy.retention.purge(0, finished=1.0, failed=1.0)
    found = measured(busy)
    assert (found.failed_total, found.retry_total, found.recovered_total) == ({"Timeout": 1}, {"1": 1}, 1)
    assert found.processing_duration_ms == {}, "of the last ten minutes"


def test_prometheus_reads_the_same(busy: Store) -> None:
    found, read = measured(busy), samples(busy)
    assert read["holdfast_queue_depth{queue=mail}"] == 2
    assert read["holdfast_queue_due{queue=mail}"] == 1
    assert read["holdfast_oldest_runnable_age_seconds{queue=mail}"] == 5
    assert read["holdfast_jobs_total{outcome=succeeded,queue=mail,task=greet}"] == 4
    assert read["holdfast_jobs_total{outcome=failed,queue=mail,task=greet}"] == 1
    assert read["holdfast_retries_total{attempt=1}"] == 1
    assert read["holdfast_failed_total{code=Timeout}"] == 1
    assert read["holdfast_job_run_seconds_count{queue=mail,task=greet}"] == 6
    assert read["holdfast_job_run_seconds_sum{queue=mail,task=greet}"] == pytest.approx(22.22, abs=0.1)
    assert read["holdfast_job_run_seconds_bucket{le=3.0,queue=mail,task=greet}"] == 5
    assert read["holdfast_job_run_seconds_bucket{le=+Inf,queue=mail,task=greet}"] == 6
    assert read["holdfast_recovered_total{}"] == read["holdfast_leases_expired_total{}"] == 1
    assert read["holdfast_lost_claims_total{}"] == 3
    assert read["holdfast_polls_per_minute{}"] == 12
    assert read["holdfast_claim_latency_seconds{}"] == 0.0125
    assert read["holdfast_consecutive_errors{}"] == 1
    assert read["holdfast_worker_slots{}"] == 4
    assert read["holdfast_pending_items{jobs=running}"] == 7
    assert read["holdfast_processing_rate{queue=mail}"] == found.processing_rate["mail"]
    assert read["holdfast_alerts{alert=job_age}"] == 0


def test_the_conventions_of_prometheus_hold(busy: Store) -> None:
    for family in text_string_to_metric_families(exposition(measure(busy)).decode()):
        assert re.fullmatch(r"holdfast_[a-z_]+", family.name)
        assert family.documentation
        for sample in family.samples:
            assert sample.labels.keys() <= {"queue", "task", "outcome", "attempt", "code", "jobs", "alert", "le"}
            assert (family.type == "counter") == sample.name.endswith("_total")
            assert not re.search("_ms|milliseconds|minutes", sample.name)


def test_labels_are_bounded_whatever_others_insert(store: Store) -> None:
    """Queues by the thousand, and error codes too: the rest is counted as one."""
    for number in range(60):
        held = a_running_job(store)
        store.attempts.fail(ref(held), Error(f"Code{number}", "it broke"))
    list(store.enqueue_many(new_job(queue=f"q{number}", task="t") for number in range(MOST_PLACES + 100)))
    read = samples(store)
    codes = [name for name in read if name.startswith("holdfast_failed_total")]
    queues = [name for name in read if name.startswith("holdfast_jobs_enqueued_total")]
    assert (len(codes), len(queues)) == (51, MOST_PLACES + 1)
    assert read["holdfast_failed_total{code=other}"] == 10
    assert sum(read[name] for name in queues) == MOST_PLACES + 160
    assert len([name for name in read if name.startswith("holdfast_queue_depth")]) <= MOST_PLACES + 1


def test_names_that_would_break_the_text_do_not(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.fail(ref(held), Error('a"b\\c\nd', "it broke"))
    assert 'holdfast_failed_total{code=a"b\\c\nd}' in samples(store)


@pytest.mark.parametrize(
    ("due", "came", "ended", "text"),
    [
        (0, 5.0, 0.0, "empty"),
        (100, 0.0, 25.0, "empty in about 4 min"),
        (100, 10.0, 35.0, "empty in about 4 min"),
        (10, 0.0, 20.0, "empty in about 30 s"),
        (9_000, 0.0, 50.0, "empty in about 3 h"),
        (100_000, 0.0, 20.0, "empty in about 3 days"),
        (100, 30.0, 20.0, "growing: never at this rate"),
        (100, 20.0, 20.0, "steady: never at this rate"),
        (100, 5.0, 0.0, "growing: never at this rate"),
        (100, 0.0, 0.0, "nothing finishes: never at this rate"),
    ],
)
def test_when_a_queue_will_be_empty_in_words(due: int, came: float, ended: float, text: str) -> None:
    found = drain(due, came, ended)
    assert found.text == text
    assert (found.seconds is None) == ("never" in text)


def test_a_queue_that_is_worked_off_says_when_it_will_be_empty(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job(queue="mail") for _ in range(50)))
    clock.advance(11 * MINUTE)  # what came is no longer in the window
    for _ in range(10):
        clock.advance(MINUTE)
        for held in claim(store, 2, queues=["mail"]).jobs:
            store.attempts.succeed(ref(held))
    assert measured(store).queue_depth["mail"].drain.text == "empty in about 15 min"
    list(store.enqueue_many(new_job(queue="mail") for _ in range(100)))
    assert measured(store).queue_depth["mail"].drain.text == "growing: never at this rate"


def test_many_jobs_that_came_at_once_are_soon_no_longer_taken_for_a_stream(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job(queue="mail") for _ in range(100)))
    assert measured(store).queue_depth["mail"].drain.text == "growing: never at this rate"
    for _ in range(5):
        clock.advance(MINUTE)
        for held in claim(store, 10, queues=["mail"]).jobs:
            store.attempts.succeed(ref(held))
    clock.advance(MINUTE - 1)
    assert measured(store).queue_depth["mail"].drain.text == "empty in about 5 min"


def test_jobs_that_people_cancel_are_no_work_that_goes_on(store: Store) -> None:
    a_queued_job(store, queue="mail")
    list(store.enqueue_many(new_job(queue="mail", task="wrong") for _ in range(30)))
    store.operator.bulk("cancel", Filter(tasks=("wrong",)))
    assert measured(store).queue_depth["mail"].drain.text == "growing: never at this rate"


def test_of_more_jobs_than_are_counted_it_says_that_it_takes_longer(store: Store, clock: Clock) -> None:
    list(store.enqueue_many(new_job(queue="mail") for _ in range(COUNTED + 1000)))
    clock.advance(11 * MINUTE)
    store.exchange([Outcome("succeed", held.id, held.fence) for held in claim(store, 990, queues=["mail"]).jobs], None)
    assert measured(store).queue_depth["mail"].drain.text == "empty in more than 30 min"


def test_a_queue_whose_jobs_are_all_done_is_still_there(store: Store, clock: Clock) -> None:
    """A series that vanishes looks like one that nobody can tell."""
    held = a_running_job(store, queue="mail")
    store.attempts.succeed(ref(held))
    clock.advance(HOUR)
    read = samples(store)
    for name in ("queue_depth", "queue_due", "oldest_runnable_age_seconds", "drain_seconds", "processing_rate"):
        assert read[f"holdfast_{name}{{queue=mail}}"] == 0.0
    assert measured(store).queue_depth == {}


def test_counters_of_outcomes_are_there_before_the_first_one(store: Store) -> None:
    """From one that appears with its first failures, Prometheus could tell no increase."""
    a_queued_job(store, queue="mail")
    read = samples(store)
    found = {outcome: read[f"holdfast_jobs_total{{outcome={outcome},queue=mail,task=greet}}"] for outcome in ENDED}
    assert found == dict.fromkeys(ENDED, 0.0)
