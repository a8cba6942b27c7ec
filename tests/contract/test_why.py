"""`why` says what the claim does, on both engines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checking
from hypothesis import strategies as st

from holdfast.model.why import Reason, Why
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store import why as summing_up
from holdfast.store.base import Row, Store
from holdfast.store.why import why, why_queue
from tests.contract.places import raw
from tests.contract.test_suspects import crash_together
from tests.contract.test_workers import register
from tests.factories import BOOM, HOUR, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, ref
from tests.servers import drop_schema, new_schema, shared_postgres


def codes(found: list[Reason]) -> list[str]:
    return [reason.code.value for reason in found]


def only(store: Store, job: object) -> Reason:
    [reason] = why(store, str(job))
    return reason


def test_a_due_job_that_a_worker_would_take_is_ready(store: Store) -> None:
    register(store)
    reason = only(store, a_queued_job(store))
    assert (reason.code, reason.blocks) == (Why.READY, False)


def test_a_scheduled_job_says_when_it_is_due(store: Store, clock: Clock) -> None:
    register(store)
    reason = only(store, a_queued_job(store, delay=HOUR))
    assert (reason.code, reason.blocks) == (Why.SCHEDULED, True)
    assert (reason.details["until"] - clock.now).total_seconds() == pytest.approx(HOUR, abs=0.01)
    assert "2030-01-01 01:00:00 UTC (in 1h)" in reason.text


def test_a_rescheduled_job_says_which_attempt_comes_when_and_what_went_wrong(store: Store) -> None:
    held = a_running_job(store, max_attempts=5)
    store.attempts.reschedule(ref(held), 30, BOOM)
    register(store)
    reason = only(store, held.id)
    assert reason.code is Why.BACKOFF
    assert reason.details["attempt"] == 2
    assert "attempt 2 of 5" in reason.text
    assert "Boom: it broke" in reason.text


def test_pauses_tell_who_why_and_until_when_and_all_that_hold_are_told(store: Store, clock: Clock) -> None:
    register(store, lease=HOUR)
    job = a_queued_job(store, queue="mail", delay=30)
    store.pauses.add("queue", "mail", by="ops", reason="provider down", delay=MINUTE)
    store.pauses.add("task", "greet")
    store.pauses.add("queue", "other")
    scheduled, queue, task = why(store, job)
    assert scheduled.code is Why.SCHEDULED
    assert (queue.code, queue.details["by"], queue.details["reason"]) == (Why.QUEUE_PAUSED, "ops", "provider down")
    assert "by ops (provider down) until 2030-01-01 00:01:00 UTC" in queue.text
    assert (task.code, task.details["until"]) == (Why.TASK_PAUSED, None)
    clock.advance(MINUTE)
    assert codes(why(store, job)) == ["TASK_PAUSED"], "a pause that is over holds nothing"
    store.operator.pause(job)
    assert codes(why(store, job)) == ["PAUSED", "TASK_PAUSED"]


def test_a_pause_by_filter_is_named_whether_the_job_was_set_aside_yet_or_not(store: Store, clock: Clock) -> None:
    register(store, lease=HOUR)
    theirs, other = b'{"customer":42}', b'{"customer":7}'
    before = a_queued_job(store, args=theirs)
    filter = "args.customer:42"
    store.pauses.add("filter", filter, by="ana", reason="their API is down", delay=MINUTE)
    after, free = a_queued_job(store, args=theirs), a_queued_job(store, args=other)
    for job in (before, after):
        reason = only(store, job)
        assert (reason.code, reason.blocks) == (Why.FILTER_PAUSED, True)
        assert reason.text.startswith(
            "jobs with args.customer:42 are paused by ana (their API is down) until 2030-01-01 00:01:00 UTC"
        )
        assert reason.text.endswith(": holdfast resume args.customer:42")
        assert reason.details["filter"] == filter
    assert not only(store, free).blocks
    counts = {count.code: count.jobs for count in why_queue(store, "default").reasons}
    assert counts == {Why.FILTER_PAUSED: 2, Why.READY: 1}
    clock.advance(MINUTE)
    [over] = [reason for reason in why(store, before) if reason.code is Why.FILTER_PAUSED]
    assert "is over: a worker's watchdog lets it go within seconds" in over.text
    store.pauses.let_go()
    assert Why.FILTER_PAUSED not in codes(why(store, before))


def test_without_a_live_worker_for_its_queue_nobody_serves_it(store: Store, clock: Clock) -> None:
    job = a_queued_job(store, queue="mail")
    assert "no worker is up" in only(store, job).text
    register(store, queues=["img", "default"])
    reason = only(store, job)
    assert (reason.code, reason.details["served"]) == (Why.NO_WORKER, ["default", "img"])
    assert "holdfast worker APP -q mail" in reason.text
    register(store, "w2", queues=["mail"])
    assert only(store, job).code is Why.READY
    clock.advance(3 * LEASE)
    assert only(store, job).code is Why.NO_WORKER, "workers that were not heard of for so long don't count"
    store.look("w2", ["greet"], ["mail"])
    assert only(store, job).code is Why.READY


def test_a_worker_that_people_stopped_is_named_with_who_and_when(store: Store, clock: Clock) -> None:
    job = a_queued_job(store, queue="mail")
    register(store, "w1", queues=["mail"])
    store.workers.request_stop("w1", by="ana", reason="deploy")
    store.workers.unregister("w1")
    clock.advance(MINUTE)
    register(store, "w2", queues=["img"])
    store.workers.request_stop("w2", by="ben")
    store.workers.unregister("w2")
    reason = only(store, job)
    assert reason.code is Why.NO_WORKER
    assert "(no worker is up; w1 was stopped by ana at 2030-01-01 00:00:00 UTC (1m ago): deploy)" in reason.text
    assert (reason.details["stopped"], reason.details["stopped_by"]) == ("w1", "ana")
    register(store, "w3")
    assert only(store, job).code is Why.READY
    store.workers.request_stop("w3")  # which serves every queue
    store.workers.unregister("w3")
    assert "w3 was stopped at 2030-01-01 00:01:00 UTC" in only(store, job).text
    assert "w3 was stopped" in why_queue(store, "mail").reasons[0].text


def test_how_long_a_silent_worker_counts_follows_its_own_lease(store: Store, clock: Clock) -> None:
    register(store, lease=300.0)
    job = a_queued_job(store)
    clock.advance(10 * MINUTE)
    assert only(store, job).code is Why.READY
    clock.advance(MINUTE)
    assert only(store, job).code is Why.NO_WORKER


def test_a_task_nobody_has_names_the_nearest(store: Store) -> None:
    register(store, tasks=["send_mail", "resize"])
    job = a_queued_job(store, task="sent_mail")
    reason = only(store, job)
    assert (reason.code, reason.details["nearest"]) == (Why.NO_HANDLER, ["send_mail"])
    assert reason.text.startswith("1 worker serves queue default, none has task sent_mail (nearest: send_mail)")
    register(store, "w2", tasks=["resize"])
    assert only(store, job).text.startswith("2 workers serve queue default, none has task")


def test_full_workers_are_counted_and_what_is_due_before_it_too(store: Store, clock: Clock) -> None:
    register(store, slots=2)
    for _ in range(2):
        a_running_job(store)
    first, second = a_queued_job(store), a_queued_job(store)
    assert codes(why(store, first)) == ["WORKERS_BUSY"]
    clock.advance(10)
    busy, behind = why(store, second)
    assert (busy.details["slots"], busy.details["claimed_ahead"], busy.blocks) == (2, 0, True)
    assert (behind.code, behind.details["position"], behind.blocks) == (Why.BEHIND, 2, False)


def test_full_workers_name_the_job_that_has_run_for_longest(store: Store, clock: Clock) -> None:
    register(store, "w1", slots=2)
    register(store, "other", tasks=("scan",))
    a_running_job(store, task="scan", worker="other", lease=HOUR)
    clock.advance(5)
    oldest = a_running_job(store, lease=HOUR)
    clock.advance(10)
    a_running_job(store, lease=HOUR)
    clock.advance(10)
    busy = only(store, a_queued_job(store))
    assert f"The oldest is job {oldest.id} (greet), for 20s on w1: holdfast stack {oldest.id}" in busy.text
    assert busy.details["oldest"] == str(oldest.id)
    assert (clock.now - busy.details["oldest_since"]).total_seconds() == 20


def test_the_position_counts_what_the_workers_that_could_run_it_take_first(store: Store, clock: Clock) -> None:
    register(store, tasks=["greet", "scan"], queues=["default", "mail"])
    for options in (
        {"priority": 5},
        {"priority": 5, "task": "scan", "queue": "mail"},
        {"task": "scan"},
        {"queue": "elsewhere", "priority": 9},
        {"task": "unknown", "priority": 9},
        {"priority": 9, "delay": HOUR},
        {"priority": -1},
    ):
        a_queued_job(store, **options)
    expired = a_queued_job(store, priority=9, expires_in=1)
    clock.advance(2)
    job = a_queued_job(store)
    assert only(store, job).details["position"] == 4
    assert codes(why(store, expired)) == ["EXPIRED"]


def test_the_position_is_counted_up_to_a_bound(store: Store, settings: Settings) -> None:
    register(store)
    job = a_queued_job(store)
    first = a_queued_job(store, priority=1)
    with raw(settings) as sql:
        many = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 10500) "
        columns = "queue, task, args, priority, created_at, run_at, ready_at"
        rows = "select j.queue, j.task, j.args, 1, j.created_at, j.run_at, j.ready_at from {jobs} j, n where j.id = ?"
        if settings.url.startswith("sqlite"):
            sql(f"insert into {{jobs}} ({columns}) {many} {rows}", int(first))
        else:
            sql(f"{many} insert into {{jobs}} ({columns}) {rows}", int(first))
    reason = only(store, job)
    assert reason.details["capped"] is True
    assert "10,000+ jobs due before it" in reason.text
    summary = why_queue(store, "default", window=1000)
    assert (summary.looked_at, summary.complete) == (1000, False)


def test_the_estimate_follows_the_pace_of_late(store: Store, clock: Clock) -> None:
    register(store, slots=50)
    for _ in range(20):
        a_queued_job(store)
    held = claim(store, 10).jobs
    for one in held:
        clock.advance(2)
        store.attempts.succeed(ref(one))
    jobs = [a_queued_job(store) for _ in range(3)]
    store.look("w1", ["greet"], None)
    reason = only(store, jobs[-1])
    assert reason.details["position"] == 13
    # The first of ten ended 18 s ago: 1.8 s each.
    assert reason.details["estimate_seconds"] == pytest.approx(12 * 1.8, rel=0.01)
    assert "in about 22s" in reason.text


def test_a_running_job_names_its_worker_and_lease_and_what_was_asked(store: Store, clock: Clock) -> None:
    held = a_running_job(store, worker="w7")
    leased = only(store, held.id)
    assert (leased.code, leased.details["worker"]) == (Why.LEASED, "w7")
    store.operator.pause(str(held.id))
    assert codes(why(store, str(held.id))) == ["LEASED", "PAUSE_REQUESTED"]
    store.operator.cancel(str(held.id))
    assert codes(why(store, str(held.id)))[:2] == ["LEASED", "CANCEL_REQUESTED"]
    clock.advance(LEASE + 1)
    expired = why(store, str(held.id))[0]
    assert expired.code is Why.LEASE_EXPIRED
    assert "no worker is up to give it back" in expired.text
    register(store)
    assert "a worker's watchdog gives it back" in why(store, str(held.id))[0].text


def test_a_running_job_says_when_it_has_to_stop_and_when_it_is_killed(store: Store, clock: Clock) -> None:
    register(store, "w1", tasks=["greet", "slow"], grace=5.0, timeouts={"slow": 30.0})
    free = only(store, a_running_job(store, lease=HOUR).id)
    assert "killed" not in free.text
    assert "kill_at" not in free.details
    held = a_running_job(store, task="slow", lease=HOUR)
    started = clock.now
    clock.advance(10)
    leased = only(store, held.id)
    assert [(leased.details[name] - started).total_seconds() for name in ("stop_at", "kill_at")] == [30, 35]
    assert "; it has to stop at 2030-01-01 00:00:30 UTC (in 20s), and is killed at 2030-01-01 00:00:35" in leased.text
    store.operator.cancel(str(held.id))
    leased, asked = why(store, str(held.id))
    assert (leased.code, asked.code) == (Why.LEASED, Why.CANCEL_REQUESTED)
    assert [(leased.details[name] - started).total_seconds() for name in ("stop_at", "kill_at")] == [10, 15]
    store.workers.unregister("w1")
    assert "killed" not in why(store, str(held.id))[0].text


def test_finished_jobs_say_how_they_ended(store: Store) -> None:
    done, failed, cancelled = a_running_job(store), a_running_job(store), a_queued_job(store, delay=HOUR)
    store.attempts.succeed(ref(done))
    store.attempts.fail(ref(failed), BOOM)
    store.operator.cancel(cancelled, "not today")
    assert only(store, done.id).code is Why.SUCCEEDED
    reason = only(store, failed.id)
    assert (reason.code, reason.details["error_code"]) == (Why.FAILED, "Boom")
    assert "Boom: it broke" in reason.text
    assert f"holdfast jobs retry {failed.id}" in reason.text
    assert "not today" in only(store, cancelled).text


def test_a_job_that_is_not_there_gets_a_guess_why(store: Store) -> None:
    assert "no jobs at all" in only(store, "7").text
    kept, deleted = a_queued_job(store), a_queued_job(store)
    a_queued_job(store)
    store.operator.delete(deleted)
    assert "not committed" in only(store, "999").text
    assert "deleted" in only(store, deleted).text
    assert "ids here are numbers" in only(store, "abc").text
    asked = only(store, "state:queued queue:mail")
    assert asked.code is Why.NOT_FOUND
    assert "it looks like a filter, and this takes one id; ids that match: holdfast jobs list 'state:" in asked.text
    assert {only(store, id).code for id in ("999", deleted, "abc")} == {Why.NOT_FOUND}
    assert only(store, kept).code is Why.NO_WORKER


def test_a_suspect_waits_for_nothing_and_is_told_of(store: Store, clock: Clock) -> None:
    once, _ = crash_together(store, clock, 2)
    register(store, slots=8)
    assert only(store, once.id).code is Why.READY
    claim(store, 2)
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    register(store, id="w2", slots=8)
    reason = only(store, once.id)
    assert (reason.code, reason.blocks, reason.details) == (Why.SUSPECT, False, {"losses": 2})


def test_a_queue_is_summed_up_by_reason(store: Store, clock: Clock) -> None:
    register(store, slots=9)
    for _ in range(3):
        a_queued_job(store, queue="mail")
    for _ in range(2):
        a_queued_job(store, queue="mail", delay=HOUR)
    a_queued_job(store, queue="mail", task="unknown", delay=HOUR)
    paused = a_queued_job(store, queue="mail")
    store.operator.pause(paused)
    a_queued_job(store, queue="other")
    [held] = claim(store, queues=["mail"]).jobs
    summary = why_queue(store, "mail")
    assert (summary.looked_at, summary.complete) == (7, True)
    assert {count.code.value: count.jobs for count in summary.reasons} == {
        "LEASED": 1, "PAUSED": 1, "SCHEDULED": 3, "NO_HANDLER": 1, "READY": 2,
    }  # fmt: skip
    assert [count.example for count in summary.reasons[:2]] == [str(held.id), paused]
    assert why_queue(store, "nobody knows it").reasons == []


def test_a_job_that_is_claimed_under_way_does_not_label_those_that_wait_with_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(store, slots=9)
    waiting = [a_queued_job(store, queue="mail") for _ in range(3)]
    counted = summing_up._kinds

    def claimed_meanwhile(*args: Any) -> list[Row]:
        kinds = counted(*args)
        [held] = claim(store, queues=["mail"]).jobs
        assert str(held.id) == waiting[0] == str(kinds[0]["example"])
        return kinds

    monkeypatch.setattr(summing_up, "_kinds", claimed_meanwhile)
    [ready] = why_queue(store, "mail").reasons
    assert (ready.code, ready.jobs, ready.example) == (Why.READY, 3, waiting[0])


def test_jobs_that_are_not_due_are_counted_as_such_though_the_first_falls_due_meanwhile(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(store, slots=9)
    for delay in (1, HOUR, HOUR):
        a_queued_job(store, queue="mail", delay=delay)
    counted = summing_up._kinds

    def due_meanwhile(*args: Any) -> list[Row]:
        kinds = counted(*args)
        clock.advance(2)
        return kinds

    monkeypatch.setattr(summing_up, "_kinds", due_meanwhile)
    [scheduled] = why_queue(store, "mail").reasons
    assert (scheduled.code, scheduled.jobs) == (Why.SCHEDULED, 3)


# -- one predicate: no reason blocks, if and only if it is claimed -----------------------------------------------------

TASKS, QUEUES = ("greet", "scan"), ("default", "mail")
CONDITIONS = (
    "due", "future", "retrying", "retried", "paused", "expiring", "running", "running long", "cancel asked",
    "pause asked", "suspect", "succeeded", "failed", "cancelled", "resumed", "retried expiring",
)  # fmt: skip


@dataclass(frozen=True)
class AWorker:
    tasks: tuple[str, ...]
    queues: tuple[str, ...] | None
    slots: int
    silent: bool
    in_hand: int


FIT = AWorker(TASKS, None, 3, silent=False, in_hand=0)  # would take whatever can be taken
workers = st.one_of(
    st.sampled_from([FIT, AWorker(TASKS, None, 2, silent=False, in_hand=1)]),
    st.builds(
        AWorker,
        tasks=st.sampled_from([("greet",), ("scan",), TASKS, ("other",)]),
        queues=st.sampled_from([None, ("default",), ("mail",), QUEUES, ()]),
        slots=st.integers(1, 2),
        silent=st.booleans(),
        in_hand=st.integers(0, 2),
    ),
)
names = [("queue", name) for name in QUEUES] + [("task", name) for name in TASKS]
pauses = st.tuples(st.sampled_from(names), st.sampled_from([None, 5, 500]))
jobs = st.tuples(
    st.sampled_from(CONDITIONS), st.sampled_from(TASKS), st.sampled_from(QUEUES), st.integers(-1, 1), st.integers(2, 4)
)


class Place:
    """One store for all examples of the property; emptied before each."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.store = open_store(settings, clock=self.clock)
        self.store.schema.migrate()

    def empty(self) -> None:
        with raw(self.settings) as sql:
            for table in ("jobs", "leases", "attempts", "workers", "pauses"):
                sql(f"delete from {{{table}}}")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "sqlite":
        directory: Path = tmp_path_factory.mktemp("why")
        place = Place(Settings(url=f"sqlite:///{directory}/jobs.db", synchronous="off"))
        yield place
        place.store.close()
    else:
        schema = new_schema()
        place = Place(Settings(url=shared_postgres(), schema=schema))
        yield place
        place.store.close()
        drop_schema(shared_postgres(), schema)


