"""On PostgreSQL, beside others who use the table: nobody waits for us or fails because of us, whatever they do to the
table no native job is delayed, and no row is worked twice."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from typing import Any

import psycopg
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.adopt.postgres import Side, a_side, adopt, claim, finish, inbox, job, jobs, settle, store_schema
from tests.factories import Clock, a_queued_job
from tests.servers import a_role, own_postgres
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

BOTH = ("audits", "greet")


def test_a_locked_row_is_put_off_and_delays_no_other(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    a_queued_job(store)
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.audits where id = 1 for update", on=other)
        claimed = claim(store, tasks=BOTH)
        assert sorted(held.task for held in claimed) == ["audits", "greet"]
        assert claim(store, tasks=BOTH) == []
    clock.advance(1)
    assert [held.id for held in claim(store)] == [int(job(store, 1).id)]


def test_what_a_locked_row_should_be_told_is_owed_until_it_is_free(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    held = claim(store)
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.audits where id = 1 for update", on=other)
        began = time.monotonic()
        for one in held:
            finish(store, one, result={"score": 1})
        assert store.adopted.settle("audits").waiting == 1
        store.adopted.beat("audits")
        assert time.monotonic() - began < 1  # nobody waits
        assert [side.row(id)["status"] for id in (1, 2)] == ["processing", "completed"]
        assert job(store, 1).state is State.SUCCEEDED
    settle(store)
    assert (side.row(1)["status"], side.row(1)["score"]) == ("completed", 1)
    assert inbox(store) == 0


def test_who_finds_others_settling_is_told_that_there_is_more(store: Store, side: Side) -> None:
    adopt(store, side)
    side.sql("insert into {s}.audits (url) values ('a')")
    with side.connect() as other, other.transaction():
        side.sql(f'select * from "{store_schema(store)}".inbox for update', on=other)
        found = store.adopted.settle("audits")
        assert (found.settled, found.waiting) == (0, 1)
    assert store.adopted.settle("audits").settled == 1
    assert store.adopted.settle("audits").waiting == 0


def test_a_key_share_lock_of_a_foreign_key_keeps_nobody_out(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    side.sql("create table {s}.pages (audit bigint references {s}.audits)")
    with side.connect() as other, other.transaction():
        side.sql("insert into {s}.pages values (1)", on=other)
        assert len(claim(store)) == 1


@pytest.mark.parametrize(
    ("harm", "mend"),
    [
        ("lock table {s}.audits in access exclusive mode", None),
        (
            "alter table {s}.audits rename column status to state",
            "alter table {s}.audits rename column state to status",
        ),
        ("alter table {s}.audits rename to gone", "alter table {s}.gone rename to audits"),
        ("alter table {s}.audits drop column url", "alter table {s}.audits add column url text not null default 'x'"),
    ],
    ids=["locked", "column renamed", "table renamed", "column dropped"],
)
def test_a_table_that_can_not_be_worked_delays_no_native_job_and_heals(
    store: Store, side: Side, clock: Clock, harm: str, mend: str | None
) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending'), ('c', 'pending')")
    [held] = claim(store, 1)
    with side.connect() as other:
        if mend is None:
            other.autocommit = False
        side.sql(harm, on=other)
        a_queued_job(store)
        began = time.monotonic()
        claim(store, 1, tasks=BOTH)
        assert [one.task for one in claim(store, 1, tasks=BOTH)] == ["greet"]  # the other lane is closed for a moment
        assert store.adopted.installed()[0].refused is not None
        finish(store, held)
        assert store.adopted.settle("audits").settled == 0
        store.adopted.beat("audits")
        assert store.adopted.sweep("audits", None).reached in (None, "job:")
        assert time.monotonic() - began < 1
        assert job(store, 1).state is State.SUCCEEDED
        if mend is None:
            other.rollback()
        else:
            side.sql(mend)
    settle(store)
    assert side.row(1)["status"] == "completed"
    clock.advance(2)
    assert len(claim(store)) == 2


def test_what_can_not_be_written_as_taken_is_not_taken(store: Store, side: Side, clock: Clock) -> None:
    """A column that no claim reads is renamed. The row would go on saying that it waits, and others would take it."""
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    side.sql("alter table {s}.audits rename column message to said")
    a_queued_job(store)
    assert [one.task for one in claim(store, tasks=BOTH)] == ["greet"]
    assert "message" in str(store.adopted.installed()[0].refused)
    assert [problem.column for problem in store.adopted.check(side.mapping())] == ["message"], "said once"
    assert {job(store, id).state for id in (1, 2)} == {State.QUEUED}
    side.sql("alter table {s}.audits rename column said to message")
    clock.advance(2)
    assert len(claim(store)) == 2
    assert [side.row(id)["status"] for id in (1, 2)] == ["processing"] * 2


def test_a_row_that_its_table_does_not_let_us_take_keeps_no_other_back(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, *[f"('{n}', 'pending')" for n in "abc"])
    side.sql("alter table {s}.audits add check (url <> 'b' or status <> 'processing')")
    assert [held.id for held in claim(store)] == [int(job(store, id).id) for id in (1, 3)]
    assert [side.row(id)["status"] for id in (1, 2, 3)] == ["processing", "pending", "processing"]
    clock.advance(2)
    assert claim(store) == []
    assert job(store, 2).state is State.QUEUED
    side.sql("insert into {s}.audits (url) values ('d')")
    settle(store)
    clock.advance(2)
    assert len(claim(store)) == 1


def test_triggers_of_the_users_own_find_what_they_name(store: Store, side: Side) -> None:
    """As they do where their own programs write."""
    adopt(store, side)
    side.sql("create table {s}.log (audit bigint, said text)")
    side.sql(
        "create function {s}.note() returns trigger language plpgsql as "
        "$$ begin insert into log values (new.id, new.status); return null; end $$"
    )
    side.sql("create trigger note after update of status on {s}.audits for each row execute function {s}.note()")
    with side.connect() as other:
        side.sql("set search_path = {s}", on=other)
        side.sql("insert into audits (url) values ('a')", on=other)
    settle(store)
    [held] = claim(store)
    finish(store, held, result={"score": 1})
    assert side.row()["status"] == "completed"
    assert side.sql("select * from {s}.log") == [(1, "processing"), (1, "completed")]


def test_a_trigger_of_the_users_own_that_fails_is_told(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    side.sql(
        "create function {s}.note() returns trigger language plpgsql as "
        "$$ begin insert into nowhere values (1); return null; end $$"
    )
    side.sql("create trigger note after update of status on {s}.audits for each row execute function {s}.note()")
    assert claim(store) == []
    [problem] = store.adopted.check(side.mapping())
    assert 'could not be written of late, and were left alone: relation "nowhere"' in problem.what
    assert not problem.fatal


def test_triggers_of_the_users_own_find_nothing_where_everybody_may_create_it(store: Store, side: Side) -> None:
    """They act as the owner of our tables, and would run anybody's functions."""
    side.sql("grant create on schema {s} to public")
    adopt(store, side)
    settings = "select unnest(proconfig) from pg_proc where proname = 'take_audits' and pronamespace = %s::regnamespace"
    [path] = [text for (text,) in side.sql(settings, f'"{store_schema(store)}"') if text.startswith("search_path=")]
    assert side.schema not in path
    side.sql("revoke create on schema {s} from public")


