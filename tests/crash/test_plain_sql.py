"""Jobs that other programs insert by plain SQL start at once, as those that we enqueue: an idle worker with its default
settings would otherwise find them only when it looks by itself, every 20 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from holdfast.model.job import NewJob
from holdfast.model.lifecycle import State
from tests.crash.fleet import Fleet, wait_until
from tests.servers import a_role

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

SOON = 2.0  # seconds
ROUNDS = 3  # a look of the worker's own may come just then, but not each time
IDLE = """
    select count(*) = 1 from pg_stat_activity
     where application_name = 'holdfast-listener' and state = 'idle'
       and state_change < clock_timestamp() - interval '1 s'
"""

Writer = psycopg.Connection[tuple[object, ...]]


def insert(db: Writer, jobs: str) -> None:
    db.execute(f"insert into {jobs} (queue, task, args) values ('q', 'quick', '{{}}')".encode())


def insert_with_more(db: Writer, jobs: str) -> None:
    with db.transaction():
        db.execute("create temporary table beside (n integer) on commit drop")
        insert(db, jobs)
        db.execute("insert into beside values (1)")


def insert_as_the_owner_of_a_strange_path(db: Writer, jobs: str) -> None:
    with db.transaction():
        db.execute("set local search_path = ''")
        insert(db, jobs)


def copy(db: Writer, jobs: str) -> None:
    with db.cursor() as cursor, cursor.copy(f"copy {jobs} (queue, task, args) from stdin".encode()) as rows:
        rows.write_row(("q", "quick", "{}"))


def await_idle(fleet: Fleet) -> None:
    """Until the worker listens and has not looked for a second: so it is done with what it was told, or just did."""
    wait_until(lambda: fleet.sql(IDLE) == [(True,)], what="it is idle")


@pytest.mark.parametrize("write", [insert, insert_with_more, insert_as_the_owner_of_a_strange_path, copy])
def test_a_row_that_a_role_with_no_other_right_inserts_starts_at_once(
    fleet: Fleet, write: Callable[[Writer, str], None]
) -> None:
    schema = f'"{fleet.settings.schema}"'
    worker = fleet.start(processes=1)
    rights = f"usage on schema {schema}", f"insert on {schema}.jobs"
    with a_role(fleet.settings.url, *rights) as url, psycopg.connect(url, autocommit=True) as db:
        for round in range(1, ROUNDS + 1):
            await_idle(fleet)
            write(db, f"{schema}.jobs")
            committed = time.time()
            fleet.await_starts(round)
            assert fleet.traces("start")[-1].at - committed < SOON
            fleet.await_states(succeeded=round)
    fleet.stop(worker)


def test_a_job_on_a_transaction_that_commits_late_starts_then(fleet: Fleet) -> None:
    """Others of its kind were due when it was enqueued, and are long done when it is committed."""
    fleet.enqueue("quick")
    with psycopg.connect(fleet.settings.url) as db:
        done = fleet.store.enqueue_on(db, NewJob(task="quick", args=b"{}"))
        worker = fleet.start(processes=1)
        fleet.await_states(succeeded=1)
        await_idle(fleet)
    committed = time.time()
    wait_until(lambda: fleet.job(done.id).state is State.SUCCEEDED)
    assert fleet.traces("start", done.id)[0].at - committed < SOON
    fleet.stop(worker)
