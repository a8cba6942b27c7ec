"""Crons that people make at run time: rows with a task and its arguments, one job a tick."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model.cron import CronRecord, Schedule, Step, next_step, tick_of
from holdfast.model.job import Enqueued
from holdfast.store.base import Store
from tests.contract.places import at_once
from tests.contract.test_crons import START, declare, the_cron
from tests.factories import MINUTE, Clock, new_job


def schedule(store: Store, name: str = "audit-a", expression: str = "*/5 * * * *", **given: Any) -> CronRecord:
    now = store.reads.now()
    zone = given.get("timezone", "UTC")
    options = {
        "task": "audit", "stored_args": b'{"url":"a"}', "timezone": zone, "catch_up": "latest", "queue": "default",
        "priority": 0, "max_attempts": 3, "tags": (f"cron:{name}",), "next_at": Schedule(expression, zone).after(now),
        "now": now, **given,
    }  # fmt: skip
    assert store.crons.schedule(CronRecord(name=name, expression=expression, **options))
    return the_cron(store, name)


def due(store: Store, *tasks: str) -> list[CronRecord]:
    return store.crons.due(tasks or ("audit",), (), 1000)


def steps_of(crons: list[CronRecord]) -> list[tuple[CronRecord, Step]]:
    return [(cron, step) for cron in crons if (step := next_step(cron))]


def fire(store: Store) -> dict[str, str]:
    return store.crons.fire(steps_of(due(store)))


def test_a_tick_becomes_a_job_of_its_task_with_its_arguments(store: Store, clock: Clock) -> None:
    schedule(store, queue="audits", priority=7, max_attempts=5, tags=("x", "cron:audit-a"))
    assert due(store) == []
    clock.advance(5 * MINUTE + 3)
    [(name, id)] = fire(store).items()
    job = store.reads.get(id)
    tick = START + timedelta(minutes=5)
    assert (name, job.task, job.args) == ("audit-a", "audit", b'{"url":"a"}')
    assert (job.queue, job.priority, job.max_attempts, job.tags) == ("audits", 7, 5, ("x", "cron:audit-a"))
    assert (job.run_at, tick_of(job.task, job.correlation_id)) == (tick, tick)
    assert fire(store) == {}
    cron = the_cron(store, "audit-a")
    assert (cron.declared, cron.last_at, cron.next_at) == (False, tick, START + timedelta(minutes=10))


def test_the_same_name_again_changes_it_and_loses_no_tick_that_is_due(store: Store, clock: Clock) -> None:
    schedule(store)
    clock.advance(5 * MINUTE)
    seen = due(store)
    schedule(store, stored_args=b'{"url":"b"}', task="scan", queue="other")
    [id] = store.crons.fire(steps_of(seen)).values()  # by a worker that has read it before it was changed
    job = store.reads.get(id)
    assert (job.task, job.args, job.queue) == ("scan", b'{"url":"b"}', "other")
    assert schedule(store, expression="0 9 * * *").next_at == START + timedelta(hours=9)
    assert len(store.crons.all()) == 1


def test_one_that_was_removed_is_fired_no_more(store: Store, clock: Clock) -> None:
    schedule(store)
    store.pauses.add("cron", "audit-a")
    clock.advance(5 * MINUTE)
    seen = due(store)
    assert store.crons.unschedule("audit-a")
    assert not store.crons.unschedule("audit-a")
    unpaused = [replace(cron, paused_at=None) for cron in seen]
    assert store.crons.fire(steps_of(unpaused)) == {}, "nor by a worker that has read it before"
    assert (store.crons.all(), store.pauses.all()) == ([], [])
    assert not schedule(store).paused, "one of this name that is made later is another one"
    assert store.reads.jobs() == []


@pytest.mark.parametrize("other", ["removed", "changed"])
def test_one_that_is_removed_or_changed_while_it_is_fired_has_one_job_or_none(
    store: Store, stores: Callable[..., Store], clock: Clock, other: str
) -> None:
    own = [stores(clock=clock) for _ in range(4)]
    for n in range(15):
        schedule(store, f"s{n}")
        clock.advance(5 * MINUTE)
        seen = [steps_of(due(worker)) for worker in own]

        def act(number: int, n: int = n, seen: list[Any] = seen) -> int:
            if number:
                return len(own[number].crons.fire(seen[number]))
            if other == "removed":
                return 0 if own[0].crons.unschedule(f"s{n}") else 1
            return 0 if own[0].crons.schedule(replace(seen[0][0][0], stored_args=b"[]")) else 1

        fired = sum(at_once(4, act))
        assert fired == 1 if other == "changed" else fired <= 1
        store.crons.unschedule(f"s{n}")
        assert len(store.reads.jobs(limit=100)) <= n + 1


def test_many_that_are_due_at_once_have_one_job_each_whoever_fires(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    names = [f"s{n:03}" for n in range(60)]
    for name in names:
        schedule(store, name, stored_args=f'"{name}"'.encode())
    workers = [stores(clock=clock) for _ in range(4)]
    for _ in range(3):
        clock.advance(5 * MINUTE)
        seen = [steps_of(due(worker)) for worker in workers]

        def act(n: int, seen: list[Any] = seen) -> dict[str, str]:
            return workers[n].crons.fire(seen[n] if n % 2 else seen[n][::-1])

        fired = at_once(4, act)
        assert sorted(name for mine in fired for name in mine) == names
    jobs = store.reads.jobs(limit=1000)
    assert len(jobs) == len({(job.args, job.run_at) for job in jobs}) == 3 * len(names)


def test_only_who_has_the_task_fires_it_and_looks_for_it(store: Store, clock: Clock) -> None:
    schedule(store)
    schedule(store, "scan-a", "* * * * *", task="scan")
    declare(store, "audit", "*/2 * * * *")  # one that the task itself declares is fired by who declares it
    assert store.crons.next_tick(("other",), ()) is None
    assert store.crons.next_tick(("audit", "other"), ()) == 5 * MINUTE
    assert store.crons.next_tick(("audit", "scan"), ()) == MINUTE
    assert store.crons.next_tick(("audit",), ("audit",)) == 2 * MINUTE
    assert store.look("w", ["audit"], None).next_tick == 5 * MINUTE
    assert store.look("w", ["audit", "scan"], None, ["audit"]).next_tick == MINUTE
    clock.advance(5 * MINUTE)
    assert due(store, "other") == []
    assert [cron.name for cron in due(store, "audit")] == ["audit-a"]
    assert {cron.name for cron in store.crons.due(("audit", "scan"), ("audit",), 10)} == {"audit-a", "scan-a", "audit"}
    assert [cron.name for cron in store.crons.due(("audit", "scan"), (), 1)] == ["scan-a"], "the one due first"


def test_a_name_is_for_one_of_a_kind(store: Store, clock: Clock) -> None:
    declared = declare(store, "audit")
    assert not store.crons.schedule(replace(declared, stored_args=b"{}", expression="* * * * *"))
    assert not store.crons.unschedule("audit")
    made = schedule(store, "nightly")
    assert not store.crons.declare(replace(made, stored_args=None, expression="* * * * *"))
    store.crons.rename("new-name", ["nightly"])  # a task's alias: it had no cron of that name
    assert {cron.name: cron.expression for cron in store.crons.all()} == {
        "audit": "*/5 * * * *", "nightly": "*/5 * * * *",
    }  # fmt: skip


def test_one_says_how_many_workers_have_its_task(store: Store) -> None:
    schedule(store)
    for id, task in (("w1", "audit"), ("w2", "audit"), ("w3", "other")):
        store.workers.register(id=id, name=id, host="h", pid=1, queues=None, tasks=[task], slots=1)
    assert [cron.workers for cron in store.crons.all(with_workers=True)] == [2]


def test_it_is_paused_and_run_out_of_turn_as_others(store: Store, clock: Clock) -> None:
    schedule(store)
    store.pauses.add("cron", "audit-a", by="ops")
    clock.advance(5 * MINUTE)
    assert fire(store) == {}
    assert the_cron(store, "audit-a").next_at == START + timedelta(minutes=10)
    id = store.crons.run("audit-a")
    assert id is not None
    job = store.reads.get(id)
    assert (job.task, job.args, tick_of(job.task, job.correlation_id)) == ("audit", b'{"url":"a"}', None)
    assert store.enqueue(new_job(task="audit")) == Enqueued(str(int(id) + 1), True)
