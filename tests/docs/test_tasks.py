"""The page on tasks names every option there is."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.settings import Settings
from holdfast.tasks.options import OPTIONS, TASK_OPTIONS
from holdfast.worker.worker import Worker
from tests.contract.places import raw
from tests.running import working
from tests.waiting import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def test_every_option_of_a_task_is_on_the_page() -> None:
    table = PAGE.partition("| option | default | meaning |")[2].partition("\n\n")[0]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition("|")[2].partition("|")[0])
    ]
    assert sorted(named) == sorted(TASK_OPTIONS)


def test_a_row_inserted_as_the_page_says_is_a_job_and_wakes_a_worker(settings: Settings, engine: str) -> None:
    with a_listening_worker(settings) as (app, _):
        run("PostgreSQL" if engine == "postgres" else "SQLite", settings)
        wait_until(lambda: [job.state for job in app.jobs()] == [State.SUCCEEDED])  # long before the next look
        assert app.job(app.jobs()[0].id).result == 3


@pytest.mark.parametrize("engine", ["postgres"])
def test_rows_set_back_to_queued_as_the_page_says_wake_a_worker(settings: Settings) -> None:
    with a_listening_worker(settings) as (app, worker):
        with raw(settings) as connection:
            connection(
                "insert into {jobs} (queue, task, args, state, attempt, ready_at, failed_at, finished_at) "
                """values ('default', 'add', '{{"a": 1, "b": 2}}', 'failed', 3, null, now(), now())"""
            )
        await_idle(worker)
        run("PostgreSQL, after an UPDATE", settings)
        wait_until(lambda: [job.state for job in app.jobs()] == [State.SUCCEEDED])  # long before the next look


@contextmanager
def a_listening_worker(settings: Settings) -> Iterator[tuple[Holdfast, Worker]]:
    """It looks by itself once in five minutes, and has just done so."""
    with Holdfast(**{**asdict(settings), "lease": 300.0, "heartbeat": 1.0}) as app:
        app.migrate()

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        with working(app) as worker:
            wait_until(lambda: worker.watchdog.looked and worker.desk.poller.listening)
            await_idle(worker)
            yield app, worker


def await_idle(worker: Worker) -> None:
    wait_until(lambda: worker.desk.poller.nothing_due and time.monotonic() - worker.desk.meters.poll_meter.last > 0.5)


def run(title: str, settings: Settings) -> None:
    """The SQL that stands on the page under this title."""
    [sql] = re.findall(rf"```sql\n-- {title}\n(.*?)```", PAGE, re.DOTALL)
    sql = sql.replace("holdfast.jobs", f'"{settings.schema}".jobs').replace(":holdfast", f":{settings.schema}")
    with raw(settings) as connection:
        for statement in re.sub("--.*", "", sql).split(";")[:-1]:
            connection(statement.replace("{", "{{").replace("}", "}}"))


def test_every_option_of_an_enqueue_is_on_the_page() -> None:
    text = PAGE.partition("Options of `using`")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", text)) >= OPTIONS