def put(store: Store, condition: str, task: str, queue: str, priority: int, max_attempts: int) -> str:
    """A job in this condition, 30 seconds before it is looked at."""
    options: dict[str, Any] = {"task": task, "queue": queue, "priority": priority, "max_attempts": max_attempts}
    if condition == "future":
        return a_queued_job(store, delay=HOUR, **options)
    if condition == "expiring":
        return a_queued_job(store, expires_in=10, **options)
    if condition in ("due", "paused", "resumed", "cancelled"):
        id = a_queued_job(store, **options)
        if condition != "due":
            {"paused": store.operator.pause, "resumed": store.operator.pause, "cancelled": store.operator.cancel}[
                condition
            ](id)
        if condition == "resumed":
            store.operator.resume(id)
        return id
    alone = f"for {uuid.uuid4()}"  # a task of its own, so that the claim finds it and no other
    if "expiring" in condition:
        options["expires_in"] = 10
    id = a_queued_job(store, **{**options, "task": alone})
    [held] = claim(store, tasks=[alone], worker="somebody", lease=HOUR if condition == "running long" else 10.0).jobs
    ends: dict[str, Callable[[], object]] = {
        "retrying": lambda: store.attempts.reschedule(ref(held), HOUR, BOOM),
        "retried": lambda: store.attempts.reschedule(ref(held), 1, BOOM),
        "retried expiring": lambda: store.attempts.reschedule(ref(held), 1, BOOM),
        "succeeded": lambda: store.attempts.succeed(ref(held)),
        "failed": lambda: store.attempts.fail(ref(held), BOOM),
        "cancel asked": lambda: store.operator.cancel(id),
        "pause asked": lambda: store.operator.pause(id),
    }
    if condition in ends:
        ends[condition]()
    return id


