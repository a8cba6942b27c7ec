"""The sums of pending work cost what is unfinished, not what is finished: on a table full of finished jobs whose
last checkpoint counted something."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from tests.contract.places import raw
from tests.factories import Clock, a_running_job, ref
from tests.plans.postgres import explain
from tests.plans.test_sqlite import Steps

THEN = "'2029-01-01 00:00:00'"
UNFINISHED = 20
CROWD = 30_000


@pytest.fixture
def crowded(store: Store, clock: Clock) -> Store:
    """Finished jobs, each with work pending when it ended, and a few that are not finished."""
    for _ in range(UNFINISHED):
        store.attempts.checkpoint(ref(a_running_job(store)), b"1", pending=1)
    with raw(store.db.settings) as sql:  # type: ignore[attr-defined]
        sql(
            "insert into {jobs} (state, task, queue, attempt, created_at, run_at, ready_at, finished_at, args, pending)"
            f" with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {CROWD}) "
            f"select 'succeeded', 'greet', 'default', 1, {THEN}, {THEN}, null, {THEN}, '1', 1000 from numbers"
        )
    return store


def total(store: Store) -> int:
    return sum(depth.pending for depth in store.reads.depths())


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_sqlite_the_sums_take_as_many_steps_as_there_are_unfinished_jobs(crowded: Store) -> None:
    assert isinstance(crowded, SqliteStore)
    steps = Steps(crowded)
    for _ in ("never analysed", "analysed"):
        assert steps.of(lambda: crowded.db.read("pending_work")) < 100 * UNFINISHED
        assert steps.of(crowded.retention.drop_pending) < 100 * UNFINISHED
        with crowded.user_connections.transaction() as db:
            db.execute("analyze")
    assert total(crowded) == UNFINISHED


@pytest.mark.parametrize("engine", ["postgres"])
def test_on_postgresql_the_sums_look_at_unfinished_jobs_alone(crowded: Store) -> None:
    assert isinstance(crowded, PostgresStore)
    with psycopg.connect(crowded.db.settings.url, autocommit=True) as connection:
        for told in ("never analysed", "analysed"):
            for mode in ("force_custom_plan", "force_generic_plan"):
                for name in ("pending_work", "drop_pending"):
                    plan = explain(connection, crowded.db.statements[name], {"limit": 1000}, mode)
                    assert not plan.whole_table("jobs"), (told, mode, name)
                    assert plan.rows("jobs") <= UNFINISHED, (told, mode, name)
                    assert plan.pages < 10 * UNFINISHED, (told, mode, name)
            connection.execute(f'analyze "{crowded.db.settings.schema}".jobs'.encode())
            connection.execute(f'analyze "{crowded.db.settings.schema}".pending'.encode())
    assert total(crowded) == UNFINISHED
