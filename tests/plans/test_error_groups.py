"""Error groups cost what failed, not what is stored: on a table full of jobs that succeeded, or wait. A first success
stays a heap-only update, though the fingerprint is indexed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast.model.filter import parse
from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.reads import parameters
from holdfast.store.sqlite.store import SqliteStore
from tests.contract.places import raw
from tests.factories import Clock, a_queued_job, claim
from tests.plans.postgres import explain
from tests.plans.test_sqlite import Steps

THEN = "'2029-01-01 00:00:00'"
KINDS = ("00000000aa", "00000000bb")
FAILED = 50  # jobs of each
CROWD = 30_000


@pytest.fixture
def crowded(store: Store, clock: Clock) -> Store:
    with raw(store.db.settings) as sql:  # type: ignore[attr-defined]
        for state, count, failed_at, kind in [
            ("succeeded", CROWD, "null", "null"),
            *(("failed", FAILED, THEN, f"'{kind}'") for kind in KINDS),
        ]:
            sql(
                "insert into {jobs} (state, task, queue, attempt, created_at, run_at, ready_at, finished_at, "
                "failed_at, error_fingerprint, args) "
                f"with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {count}) "
                f"select '{state}', 'greet', 'default', 1, {THEN}, {THEN}, null, {THEN}, {failed_at}, {kind}, '1' "
                "from numbers"
            )
    return store


def counted(store: Store, text: str = "") -> list[tuple[str, int]]:
    return sorted((group.id, group.jobs) for group in store.reads.error_groups(parse(text)))


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_sqlite_groups_take_as_many_steps_as_jobs_failed(crowded: Store) -> None:
    assert isinstance(crowded, SqliteStore)
    steps = Steps(crowded)
    for _ in ("never analysed", "analysed"):
        for text in ("", "task:greet", f"group:{KINDS[0]}"):
            assert steps.of(lambda text=text: crowded.reads.error_groups(parse(text))) < 150 * FAILED * len(KINDS), text  # type: ignore[misc]
        found = steps.of(lambda: crowded.reads.jobs(parse(f"group:{KINDS[0]}"), limit=5))
        assert found < 150 * FAILED
        with crowded.user_connections.transaction() as db:
            db.execute("analyze")
    assert counted(crowded) == counted(crowded, "task:greet") == [(kind, FAILED) for kind in KINDS]


@pytest.mark.parametrize("engine", ["postgres"])
def test_on_postgresql_groups_look_at_failed_jobs_alone(crowded: Store, clock: Clock) -> None:
    assert isinstance(crowded, PostgresStore)
    wanted = parameters(crowded.db, parse("state:failed task:greet"))
    cases: dict[str, dict[str, Any]] = {
        "error_groups": {},
        "error_groups_of": {**wanted, "every": True, "ids": "{}", "now": clock.now},
        "grouped_ids": {"groups": [KINDS[0]], "limit": 1000},
    }
    with psycopg.connect(crowded.db.settings.url, autocommit=True) as connection:
        for told in ("never analysed", "analysed"):
            for mode in ("force_custom_plan", "force_generic_plan"):
                for name, given in cases.items():
                    plan = explain(connection, crowded.db.statements[name], given, mode)
                    assert not plan.whole_table("jobs"), (told, mode, name)
                    assert plan.rows("jobs") <= FAILED * len(KINDS), (told, mode, name)
                    assert plan.pages < 10 * FAILED * len(KINDS), (told, mode, name)
            connection.execute(f'analyze "{crowded.db.settings.schema}".jobs'.encode())
    assert counted(crowded) == counted(crowded, "task:greet") == [(kind, FAILED) for kind in KINDS]


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize(("planted", "heap_only"), [("", 5), (", error_fingerprint = 'x'", 0)])
def test_a_first_success_writes_to_no_index(store: Store, clock: Clock, planted: str, heap_only: int) -> None:
    """And the test notices if it did."""
    assert isinstance(store, PostgresStore)
    for _ in range(5):
        a_queued_job(store)
    jobs = claim(store, 5).jobs
    table = f'"{store.db.settings.schema}".jobs'
    with psycopg.connect(store.db.settings.url) as connection:
        succeed = store.db.statements["succeed"]
        assert ", error_fingerprint = null" in succeed
        connection.execute(
            succeed.replace(", error_fingerprint = null", planted or ", error_fingerprint = null").encode(),
            {"ids": [job.id for job in jobs], "fence": jobs[0].fence, "now": clock.now},
        )
        counted = connection.execute(
            f"select pg_stat_get_xact_tuples_hot_updated('{table}'::regclass)".encode()
        ).fetchone()
        assert counted == (heap_only,)
