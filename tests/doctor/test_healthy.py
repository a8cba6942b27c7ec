"""A healthy database has no complaint, and every check is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.doctor import CODES, Level, examine
from holdfast.settings import Settings
from tests.contract.places import raw
from tests.doctor.examined import complaints
from tests.factories import HOUR, new_job
from tests.running import working
from tests.waiting import wait_until

OF_ONE_ENGINE = {
    "sqlite": {"HF4002", "HF4401", "HF4402", "HF4403", "HF4404", "HF4405", "HF4406"},
    "postgres": {"HF4003", "HF4205", "HF4301", "HF4302", "HF4303", "HF4304", "HF4305", "HF4306"},
}
OF_ADOPTED_TABLES = {"HF4502", "HF4503", "HF4504", "HF4505"}  # none is: HF4501 says so
OF_APPLICATIONS = {"HF4601"}


def test_a_fresh_database_is_clean_and_every_check_was_made(healthy: Settings, engine: str) -> None:
    assert complaints(healthy) == []
    other = OF_ONE_ENGINE["postgres" if engine == "sqlite" else "sqlite"]
    found = examine(healthy)
    assert {finding.code for finding in found} == set(CODES) - other - OF_ADOPTED_TABLES - OF_APPLICATIONS
    assert all(finding.found for finding in found)
    assert {finding.meaning for finding in found if finding.level is Level.OK} == {""}


def test_a_database_at_work_is_clean(healthy: Settings) -> None:
    with Holdfast(healthy.url, schema=healthy.schema) as app:

        @app.task
        def greet() -> None: ...

        with working(app) as worker:
            greet.enqueue().wait(20)
            wait_until(lambda: [known.id for known in app.store.workers.all()] == [worker.id])
            assert complaints(healthy) == []
        greet.using(delay=60).enqueue()
        assert [finding for finding in app.doctor() if finding.level is Level.ERROR] == []
        assert complaints(healthy) == [], "what is not due yet needs no worker yet"


def test_the_examination_changes_nothing(healthy: Settings, engine: str) -> None:
    def seen(sql: object) -> object:
        look = "select name, sql from sqlite_master order by name"
        if engine == "postgres":
            look = (
                "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
                f"where n.nspname = '{healthy.schema}' or (n.nspname like 'pg_temp%%' and c.relkind = 'r') "
                "order by 1, 2"
            )
        return sql(look)  # type: ignore[operator]

    with raw(healthy) as sql:
        before = seen(sql)
    examine(healthy)
    with raw(healthy) as sql:
        assert seen(sql) == before


@pytest.mark.parametrize("engine", ["postgres"])
def test_behind_a_pooler_settings_an_examination_works_as_well(healthy: Settings) -> None:
    assert complaints(replace(healthy, prepare=False, listen=False)) == []


def test_a_paused_queue_with_due_jobs_is_told_to_be_paused(healthy: Settings, engine: str) -> None:
    with Holdfast(healthy.url, schema=healthy.schema) as app:

        @app.task(queue="mail")
        def send() -> None: ...

        with working(app):
            wait_until(app.store.workers.all)
            app.pause_queue("mail", by="ops", reason="provider down")
            assert complaints(healthy) == [], "nothing waits for it"
            for _ in range(2):
                send.enqueue()
            [told] = complaints(healthy)
            assert (told.code, told.level) == ("HF4207", Level.WARNING)
            assert told.found.startswith("queue mail is paused by ops (provider down) since ")
            assert "; 2 due jobs wait, the oldest for " in told.found
            assert told.fix == "If the reason is gone: holdfast queues resume mail"
            app.resume_queue("mail")
            app.pause_task("send", until=timedelta(hours=1))
            send.enqueue()
            told = complaints(healthy)[0]
            assert told.found.startswith("task send is paused by ")
            assert " until " in told.found
            assert "holdfast tasks resume send" in told.fix


def test_jobs_that_nobody_can_run_are_told(healthy: Settings, engine: str) -> None:
    with Holdfast(healthy.url, schema=healthy.schema) as app:

        @app.task(queue="mail")
        def send_mail() -> None: ...

        for _ in range(3):
            app.store.enqueue(new_job("sent_mail", queue="mail"))
        app.store.enqueue(new_job("resize", queue="img"))
        app.store.enqueue(new_job("resize", queue="img", delay=HOUR))
        first, second = complaints(healthy)
        assert (first.code, second.code) == ("HF4201", "HF4201")
        assert "1 due job of task resize waits in queue img" in first.found
        assert "holdfast worker APP -q img" in first.fix
        with working(app, ["mail"]):
            wait_until(app.store.workers.all)
            unserved, unknown = complaints(healthy)
        assert (unserved.code, unknown.code) == ("HF4201", "HF4202")
        assert (unserved.level, unknown.level) == (Level.WARNING, Level.WARNING)
        assert "3 due jobs of task sent_mail" in unknown.found
        assert "nearest: send_mail" in unknown.found
