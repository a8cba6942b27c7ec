"""Rows of an adopted table and their jobs, in a SQLite file: who decides what."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadSettings, Refused, ResultMisfit
from holdfast.model.lifecycle import State
from holdfast.model.mapping import mapping_of
from holdfast.store.sqlite.store import SqliteStore
from tests.adopt.sqlite_table import STATES, Audits, audits_in
from tests.factories import BOOM, Clock, a_queued_job, claim, ref
from tests.waiting import wait_until


@pytest.fixture
def audits(tmp_path: Path) -> Iterator[Audits]:
    with audits_in(tmp_path) as audits:
        yield audits


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def now() -> datetime:
    return datetime.now(UTC)


# -- rows become jobs --------------------------------------------------------------------------------------------------


def test_rows_that_are_there_and_rows_that_come_are_jobs(audits: Audits) -> None:
    before = audits.insert(url="before")
    done = audits.insert(status="completed")
    draft = audits.insert(status="draft")
    audits.adopt()
    after = audits.insert(url="after", urgency=7, max_retries=5, retry_count=2)
    assert audits.job_if_any(done) is None
    assert audits.job_if_any(draft) is None
    job = audits.job(after)
    assert (job.state, job.priority, job.attempt, job.max_attempts, job.queue) == (State.QUEUED, 7, 2, 5, "audits")
    assert (job.source, job.source_id) == ("audits", str(after))
    claimed = audits.claim()
    assert [json.loads(job.args)["row"]["url"] for job in claimed] == ["after", "before"]
    assert audits.mismatches() == []
    assert before < after


def test_the_row_is_written_as_the_job_goes(audits: Audits) -> None:
    audits.adopt(counting="at_claim")
    id, held = audits.held()
    row = audits.row(id)
    assert (row["processing_worker_id"], row["claim_id"], row["retry_count"]) == ("w1", held.fence, 1)
    assert row["processing_started_at"] == row["last_heartbeat"] is not None
    assert (row["version"], row["finished_at"]) == (2, None)
    assert abs(instant(row["updated_at"]) - now()) < timedelta(seconds=30)
    audits.store.attempts.succeed(ref(held), b'{"score": 7.5, "pages": 3, "more": [1]}')
    row = audits.row(id)
    assert (row["status"], row["score"], row["pages"]) == ("completed", 7.5, 3)
    assert json.loads(row["report"]) == {"score": 7.5, "pages": 3, "more": [1]}
    assert (row["processing_worker_id"], row["claim_id"], row["version"]) == (None, None, 3)
    assert row["finished_at"] is not None
    assert row["processing_started_at"] is not None
    assert audits.owed() == 0


def test_errors_and_another_try_show_in_the_row(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    audits.store.attempts.reschedule(ref(held), 60, BOOM)
    row = audits.row(id)
    assert (row["status"], row["error_code"], row["error_message"]) == ("pending", "Boom", "it broke")
    assert row["due"] == text(audits.job(id).run_at)
    audits.update(id, due=None)
    [held] = audits.claim()
    assert audits.row(id)["error_code"] == "Boom"
    audits.store.attempts.fail(ref(held), BOOM)
    row = audits.row(id)
    assert (row["status"], row["error_code"]) == ("failed", "Boom")
    audits.store.operator.retry(str(held.id))
    row = audits.row(id)
    assert (row["status"], row["error_code"], row["finished_at"], row["retry_count"]) == ("pending", None, None, 0)


@pytest.mark.parametrize(
    ("counting", "running", "again", "failed", "rescued"),
    [("at_claim", 1, 1, 1, 1), ("at_failure", 0, 1, 1, 1), ("at_recovery", 0, 1, 0, 1)],
)
def test_attempts_are_counted_as_the_table_does(
    audits: Audits, counting: str, running: int, again: int, failed: int, rescued: int
) -> None:
    audits.adopt(counting=counting)
    id, held = audits.held()
    assert audits.row(id)["retry_count"] == running
    audits.store.attempts.reschedule(ref(held), 0, BOOM)
    assert audits.row(id)["retry_count"] == again
    audits.update(id, status="cancelled")
    other, held = audits.held()
    audits.store.attempts.fail(ref(held), BOOM)
    assert audits.row(other)["retry_count"] == failed
    third, held = audits.held()
    audits.store.rescues.rescue(dead=["w1"])
    assert audits.row(third)["retry_count"] == rescued


def test_states_without_a_word_are_written_as_others(audits: Audits) -> None:
    audits.adopt(states=STATES)
    id = audits.insert()
    audits.store.operator.pause(audits.job(id).id)
    assert (audits.word(id), audits.job(id).state) == ("pending", State.PAUSED)
    audits.store.operator.resume(audits.job(id).id)
    [held] = audits.claim()
    audits.store.attempts.stop(ref(held), "enough")
    assert (audits.word(id), audits.job(id).state) == ("failed", State.CANCELLED)
    assert audits.row(id)["error_message"] == "enough"
    assert audits.owed() == 0


def test_counts_are_written_also_to_a_second_table(audits: Audits) -> None:
    audits.sql.execute(
        "create table crawl_states (audit integer primary key, total_pending integer default 0, seen integer)"
    )
    counts = {"pending": "total_pending", "done": "seen", "table": "crawl_states", "id": "audit"}
    audits.adopt(counts=counts)
    id = audits.insert()
    audits.sql.execute("insert into crawl_states (audit) values (?)", (id,))
    [held] = audits.claim()
    audits.store.attempts.checkpoint(ref(held), b"{}", pending=12, done=3)
    assert tuple(audits.sql.execute("select total_pending, seen from crawl_states").fetchone()) == (12, 3)
    audits.store.attempts.succeed(ref(held), None)
    assert tuple(audits.sql.execute("select total_pending, seen from crawl_states").fetchone()) == (0, 3)


def test_counts_in_the_table_itself(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    assert audits.row(id)["total_pending"] == 0
    audits.store.attempts.checkpoint(ref(held), b"{}", pending=12)
    assert audits.row(id)["total_pending"] == 12
    audits.store.attempts.park(ref(held))
    assert audits.row(id)["total_pending"] == 12


# -- others decide, unless we hold it ----------------------------------------------------------------------------------


def test_a_word_of_others_moves_a_job_that_nobody_holds(audits: Audits) -> None:
    audits.adopt()
    id = audits.insert()
    audits.update(id, status="paused")
    assert audits.job(id).state is State.PAUSED
    audits.update(id, status="again", retry_count=1)
    assert (audits.job(id).state, audits.job(id).attempt) == (State.QUEUED, 1)
    audits.update(id, status="cancelled")
    assert (audits.job(id).state, audits.job(id).error_message) == (State.CANCELLED, "its row says 'cancelled'")
    audits.update(id, status="pending", retry_count=0, url="new")
    job = audits.job(id)
    assert (job.state, job.life, job.attempt) == (State.QUEUED, 2, 0)
    assert json.loads(job.args)["row"]["url"] == "new"
    audits.update(id, status="failed", error_message="theirs")
    assert (audits.job(id).state, audits.job(id).error_message) == (State.FAILED, "theirs")
    audits.update(id, status="completed")
    assert audits.job(id).state is State.SUCCEEDED
    audits.update(id, status="pending")
    audits.update(id, status="draft")
    assert (audits.job(id).state, audits.job(id).error_message) == (State.CANCELLED, "its row says 'draft'")
    assert audits.word(id) == "draft"


def test_while_we_hold_it_others_can_ask_and_nothing_else(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    for word in ("pending", "completed", "failed", "draft"):
        audits.update(id, status=word)
        assert (audits.word(id), audits.job(id).state) == ("processing", State.RUNNING)
    audits.update(id, status="paused")
    job = audits.job(id)
    assert (audits.word(id), job.state, job.pause_requested, job.asked_by) == ("paused", State.RUNNING, True, "audits")
    audits.update(id, status="processing")
    assert not audits.job(id).pause_requested
    audits.update(id, status="cancelled")
    assert (audits.job(id).cancel_requested, audits.job(id).asked_why) == (True, "its row says 'cancelled'")
    audits.store.attempts.stop(ref(held))
    row = audits.row(id)
    assert (row["status"], row["processing_worker_id"]) == ("cancelled", None)
    assert row["finished_at"] is not None


def test_a_row_that_its_table_does_not_let_us_take_keeps_no_other_job_back(audits: Audits) -> None:
    audits.adopt()
    audits.sql.execute(
        "create trigger no before update of status on audits when new.status = 'processing' and new.url = 'b' "
        "begin select raise(abort, 'not b'); end"
    )
    first, second, third = (audits.insert(url=url) for url in "abc")
    a_queued_job(audits.store)
    held = claim(audits.store, 10, tasks=("audits", "greet"))
    assert [job.task for job in held.jobs] == ["audits", "audits", "greet"]
    assert held.more
    assert [audits.word(id) for id in (first, second, third)] == ["processing", "pending", "processing"]
    assert audits.claim() == []
    assert audits.job(second).state is State.QUEUED
    audits.sql.execute("drop trigger no")
    wait_until(audits.claim)
    assert audits.word(second) == "processing"


def test_a_success_before_a_request_was_heard_is_a_success(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    audits.update(id, status="paused")
    audits.store.attempts.succeed(ref(held), b"{}")
    assert (audits.word(id), audits.job(id).state, audits.owed()) == ("completed", State.SUCCEEDED, 0)


def test_a_pause_asked_by_the_row_is_obeyed_and_resumed_by_it(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    audits.update(id, status="paused")
    audits.store.attempts.park(ref(held))
    assert (audits.word(id), audits.job(id).state) == ("paused", State.PAUSED)
    audits.update(id, status="pending")
    assert audits.job(id).state is State.QUEUED


def test_a_deleted_row_cancels_its_job_or_asks_for_it(audits: Audits) -> None:
    audits.adopt()
    waiting = audits.insert()
    audits.sql.execute("delete from audits")
    job = audits.job(waiting)
    assert (job.state, job.error_message) == (State.CANCELLED, "its row was deleted")
    id, held = audits.held(id=77)
    audits.sql.execute("delete from audits")
    assert (audits.job(id).cancel_requested, audits.job(id).asked_why) == (True, "its row was deleted")
    audits.store.attempts.succeed(ref(held), b'{"score": 1}')
    assert (audits.job(id).state, audits.owed()) == (State.SUCCEEDED, 0)


@pytest.mark.parametrize("recursive", ["off", "on"])
def test_replace_into(audits: Audits, recursive: str) -> None:
    """It deletes without telling, unless triggers are recursive."""
    audits.adopt()
    audits.sql.execute(f"pragma recursive_triggers = {recursive}")
    id = audits.insert()
    audits.sql.execute("replace into audits (id, url, status) values (?, 'other', 'pending')", (id,))
    [held] = audits.claim()
    assert json.loads(held.args)["row"]["url"] == "other"
    audits.sql.execute("replace into audits (id, url, status) values (?, 'third', 'pending')", (id,))
    assert (audits.word(id), audits.job(id).state, audits.job(id).cancel_requested) == (
        "processing",
        State.RUNNING,
        False,
    )
    audits.store.attempts.succeed(ref(held), None)
    assert audits.word(id) == "completed"
    audits.sql.execute("replace into audits (id, url, status) values (?, 'third', 'pending')", (id,))
    assert (audits.job(id).state, audits.job(id).life) == (State.QUEUED, 3 if recursive == "on" else 2)


def test_a_row_that_gets_another_id(audits: Audits) -> None:
    audits.adopt()
    id = audits.insert()
    audits.sql.execute("update audits set id = 500")
    assert audits.job(id).state is State.CANCELLED
    assert audits.job(500).state is State.QUEUED


def test_due_time_and_priority_follow_the_row_while_it_waits(audits: Audits) -> None:
    audits.adopt()
    later = now() + timedelta(hours=2)
    id = audits.insert(due=text(later))
    assert abs(audits.job(id).run_at - later) < timedelta(milliseconds=2)
    audits.update(id, due=(later + timedelta(hours=1)).isoformat(), urgency=4)
    job = audits.job(id)
    assert abs(job.run_at - later) - timedelta(hours=1) < timedelta(milliseconds=2)
    assert job.priority == 4
    assert audits.claim() == []
    audits.update(id, due=None)
    assert len(audits.claim()) == 1
    other = audits.insert(created_at="2020-01-01 00:00:00", due="soon", urgency="high")
    assert (audits.job(other).run_at, audits.job(other).priority) == (datetime(2020, 1, 1, tzinfo=UTC), 0)


def test_what_operators_change_of_a_waiting_job_reaches_its_row(audits: Audits) -> None:
    audits.adopt()
    id = audits.insert(urgency=1)
    audits.store.operator.change(audits.job(id).id, priority=9, delay=3600)
    assert audits.row(id)["urgency"] == 9
    assert instant(audits.row(id)["due"]) == audits.job(id).run_at
    assert audits.job(id).run_at > now() + timedelta(minutes=59)


def test_arguments_are_the_rows_at_the_claim_whatever_it_holds(audits: Audits) -> None:
    audits.adopt()
    id = audits.insert(url="first")
    audits.update(id, url='say "hi"\n', photo=b"\x00\xff")
    [held] = audits.claim()
    assert json.loads(held.args) == {"row": {"id": id, "url": 'say "hi"\n', "photo": "AP8="}}


def test_infinity_is_a_value_like_others(audits: Audits) -> None:
    """SQLite writes it as JSON that nobody reads, and the insert of whoever has one would fail."""
    audits.adopt(results=None)
    audits.insert(score=float("inf"), pages=float("-inf"))
    [held] = audits.claim()
    row = json.loads(held.args)["row"]
    assert (row["score"], row["pages"]) == ("Infinity", "-Infinity")


def test_a_row_without_an_id_is_no_job(audits: Audits) -> None:
    audits.sql.execute("create table pages (path text primary key, status text default 'pending')")
    store = audits.store
    mapping = mapping_of("pages", {"states": STATES})
    audits.sql.execute("insert into pages default values")
    store.adopted.install(mapping)
    audits.sql.execute("insert into pages default values")
    audits.sql.execute("update pages set status = 'again'")
    assert list(store.reads.jobs()) == []
    assert [(odd.column, odd.rows) for odd in store.adopted.odd_rows(mapping)] == [("path", 2)]
    audits.sql.execute("update pages set path = rowid")
    assert [job.source_id for job in store.reads.jobs()] == ["2", "1"]


def test_a_sweep_goes_past_rows_without_an_id(audits: Audits) -> None:
    audits.sql.execute("create table pages (path text primary key, status text default 'pending')")
    audits.store.adopted.install(mapping_of("pages", {"states": STATES}))
    audits.sql.executescript("insert into pages default values; " * 3 + "insert into pages (path) values ('/a')")
    audits.sql.execute("delete from holdfast_jobs")
    assert audits.store.adopted.sweep("pages", None, 2).strays == 1


def test_a_table_may_have_very_many_columns(audits: Audits) -> None:
    columns = ", ".join(f"c{n} text default 'x'" for n in range(300))
    audits.sql.execute(f"create table wide (id integer primary key, status text, {columns})")
    audits.store.adopted.install(mapping_of("wide", {"states": STATES}))
    audits.sql.execute("insert into wide (status) values ('pending')")
    [held] = claim(audits.store, tasks=("wide",)).jobs
    assert len(json.loads(held.args)["row"]) == 301


# -- foreign holders ---------------------------------------------------------------------------------------------------


def test_a_foreign_worker_holds_a_row_for_as_long_as_it_is_alive(audits: Audits) -> None:
    audits.adopt(lease=300)
    id = audits.insert()
    audits.update(id, status="processing", last_heartbeat=text(now()), retry_count=1)
    job = audits.job(id)
    assert (job.state, job.worker, job.attempt) == (State.RUNNING, f"foreign:audits:{id}", 1)
    assert audits.claim() == []
    audits.sql.execute("update holdfast_leases set expires_at = '2020-01-01 00:00:00'")
    audits.update(id, last_heartbeat=text(now()))
    assert audits.store.rescues.rescue() == []
    audits.update(id, last_heartbeat=text(now() - timedelta(seconds=301)))
    [rescued] = audits.store.rescues.rescue()
    assert rescued.state is State.QUEUED
    assert (audits.word(id), audits.row(id)["processing_worker_id"]) == ("pending", None)


def test_a_foreign_worker_ends_what_it_began(audits: Audits) -> None:
    audits.adopt()
    id = audits.insert()
    audits.update(id, status="processing")
    audits.update(id, status="completed", score=3)
    assert (audits.job(id).state, audits.row(id)["score"]) == (State.SUCCEEDED, 3)
    assert audits.sql.execute("select count(*) from holdfast_leases").fetchone()[0] == 0


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ({"heartbeat_at": "last_heartbeat"}, {"last_heartbeat": -100}),
        (
            {"heartbeat_at": None, "claimed_at": "processing_started_at", "started_at": None},
            {"processing_started_at": -100},
        ),
        ({"heartbeat_at": None, "lease_until": "last_heartbeat"}, {"last_heartbeat": 200}),
    ],
)
def test_the_lease_of_a_row_that_runs_when_it_is_adopted_has_the_tables_own_form(
    audits: Audits, form: dict[str, Any], values: dict[str, int]
) -> None:
    given = {name: text(now() + timedelta(seconds=seconds)) for name, seconds in values.items()}
    id = audits.insert(status="processing", **given)
    audits.adopt(lease=300, **form)
    assert audits.job(id).worker == f"foreign:audits:{id}"
    [(expires,)] = audits.sql.execute("select expires_at from holdfast_leases").fetchall()
    assert abs(instant(expires) - now() - timedelta(seconds=200)) < timedelta(seconds=20)


def test_heartbeats_of_what_we_hold_are_written_and_those_of_the_dead_are_not(audits: Audits) -> None:
    audits.adopt(lease=300)
    id, _ = audits.held()
    audits.sql.execute("update audits set last_heartbeat = '2020-01-01 00:00:00'")
    audits.store.adopted.beat("audits")
    assert instant(audits.row(id)["last_heartbeat"]) > now() - timedelta(seconds=30)
    audits.sql.execute("update audits set last_heartbeat = '2020-01-01 00:00:00'")
    audits.sql.execute("update holdfast_leases set expires_at = '2020-01-01 00:00:00'")
    audits.store.adopted.beat("audits")
    assert audits.row(id)["last_heartbeat"] == "2020-01-01 00:00:00"


def test_a_lease_that_ends_at_a_time_is_moved_on(audits: Audits) -> None:
    audits.adopt(heartbeat_at=None, lease_until="last_heartbeat", lease=120)
    id, held = audits.held()
    assert abs(instant(audits.row(id)["last_heartbeat"]) - now() - timedelta(seconds=120)) < timedelta(seconds=20)
    audits.sql.execute("update audits set last_heartbeat = '2020-01-01 00:00:00'")
    audits.store.adopted.beat("audits")
    assert instant(audits.row(id)["last_heartbeat"]) > now() + timedelta(seconds=100)
    audits.store.attempts.release(ref(held))
    assert audits.row(id)["last_heartbeat"] is None


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "column"), [(b'{"score": "high"}', "score"), (b'{"pages": 1.5}', "pages"), (b'{"pages": true}', "pages")]
)
def test_a_result_that_does_not_fit_its_column_is_refused(audits: Audits, result: bytes, column: str) -> None:
    audits.adopt()
    id, held = audits.held()
    with pytest.raises(ResultMisfit, match=column):
        audits.store.attempts.succeed(ref(held), result)
    assert (audits.word(id), audits.job(id).state) == ("processing", State.RUNNING)
    audits.store.attempts.succeed(ref(held), b'{"score": 3, "pages": null}')
    assert (audits.row(id)["score"], audits.row(id)["pages"]) == (3, None)


# -- connections of users ----------------------------------------------------------------------------------------------


def test_success_on_the_users_own_transaction_writes_the_row_and_leaves_nothing_behind(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    own = sqlite3.connect(audits.path)
    audits.store.attempts.succeed_on(own, ref(held), b'{"score": 5}')
    assert own.execute("select status, score from audits").fetchall() == [("completed", 5.0)]
    assert own.execute("select count(*) from sqlite_temp_master").fetchone() == (0,)
    own.rollback()
    assert own.execute("select count(*) from sqlite_temp_master").fetchone() == (0,)
    assert (audits.word(id), audits.job(id).state) == ("processing", State.RUNNING)
    audits.store.attempts.succeed_on(own, ref(held), b'{"score": 6}')
    own.commit()
    own.close()
    assert (audits.word(id), audits.row(id)["score"]) == ("completed", 6)


def test_a_handlers_own_transaction_can_write_the_table(audits: Audits) -> None:
    """Where our triggers are on the same connection, a row's word still moves its job, and nothing is written back."""
    audits.adopt()
    id = audits.insert(status="processing", last_heartbeat=text(now()))
    with audits.store.user_connections.transaction() as db:
        db.execute("update audits set status = 'completed', finished_at = 'theirs', version = 9 where id = ?", (id,))
    row = audits.row(id)
    assert (row["finished_at"], row["version"], audits.job(id).state) == ("theirs", 9, State.SUCCEEDED)
    with audits.store.user_connections.transaction() as db:
        db.execute("update audits set status = 'pending' where id = ?", (id,))
    assert (audits.row(id)["version"], audits.job(id).state) == (9, State.QUEUED)


