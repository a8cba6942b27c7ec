"""A real worker on an adopted table in a SQLite file, beside native jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import Holdfast, JobContext
from holdfast.model.lifecycle import State
from holdfast.worker.settler import ROUND
from tests.adopt.sqlite_table import audits_in, rebuild
from tests.running import working
from tests.waiting import wait_until


def test_rows_are_worked_and_only_the_one_with_a_result_that_does_not_fit_fails(tmp_path: Path) -> None:
    with audits_in(tmp_path) as audits, Holdfast(audits.store.db.settings.url, synchronous="off") as app:

        @app.task(name="audits", queue="audits")
        def analyse(row: dict[str, Any]) -> dict[str, Any]:
            return {"score": row["url"] if row["url"] == "bad" else 1.0}

        @app.task
        def native() -> int:
            return 1

        for n in range(20):
            audits.insert(url="bad" if n == 7 else "good")
        audits.adopt()
        with working(app):
            other = native.enqueue()
            late = audits.insert(url="late")
            wait_until(lambda: not audits.sql.execute("select 1 from audits where finished_at is null").fetchone())
            wait_until(lambda: audits.store.reads.get(other.id).state is State.SUCCEEDED)
        assert audits.word(late) == "completed"
        [failed] = audits.sql.execute("select * from audits where status <> 'completed'").fetchall()
        assert (failed["url"], failed["status"], failed["error_code"]) == ("bad", "failed", "RESULT_MISFIT")
        assert "doesn't fit the column 'score'" in failed["error_message"]
        assert audits.mismatches() == []


def test_a_table_that_is_rebuilt_under_an_idle_worker_is_soon_worked_on(tmp_path: Path) -> None:
    """Also what was written to it while it had no triggers; long before the worker looks at all tables anyway."""
    with audits_in(tmp_path) as audits, Holdfast(audits.store.db.settings.url, synchronous="off") as app:

        @app.task(name="audits", queue="audits")
        def analyse(row: dict[str, Any]) -> dict[str, Any]:
            return {"score": 1.0}

        audits.adopt()
        with working(app):
            first = audits.insert()
            wait_until(lambda: audits.word(first) == "completed")
            rebuild(audits.sql, more="insert into _tmp_audits (url) values ('unheard')")
            after = audits.insert()
            wait_until(
                lambda: not audits.sql.execute("select 1 from audits where finished_at is null").fetchone(),
                timeout=ROUND / 2,
            )
            wait_until(lambda: [one.swept_to for one in audits.store.adopted.installed()] == [None])
        assert audits.word(after) == "completed"
        assert audits.mismatches() == []


def test_a_handler_hears_a_cancel_that_its_row_asks_for(tmp_path: Path) -> None:
    with (
        audits_in(tmp_path) as audits,
        Holdfast(audits.store.db.settings.url, synchronous="off", heartbeat=0.1, lease=10.0) as app,
    ):

        @app.task(name="audits", queue="audits")
        def analyse(ctx: JobContext, row: dict[str, Any]) -> None:
            wait_until(ctx.should_stop)
            ctx.checkpoint({})

        audits.adopt()
        id = audits.insert()
        with working(app):
            wait_until(lambda: audits.word(id) == "processing")
            audits.update(id, status="cancelled")
            wait_until(lambda: audits.job(id).state is State.CANCELLED)
        assert audits.row(id)["processing_worker_id"] is None
