"""Counters that survive restarts: whatever happens to a job is counted once, whoever does it."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.model.filter import parse
from holdfast.model.lifecycle import REQUESTS, TRANSITIONS, State
from holdfast.model.outcome import Crash, Error, Outcome
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.worker.retention import Retention
from tests.contract.counters import FOLDER
from tests.contract.places import HOLDER_VERBS, PEOPLES_VERBS, at_once, open_connection, raw, stale_and_current
from tests.factories import (
    BOOM,
    HOUR,
    LEASE,
    MINUTE,
    Clock,
    a_queued_job,
    a_running_job,
    a_watchdog,
    claim,
    new_job,
    ref,
)
from tests.waiting import wait_until

DAY = 24 * HOUR
ENQUEUED = {"enqueued": 1}
STARTED = {**ENQUEUED, "started": 1}


def totals(store: Store) -> dict[str, int]:
    """The totals by `what` and `detail`. Of histograms only how much is in them, and the names of error groups not."""
    found = Counter[str]()
    for count in store.rollups.totals():
        plain = count.what in ("wait", "run", "error")
        found[count.what if plain else f"{count.what} {count.detail}".strip()] += count.n
    assert found.pop("wait", 0) == found["started"], "each start has waited"
    return +found


def told(store: Store) -> dict[str, int]:
    """The totals, which are the same before and after they are folded."""
    before = totals(store)
    while store.rollups.fold():
        pass
    assert totals(store) == before
    return before


# -- each writer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "counted"),
    [
        ("succeed", {"succeeded": 1, "run": 1}),
        ("fail", {"failed Boom": 1, "run": 1, "error": 1}),
        ("reschedule", {"retried 1": 1, "run": 1, "error": 1}),
        ("release", {"released": 1}),
        ("park", {"released": 1}),
        ("stop", {"cancelled running": 1, "run": 1}),
        ("checkpoint", {}),
        ("progress", {}),
        ("step", {}),
    ],
)
def test_how_an_attempt_ends_is_counted_once(store: Store, verb: str, counted: dict[str, int]) -> None:
    held = a_running_job(store)
    assert told(store) == STARTED
    HOLDER_VERBS[verb](store, ref(held))
    assert told(store) == {**STARTED, **counted}


@pytest.mark.parametrize("verb", [verb for verb in HOLDER_VERBS if verb not in ("checkpoint", "progress", "step")])
def test_what_is_told_again_after_a_lost_reply_is_not_counted_again(store: Store, verb: str) -> None:
    held = a_running_job(store)
    outcome = Outcome(
        "succeed" if verb == "succeed" else verb, held.id, held.fence,  # type: ignore[arg-type]
        None if verb == "succeed" else "errored", error=None if verb == "succeed" else BOOM,
    )  # fmt: skip
    store.exchange([outcome], None)
    before = told(store)
    assert store.exchange([outcome], None).already == [outcome]
    assert told(store) == before


@pytest.mark.parametrize("verb", HOLDER_VERBS)
def test_what_came_too_late_is_not_counted(store: Store, clock: Clock, verb: str) -> None:
    stale, _ = stale_and_current(store, clock, State.RUNNING)
    before = told(store)
    with pytest.raises(Exception, match="no longer held"):
        HOLDER_VERBS[verb](store, stale)
    assert told(store) == before == {**ENQUEUED, "started": 2, "rescued": 1, "error": 1}


def test_many_outcomes_of_one_trip_are_counted_each(store: Store) -> None:
    list(store.enqueue_many(new_job(task=f"task{n % 3}") for n in range(60)))
    held = claim(store, 60, tasks=("task0", "task1", "task2")).jobs
    done = [
        Outcome("succeed", job.id, job.fence, result=b"1" if n % 2 else None)
        if n < 50
        else Outcome("fail", job.id, job.fence, "errored", error=BOOM)
        for n, job in enumerate(held)
    ]
    stale = Outcome("succeed", held[55].id, str(uuid.uuid4()))
    store.exchange([*done[:30], stale], None)
    store.exchange(done[20:], None)  # the reply about the first ones was lost
    assert told(store) == {
        "enqueued": 60, "started": 60, "succeeded": 50, "failed Boom": 10, "run": 60, "error": 10,
    }  # fmt: skip
    by_task = Counter({count.task: 0 for count in store.rollups.totals()})
    for count in store.rollups.totals():
        by_task[count.task] += count.n if count.what == "started" else 0
    assert by_task == {"task0": 20, "task1": 20, "task2": 20}


@pytest.mark.parametrize("commit", [True, False])
def test_success_on_the_handlers_own_transaction(store: Store, commit: bool) -> None:
    held = a_running_job(store)
    with contextmanager_of(store, commit=commit) as connection:
        store.attempts.succeed_on(connection, ref(held), b"1")
    assert told(store) == ({**STARTED, "succeeded": 1, "run": 1} if commit else STARTED)


class _Undone(Exception):
    pass


@contextmanager
def contextmanager_of(store: Store, *, commit: bool) -> Iterator[object]:
    try:
        with store.user_connections.transaction() as connection:
            yield connection
            if not commit:
                raise _Undone
    except _Undone:
        pass


def test_rescues_are_counted_and_what_they_end(store: Store, clock: Clock) -> None:
    a_running_job(store, max_attempts=1)
    clock.advance(LEASE + 1)
    assert [job.state for job in store.rescues.rescue()] == [State.FAILED]
    assert told(store) == {**STARTED, "rescued": 1, "failed CRASHED": 1, "error": 1}


def test_a_crash_among_others_is_counted_each_time(store: Store) -> None:
    held = a_running_job(store, max_attempts=9)
    for _ in range(3):
        store.rescues.crashed([(ref(held), Crash("killed", True))], "w1", quarantine_after=3)
        [held] = claim(store).jobs
    assert told(store) == {**ENQUEUED, "started": 4, "rescued": 3, "error": 3}


@pytest.mark.parametrize("verb", PEOPLES_VERBS)
@pytest.mark.parametrize("state", State)
def test_what_people_do_is_counted(store: Store, clock: Clock, state: State, verb: str) -> None:
    """By what the lifecycle says of it: a verb that moves jobs counts where they go, and refused ones count nothing."""
    _, current = stale_and_current(store, clock, state)
    before = told(store)
    try:
        end = PEOPLES_VERBS[verb](store, str(current.id))
    except Exception:  # noqa: BLE001 - refused, as test_transitions shows
        end = state
    expected = Counter(before)
    if end != state and verb not in ("pause", "resume"):
        assert state in TRANSITIONS[verb][0]
        expected += Counter({f"cancelled {state}" if end is State.CANCELLED else f"restarted {state}": 1})
    if verb in REQUESTS and state is State.RUNNING:
        HOLDER_VERBS["park" if verb == "pause" else "stop"](store, current)
        expected += Counter(["released"] if verb == "pause" else ["cancelled running", "run"])
    assert told(store) == expected


def test_people_change_many_at_once(store: Store) -> None:
    list(store.enqueue_many(new_job() for _ in range(40)))
    store.operator.bulk("cancel", parse("state:queued"))
    store.operator.bulk_some("retry", parse("state:cancelled"), limit=30, spread=60.0)
    assert told(store) == {"enqueued": 40, "cancelled queued": 40, "restarted cancelled": 30}


def test_expiry_and_a_job_that_is_run_again(store: Store, clock: Clock) -> None:
    a_queued_job(store, expires_in=5.0)
    clock.advance(6)
    store.retention.expire()
    id = a_queued_job(store)
    store.operator.replay(id, new_job())
    assert told(store) == {"enqueued": 3, "cancelled queued": 1}


@pytest.mark.parametrize("number", [2, 3_000, 11_000])
def test_many_new_jobs(store: Store, number: int) -> None:
    jobs = [new_job(task=f"task{n % 2}", key=f"key{n}" if n < 5 else None) for n in range(number)]
    list(store.enqueue_many(jobs))
    list(store.enqueue_many(jobs[:2]))  # they join
    assert told(store) == {"enqueued": number}


def test_a_bulk_that_fails_counts_nothing(store: Store) -> None:
    def jobs() -> Iterator[object]:
        for _ in range(6_000):
            yield new_job()
        raise _Undone

    with pytest.raises(_Undone):
        list(store.enqueue_many(jobs()))  # type: ignore[arg-type]
    assert told(store) == {}


@pytest.mark.parametrize("commit", [True, False])
def test_on_the_callers_transaction(store: Store, settings: Settings, commit: bool) -> None:
    connection = open_connection(settings)
    connection.execute("begin")
    store.enqueue_on(connection, new_job())
    store.enqueue_on(connection, new_job(key="k"))
    store.enqueue_on(connection, new_job(key="k"))
    connection.commit() if commit else connection.rollback()
    connection.close()
    assert told(store) == ({"enqueued": 2} if commit else {})


def test_plain_inserts_of_other_programs(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        for _ in range(2):
            sql("insert into {jobs} (queue, task, args) values ('default', 'greet', '{{}}'), ('q', 'greet', '{{}}')")
    assert told(store) == {"enqueued": 4}
    assert {(count.queue, count.n) for count in store.rollups.totals()} == {("default", 2), ("q", 2)}


def test_a_result_that_was_there_is_a_hit(store: Store) -> None:
    first = new_job(key="k", reuse=HOUR)
    held = a_running_job(store, key="k", reuse=HOUR)
    store.enqueue(first)
    store.attempts.succeed(ref(held), b"1")
    assert not store.enqueue(first).created
    list(store.enqueue_many([first, new_job(), first]))
    assert told(store) == {"enqueued": 2, "started": 1, "succeeded": 1, "run": 1, "cache_hit": 3}


def test_names_of_any_length_are_counted(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("insert into {jobs} (queue, task, args) values (?, ?, '{{}}')", "q" * 1000, "ü" * 300)
    assert told(store) == {"enqueued": 1}


@pytest.mark.parametrize("started_at", [None, "yesterday"])
@pytest.mark.parametrize("verb", ["succeed", "fail", "delete"])
def test_a_start_that_nobody_can_read_costs_nothing(
    store: Store, settings: Settings, engine: str, started_at: str | None, verb: str
) -> None:
    """Others may write anything there; on PostgreSQL only nothing at all."""
    if engine == "postgres" and started_at is not None:
        return
    held = a_running_job(store)
    with raw(settings) as sql:
        sql("update {jobs} set started_at = ?", started_at)
        if verb == "delete":
            sql("delete from {jobs}")
    if verb != "delete":
        HOLDER_VERBS[verb](store, ref(held))
    store.rollups.fold()
    found = {count.what: count.n for count in store.rollups.totals()}
    ends = {"succeed": {"succeeded"}, "fail": {"failed"}, "delete": set[str]()}
    assert found.keys() & {"enqueued", "succeeded", "failed"} == {"enqueued"} | ends[verb]
    assert set(found.values()) == {1}
    assert store.rollups.counts(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC), grain="minute")


# -- times -----------------------------------------------------------------------------------------------------------


def test_minutes_and_hours_say_when_it_happened(store: Store, clock: Clock) -> None:
    began = clock.now
    held = a_running_job(store)
    clock.advance(61 * MINUTE)
    for folded in (False, True):
        if folded:
            store.attempts.succeed(ref(held))
            store.rollups.fold()
        found = store.rollups.counts(began, began + timedelta(hours=2), grain="minute")
        started = [count for count in found if count.what in ("enqueued", "started", "wait")]
        assert {count.at for count in started} == {began}
        assert {count.at for count in found} == ({began, began + timedelta(minutes=61)} if folded else {began})
    hours = store.rollups.counts(began, began + timedelta(hours=2), grain="hour")
    assert {(count.what, count.at) for count in hours} == {
        ("enqueued", began), ("started", began), ("wait", began),
        ("succeeded", began + timedelta(hours=1)), ("run", began + timedelta(hours=1)),
    }  # fmt: skip
    [run] = [count for count in hours if count.what == "run"]
    assert (run.n, run.detail) == (1, "inf")
    assert run.total == pytest.approx(61 * MINUTE * 1000)
    assert store.rollups.counts(began + timedelta(hours=1), began + timedelta(hours=1), grain="hour") == []


def test_histograms_tell_how_long_it_waited_and_ran(store: Store, clock: Clock) -> None:
    for waited, ran in ((0.002, 0.05), (0.002, 40.0), (2.0, 0.05)):
        a_queued_job(store)
        clock.advance(waited)
        [held] = claim(store).jobs
        clock.advance(ran)
        store.attempts.succeed(ref(held))
    for _ in range(2):
        found = {(c.what, c.detail): (c.n, round(c.total)) for c in store.rollups.totals() if c.what in ("wait", "run")}
        assert found == {
            ("wait", "3"): (2, 4), ("wait", "3000"): (1, 2000),
            ("run", "100"): (2, 100), ("run", "100000"): (1, 40_000),
        }  # fmt: skip
        store.rollups.fold()


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_is_committed_late_is_counted_in_its_minute(store: Store, settings: Settings, clock: Clock) -> None:
    began = clock.now
    late = open_connection(settings)
    store.enqueue_on(late, new_job())
    clock.advance(10 * MINUTE)
    a_queued_job(store)
    assert told(store) == {"enqueued": 1}
    late.commit()
    late.close()
    assert told(store) == {"enqueued": 2}
    minutes = store.rollups.counts(began, began + timedelta(hours=1), grain="minute")
    assert [(count.at, count.n) for count in minutes] == [(began, 1), (began + timedelta(minutes=10), 1)]


# -- folding ---------------------------------------------------------------------------------------------------------


def rows(settings: Settings, table: str) -> int:
    with raw(settings) as sql:
        [(count,)] = sql(f"select count(*) from {{{table}}}")
    return int(count)


def test_each_fold_is_a_bounded_step(store: Store) -> None:
    for n in range(7):
        a_queued_job(store, queue=f"q{n}")
    assert [store.rollups.fold(limit=3) for _ in range(4)] == [3, 3, 1, 0]
    assert told(store) == {"enqueued": 7}


def test_jobs_that_others_insert_one_by_one_in_a_minute_are_one_delta_on_sqlite(
    store: Store, settings: Settings, clock: Clock
) -> None:
    """Folding them takes longer than making them."""
    for n in range(12):
        a_queued_job(store, queue="other" if n == 5 else "default")
        clock.advance(9)
    if settings.url.startswith("sqlite"):
        assert rows(settings, "deltas") == 4, "two minutes, and the other queue's in the middle of the first"
    assert told(store) == {"enqueued": 12}


def test_however_much_happens_few_rows_are_kept(store: Store, settings: Settings, clock: Clock) -> None:
    for _ in range(20):
        list(store.enqueue_many(new_job() for _ in range(100)))
        store.exchange([Outcome("succeed", job.id, job.fence) for job in claim(store, 100).jobs], None)
        store.rollups.fold()
    assert told(store) == {"enqueued": 2000, "started": 2000, "succeeded": 2000, "run": 2000}
    charted = 4  # all but what was started, also in the two grains for charts
    assert (rows(settings, "deltas"), rows(settings, "rollups")) == (0, 3 * 5 + 2 * charted)


def test_several_fold_at_once_and_nothing_is_counted_twice(stores: Callable[..., Store], clock: Clock) -> None:
    store = stores(clock=clock)
    store.schema.migrate()
    for n in range(400):
        a_queued_job(store, queue=f"q{n % 7}")
    others = [stores(clock=clock) for _ in range(4)]
    folded = at_once(4, lambda n: sum(others[n].rollups.fold(limit=20) for _ in range(30)))
    assert sum(folded) == 400
    assert told(store) == {"enqueued": 400}


def _all_there(marks: list[Path]) -> Callable[[], bool]:
    return lambda: all(mark.exists() for mark in marks)


def test_folders_that_are_killed_lose_and_repeat_nothing(kept: Store, settings: Settings, tmp_path: Path) -> None:
    """Processes that enqueue, claim, succeed and fold as fast as they can, and are killed at any moment."""
    for _ in range(3):
        marks = [tmp_path / str(uuid.uuid4()) for _ in range(3)]
        processes = [
            subprocess.Popen([sys.executable, "-m", FOLDER, settings.url, settings.schema, str(mark)]) for mark in marks
        ]
        try:
            wait_until(_all_there(marks))
        finally:
            for process in processes:
                process.kill()
                process.wait()
    with raw(settings) as sql:
        expected = dict(sql("select state, count(*) from {jobs} group by state"))
    found = told(kept)
    assert found["enqueued"] == sum(expected.values()) > 500
    assert found["succeeded"] == found["run"] == expected["succeeded"] > 100
    assert found["started"] == expected["succeeded"] + expected["running"]
    for grain in ("minute", "hour"):
        of_grain = Counter[str]()
        with raw(settings) as sql:
            for what, n in sql("select what, sum(n) from {rollups} where grain = ? group by what", grain):
                of_grain[what] += int(n)
        assert {what: of_grain[what] for what in ("enqueued", "succeeded", "run")} == {
            what: found[what] for what in ("enqueued", "succeeded", "run")
        }


def test_a_watchdog_folds_at_its_look(store: Store, settings: Settings) -> None:
    watchdog = a_watchdog(store, settings)
    for _ in range(3):
        a_queued_job(store)
    watchdog._look()
    assert rows(settings, "deltas") == 0
    assert totals(store) == {"enqueued": 3}
    assert not store.look("w2", ("greet",), None).deltas


def test_error_groups_are_counted_by_the_hour_and_in_totals_together(store: Store, clock: Clock) -> None:
    """Totals stay for ever, and messages that are never the same make groups without end."""
    began = clock.now
    errors = [Error("Boom", "it broke"), Error("Boom", "it broke"), Error("Boom", "it fell")]
    for error in errors:
        store.attempts.fail(ref(a_running_job(store)), error)
    for _ in range(2):
        hours = store.rollups.counts(began, clock.now + timedelta(hours=1), grain="hour")
        groups = {count.detail: count.n for count in hours if count.what == "error"}
        assert groups == Counter(error.fingerprint for error in errors)
        assert [(c.detail, c.n) for c in store.rollups.totals() if c.what == "error"] == [("", 3)]
        store.rollups.fold()


# -- retention ---------------------------------------------------------------------------------------------------------


def test_minutes_are_kept_for_a_day_hours_for_ninety_and_totals_for_ever(store: Store, clock: Clock) -> None:
    began = clock.now
    a_queued_job(store)
    store.rollups.fold()
    retention = Retention(store, finished=7 * DAY, failed=90 * DAY)

    def kept() -> tuple[int, int, dict[str, int]]:
        retention.forget_rollups()
        until = began + timedelta(days=200)
        minutes = store.rollups.counts(began, until, grain="minute")
        return len(minutes), len(store.rollups.counts(began, until, grain="hour")), totals(store)

    clock.advance(DAY - MINUTE)
    assert kept() == (1, 1, {"enqueued": 1})
    clock.advance(2 * MINUTE)
    assert kept() == (0, 1, {"enqueued": 1})
    clock.advance(89 * DAY)
    assert kept() == (0, 0, {"enqueued": 1})


def test_forgetting_goes_in_bounded_steps(store: Store, clock: Clock) -> None:
    for n in range(5):
        a_queued_job(store, queue=f"q{n}")
    store.rollups.fold()
    clock.advance(2 * DAY)
    began = clock.now - timedelta(days=3)
    left = []
    while store.rollups.forget(2):
        left.append(len(store.rollups.counts(began, clock.now, grain="minute")))
    assert left == [3, 1]
    assert store.rollups.counts(began, clock.now, grain="minute") == []


def test_purged_jobs_stay_counted(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    store.attempts.succeed(Ref(held.id, held.fence))
    clock.advance(8 * DAY)
    assert store.retention.purge(0, finished=7 * DAY, failed=90 * DAY)[0] == 1
    assert told(store) == {**STARTED, "succeeded": 1, "run": 1}
