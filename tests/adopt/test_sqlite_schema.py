"""The user's table is changed while it is adopted: it is put right or left alone, native jobs go on, and nothing that
our workers did is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from holdfast.errors import BadSettings
from holdfast.model.lifecycle import State
from holdfast.model.mapping import mapping_of
from holdfast.store.sqlite.store import SqliteStore
from tests.adopt.sqlite_table import AUDITS, STATES, Audits, audits_in, rebuild
from tests.factories import BOOM, a_running_job, claim, new_job, ref


@pytest.fixture
def audits(tmp_path: Path) -> Iterator[Audits]:
    with audits_in(tmp_path) as audits:
        yield audits


def triggers(audits: Audits) -> set[str]:
    sql = "select name from sqlite_master where type = 'trigger' and tbl_name = 'audits'"
    return {row[0] for row in audits.sql.execute(sql).fetchall()}


def native_jobs_go_on(store: SqliteStore) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held), None)
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


def test_a_table_that_was_rebuilt_gets_its_triggers_back(audits: Audits) -> None:
    audits.adopt()
    before = triggers(audits)
    id, held = audits.held()
    rebuild(audits.sql)
    assert triggers(audits) == set()
    audits.store.attempts.succeed(ref(held), b'{"score": 1}')
    assert (audits.word(id), audits.row(id)["score"], audits.owed()) == ("completed", 1, 0)
    assert triggers(audits) == before
    [source] = audits.store.adopted.installed()
    assert source.swept_to == ""  # what happened meanwhile is looked for


def test_what_happened_while_the_triggers_were_missing_is_never_run_twice_and_found_by_the_sweep(
    audits: Audits,
) -> None:
    audits.adopt()
    taken, gone, kept, held_row = (audits.insert() for _ in range(4))
    [held] = [job for job in audits.claim() if job.args.count(f'"id": {held_row},'.encode())] or audits.claim()
    for job in audits.sql.execute("select id, fence from holdfast_jobs where state = 'running'").fetchall():
        if job[0] != held.id:
            audits.store.attempts.release(ref(held)._replace(id=job[0], fence=job[1]))
    rebuild(audits.sql)
    audits.update(taken, status="processing")
    audits.sql.execute("delete from audits where id = ?", (gone,))
    audits.update(held_row, status="pending")
    new = audits.insert()
    claimed = audits.claim()
    assert {int(job.args.split(b'"id": ')[1].split(b",")[0]) for job in claimed} == {kept}
    assert audits.job(taken).worker == f"foreign:audits:{taken}"
    assert audits.job(gone).state is State.CANCELLED
    assert audits.store.adopted.sweep("audits", None).strays == 2
    assert audits.job(new).state is State.QUEUED
    assert audits.word(held_row) == "processing"
    assert audits.mismatches() == []
    assert audits.store.adopted.sweep("audits", None).strays == 0


def test_a_column_that_was_renamed_stops_the_table_alone_and_it_heals_by_itself(audits: Audits) -> None:
    mapping = audits.adopt()
    id, held = audits.held()
    waiting = audits.insert()
    audits.sql.execute("alter table audits rename column retry_count to tries")
    native_jobs_go_on(audits.store)
    assert audits.claim() == []
    audits.store.attempts.succeed(ref(held), b'{"score": 1}')
    assert (audits.word(id), audits.job(id).state, audits.owed()) == ("processing", State.SUCCEEDED, 1)
    new = audits.insert()  # foreign writers go on, too
    audits.update(id, status="pending")  # and what we owe them stands
    assert audits.job(id).state is State.SUCCEEDED
    audits.update(id, status="processing")
    [problem] = audits.store.adopted.check(mapping)
    assert "retry_count" in problem.what
    assert audits.store.adopted.settle("audits").settled == 0
    audits.sql.execute("alter table audits rename column tries to retry_count")
    native_jobs_go_on(audits.store)
    assert audits.store.adopted.settle("audits").settled == 1
    assert (audits.word(id), audits.row(id)["score"], audits.owed()) == ("completed", 1, 0)
    audits.store.adopted.sweep("audits", None)
    assert {audits.job(one).state for one in (waiting, new)} == {State.QUEUED}
    assert len(audits.claim()) == 2


def test_a_table_that_was_dropped_stops_nobody_else(audits: Audits) -> None:
    audits.adopt()
    _, held = audits.held()
    audits.insert()
    audits.sql.execute("drop table audits")
    native_jobs_go_on(audits.store)
    assert audits.claim() == []
    audits.store.attempts.succeed(ref(held), b'{"score": 1}')
    assert audits.owed() == 1
    audits.sql.execute(AUDITS)
    native_jobs_go_on(audits.store)
    while audits.store.adopted.settle("audits").settled:
        pass
    assert audits.store.adopted.sweep("audits", None).strays == 1  # the job that waited has no row any more
    assert audits.owed() == 0
    id, _ = audits.held()
    assert audits.word(id) == "processing"


def test_another_process_learns_of_all_that(audits: Audits) -> None:
    """It has its own connections, and their triggers."""
    other = SqliteStore(audits.store.db.settings)
    native_jobs_go_on(other)
    audits.adopt()
    id = audits.insert()
    [held] = claim(other, tasks=("audits",)).jobs
    assert audits.word(id) == "processing"
    audits.store.adopted.suspend("audits")
    other.attempts.succeed(ref(held), b'{"score": 4}')
    assert (audits.word(id), audits.owed()) == ("processing", 1)
    audits.store.adopted.resume("audits")
    assert (audits.word(id), audits.row(id)["score"], audits.owed()) == ("completed", 4, 0)
    audits.store.adopted.undo("audits")
    native_jobs_go_on(other)
    other.close()


def test_a_suspended_table_is_left_alone_and_can_be_changed(audits: Audits) -> None:
    audits.adopt()
    id, held = audits.held()
    foreign = audits.insert(status="processing", last_heartbeat="2020-01-01 00:00:00")
    audits.store.adopted.suspend("audits")
    assert triggers(audits) == set()
    new = audits.insert()
    native_jobs_go_on(audits.store)
    assert audits.claim() == []
    audits.store.attempts.reschedule(ref(held), 0, BOOM)
    assert (audits.word(id), audits.owed()) == ("processing", 1)
    assert audits.store.rescues.rescue() == []  # its holder can't be heard
    audits.update(foreign, status="completed")
    audits.sql.execute("alter table audits drop column photo")
    audits.sql.execute("alter table audits add column more text")
    audits.store.adopted.resume("audits")
    assert (audits.word(id), audits.job(foreign).state, audits.job(new).state) == (
        "pending", State.SUCCEEDED, State.QUEUED
    )  # fmt: skip
    assert len(audits.claim()) == 2
    audits.store.adopted.suspend("audits")
    audits.sql.execute("alter table audits drop column score")
    with pytest.raises(BadSettings, match="no column 'score'"):
        audits.store.adopted.resume("audits")


def test_a_value_that_their_table_refuses_later_keeps_only_its_own_job_owed(audits: Audits) -> None:
    audits.adopt()
    first, second = audits.insert(), audits.insert()
    held = {job.id: job for job in audits.claim()}
    audits.store.adopted.suspend("audits")
    for job in held.values():
        audits.store.attempts.succeed(ref(job), b"{}")
    audits.sql.execute(
        f"""create trigger picky before update on audits when new.id = {first} and new.status = 'completed'
             begin select raise(abort, 'not this one'); end"""
    )
    audits.store.adopted.resume("audits")
    assert (audits.word(first), audits.word(second), audits.owed()) == ("processing", "completed", 1)


def test_dropping_our_schema_leaves_a_table_that_can_be_written(audits: Audits) -> None:
    audits.adopt()
    audits.store.schema.drop()
    audits.sql.execute("insert into audits (url) values ('x')")


def test_adopting_that_was_cut_short_goes_on(audits: Audits) -> None:
    for _ in range(30):
        audits.insert()
    audits.adopt()
    audits.sql.execute("delete from holdfast_jobs")  # as if it had ended after the triggers were made
    audits.sql.execute("update holdfast_sources set swept_to = '10'")
    audits.adopt()
    assert audits.sql.execute("select count(*) from holdfast_jobs").fetchone()[0] == 20
    assert [source.swept_to for source in audits.store.adopted.installed()] == [None]


def test_nothing_is_adopted_and_nothing_is_made(audits: Audits) -> None:
    native_jobs_go_on(audits.store)
    audits.store.enqueue(new_job())
    with audits.store.db.use() as connection:
        assert connection.db.execute("select count(*) from sqlite_temp_master").fetchone() == (0,)


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
    lambda name: not name.lower().startswith(("sqlite_", "holdfast_"))
)


@given(names=st.lists(NAMES, min_size=4, max_size=4, unique_by=str.lower))
@trying(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_can_be_a_tables_or_a_columns(audits: Audits, names: list[str]) -> None:
    table, _, status, payload = names
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    audits.sql.execute(f"create table {quoted[0]} ({quoted[1]} text primary key, {quoted[2]} text, {quoted[3]} text)")
    mapping = mapping_of(table, {"states": STATES, "name": "hostile", "status": status, "payload": [payload]})
    store = audits.store
    try:
        store.adopted.install(mapping)
        audits.sql.execute(f"insert into {quoted[0]} values ('it''s', 'pending', 'x')")
        [held] = claim(store, tasks=("hostile",)).jobs
        store.attempts.succeed(ref(held), None)
        assert audits.sql.execute(f"select {quoted[2]} from {quoted[0]}").fetchone()[0] == "completed"
        store.adopted.undo("hostile")
    finally:
        audits.sql.execute(f"drop table {quoted[0]}")
        audits.sql.execute("delete from holdfast_jobs")
        audits.sql.execute("delete from holdfast_sources")
