"""Claims from the lanes that a worker was told of: they take what a claim from everywhere would take there. SQLite may
ignore what a worker was told, and does."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.factories import BOOM, HOUR, Clock, a_queued_job, claim, ref
from tests.servers import own_postgres

pytestmark = pytest.mark.parametrize("engine", ["postgres"])
HERE = ("default", "greet", 0)
THERE = ("elsewhere", "greet", 0)
told_of = pytest.mark.parametrize("told", [[HERE], [HERE, THERE]], ids=["one lane", "two"])  # a statement for each
LANES = [(queue, task, priority) for queue in ("a", "b") for task in ("greet", "scan") for priority in (-1, 0, 5)]
TASKS = ("greet", "scan")


def ids(claimed: Any) -> list[str]:
    return [str(job.id) for job in claimed.jobs]


def test_only_the_lanes_told_of_are_taken_from(store: Store) -> None:
    made = {lane: a_queued_job(store, queue=lane[0], task=lane[1], priority=lane[2]) for lane in LANES}
    told = [LANES[0], LANES[4], LANES[10]]
    claimed = claim(store, 10, tasks=TASKS, told=told)
    assert ids(claimed) == [made[lane] for lane in sorted(told, key=lambda lane: (-lane[2], int(made[lane])))]
    assert not claimed.more
    assert {store.reads.get(id).state for lane, id in made.items() if lane not in told} == {State.QUEUED}
    assert store.reads.get(made[told[0]]).fence == claimed.jobs[0].fence
    assert not claim(store, 10, tasks=TASKS, told=told).jobs


@pytest.mark.parametrize("tasks", [("greet",), ("greet", "other")], ids=["one", "several"])
def test_what_is_not_due_is_left_in_a_lane_told_of(store: Store, tasks: tuple[str, ...]) -> None:
    a_queued_job(store, delay=60)
    due = a_queued_job(store)
    claimed = claim(store, 5, tasks=tasks, told=[("default", task, 0) for task in tasks])
    assert ids(claimed) == [due]


@pytest.mark.parametrize("lanes", [LANES, LANES[:1]], ids=["several", "one"])
@pytest.mark.parametrize("seed", range(12))
def test_told_of_all_lanes_it_takes_what_the_order_says(
    store: Store, clock: Clock, seed: int, lanes: list[tuple[str, str, int]]
) -> None:
    draw = random.Random(seed)
    tried = set[str]()
    for _ in range(20):
        queue, task, priority = draw.choice(lanes)
        kind = draw.choice(["due", "due", "future", "expired", "once", "tried"])
        options: dict[str, Any] = {"queue": queue, "task": task, "max_attempts": 1 if kind == "once" else 3}
        if kind == "tried":
            id = a_queued_job(store, priority=100, **options)
            [held] = claim(store, tasks=TASKS).jobs
            store.attempts.reschedule(ref(held), 0, BOOM)
            store.operator.change(id, priority=priority)
            tried.add(id)
        else:
            expires_in = 0.5 if kind == "expired" else None
            a_queued_job(
                store, priority=priority, delay=HOUR if kind == "future" else 0, expires_in=expires_in, **options
            )
        clock.advance(1)
    jobs = [job for job in store.reads.jobs(limit=100) if job.run_at <= clock.now]
    live = [job for job in jobs if job.expires_at is None or job.expires_at > clock.now or job.id in tried]
    order = sorted(live, key=lambda job: (-job.priority, job.run_at, int(job.id)))
    limit, ahead = draw.randrange(6), draw.randrange(1, 6)
    seen = order[: limit + ahead]
    fresh = [job.id not in tried and job.max_attempts > 1 for job in seen]
    claimed = claim(store, limit, ahead=ahead, tasks=TASKS, told=lanes)
    assert ids(claimed) == [job.id for n, job in enumerate(seen) if n < limit or fresh[n]]
    assert claimed.passed == any(not fresh[n] for n in range(limit, len(seen)))
    assert not claimed.more


@told_of
def test_a_paused_queue_or_task_gives_nothing_until_its_pause_ends(
    store: Store, clock: Clock, told: list[tuple[str, str, int]]
) -> None:
    id = a_queued_job(store)
    for kind, name in (("queue", "default"), ("task", "greet")):
        store.pauses.add(kind, name, delay=60)
        assert not claim(store, told=told).jobs
        store.pauses.drop(kind, name)
    store.pauses.add("queue", "default", delay=60)
    store.pauses.add("queue", "another")
    store.pauses.add("task", "default")
    clock.advance(61)
    assert ids(claim(store, told=told)) == [id]


@told_of
def test_what_others_have_locked_does_not_stand_in_the_way(
    store: Store, settings: Settings, told: list[tuple[str, str, int]]
) -> None:
    first, second = a_queued_job(store), a_queued_job(store)
    with psycopg.connect(settings.url) as other:
        other.execute(f'select 1 from "{settings.schema}".jobs where id = %s for update', (int(first),))
        claimed = claim(store, 2, told=told)
        assert ids(claimed) == [second]
        assert claimed.more == (len(told) > 1), "of one lane it is not asked: there is a look at all of them soon"
        third = a_queued_job(store)
        assert ids(claim(store, 1, told=told)) == [third]
    assert ids(claim(store, 2, told=told)) == [first]


@pytest.mark.parametrize("told", [[], [HERE]], ids=["everywhere", "told"])
def test_a_claim_waits_for_the_disk_only_where_it_is_the_last_try(
    settings: Settings, told: list[tuple[str, str, int]]
) -> None:
    """Nothing of a claim is lost that matters if the server crashes before it is on disk: the job is queued, and who
    claimed it is fenced off (docs/decisions/0010). But a job that may be tried once must not be tried twice."""
    behind = "select pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn()"

    def unflushed(max_attempts: int) -> int:
        found = 0
        for _ in range(30):
            a_queued_job(store, max_attempts=max_attempts)
            assert claim(store, told=told).jobs
            found += connection.execute(behind).fetchone() == (True,)
        return found

    with (
        own_postgres(synchronous_commit="on", autovacuum="off") as server,  # where nobody else writes
        psycopg.connect(server.url, autocommit=True) as connection,
        closing(open_store(replace(settings, url=server.url))) as store,
    ):
        store.schema.migrate()
        # The server itself writes a little meanwhile.
        assert unflushed(3) > unflushed(1) + 8
