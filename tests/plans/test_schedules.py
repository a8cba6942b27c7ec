"""Thousands of schedules cost a worker no more than a few: only those that are due are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.settings import Settings
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.store import SqliteStore
from tests.factories import Clock
from tests.plans.postgres import Connection, explain
from tests.plans.test_sqlite import Steps
from tests.servers import own_postgres

MANY, DUE = 5_000, 3
ROWS = (
    "insert into {crons} (name, expression, timezone, catch_up, queue, priority, max_attempts, next_at, task, args) "
    "select 's' || n, '0 3 * * *', 'UTC', 'latest', 'default', 0, 3, {next_at}, 't' || (n % 5), '{{}}' from {numbers}"
)
SERVED = ("t1", "t2", "none")


@pytest.fixture
def postgres() -> Iterator[tuple[PostgresStore, Connection]]:
    with own_postgres(autovacuum="off") as server:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        with psycopg.connect(server.url, autocommit=True) as connection:
            at = f"now() + case when n <= {5 * DUE} then interval '-1 s' else interval '1 h' end + n * interval '1 ms'"
            rows = ROWS.format(crons="holdfast.crons", next_at=at, numbers=f"generate_series(1, {MANY}) n")
            connection.execute(rows.encode())
            yield store, connection
        store.close()


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("analysed", [False, True])
def test_postgres_reads_only_those_that_are_due(
    postgres: tuple[PostgresStore, Connection], mode: str, analysed: bool
) -> None:
    store, connection = postgres
    if analysed:
        connection.execute("analyze")
    served: dict[str, Any] = {"tasks": list(SERVED), "crons": ["s1", "gone"]}
    look = {**served, "worker": "w", "queues": None, "open": False, "polling": "{}", "memory": None}
    for name, given, most in (
        ("next_tick", served, 6), ("due_crons", {**served, "most": 200}, 2 * DUE + 6), ("look", look, 6)
    ):  # fmt: skip
        plan = explain(connection, store.db.statements[name], given, mode)
        assert not plan.whole_table("crons"), name
        assert plan.rows("crons") <= most, name
    assert len(store.crons.due(SERVED, (), 200)) == 2 * DUE


def test_sqlite_reads_only_those_that_are_due(tmp_path: Path, clock: Clock) -> None:
    store = SqliteStore(Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off"), clock=clock)
    store.schema.migrate()
    spent: list[tuple[int, ...]] = []
    for many in (0, MANY):
        with store.user_connections.transaction() as db:
            counted = f"select 1 as n union all select n + 1 from c where n < {MANY}"
            numbers = f"(with recursive c as ({counted}) select n from c)"
            at = f"case when n <= {5 * DUE} then '2029-12-31 00:00:00.000000' else '2030-01-02 00:00:00.000000' end"
            db.execute("delete from holdfast_crons")
            if many:
                db.execute(ROWS.format(crons="holdfast_crons", next_at=at, numbers=numbers))
        steps = Steps(store)
        spent.append(
            (
                steps.of(lambda: store.crons.next_tick(SERVED, ("s1",))),
                steps.of(lambda: store.crons.due(SERVED, ("s1",), 200)),
                steps.of(lambda: store.look("w", SERVED, None, ("s1",))),
            )
        )
    assert len(store.crons.due(SERVED, (), 200)) == 2 * DUE
    store.close()
    assert all(after <= before + 1_000 for before, after in zip(*spent, strict=True)), spent
