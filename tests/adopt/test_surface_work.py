"""Rows of an adopted table are worked, and seen, as other jobs are."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Adopted, Holdfast, JobContext, JobNotFound, State
from holdfast.worker import settler
from tests.adopt.legacy import MAPPED, Legacy
from tests.running import Heard, MakeApp, await_state, working
from tests.waiting import wait_until


@dataclass
class Audit:
    id: int
    url: str


@dataclass
class Findings:
    score: int
    pages: list[str]


def mapped(app: Holdfast, legacy: Legacy, **mapping: Any) -> Adopted:
    given: Any = {**MAPPED, **mapping}
    return app.adopt(legacy.table, **given)


def adopted(app: Holdfast, legacy: Legacy, **mapping: Any) -> Adopted:
    audits = mapped(app, legacy, **mapping)

    @audits.task(retry=0)
    def analyse(ctx: JobContext, row: Audit) -> Findings:
        return Findings(len(row.url), [row.url])

    audits.install()
    return audits


def test_a_row_that_anyone_inserts_is_worked(hf: Holdfast, legacy: Legacy) -> None:
    before = legacy.insert("https://before.example")
    adopted(hf, legacy)
    with working(hf):
        after = legacy.insert("https://after.example")
        wait_until(lambda: {legacy.word(id) for id in (before, after)} == {"completed"})
    row = legacy.row(after)
    assert (row["score"], row["worker_id"], row["error"]) == (21, None, None)
    assert "https://after.example" in str(row["report"])
    assert row["completed_at"] is not None


def test_what_happens_to_rows_is_counted(hf: Holdfast, legacy: Legacy) -> None:
    """Worked by us, and by whoever else works the table."""
    adopted(hf, legacy)
    ours = [legacy.insert("https://ours.example") for _ in range(3)]
    with working(hf):
        wait_until(lambda: {legacy.word(id) for id in ours} == {"completed"})
    theirs = legacy.insert("https://theirs.example")
    settler.settle(hf.store)
    for word in ("processing", "completed"):
        legacy("update audits set status = ? where id = ?", word, theirs)
        settler.settle(hf.store)
    found = Counter[str]()
    for count in hf.store.rollups.totals():
        found[count.what] += count.n
    counted = {what: found[what] for what in ("enqueued", "started", "succeeded")}
    assert counted == {"enqueued": 4, "started": 4, "succeeded": 4}


def test_its_job_knows_the_row(hf: Holdfast, legacy: Legacy) -> None:
    audits = adopted(hf, legacy)
    id, other = legacy.insert(), legacy.insert()
    job = audits.job(id)
    assert (job.source, job.source_id, job.task, job.state) == ("audits", str(id), "audits", State.QUEUED)
    assert job.args["row"] == {"id": id, "url": "https://a.example", "pages": None}
    assert [one.id for one in hf.jobs(f"source:audits row:{id}")] == [job.id]
    assert {one.source_id for one in audits.jobs("state:queued")} == {str(id), str(other)}
    assert not audits.jobs("state:failed")
    assert hf.count("source:other") == 0
    with pytest.raises(JobNotFound, match=r"row 999 of audits has no job.*'pending'"):
        audits.job(999)


def test_a_drain_works_what_there_is(hf: Holdfast, legacy: Legacy) -> None:
    adopted(hf, legacy)
    ids = [legacy.insert() for _ in range(5)]
    assert int(hf.drain()) == 5
    assert {legacy.word(id) for id in ids} == {"completed"}


def test_what_operators_do_is_seen_in_the_row(hf: Holdfast, legacy: Legacy) -> None:
    audits = adopted(hf, legacy)
    id = legacy.insert()
    job = audits.job(id)
    job.pause(by="ops")
    assert legacy.word(id) == "paused"
    job.resume()
    assert legacy.word(id) == "pending"
    job.change(priority=7, run_at=datetime.now(UTC) + timedelta(hours=1))
    assert legacy("select urgency, run_after is not null from audits where id = ?", id) == [(7, True)]
    job.cancel("not needed", by="ops")
    assert legacy.word(id) == "cancelled"
    job.retry()
    assert legacy.word(id) == "pending"
    job.change(delay=0)
    assert int(hf.drain()) == 1
    assert legacy.word(id) == "completed"


def test_what_others_write_reaches_the_job(hf: Holdfast, legacy: Legacy) -> None:
    audits = adopted(hf, legacy)
    id = legacy.insert()
    job = audits.job(id)
    for word, state in [("paused", State.PAUSED), ("pending", State.QUEUED), ("cancelled", State.CANCELLED)]:
        legacy("update audits set status = ? where id = ?", word, id)
        hf.store.adopted.settle("audits")
        assert job.refresh().state is state
    legacy("update audits set status = 'pending', url = 'https://b.example' where id = ?", id)
    assert int(hf.drain()) == 1
    assert job.refresh().result == Findings(17, ["https://b.example"])


def test_a_row_that_somebody_else_works(hf: Holdfast, legacy: Legacy) -> None:
    audits = adopted(hf, legacy)
    id = legacy.insert()
    audits.job(id)
    beat = "strftime('%Y-%m-%d %H:%M:%f', 'now')" if legacy.engine == "sqlite" else "now()"
    legacy(f"update audits set status = 'processing', last_heartbeat = {beat} where id = ?", id)
    hf.store.adopted.settle("audits")
    job = audits.job(id)
    assert job.state is State.RUNNING
    [reason, *_] = job.why()
    assert reason.code == "LEASED"
    assert f"row {id} of audits says that somebody works it" in reason.text
    assert not hf.drain()
    legacy("update audits set status = 'completed' where id = ?", id)
    hf.store.adopted.settle("audits")
    assert job.refresh().state is State.SUCCEEDED


def test_a_table_that_is_suspended(hf: Holdfast, legacy: Legacy) -> None:
    audits = adopted(hf, legacy)
    id = legacy.insert()
    job = audits.job(id)
    hf.store.adopted.suspend("audits")
    assert [reason.code for reason in job.why() if reason.code.startswith("TABLE")] == ["TABLE_SUSPENDED"]
    assert not hf.drain(seconds=5)
    hf.store.adopted.resume("audits")
    assert int(hf.drain()) == 1
    assert legacy.word(id) == "completed"


@pytest.mark.parametrize("waits", [True, False], ids=["a_row_waits", "a_row_comes_later"])
def test_a_table_that_can_t_be_worked_is_refused_and_the_others_are_not(
    waits: bool, make_app: MakeApp, legacy: Legacy, heard: Heard
) -> None:
    """Long before the worker looks at all of its tables anyway."""
    app = make_app(lease=10.0)
    audits = adopted(app, legacy)
    native = app.task(name="native")(lambda: "done")
    with working(app):
        await_state(audits.job(legacy.insert()), State.SUCCEEDED)
        if waits:
            due = datetime.now(UTC) + timedelta(seconds=2)
            legacy.insert(run_after=due.isoformat(" ", "milliseconds"))
        legacy("alter table audits rename column last_heartbeat to beat")
        if not waits:
            legacy.insert()
        [refused] = wait_until(lambda: heard.of("table_refused"), timeout=settler.ROUND / 2)
        assert refused["source"] == "audits"
        assert "last_heartbeat" in refused["error"]
        await_state(native.enqueue(), State.SUCCEEDED)
        legacy("alter table audits rename column beat to last_heartbeat")
        id = legacy.insert()
        wait_until(lambda: heard.of("table_served"), timeout=30)
        wait_until(lambda: legacy.word(id) == "completed")
    assert len(heard.of("table_refused")) == 1


def test_code_that_maps_it_otherwise_is_refused(make_app: MakeApp, legacy: Legacy, heard: Heard) -> None:
    adopted(make_app(), legacy)
    app = make_app()
    audits = mapped(app, legacy, max_attempts=9)
    audits.task(lambda row: None)
    id = legacy.insert()
    assert not app.drain()
    [refused] = heard.of("table_refused")
    assert "mapping" in refused["error"]
    assert "holdfast adopt" in refused["error"]
    audits.install()
    assert int(app.drain()) == 1
    assert legacy.word(id) == "completed"


def test_heartbeats_too_far_apart_for_its_lease_are_refused(make_app: MakeApp, legacy: Legacy, heard: Heard) -> None:
    id = legacy.insert()
    app = make_app(lease=60.0, heartbeat=15.0)
    adopted(app, legacy, lease=44.0)
    assert not app.drain()
    assert "set heartbeat to 11 or less" in heard.of("table_refused")[0]["error"]
    app = make_app(lease=60.0, heartbeat=14.0)
    adopted(app, legacy, lease=44.0)
    assert int(app.drain()) == 1
    assert legacy.word(id) == "completed"


def test_a_source_that_is_installed_while_a_worker_runs_is_noticed(
    make_app: MakeApp, legacy: Legacy, heard: Heard
) -> None:
    app = make_app(lease=2.0)
    audits = app.adopt(legacy.table, **MAPPED)
    audits.task(lambda row: None)
    id = legacy.insert()
    with working(app):
        [refused] = wait_until(lambda: heard.of("table_refused"))
        assert "not adopted" in refused["error"]
        audits.install()
        wait_until(lambda: legacy.word(id) == "completed")


def test_a_heartbeat_is_kept_fresh(hasty: Holdfast, legacy: Legacy) -> None:
    audits = hasty.adopt(legacy.table, **MAPPED)
    go = threading.Event()
    audits.task(lambda row: go.wait(30))
    audits.install()
    with working(hasty):
        id = legacy.insert()
        wait_until(lambda: legacy.word(id) == "processing")
        first = legacy.row(id)["last_heartbeat"]
        wait_until(lambda: legacy.row(id)["last_heartbeat"] > first)
        go.set()
        wait_until(lambda: legacy.word(id) == "completed")


def test_others_may_ask_a_running_job_to_stop(hasty: Holdfast, legacy: Legacy) -> None:
    audits = hasty.adopt(legacy.table, **MAPPED)

    @audits.task
    def analyse(ctx: JobContext, row: Audit) -> None:
        wait_until(ctx.should_stop)

    audits.install()
    with working(hasty):
        id = legacy.insert()
        wait_until(lambda: legacy.word(id) == "processing")
        legacy("update audits set status = 'cancelled' where id = ?", id)
        job = audits.job(id)
        await_state(job, State.CANCELLED)
        assert legacy.word(id) == "cancelled"
        assert job.record.asked_by == "audits"


def test_an_attempt_that_fails(hf: Holdfast, legacy: Legacy) -> None:
    audits = mapped(hf, legacy, max_attempts=2)

    @audits.task(retry=0)
    def analyse(row: Audit) -> None:
        raise ValueError("no such page")

    audits.install()
    id = legacy.insert()
    hf.drain()
    row = legacy.row(id)
    assert (row["status"], row["retries"], row["error"]) == ("failed", 2, "no such page")
    assert audits.job(id).state is State.FAILED


def test_without_an_adopted_table_nothing_is_asked_of_the_database(hf: Holdfast, heard: Heard) -> None:
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was called")

    hf.store.adopted = Untouchable()
    native = hf.task(name="native")(lambda: "done")
    with working(hf) as worker:
        await_state(native.enqueue(), State.SUCCEEDED)
        wait_until(lambda: worker.watchdog.looked)
    native.enqueue()
    assert int(hf.drain()) == 1
    assert not heard.of("stumbled")


def test_a_result_that_does_not_fit_is_told(
    hf: Holdfast, legacy: Legacy, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    audits = mapped(hf, legacy)

    @audits.task
    def analyse(row: dict[str, Any]) -> dict[str, Any]:
        return {"score": "excellent"}

    audits.install()
    job = audits.job(legacy.insert())
    hooked: list[str] = []
    hf.on_error(lambda context, error: hooked.append(str(error)))
    with caplog.at_level("WARNING", "holdfast"):
        hf.drain()
    assert job.refresh().state is State.FAILED
    [line] = [message for message in caplog.messages if f"job {job.id} " in message.lower()]
    assert "attempt 1 of 3 failed: RESULT_MISFIT: " in line
    assert line.endswith("; it is not tried again")
    assert [error["error_code"] for error in heard.of("errored")] == ["RESULT_MISFIT"]
    assert [" fit " in error for error in hooked] == [True]