def test_a_borrowed_connection_works_the_table(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with audits_in(tmp_path) as audits:
        audits.adopt()
        own = sqlite3.connect(path)
        borrowed = SqliteStore(audits.store.db.settings, conn=own)
        own.execute("insert into audits (url) values ('x')")
        [held] = claim(borrowed, tasks=("audits",)).jobs
        assert own.execute("select status from audits").fetchall() == [("processing",)]
        borrowed.attempts.succeed(ref(held), b'{"score": 2}')
        assert own.execute("select status, score from audits").fetchall() == [("completed", 2.0)]
        own.rollback()
        assert own.execute("select count(*) from audits").fetchone() == (0,)
        assert own.execute("select count(*) from sqlite_temp_master").fetchone() == (0,)
        own.close()


# -- submit, delete, retention -----------------------------------------------------------------------------------------


def test_submit_inserts_a_row_and_returns_its_job(audits: Audits) -> None:
    mapping = audits.adopt(key="claim_id", fence=None)
    id, job = audits.store.adopted.submit(mapping, {"url": "new", "Claim_ID": "k"})
    assert (audits.row(int(id))["url"], audits.job(int(id)).id, job.created) == ("new", job.id, True)
    assert audits.store.adopted.submit(mapping, {"url": "same", "claim_id": "k"}) == (id, type(job)(job.id, False))
    own = sqlite3.connect(audits.path)
    other, _ = audits.store.adopted.submit(mapping, {"url": "own"}, conn=own)
    own.rollback()
    own.close()
    assert audits.job_if_any(int(other)) is None
    with pytest.raises(ValueError, match="has no column 'uri'"):
        audits.store.adopted.submit(mapping, {"uri": "x"})
    with pytest.raises(Refused, match="has no job"):
        audits.store.adopted.submit(mapping, {"url": "x", "status": "draft"})
    assert audits.sql.execute("select count(*) from audits").fetchone()[0] == 1


def test_a_job_whose_row_waits_is_not_deleted_and_a_finished_one_may_be(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    waiting = audits.insert()
    with pytest.raises(Refused, match="it is queued, and so says its row in audits: cancel it first"):
        audits.store.operator.delete(audits.job(waiting).id, unfinished=True)
    audits.store.attempts.succeed(ref(held), None)
    audits.store.operator.delete(str(held.id))
    assert audits.store.adopted.sweep("audits", None).strays == 0
    assert audits.job_if_any(id) is None
    audits.update(id, status="pending")
    assert audits.job(id).state is State.QUEUED


def test_the_tests_clock_counts(tmp_path: Path, clock: Clock) -> None:
    with audits_in(tmp_path, clock=clock) as audits:
        audits.adopt()
        id, held = audits.held()
        assert instant(audits.row(id)["processing_started_at"]) == clock.now
        clock.advance(60)
        audits.store.attempts.succeed(ref(held), None)
        assert instant(audits.row(id)["finished_at"]) == clock.now


# -- install, undo -----------------------------------------------------------------------------------------------------


def test_adopting_again_changes_nothing_and_undoing_leaves_the_table_alone(audits: Audits) -> None:
    schema = audits.sql.execute("select name, sql from sqlite_master where type <> 'trigger'").fetchall()
    id = audits.insert()
    audits.adopt()
    job = audits.job(id)
    audits.adopt()
    assert audits.job(id) == job
    assert audits.store.adopted.check(audits.mapping()) == []
    [held] = audits.claim()
    with pytest.raises(Refused, match="still run"):
        audits.store.adopted.undo("audits")
    audits.store.attempts.succeed(ref(held), None)
    audits.insert()
    audits.insert(status="processing")
    assert audits.store.adopted.undo("audits") == 2
    assert audits.store.adopted.installed() == []
    assert audits.sql.execute("select name, sql from sqlite_master where type <> 'trigger'").fetchall() == schema
    left = "select name from sqlite_master where type = 'trigger' and tbl_name <> 'holdfast_jobs'"
    assert audits.sql.execute(left).fetchall() == []
    assert audits.sql.execute("select count(*) from holdfast_leases").fetchone()[0] == 0
    audits.insert()
    assert audits.claim() == []
    audits.adopt()
    assert len(audits.claim()) == 3 - 1


def test_undo_loses_no_outcome(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    audits.store.adopted.suspend("audits")
    audits.store.attempts.succeed(ref(held), None)
    with pytest.raises(Refused, match=r"HF1166 1 row of audits would never be told .*audits --resume writes it"):
        audits.store.adopted.undo("audits")
    audits.store.adopted.resume("audits")
    assert audits.store.adopted.undo("audits") == 0
    assert audits.word(id) == "completed"


def test_undo_writes_what_is_owed_if_that_is_possible_again(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    audits.sql.execute("alter table audits rename column last_heartbeat to beat")
    audits.store.attempts.succeed(ref(held), None)
    with pytest.raises(Refused, match=r"HF1166 1 row of audits would never be told .* holdfast doctor says why"):
        audits.store.adopted.undo("audits")
    audits.sql.execute("alter table audits rename column beat to last_heartbeat")
    assert audits.store.adopted.undo("audits") == 0
    assert audits.word(id) == "completed"


def test_nothing_is_owed_to_a_table_that_is_gone(audits: Audits) -> None:
    audits.adopt()
    _, held = audits.held()
    audits.store.adopted.suspend("audits")
    audits.store.attempts.succeed(ref(held), None)
    audits.sql.execute("drop table audits")
    assert audits.store.adopted.undo("audits") == 0
    assert audits.store.operator.delete(str(held.id)) is State.SUCCEEDED


def test_a_mapping_that_can_not_work_is_refused_with_every_reason(audits: Audits) -> None:
    with pytest.raises(BadSettings, match=r"no column 'statsu'.*perhaps 'status'"):
        audits.store.adopted.install(audits.mapping(status="statsu"))
    with pytest.raises(BadSettings, match=r"photo is BLOB.*error_code needs text"):
        audits.adopt(error_code="photo")
    with pytest.raises(BadSettings, match=r"no table 'audit' .*perhaps 'audits'"):
        audits.store.adopted.describe("audit")
    audits.sql.execute("create table typeless (id text unique, status)")
    with pytest.raises(BadSettings, match=r"status is of no type, .*; id can be null, .*make it NOT NULL"):
        audits.store.adopted.install(mapping_of("typeless", {"states": STATES, "id": "id"}))
    audits.sql.execute("create table checked (id integer primary key, s text check (s in ('a', 'b''s')))")
    table = audits.store.adopted.describe("CHECKED")
    assert table.name == "checked"
    assert [column.words for column in table.columns] == [None, ("a", "b's")]
    audits.adopt()
    with pytest.raises(BadSettings, match="is adopted as 'audits'"):
        audits.adopt(name="other")


def test_names_are_found_whatever_the_case_of_their_letters(audits: Audits) -> None:
    audits.store.adopted.install(audits.mapping(table="main.AUDITS", status="STATUS", heartbeat_at="Last_Heartbeat"))
    id, held = audits.held()
    audits.store.attempts.succeed(ref(held), None)
    assert audits.word(id) == "completed"


def test_rows_that_are_no_jobs_or_can_not_be_are_told(audits: Audits) -> None:
    audits.insert(status="draft")
    audits.insert(retry_count=3)
    audits.insert(status="processing")
    audits.insert(due="tomorrow")
    plan = audits.store.adopted.plan(audits.mapping())
    assert plan.rows == {"pending": 2, "draft": 1, "processing": 1}
    assert [(problem.column, problem.rows, problem.fatal) for problem in plan.problems] == [
        ("retry_count", 1, False), ("last_heartbeat", 1, False), ("due", 1, False)
    ]  # fmt: skip