def make(place: Place, drawn: list[Any], held_back: list[Any], fleet: list[AWorker]) -> list[str]:
    store, clock = place.store, place.clock
    place.empty()
    ids = []
    for condition, task, queue, priority, max_attempts in drawn:
        ids.append(put(store, condition, task, queue, priority, max_attempts))
    with raw(place.settings) as sql:
        for id, (condition, task, *_) in zip(ids, drawn, strict=True):
            sql("update {jobs} set task = ? where id = ?", task, int(id))
            if condition == "suspect":
                sql(
                    "update {jobs} set state = 'queued', fence = null, ready_at = run_at, attempt = 0, suspicion = 2 "
                    "where id = ?", int(id),
                )  # fmt: skip
    for (kind, name), seconds in held_back:
        store.pauses.add(kind, name, delay=seconds)
    for number, worker in enumerate(fleet):
        if worker.silent:
            store.workers.register(
                id=f"w{number}", name="", host="", pid=1, queues=worker.queues, tasks=worker.tasks, slots=worker.slots,
                lease=1.0,
            )  # fmt: skip
    clock.advance(30)
    for number, worker in enumerate(fleet):
        if not worker.silent:
            store.workers.register(
                id=f"w{number}", name="", host="", pid=1, queues=worker.queues, tasks=worker.tasks, slots=worker.slots
            )
            # One claim brought what it has in hand, and one more that it has done since.
            in_hand, busy = min(worker.in_hand, worker.slots), f"busy {uuid.uuid4()}"
            for _ in range(in_hand + 1):
                a_queued_job(store, task=busy, queue="elsewhere")
            done, *_ = claim(store, in_hand + 1, tasks=[busy], worker=f"w{number}", lease=HOUR).jobs
            store.attempts.succeed(ref(done))
    return ids


