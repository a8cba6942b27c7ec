"""No statement on a worker's or a producer's path takes more steps when SQLite's tables grow:
counted in instructions of its virtual machine, with a crowd of every state around a few due jobs, never analysed and
analysed."""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.job import ClaimedJob, Wants
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.base import Ref
from holdfast.store.sqlite.codec import stored
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.why import why
from tests.factories import BOOM, Clock, claim, new_job, wants
from tests.plans.crowd import (
    COLUMNS,
    DUE,
    FILTER,
    HELD_UNDER_A_LEASE,
    KINDS,
    LANE_TASKS,
    LANES,
    LAYOUTS,
    PAUSED_QUEUE,
    PAUSED_TASK,
    QUEUE,
    TASK,
    UNSERVED,
    WANTED,
    selected,
)

SCALES = (60, 1000)  # where SQLite knows the table to be smaller, it plans otherwise: with a filter made of all of it
BACKLOG = 100_000
COUNTED = 10  # instructions between two counts
FENCE = f"'00000000-0000-4000-8000-' || printf('%012d', n / {HELD_UNDER_A_LEASE})"

Act = Callable[[], object]


@pytest.fixture(params=SCALES)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """One connection, on a crowded table."""
    store = SqliteStore(Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off"), clock=clock)
    store.schema.migrate()
    fill(store, clock, request.param)
    yield store
    store.close()


def fill(store: SqliteStore, clock: Clock, scale: int) -> None:
    now = stored(clock.now)
    words = {
        "n": "n",
        "past": f"strftime('%Y-%m-%d %H:%M:%f000', '{now}', '-1 day', '+' || (n / 1000.0) || ' seconds')",
        "future": f"strftime('%Y-%m-%d %H:%M:%f000', '{now}', '+1 day', '+' || (n / 1000.0) || ' seconds')",
        "fence": FENCE,
    }
    with store.user_connections.transaction() as db:
        for kind in KINDS.values():
            insert(db, kind.share * scale, ", ".join(COLUMNS), selected(kind, **words), now)
        due = f"'{now}'"
        insert(db, DUE, "task, queue, priority, run_at, ready_at", f"'{TASK}', '{QUEUE}', n - 2, {due}, {due}", now)
        db.execute(
            "insert into holdfast_leases (fence, worker, expires_at, held, job_ids) "
            "select fence, 'w' || min(id), ?, count(*), json_group_array(id) from "
            "(select fence, id from holdfast_jobs where state = 'running' limit 1000) group by fence",
            (stored(clock.now.replace(year=2031)),),
        )
    store.pauses.add("queue", PAUSED_QUEUE)
    store.pauses.add("task", PAUSED_TASK)


def insert(db: sqlite3.Connection, many: int, columns: str, values: str, now: str) -> None:
    db.execute(
        f"with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {many}) "
        f"insert into holdfast_jobs ({columns}, args, created_at) select {values}, '{{}}', '{now}' from numbers"
    )


class Steps:
    """Counts the instructions SQLite spends on what the store, or one connection, does. A pool hands out the newest
    connection, so the one the handler was set on is the one used."""

    def __init__(self, on: SqliteStore | sqlite3.Connection) -> None:
        self.counted = 0
        if isinstance(on, sqlite3.Connection):
            on.set_progress_handler(self._count, COUNTED)
            return
        with on.db.pool.take() as connection:
            connection.db.set_progress_handler(self._count, COUNTED)

    def _count(self) -> int:
        self.counted += COUNTED
        return 0

    def of(self, act: Act) -> int:
        before = self.counted
        act()
        assert self.counted > before, "it was done by another connection"
        return self.counted - before


def test_statements_take_a_bounded_number_of_steps_on_a_crowded_table(store: SqliteStore, clock: Clock) -> None:
    steps = Steps(store)
    complaints = []
    for told in ("never analysed", "analysed"):
        complaints += [f"{told}: {line}" for line in whole_tables(store)]
        complaints += [f"{told}: {line}" for line in unbounded(store, steps)]
        with store.user_connections.transaction() as db:
            db.execute("analyze")
    with store.db.transaction() as tx:  # store.add_pause would hold what waits
        tx.rows("add_pause", kind="filter", name=FILTER, by=None, reason=None, until=None, delay=None)
    complaints += [f"with a pause: {line}" for line in paused(store, steps)]
    crowd_the_front(store, clock)
    complaints += [f"busy: {line}" for line in busy(store, steps)]
    assert not complaints, "\n".join(complaints)


def unbounded(store: SqliteStore, steps: Steps) -> Iterator[str]:
    with store.user_connections.transaction() as db:
        fence, worker, ids = db.execute("select fence, worker, job_ids from holdfast_leases limit 1").fetchone()
    first, second, third, *rest = (Ref(id, fence) for id in store.db.codec.ids(ids))
    acts: dict[str, tuple[int, Act]] = {
        "enqueue": (800, lambda: store.enqueue(new_job(task=TASK, delay=3600.0))),
        "enqueue with a key that is held": (800, lambda: store.enqueue(new_job(task=TASK, key="k77"))),
        "enqueue to get a result": (800, lambda: store.enqueue(new_job(task=TASK, key="s77", reuse=1e9))),
        "look": (4000, lambda: store.look("me", (TASK, PAUSED_TASK), None, ("a", "b"))),
        "claim nothing": (4000, lambda: claim(store, 10, tasks=("nobody's",))),
        "claim": (8000, lambda: claim_and_give_back(store, wants(10, tasks=(TASK, PAUSED_TASK), held=1))),
        "claim from one queue": (
            8000,
            lambda: claim_and_give_back(store, wants(10, tasks=(TASK,), queues=(QUEUE,), held=1)),
        ),
        "renew": (1000, lambda: store.attempts.renew([fence], rest, 20.0)),
        "claim_of": (1000, lambda: store.claim_of(fence)),
        "succeed": (1500, lambda: store.attempts.succeed(first)),
        "reschedule": (1500, lambda: store.attempts.reschedule(second, 3600.0, BOOM)),
        "fail": (1500, lambda: store.attempts.fail(third, BOOM)),
        "rescue nobody": (4000, lambda: store.rescues.rescue()),
        "rescue": (8000, lambda: store.rescues.rescue(dead=[worker])),
        "expire": (500, store.retention.expire),
        "purge": (60_000, lambda: store.retention.purge(0, finished=7 * 86400.0, failed=7 * 86400.0)),
    }
    for name, (allowed, act) in acts.items():
        spent = steps.of(act)
        if spent > allowed:
            yield f"{name} takes {spent} steps, more than {allowed}"
    for ref in rest:
        store.operator.change(str(ref.id), delay=3600.0)  # rescued: the next claim is to find what was due before


def paused(store: SqliteStore, steps: Steps) -> Iterator[str]:
    lane = {"queue": QUEUE, "task": UNSERVED, "priority": 0, "after_at": "2001", "after_id": 0, "limit": 100}
    acts: dict[str, tuple[int, Act]] = {
        "look": (4000, lambda: store.look("me", (TASK, PAUSED_TASK), None, ("a", "b"))),
        "claim": (9000, lambda: claim_and_give_back(store, wants(10, tasks=(TASK, PAUSED_TASK), held=1))),
        "pauses": (400_000, store.pauses.all),  # counts up to 10,000
        "look through a lane": (20_000, lambda: store.db.read("lane_page", **lane)),
        "let go of nobody": (1500, store.pauses.let_go),
        "why": (60_000, lambda: why(store, "5")),
    }
    for name, (allowed, act) in acts.items():
        spent = steps.of(act)
        if spent > allowed:
            yield f"{name} takes {spent} steps, more than {allowed}"


def claim_and_give_back(store: SqliteStore, wanted: Wants) -> None:
    """The due jobs and only they are taken, the most urgent first; then they are as they were."""
    jobs = store.attempts.claim(wanted).jobs
    assert [job.priority for job in jobs[:DUE]] == [1, 0, -1]
    store.exchange([Outcome("release", job.id, job.fence) for job in jobs], None, [wanted.fence])


def crowd_the_front(store: SqliteStore, clock: Clock) -> None:
    """A backlog of due jobs, some of a task this worker does not serve."""
    now = stored(clock.now)
    with store.user_connections.transaction() as db:
        due = f"'{TASK}', '{QUEUE}', n % 3 - 1, '{now}', '{now}'"
        insert(db, BACKLOG, "task, queue, priority, run_at, ready_at", due, now)
        unserved = f"'{UNSERVED}', '{QUEUE}', '{now}', '{now}'"
        insert(db, BACKLOG // 10, "task, queue, run_at, ready_at", unserved, now)


def busy(store: SqliteStore, steps: Steps) -> Iterator[str]:
    acts: dict[str, tuple[int, Act]] = {
        "look": (6000, lambda: store.look("me", (TASK, PAUSED_TASK), None, ("a", "b"))),
        "claim": (20_000, lambda: claim(store, 10, tasks=(TASK, PAUSED_TASK))),
    }
    for name, (allowed, act) in acts.items():
        spent = steps.of(act)
        if spent > allowed:
            yield f"{name} takes {spent} steps, more than {allowed}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_claim_from_many_lanes_takes_steps_for_what_it_takes(tmp_path: Path, clock: Clock, layout: str) -> None:
    """Not for so many of each lane."""
    store = SqliteStore(Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off"), clock=clock)
    store.schema.migrate()
    due, many = LAYOUTS[layout]
    now = stored(clock.now)
    with store.user_connections.transaction() as db:
        db.execute(
            f"with recursive lanes (lane) as (select 0 union all select lane + 1 from lanes where lane < {LANES - 1}), "
            f"numbers (lane, n) as (select lane, 1 from lanes union all "
            f"select lane, n + 1 from numbers where n < {many}), jobs as (select *, strftime('%Y-%m-%d %H:%M:%f000', "
            f"'{now}', '-3 days', '+' || ({due}) || ' seconds') as at from numbers) "
            f"insert into holdfast_jobs (task, queue, priority, run_at, ready_at, args, created_at) "
            f"select '{TASK}' || (lane % 10), 'q' || (lane / 20), lane / 10 % 2, at, at, '{{}}', '{now}' from jobs"
        )
    steps = Steps(store)
    taken: list[ClaimedJob] = []
    spent = steps.of(lambda: taken.extend(claim(store, 100, ahead=WANTED - 100, tasks=LANE_TASKS).jobs))
    store.close()
    assert len(taken) == WANTED
    assert spent <= 300 * (WANTED + LANES)


STATEMENTS = (
    "open_lanes", "lane_jobs", "upcoming", "claim", "claim_of", "look", "enqueue", "key_given_up", "key_held",
    "raise_priority", "due_again",
    "succeed", "succeed_on", "recorded", "renew", "requests", "drop_leases", "leased_jobs", "rescue", "expire",
    "fail", "reschedule", "release", "park", "stop", "checkpoint", "progress", "pause", "resume", "cancel", "retry",
    "change", "delete", "get", "list", "newest", "find", "find_of", "failed_ids", "failed_depth",
    "ended_holds", "held_jobs", "hold", "let_go", "standing_filters", "pauses",
    "running_depth", "every_lane", "waiting", "lane_page", "ahead", "running", "failed_lately", "lately",
    "purge", "purge_step",
)  # fmt: skip
WHOLE_TABLE = re.compile(r"SCAN (j|n|holdfast_jobs)\b(?! USING)")


def whole_tables(store: SqliteStore) -> Iterator[str]:
    anything: dict[str, Any] = defaultdict(lambda: None)
    with store.user_connections.transaction() as db:
        for name in STATEMENTS:
            plan = db.execute(f"explain query plan {store.db.statements[name]}", anything).fetchall()
            yield from (f"{name}: {row[3]}" for row in plan if WHOLE_TABLE.match(row[3]))
