"""The test kit with an adopted table: the test's own DDL makes it, on the kit's database."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Adopted, Fail, Holdfast, JobContext, Retry, State, testing
from tests.adopt.legacy import AUDITS, MAPPED, Legacy
from tests.servers import shared_postgres


def declared(app: Holdfast, table: str = "audits") -> Adopted:
    audits = app.adopt(table, **MAPPED)

    @audits.task(retry=0)
    def analyse(row: dict[str, Any]) -> dict[str, int]:
        if row["url"] == "bad":
            raise Fail("no such page")
        return {"score": len(row["url"])}

    return audits


def on_sqlite(app: Holdfast) -> Legacy:
    legacy = Legacy(app.settings)
    legacy(AUDITS["sqlite"])
    return legacy


def test_rows_are_run_as_other_jobs_are() -> None:
    app = Holdfast("sqlite:///unused.db")
    audits = declared(app)
    with testing.store(app) as kit:
        legacy = on_sqlite(app)
        audits.install()
        id = legacy.insert("by hand")
        job = audits.submit(url="submitted", key="k")
        assert len(kit.run_due(expect="succeeded")) == 2
        assert (legacy.word(id), legacy.row(id)["score"]) == ("completed", 7)
        assert [one.id for one in kit.jobs(app.tasks["audits"], state="succeeded")][-1] == job.id


def test_time_moves_when_the_test_says_so() -> None:
    app = Holdfast("sqlite:///unused.db")
    audits = declared(app)
    with testing.store(app) as kit:
        legacy = on_sqlite(app)
        audits.install()
        audits.submit(url="a", run_after=kit.now + timedelta(hours=1))
        assert not kit.run_due()
        kit.advance("61m")  # triggers of SQLite round to milliseconds
        assert kit.run_due(expect="succeeded")
        lost = audits.submit(url="b")
        kit.crash(lost)
        assert legacy.word(int(lost.refresh().source_id or 0)) == "processing"
        kit.advance("1m")
        kit.run_due()
        assert lost.refresh().state is State.SUCCEEDED


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_schedule_inserts_a_row_at_every_tick(engine: str, request: pytest.FixtureRequest) -> None:
    """In the transaction of the scheduled task's success: an attempt that fails after it leaves no row."""
    app = Holdfast("sqlite:///unused.db")
    there: Legacy | None = request.getfixturevalue("legacy") if engine == "postgres" else None
    audits = declared(app, there.table if there else "audits")

    @app.task(retry=1)
    def ask_for(ctx: JobContext, url: str) -> None:
        with ctx.transaction() as tx:
            audits.submit(url=url, conn=tx.conn)
            if ctx.attempt == 1:
                raise Retry("not yet")

    with testing.store(app, url=shared_postgres() if there else None) as kit:
        legacy = there or on_sqlite(app)
        audits.install()
        app.schedule("nightly", ask_for.bind("https://a.example"), cron="0 3 * * *")
        for days in (1, 2):
            kit.advance("24h")
            kit.run_due()
            kit.advance("1s")
            kit.run_due()
            kit.run_due()
            assert legacy("select url, status from audits") == [("https://a.example", "completed")] * days


def test_inline_a_row_runs_when_it_is_submitted() -> None:
    app = Holdfast("sqlite:///unused.db")
    audits = declared(app)
    with testing.store(app, inline=True):
        legacy = on_sqlite(app)
        audits.install()
        job = audits.submit(url="abc")
        assert job.result == {"score": 3}
        assert legacy.word(int(job.source_id or 0)) == "completed"
        with pytest.raises(Fail):
            audits.submit(url="bad")


def test_on_a_connection_of_the_test() -> None:
    app = Holdfast("sqlite:///unused.db")
    audits = declared(app)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("begin")
    with testing.store(app, conn=connection) as kit:
        connection.execute(AUDITS["sqlite"])
        audits.install()
        connection.execute("insert into audits (url) values ('a')")
        kit.run_due(expect="succeeded")
        assert connection.execute("select status from audits").fetchall() == [("completed",)]
    connection.execute("rollback")


@pytest.mark.parametrize("engine", ["postgres"])
def test_on_postgresql_others_rows_are_settled_first(legacy: Legacy) -> None:
    app = Holdfast("sqlite:///unused.db")
    audits = declared(app, legacy.table)
    with testing.store(app, url=shared_postgres()) as kit:
        audits.install()
        for _ in range(6):  # the worker's settler and its drain may both be at it
            id = legacy.insert("by hand")
            kit.run_due(expect="succeeded")
            assert legacy.word(id) == "completed"