def claimed_by(store: Store, fleet: list[AWorker]) -> set[str]:
    """What the workers that are up and have a free slot would take, given room."""
    taken = set[str]()
    for number, worker in enumerate(fleet):
        in_hand = min(worker.in_hand, worker.slots)
        if worker.silent or in_hand == worker.slots:
            continue
        found = claim(store, 50, tasks=worker.tasks, queues=worker.queues, worker=f"taker {number}", held=in_hand)
        taken |= {str(job.id) for job in found.jobs}
    return taken


@checking(
    max_examples=250, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    drawn=st.lists(jobs, min_size=1, max_size=6), held_back=st.lists(pauses, max_size=2),
    fleet=st.lists(workers, max_size=3),
)  # fmt: skip
def test_no_reason_blocks_if_and_only_if_a_worker_with_a_free_slot_claims_it(
    place: Place, drawn: list[Any], held_back: list[Any], fleet: list[AWorker]
) -> None:
    ids = make(place, drawn, held_back, fleet)
    store = place.store
    told = {id: why(store, id) for id in ids}
    free = {id for id, found in told.items() if not any(reason.blocks for reason in found)}
    assert all(told.values()), "there is always something to say"
    taken = claimed_by(store, fleet)
    assert free == taken & set(ids), [(id, codes(told[id]), drawn[ids.index(id)]) for id in free ^ (taken & set(ids))]