@pytest.mark.parametrize("column", ["status", "worker_id", "run_at"])
def test_who_writes_to_a_table_with_a_renamed_column_does_not_fail(store: Store, side: Side, column: str) -> None:
    adopt(store, side, "('a', 'pending')")
    side.sql(f"alter table {{s}}.audits rename column {column} to other")
    status = "other" if column == "status" else "status"
    side.sql(f"insert into {{s}}.audits (url, {status}) values ('b', 'pending')")
    side.sql(f"update {{s}}.audits set {status} = 'paused'")
    side.sql("delete from {s}.audits where url = 'a'")
    side.sql(f"alter table {{s}}.audits rename column other to {column}")
    sweep(store)
    settle(store)
    assert (job(store, 1).state, job(store, 2).state) == (State.CANCELLED, State.PAUSED)


def test_a_dropped_table_loses_no_outcome_and_can_be_given_up(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    [held] = claim(store, 1)
    side.sql("drop table {s}.audits")
    finish(store, held)
    a_queued_job(store)
    assert [one.task for one in claim(store, tasks=BOTH)] == ["greet"]
    assert store.adopted.undo("audits") == 1
    assert job(store, 1).state is State.SUCCEEDED


def sweep(store: Store) -> None:
    after = None
    while (after := store.adopted.sweep("audits", after).reached) is not None:
        pass


def test_a_suspended_table_is_left_alone_and_can_be_changed(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    [held] = claim(store, 1)
    store.adopted.suspend("audits")
    finish(store, held)
    side.sql("alter table {s}.audits rename column url to address")
    side.sql("insert into {s}.audits (address) values ('c')")
    a_queued_job(store)
    assert [one.task for one in claim(store, 1, tasks=BOTH)] == ["greet"]
    assert store.adopted.settle("audits").settled == 0
    assert (side.row(1)["status"], side.row(2)["status"]) == ("processing", "pending")
    assert [source.suspended for source in store.adopted.installed()] == [True]
    store.adopted.resume("audits")
    assert side.row(1)["status"] == "completed"
    assert len(claim(store)) == 2


# -- isolation -----------------------------------------------------------------------------------------------------


def test_serializable_transactions_of_others_do_not_fail_because_of_us(kept: Store, side: Side) -> None:
    adopt(kept, side)
    # So many that what each reads and writes is on other pages of the index: among themselves they have no conflict.
    side.sql("insert into {s}.audits (url, status) select n, 'completed' from generate_series(1, 3000) n")
    failed: list[psycopg.Error] = []

    def write(own: int) -> None:
        try:
            with side.connect() as other:
                side.sql("set enable_seqscan = off; set enable_bitmapscan = off", on=other)
                for n in range(40):
                    with other.transaction():
                        side.sql("set transaction isolation level serializable", on=other)
                        side.sql("insert into {s}.audits (url) values (%s)", f"{own}-{n}", on=other)
                        side.sql("update {s}.audits set priority = %s where id = %s", n, 900 * own + 1, on=other)
        except psycopg.Error as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    done = 0
    while done < 120:
        settle(kept)
        for held in claim(kept):
            finish(kept, held)
            done += 1
        if failed:
            break
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize(
    ("before", "between", "act", "becomes"),
    [
        ("pending", "paused", "update {s}.audits set status = 'pending'", State.QUEUED),
        ("completed", "pending", "delete from {s}.audits", State.CANCELLED),
    ],
)
def test_a_transaction_need_not_see_what_became_of_jobs_since_its_snapshot(
    kept: Store, side: Side, level: str, before: str, between: str, act: str, becomes: State
) -> None:
    adopt(kept, side, "('a', 'pending')")
    for word in (before, between):
        settle(kept)
        side.sql("update {s}.audits set status = %s", word)
    with side.connect() as other, other.transaction():
        side.sql(f"set transaction isolation level {level}", on=other)
        side.sql("select 1", on=other)
        settle(kept)
        side.sql(act, on=other)
    settle(kept)
    assert job(kept, 1).state is becomes


def test_without_notify_others_can_prepare_transactions(engine: str) -> None:
    with (
        own_postgres(max_prepared_transactions=5) as server,
        a_side(server.url) as side,
        closing(open_store(Settings(url=server.url))) as store,
    ):
        store.schema.migrate()
        adopt(store, side, notify=False)
        with side.connect() as other:
            side.sql("begin", on=other)
            side.sql("insert into {s}.audits (url) values ('a')", on=other)
            side.sql("prepare transaction 'x'", on=other)
            assert claim(store) == []
            side.sql("commit prepared 'x'", on=other)
        settle(store)
        assert len(claim(store)) == 1


def test_who_writes_wakes_those_that_listen(kept: Store, side: Side) -> None:
    adopt(kept, side)
    heard: list[tuple[str, str]] = []
    stop = threading.Event()

    def listen() -> None:
        kept.wakeups.listen(lambda kind, text, turn: heard.append((kind, text)), stop.is_set)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        wait_until(lambda: ("listening", "") in heard)
        side.sql("insert into {s}.audits (url) values ('a')")
        wait_until(lambda: ("inbox", "audits") in heard)
        kept.adopted.settle("audits", stays=True)
        heard.clear()
        side.sql("insert into {s}.audits (url) values ('b')")  # somebody looks by himself
        side.sql("select pg_notify(%s, 'qend')", f"holdfast:{store_schema(kept)}")
        wait_until(lambda: ("queue", "end") in heard)
        assert ("inbox", "audits") not in heard
    finally:
        stop.set()
        thread.join()


# -- the three claim styles of others ------------------------------------------------------------------------------

WAITING = "select id, version, updated_at from {s}.audits where status = 'pending' order by random() limit 5"
STYLES = {
    "status": "update {s}.audits set status = 'processing', worker_id = 'old', heartbeat = now() "
    "where id = %(id)s and status = 'pending'",
    "version": "update {s}.audits set status = 'processing', worker_id = 'old', heartbeat = now(), "
    "version = version + 1 where id = %(id)s and version = %(version)s",
    "updated_at": "update {s}.audits set status = 'processing', worker_id = 'old', heartbeat = now(), "
    "updated_at = clock_timestamp() where id = %(id)s and updated_at = %(updated_at)s",
}


@pytest.mark.parametrize("style", list(STYLES))
def test_no_row_is_worked_twice_beside_a_foreign_poller(kept: Store, side: Side, style: str) -> None:
    rows = 300
    adopt(kept, side)
    side.sql("insert into {s}.audits (url) select n::text from generate_series(1, %s) n", rows)
    worked: Counter[int] = Counter()
    lock = threading.Lock()

    def left() -> bool:
        return bool(side.sql("select 1 from {s}.audits where status in ('pending', 'processing') limit 1", on=looker))

    def poll() -> None:
        """As an old worker does: read what waits, then take it, one after the other."""
        with side.connect() as other:
            cursor = psycopg.Cursor(other, row_factory=psycopg.rows.dict_row)
            while True:
                text = (
                    "select id, version, updated_at from {s}.audits where status = 'pending' order by random() limit 5"
                )
                found = cursor.execute(text.replace("{s}", side.schema).encode()).fetchall()
                if not found:
                    return
                for row in found:
                    if cursor.execute(STYLES[style].replace("{s}", side.schema).encode(), row).rowcount:
                        with lock:
                            worked[row["id"]] += 1
                        side.sql("update {s}.audits set status = 'completed' where id = %s", row["id"], on=other)

    def work() -> None:
        while left():
            settle(kept)
            for held in claim(kept, 5):
                with lock:
                    worked[int(by_job(held.id))] += 1
                finish(kept, held)

    def by_job(id: Any) -> str:
        return str(kept.reads.get(str(id)).source_id)

    with side.connect() as looker:
        poller = threading.Thread(target=poll)
        poller.start()
        work()
        poller.join()
    settle(kept)
    sweep(kept)
    settle(kept)
    assert sorted(worked) == list(range(1, rows + 1))
    assert worked.most_common(1)[0][1] == 1
    assert {one.state for one in jobs(kept)} == {State.SUCCEEDED}
    assert side.sql("select distinct status from {s}.audits") == [("completed",)]


# -- rights --------------------------------------------------------------------------------------------------------


def test_foreign_roles_need_no_right_to_our_schema(kept: Store, side: Side) -> None:
    adopt(kept, side)
    rights = (
        f"usage on schema {side.schema}",
        f"all on {side.schema}.audits",
        f"all on sequence {side.schema}.audits_id_seq",
    )
    with a_role(side.url, *rights) as url, psycopg.connect(url, autocommit=True) as foreign:
        side.sql("insert into {s}.audits (url) values ('a')", on=foreign)
        side.sql("update {s}.audits set status = 'paused'", on=foreign)
        settle(kept)
        assert job(kept, 1).state is State.PAUSED
        side.sql("update {s}.audits set status = 'pending'", on=foreign)
        settle(kept)
        [held] = claim(kept)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            foreign.execute(f'select "{store_schema(kept)}".settle_audits(1, now(), null)'.encode())
        finish(kept, held)
    assert side.row()["status"] == "completed"
