"""On PostgreSQL: what a table is found to be, how it is adopted and given up again, and as whom."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from holdfast.errors import BadArguments, BadSettings, Refused, RightMissing
from holdfast.model.lifecycle import State
from holdfast.model.mapping import mapping_of
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.adopted import quoted
from holdfast.store.base import Store
from tests.adopt.postgres import (
    AUDITS,
    STATES,
    Side,
    a_side,
    adopt,
    claim,
    finish,
    inbox,
    jobs,
    settle,
    store_schema,
)
from tests.factories import BOOM, a_queued_job
from tests.roles.places import Roles, roles_of
from tests.servers import new_schema, shared_postgres

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


# -- describe ------------------------------------------------------------------------------------------------------


def test_a_table_is_described_as_the_catalogue_has_it(kept: Store, side: Side) -> None:
    side.sql("create type {s}.job_status as enum ('pending', 'it''s done')")
    side.sql("create domain {s}.word as varchar(9) check (value in ('a', 'b'))")
    side.sql(
        "create table {s}.things (id uuid primary key default gen_random_uuid(), status {s}.job_status not null, "
        "old varchar(20) check (old in ('x', 'y''z')), one text check (one = 'only'), free text check (free <> 'x'), "
        "w {s}.word, slug text unique, n numeric(3,1), at timestamptz, naive timestamp, blob bytea, doc jsonb, "
        "twice integer generated always as (1 + 1) stored, ok boolean, f real)"
    )
    table = kept.adopted.describe(f"{side.schema}.things")
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {
        "id": "uuid", "status": "enum", "old": "text", "one": "text", "free": "text", "w": "text", "slug": "text",
        "n": "number", "at": "instant", "naive": "naive_instant", "twice": "integer", "blob": "bytes", "doc": "json",
        "ok": "boolean", "f": "number",
    }  # fmt: skip
    words = {column.name: column.words for column in table.columns if column.words is not None}
    assert words == {
        "status": ("pending", "it's done"), "old": ("x", "y'z"), "one": ("only",), "w": ("a", "b"),
    }  # fmt: skip
    assert (table.primary_key, table.unique) == (("id",), (("slug",),))
    assert [column.name for column in table.columns if column.generated] == ["twice"]
    assert (table.schema, table.name, table.partitioned, table.problems) == (side.schema, "things", False, ())
    assert table.column("status").type == f"{side.schema}.job_status"  # type: ignore[union-attr]


def test_a_name_must_mean_one_table(kept: Store, side: Side) -> None:
    name = f"t{side.schema}"
    with a_side() as other:
        for one in (side, other):
            one.sql(f'create table {{s}}.{name} (id int primary key); create table {{s}}."Big {name}" (id int)')
        with pytest.raises(BadSettings, match=r"HF1165 .* can mean .*: write which, with its schema"):
            kept.adopted.describe(name)
        assert kept.adopted.describe(f"{other.schema}.{name}").schema == other.schema
        assert kept.adopted.describe(f'{side.schema}."Big {name}"').name == f"Big {name}"
    assert kept.adopted.describe(name.upper()).schema == side.schema  # as SQL reads it
    assert kept.adopted.describe(f"Big {name}").name == f"Big {name}"  # and as it is written
    side.sql("create view {s}.seen as select 1 as id")
    with pytest.raises(BadSettings, match="is a view, and only a table can be adopted"):
        kept.adopted.describe(f"{side.schema}.seen")
    for wrong in (f"{side.schema}.nothing", "", "a.b.c", 'x"y', "nul\0", "\ud800", f"{store_schema(kept)}.jobs"):
        with pytest.raises(BadSettings, match="HF1165 there is no table"):
            kept.adopted.describe(wrong)


# -- install and undo ----------------------------------------------------------------------------------------------


def test_what_is_there_becomes_jobs_and_adopting_again_changes_nothing(kept: Store, side: Side) -> None:
    told: list[str] = []
    side.sql(AUDITS)
    words = "(array['pending', 'completed'])[n % 2 + 1]"
    side.sql(f"insert into {{s}}.audits (url, status) select n, {words} from generate_series(1, 2500) n")
    mapping = side.mapping()
    kept.adopted.install(mapping, told.append)
    assert len(told) > 4
    assert len(rows(kept, "jobs")) == 1250
    before = rows(kept, "jobs")
    kept.adopted.install(mapping)
    assert rows(kept, "jobs") == before
    [source] = kept.adopted.installed()
    assert (source.mapping, source.suspended, source.swept_to) == (mapping, False, None)
    assert kept.adopted.check(mapping) == []


def rows(store: Store, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(shared_postgres()) as connection:
        return connection.execute(f'select * from "{store_schema(store)}".{table} order by 1'.encode()).fetchall()


def test_adopting_goes_on_where_it_was_cut_short(kept: Store, side: Side) -> None:
    side.sql(AUDITS)
    side.sql("insert into {s}.audits (url) select n from generate_series(1, 3000) n")

    def cut(text: str) -> None:
        if text.startswith("looked"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kept.adopted.install(side.mapping(), cut)
    [source] = kept.adopted.installed()
    assert source.swept_to == "row:1000"
    kept.adopted.install(side.mapping())
    assert len(rows(kept, "jobs")) == 3000


def test_triggers_wait_for_no_lock_for_long(kept: Store, side: Side) -> None:
    side.sql(AUDITS)
    told: list[str] = []
    other = side.connect()
    other.autocommit = False
    side.sql("insert into {s}.audits (url) values ('a')", on=other)

    def end(text: str) -> None:
        told.append(text)
        if "locked" in text:
            side.sql("insert into {s}.audits (url) values ('b')")  # who writes meanwhile does not wait
            other.commit()

    kept.adopted.install(side.mapping(), end)
    other.close()
    assert any("locked" in text for text in told)
    assert len(jobs(kept)) == 2


def test_undo_leaves_the_table_as_it_is_and_nothing_behind(kept: Store, side: Side) -> None:
    triggers = "select tgname from pg_trigger where tgrelid = %s::regclass and not tgisinternal order by tgname"
    native = side.sql(triggers, f'"{store_schema(kept)}".jobs')
    adopt(kept, side, "('a', 'pending'), ('b', 'pending'), ('c', 'processing')")
    [held] = claim(kept, 1)
    with pytest.raises(Refused, match="HF1166 workers still run 1 job of audits"):
        kept.adopted.undo("audits")
    finish(kept, held)
    a_queued_job(kept)
    before = side.sql("select * from {s}.audits order by id")
    assert kept.adopted.undo("audits") == 2
    assert side.sql("select * from {s}.audits order by id") == before
    assert kept.adopted.describe(f"{side.schema}.audits").triggers == ()
    assert kept.adopted.installed() == []
    left = "select proname from pg_proc where pronamespace = %s::regnamespace and proname like %s"
    assert side.sql(left, f'"{store_schema(kept)}"', "%audits%") == []
    assert side.sql(triggers, f'"{store_schema(kept)}".jobs') == native
    assert rows(kept, "inbox") == []
    assert [worker for _, worker, *_ in rows(kept, "leases")] == ["w1"]  # not the foreign one
    side.sql("insert into {s}.audits (url) values ('d')")
    assert [one.state for one in jobs(kept)] == [State.SUCCEEDED]
    for verb in (kept.adopted.undo, kept.adopted.suspend, kept.adopted.resume):
        with pytest.raises(BadArguments, match="HF1164 no table is adopted as 'audits'"):
            verb("audits")
    kept.adopted.install(side.mapping())  # and again
    assert len(claim(kept)) == 2


def test_undo_loses_no_outcome(kept: Store, side: Side) -> None:
    adopt(kept, side, "('a', 'pending')", "('b', 'pending')")
    first, second = claim(kept)
    kept.adopted.suspend("audits")
    finish(kept, first, result={"score": 1})
    finish(kept, second, "fail", error=BOOM)
    with pytest.raises(Refused, match=r"HF1166 2 rows of audits would never be told .*audits --resume writes it"):
        kept.adopted.undo("audits")
    kept.adopted.resume("audits")
    assert kept.adopted.undo("audits") == 0
    assert [(side.row(id)["status"], side.row(id)["score"]) for id in (1, 2)] == [("completed", 1), ("failed", None)]


def test_undo_writes_what_is_owed_to_rows_that_were_locked(kept: Store, side: Side) -> None:
    adopt(kept, side, "('a', 'pending')")
    [held] = claim(kept)
    with closing(side.connect()) as other:
        other.autocommit = False
        side.sql("select 1 from {s}.audits for update", on=other)
        finish(kept, held, result={"score": 1})
        with pytest.raises(Refused, match=r"HF1166 1 row of audits would never be told .* has them locked"):
            kept.adopted.undo("audits")
        other.rollback()  # a server takes a moment to notice that a connection was closed
    assert kept.adopted.undo("audits") == 0
    assert side.row()["status"] == "completed"


def test_undo_takes_no_job_from_who_claims_it_meanwhile(
    kept: Store, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(kept, side, "('a', 'pending')", "('b', 'pending')")
    held: list[Any] = []
    monkeypatch.setattr(kept.adopted, "_drop_triggers", lambda source: held.extend(claim(kept, 1)))
    with pytest.raises(Refused, match="HF1166 workers still run 1 job of audits"):
        kept.adopted.undo("audits")
    assert len(jobs(kept)) == 2
    finish(kept, held[0], result={"score": 1})
    assert side.row()["status"] == "completed"


def test_nothing_is_owed_to_a_table_that_is_gone(kept: Store, side: Side) -> None:
    adopt(kept, side, "('a', 'pending')")
    [held] = claim(kept)
    kept.adopted.suspend("audits")
    finish(kept, held)
    side.sql("drop table {s}.audits")
    assert kept.adopted.undo("audits") == 0
    assert kept.operator.delete(str(held.id)) is State.SUCCEEDED


def test_a_mapping_that_can_not_work_is_refused_with_all_that_is_wrong(kept: Store, side: Side) -> None:
    side.sql("create table {s}.audits (id int primary key, status text check (status in ('pending')), n text)")
    mapping = mapping_of(f"{side.schema}.audits", {"states": STATES, "attempts": "n", "worker": "wrker"})
    with pytest.raises(BadSettings) as refused:
        kept.adopted.install(mapping)
    said = str(refused.value)
    for part in ("HF1162", "no column 'wrker'", "n is text, and attempts needs", "doesn't allow the word 'processing'"):
        assert part in said
    assert kept.adopted.installed() == []


def test_an_id_that_may_be_missing_is_refused(kept: Store, side: Side) -> None:
    """The insert of a row without one would fail."""
    side.sql("create table {s}.pages (path text unique, status text)")
    with pytest.raises(BadSettings, match="path can be null, and then nothing names the row: make it NOT NULL"):
        kept.adopted.install(side.mapping("pages", id="path"))


def test_one_table_is_one_source(kept: Store, side: Side, stores: Any) -> None:
    adopt(kept, side)
    with pytest.raises(BadSettings, match="is adopted as 'audits': undo that first"):
        kept.adopted.install(side.mapping(name="other"))
    with closing(open_store(Settings(url=side.url, schema=new_schema()))) as another:
        another.schema.migrate()
        with pytest.raises(BadSettings, match="by the Holdfast of schema"):
            another.adopted.install(side.mapping())
        another.schema.drop()


def test_check_finds_what_is_wrong_with_triggers_and_rows(kept: Store, side: Side) -> None:
    adopt(kept, side, "('a', 'pending'), ('b', 'draft'), ('c', 'processing')")
    side.sql("update {s}.audits set retry_count = 3 where id = 1")
    side.sql("insert into {s}.audits (url, run_at) values ('d', 'infinity')")
    side.sql(
        "alter table {s}.audits disable trigger holdfast_audits_insert; "
        "drop trigger holdfast_audits_update on {s}.audits"
    )
    found = {problem.what: problem for problem in kept.adopted.check(side.mapping())}
    assert set(found) == {
        "the trigger holdfast_audits_insert of audits is disabled",
        "the trigger holdfast_audits_update of audits is missing",
    }
    odd = [(problem.column, problem.rows) for problem in kept.adopted.odd_rows(side.mapping())]
    assert odd == [("retry_count", 1), ("heartbeat", 1), ("run_at", 1)]
    assert not any(problem.fatal for problem in found.values())
    other = kept.adopted.check(side.mapping(lease=5.0))
    assert any("in the database differs in" in problem.what for problem in other)
    kept.adopted.install(side.mapping())
    assert [p.what for p in kept.adopted.check(side.mapping()) if "trigger" in p.what] == []


def test_columns_that_changed_since_it_was_adopted_are_told(kept: Store, side: Side) -> None:
    adopt(kept, side)

    def problems() -> list[tuple[str, bool]]:
        return [(problem.what, problem.fatal) for problem in kept.adopted.check(side.mapping())]

    side.sql("alter table {s}.audits add column came_later text")
    assert problems() == [], "handlers don't get it, and that is all"
    side.sql("alter table {s}.audits alter column priority type bigint")
    [(what, fatal)] = problems()
    assert ("other types of its columns" in what, fatal) == (True, False)
    kept.adopted.install(side.mapping())
    assert problems() == []
    side.sql("insert into {s}.audits (url) values ('a')")
    side.sql("alter table {s}.audits drop column url")
    assert problems() == [('audits has no column "url" any more, which handlers got', True)]
    kept.adopted.install(side.mapping())
    assert problems() == []
    settle(kept)
    [held] = claim(kept)
    assert json.loads(held.args)["row"].keys() == {"id", "came_later"}


def test_a_plan_says_all_that_would_be_done(kept: Store, side: Side) -> None:
    side.sql(AUDITS)
    side.sql("insert into {s}.audits (url, status) values ('a', 'pending'), ('b', 'pending'), ('c', 'completed')")
    plan = kept.adopted.plan(side.mapping())
    assert plan.rows == {"pending": 2, "completed": 1}
    assert plan.problems == []
    for statement in plan.statements:
        side.sql(statement)  # as written, by whoever wants to
    for statement in plan.undo:
        side.sql(statement)
    assert kept.adopted.describe(f"{side.schema}.audits").triggers == ()
    side.sql(f'drop trigger adopted_out on "{store_schema(kept)}".jobs')


# -- as whom -------------------------------------------------------------------------------------------------------


@pytest.fixture
def roles(engine: str) -> Any:
    with roles_of(Settings(url=shared_postgres(), schema=new_schema())) as roles:
        yield roles


def test_with_roles_and_no_superuser_each_does_its_part(roles: Roles, side: Side) -> None:
    owner, worker, enqueuer = (roles.login(name, name) for name in ("owner", "worker", "enqueuer"))
    side.sql(AUDITS)
    mapping = side.mapping()
    admin = roles.store(owner)
    with pytest.raises(BadSettings) as refused:
        admin.adopted.install(mapping)
    for grant in str(refused.value).split("run: ")[1:]:  # as it says
        side.sql(grant.partition(";")[0])
    admin.adopted.install(mapping)
    side.sql("insert into {s}.audits (url) values ('a')")
    store = roles.store(worker)
    settle(store)
    store.adopted.beat("audits")
    assert store.adopted.sweep("audits", None).strays == 0
    [held] = claim(store)
    finish(store, held, result={"score": 1})
    assert (side.row()["status"], side.row()["score"]) == ("completed", 1)
    store.rescues.rescue()
    login = f"{roles.schema}_login_enqueuer"
    side.sql(f'grant usage on schema {{s}} to "{login}"; grant select, insert on {{s}}.audits to "{login}"')
    id, made = roles.store(enqueuer).adopted.submit(mapping, {"url": "b"})
    assert (id, made.created) == ("2", True)
    with pytest.raises(RightMissing, match=r"who owns .* can drop its triggers"):
        admin.adopted.undo("audits")
    for name in ("insert", "update", "delete", "truncate"):
        side.sql(f"drop trigger holdfast_audits_{name} on {{s}}.audits")
    assert admin.adopted.undo("audits") == 1
    for role in (login, f"{roles.schema}_owner"):
        side.sql(f'drop owned by "{role}"') if role == login else side.sql(f'revoke all on {{s}}.audits from "{role}"')
    side.sql(f'revoke all on schema {{s}} from "{roles.schema}_owner"')


def test_row_security_that_hides_rows_from_the_owner_is_a_problem(roles: Roles, side: Side) -> None:
    side.sql("create table {s}.audits (id bigint primary key, status text)")
    side.sql("alter table {s}.audits enable row level security")
    store = roles.store(roles.login("owner", "owner"))
    table = store.adopted.describe(f"{side.schema}.audits")
    assert table.row_security
    plain = mapping_of(f"{side.schema}.audits", {"states": STATES})
    assert any("row security hides rows" in problem.what for problem in store.adopted.check(plain))
    side.sql("create policy few_of_it on {s}.audits using (id > 5)")
    assert store.adopted.describe(f"{side.schema}.audits").row_security
    side.sql("create policy all_of_it on {s}.audits using (true)")
    assert not store.adopted.describe(f"{side.schema}.audits").row_security
    side.sql("drop policy all_of_it on {s}.audits")
    side.sql(f'alter role "{roles.schema}_owner" bypassrls')
    assert not store.adopted.describe(f"{side.schema}.audits").row_security


# -- names ---------------------------------------------------------------------------------------------------------

HOSTILE = [
    'a"b', "per%cent", "per%scent", "select", "order by", "é" * 31, "x" * 63, "semi;colon", "back\\slash", "it's",
    "$holdfast$", "{{quote}}", "{{x}}", "@jobs", ":name", "--", "/*", "new\nline", "😀", "%(id)s", "{s}", "tab\tbed",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_any_name_that_the_database_takes_can_be_worked(kept: Store, side: Side, name: str) -> None:
    work_under(kept, side, name, name, name + "!" if len(name.encode()) < 63 else "s")


@given(
    name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda name: len(name.encode()) < 63
    )
)
@examples(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_names_of_any_characters_can_be_worked(kept: Store, name: str, engine: str) -> None:
    with a_side() as side:
        work_under(kept, side, name, name, name + "!")


def work_under(store: Store, side: Side, table: str, id: str, status: str) -> None:
    """Adopt a table of these names, whose words are hostile, too, and work a row of it."""
    where = f"{side.schema}.{quoted(table)}"
    with side.connect() as connection:
        create = (
            f"create table {where} ({quoted(id)} text primary key, {quoted(status)} text, {quoted('é' + id[:20])} int)"
        )
        connection.execute(create.encode())
        states = {state: f"{word}'{table}" for state, word in STATES.items()}
        insert = f"insert into {where} values ($1, $2)"
        raw = psycopg.RawCursor(connection)
        raw.execute(insert.encode(), [table, states["queued"]])
        mapping = mapping_of(where, {"states": states, "status": status, "name": "hostile"})
        store.adopted.install(mapping)
        try:
            raw.execute(insert.encode(), [table + "2", states["queued"]])
            settle(store, "hostile")
            held = claim(store, tasks=["hostile"])
            assert sorted(json.loads(one.args)["row"][id] for one in held) == sorted([table, table + "2"])
            for one in held:
                finish(store, one)
            found = raw.execute(f"select distinct {quoted(status)} from {where}".encode()).fetchall()
            assert found == [(states["succeeded"],)]
            assert inbox(store) == 0
            assert store.adopted.submit(mapping, {id: table + "3"})[1].created
        finally:
            store.adopted.undo("hostile")