@checking(
    max_examples=120, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(drawn=st.lists(jobs, min_size=1, max_size=8), held_back=st.lists(pauses, max_size=2))
def test_a_job_of_which_so_many_are_ahead_is_claimed_after_so_many(
    place: Place, drawn: list[Any], held_back: list[Any]
) -> None:
    fleet = [AWorker(TASKS, None, 50, False, 1)]
    ids = make(place, drawn, held_back, fleet)
    store = place.store
    positions = {}
    for id in ids:
        found = {reason.code: reason for reason in why(store, id)}
        blocking = {code for code, reason in found.items() if reason.blocks}
        if not blocking:
            positions[id] = found[Why.BEHIND].details["position"] if Why.BEHIND in found else 1
    order = [str(job.id) for job in claim(store, 50, tasks=TASKS, held=1, worker="taker").jobs]
    assert sorted(positions, key=positions.__getitem__) == order
    assert [positions[id] for id in order] == list(range(1, 1 + len(order)))


def test_what_waits_is_told_by_queue_and_task_and_counted_up_to_a_bound(store: Store, clock: Clock) -> None:
    assert store.reads.waiting() == []
    for options in ({"delay": 5}, {"priority": 7, "delay": 3}, {"task": "scan"}, {"queue": "mail"}, {"queue": "mail"}):
        a_queued_job(store, **options)
    a_running_job(store, queue="never", task="taken")
    found = store.reads.waiting(most=2)
    assert [(kind.queue, kind.task, kind.due, kind.more) for kind in found] == [
        ("default", "greet", 0, False), ("default", "scan", 1, False), ("mail", "greet", 2, True),
    ]  # fmt: skip
    assert [(kind.due_at - clock.now).total_seconds() for kind in found] == pytest.approx([3, 0, 0])
    assert len(store.reads.waiting(lanes=1)) == 1
    assert store.reads.now() == clock.now
    clock.advance(4)
    assert store.reads.waiting()[0].due == 1, "the other one is not due yet"
    clock.advance(1)
    assert store.reads.waiting()[0].due == 2
