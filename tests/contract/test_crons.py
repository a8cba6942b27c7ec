"""Crons as a store keeps them: one job a tick, whoever tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model.cron import CronRecord, Schedule, Step, next_step, tick_of
from holdfast.store.base import Store
from tests.contract.places import at_once
from tests.factories import HOUR, MINUTE, Clock, claim

START = datetime(2030, 1, 1, tzinfo=UTC)


def declare(store: Store, name: str = "report", expression: str = "*/5 * * * *", **given: Any) -> CronRecord:
    now = store.reads.now()
    zone = given.get("timezone", "UTC")
    options = {
        "timezone": zone, "catch_up": "latest", "queue": "default", "priority": 0, "max_attempts": 3,
        "tags": (f"cron:{name}",), "next_at": Schedule(expression, zone).after(now), "now": now, **given,
    }  # fmt: skip
    assert store.crons.declare(CronRecord(**{"name": name, "task": name, "expression": expression, **options}))
    return the_cron(store, name)


def fire_one(store: Store, cron: CronRecord, step: Step) -> str | None:
    return store.crons.fire([(cron, step)]).get(cron.name)


def the_cron(store: Store, name: str = "report") -> CronRecord:
    [found] = [cron for cron in store.crons.all() if cron.name == name]
    return found


def fire(store: Store, name: str = "report") -> list[str]:
    """What one worker does when it looks."""
    cron, jobs = the_cron(store, name), []
    while step := next_step(cron):
        job = fire_one(store, cron, step)
        if job is not None:
            jobs.append(job)
        cron = replace(cron, next_at=step.next_at, last_at=step.tick or cron.last_at)
    return jobs


def test_the_databases_clock_decides(store: Store, clock: Clock) -> None:
    assert store.reads.now() == START
    clock.advance(0.25)
    assert store.reads.now() == START + timedelta(seconds=0.25)


def test_a_tick_becomes_a_job_that_is_due_at_it_and_says_where_it_is_from(store: Store, clock: Clock) -> None:
    declare(store, queue="reports", priority=7, max_attempts=5, tags=("x", "cron:report"))
    assert fire(store) == []
    clock.advance(5 * MINUTE + 3)
    [id] = fire(store)
    job = store.reads.get(id)
    tick = START + timedelta(minutes=5)
    assert (job.task, job.queue, job.priority, job.max_attempts) == ("report", "reports", 7, 5)
    assert (job.args, job.tags, job.run_at, job.created_at) == (b"{}", ("x", "cron:report"), tick, clock.now)
    assert tick_of(job.task, job.correlation_id) == tick
    assert fire(store) == []
    cron = the_cron(store)
    assert (cron.last_at, cron.next_at) == (tick, START + timedelta(minutes=10))
    [held] = claim(store, tasks=("report",)).jobs
    assert str(held.id) == id


def test_however_many_try_at_once_each_tick_has_one_job(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    declare(store, expression="* * * * *")
    workers = [stores(clock=clock) for _ in range(6)]
    for _ in range(5):
        clock.advance(MINUTE)
        seen = [the_cron(worker) for worker in workers]  # all of them see the same before any acts

        def act(n: int, seen: list[CronRecord] = seen) -> str | None:
            step = next_step(seen[n])
            assert step is not None
            return fire_one(workers[n], seen[n], step)

        assert len([id for id in at_once(6, act) if id]) == 1
    assert sorted(job.run_at for job in store.reads.jobs()) == [START + timedelta(minutes=n) for n in range(1, 6)]


def test_a_tick_is_taken_with_its_job_or_not_at_all(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(store)
    clock.advance(5 * MINUTE)
    before = the_cron(store)

    def ends(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store.crons, "_enqueue", ends)
        with pytest.raises(KeyboardInterrupt):
            fire(store)
    assert the_cron(store) == before
    assert len(fire(store)) == 1


def test_who_comes_late_with_an_old_view_changes_nothing(store: Store, clock: Clock) -> None:
    old = declare(store)
    clock.advance(5 * MINUTE)
    stale = replace(old, now=clock.now)
    step = next_step(stale)
    assert step is not None
    assert fire_one(store, stale, step) is not None
    before = the_cron(store)
    assert fire_one(store, stale, step) is None
    assert fire_one(store, stale, Step(None, START + timedelta(days=1))) is None
    assert the_cron(store) == before
    assert len(store.reads.jobs()) == 1


def test_no_tick_is_taken_twice_even_if_the_row_was_set_back(store: Store, clock: Clock) -> None:
    """The last line of defence, whatever happened to clocks or rows: ticks go forward only."""
    declare(store)
    clock.advance(5 * MINUTE)
    assert len(fire(store)) == 1
    taken = the_cron(store)
    assert taken.last_at is not None
    forged = Step(taken.last_at, taken.next_at)
    assert fire_one(store, replace(taken, next_at=taken.next_at), forged) is None
    assert len(store.reads.jobs()) == 1


def test_a_clock_that_is_set_back_an_hour_repeats_nothing(store: Store, clock: Clock) -> None:
    declare(store, expression="0 * * * *")
    clock.advance(HOUR)
    assert len(fire(store)) == 1
    clock.advance(-HOUR)
    declare(store, expression="0 * * * *")
    for _ in range(8):
        clock.advance(15 * MINUTE)
        fire(store)
    assert sorted(job.run_at for job in store.reads.jobs()) == [START + timedelta(hours=n) for n in (1, 2)]


@pytest.mark.parametrize(
    ("zone", "day", "hour", "fired"),
    [
        ("Europe/Berlin", "2030-03-31", 2, "2030-03-31T01:00"),  # skipped: when the gap ends, at 3:00
        ("Europe/Berlin", "2030-10-27", 2, "2030-10-27T00:30"),  # repeated: the first of both
        ("America/New_York", "2030-03-10", 2, "2030-03-10T07:00"),
        ("America/New_York", "2030-11-03", 1, "2030-11-03T05:30"),
    ],
)
def test_a_day_on_which_clocks_are_changed_has_one_job(
    store: Store, clock: Clock, zone: str, day: str, hour: int, fired: str
) -> None:
    """Looked at every ten minutes, from the day before to the day after, by workers that start anew."""
    clock.now = datetime.fromisoformat(f"{day}T00:00").replace(tzinfo=UTC) - timedelta(hours=12)
    for _ in range(6 * 36):
        declare(store, expression=f"30 {hour} * * *", timezone=zone)
        fire(store)
        clock.advance(10 * MINUTE)
    [job] = [job for job in store.reads.jobs() if job.run_at.isoformat().startswith(day)]
    assert job.run_at == datetime.fromisoformat(fired).replace(tzinfo=UTC)


def test_declaring_the_same_again_loses_no_tick_that_is_due(store: Store, clock: Clock) -> None:
    declare(store)
    clock.advance(5 * MINUTE)
    again = declare(store, queue="other")
    assert (again.next_at, again.queue) == (START + timedelta(minutes=5), "other")
    [id] = fire(store)
    assert store.reads.get(id).queue == "other"


def test_a_changed_schedule_takes_effect_from_now_on(store: Store, clock: Clock) -> None:
    declare(store)
    clock.advance(2 * MINUTE)
    assert declare(store, expression="*/3 * * * *").next_at == START + timedelta(minutes=3)
    assert declare(store, expression="0 9 * * *", timezone="Europe/Berlin").next_at == START + timedelta(hours=8)
    clock.advance(10 * MINUTE)
    assert fire(store) == []


def test_workers_that_disagree_on_the_schedule_fire_no_tick_twice(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    """A rolling deploy: the newest start decides, whoever fires follows the row, also over flips between both."""
    other = stores(clock=clock)
    declare(store, expression="* * * * *")
    for n in range(40):
        if n % 4 == 0:  # one of either kind starts now and then
            declare(other if n % 8 else store, expression="*/2 * * * *" if n % 8 else "* * * * *")
        clock.advance(30)
        fire(store if n % 3 else other)
    ticks = [job.run_at for job in store.reads.jobs(limit=100)]
    assert len(ticks) == len(set(ticks))
    expected = {START + timedelta(minutes=n) for n in range(2, 21, 2)}
    assert expected <= set(ticks), "what both schedules name is never missing"


def test_one_who_has_seen_the_schedule_of_before_does_not_fire_it(store: Store, clock: Clock) -> None:
    old = declare(store, expression="*/5 * * * *")
    declare(store, expression="*/5 * * * *", timezone="Asia/Kolkata")  # the same next tick, another schedule
    clock.advance(5 * MINUTE)
    stale = replace(old, now=clock.now)
    step = next_step(stale)
    assert step is not None
    assert fire_one(store, stale, step) is None
    assert len(fire(store)) == 1


def test_a_pause_is_seen_with_who_and_why_and_lets_ticks_go(store: Store, clock: Clock) -> None:
    declare(store)
    store.pauses.add("cron", "report", by="ops", reason="provider down", delay=HOUR)
    clock.advance(5 * MINUTE)
    cron = the_cron(store)
    assert cron.paused
    assert (cron.paused_by, cron.paused_reason) == ("ops", "provider down")
    assert cron.paused_until == START + timedelta(hours=1)
    assert fire(store) == []
    assert the_cron(store).next_at == START + timedelta(minutes=10)
    clock.advance(HOUR)
    assert not the_cron(store).paused
    [id] = fire(store)
    assert store.reads.get(id).run_at == START + timedelta(minutes=65)


def test_a_resumed_cron_goes_on_with_its_next_tick(store: Store, clock: Clock) -> None:
    declare(store)
    store.pauses.add("cron", "report")
    clock.advance(12 * MINUTE)  # and no worker was there meanwhile
    assert store.pauses.drop("cron", "report", next_at=the_cron(store).upcoming(1)[0])
    assert not store.pauses.drop("cron", "report", next_at=START + timedelta(days=9))
    assert fire(store) == []
    assert the_cron(store).next_at == START + timedelta(minutes=15)


def test_a_cron_whose_clock_was_far_ahead_once_is_brought_back_by_pausing_and_resuming(
    store: Store, clock: Clock
) -> None:
    """Ticks go forward only: after one of the year 2060 there would be none for long. People can mend that."""
    declare(store)
    clock.advance(30 * 365 * 24 * HOUR)
    assert len(fire(store)) == 1
    clock.advance(-30 * 365 * 24 * HOUR + 6 * MINUTE)
    assert fire(store) == []
    store.pauses.add("cron", "report")
    store.pauses.drop("cron", "report", next_at=the_cron(store).schedule.after(clock.now))
    clock.advance(5 * MINUTE)
    assert len(fire(store)) == 1


def test_a_paused_cron_holds_back_no_job_of_its_task(store: Store) -> None:
    declare(store)
    store.pauses.add("cron", "report")
    store.crons.run("report")
    assert len(claim(store, tasks=("report",)).jobs) == 1


def test_one_run_out_of_turn_does_not_disturb_the_schedule(store: Store, clock: Clock) -> None:
    before = declare(store, queue="reports")
    id = store.crons.run("report")
    assert id is not None
    job = store.reads.get(id)
    assert (job.run_at, job.queue, job.tags, job.correlation_id) == (START, "reports", ("cron:report",), "cron:report")
    assert the_cron(store) == before
    clock.advance(5 * MINUTE)
    assert len(fire(store)) == 1
    assert store.crons.run("unheard-of") is None


def test_a_look_tells_when_the_next_tick_of_its_own_crons_falls_due(store: Store, clock: Clock) -> None:
    assert store.look("w", ["report"], None, ["report"]).next_tick is None
    declare(store)
    declare(store, "other", "* * * * *")
    assert store.look("w", ["report"], None).next_tick is None
    assert store.look("w", ["report"], None, ["report"]).next_tick == 5 * MINUTE
    assert store.look("w", ["report"], None, ["report", "other"]).next_tick == MINUTE
    clock.advance(2 * MINUTE)
    assert store.look("w", ["report"], None, ["report", "other"]).next_tick == -MINUTE


def test_a_cron_says_how_many_workers_declare_it(store: Store, clock: Clock) -> None:
    declare(store)
    declare(store, "removed")
    for id in ("w1", "w2"):
        store.workers.register(
            id=id, name=id, host="h", pid=1, queues=None, tasks=["report"], slots=1, crons=["report"]
        )
    assert {cron.name: cron.workers for cron in store.crons.all(with_workers=True)} == {"report": 2, "removed": 0}
    clock.advance(40)
    store.look("w2", ["report"], None)
    clock.advance(40)
    assert {cron.name: cron.workers for cron in store.crons.all(with_workers=True)} == {"report": 1, "removed": 0}
