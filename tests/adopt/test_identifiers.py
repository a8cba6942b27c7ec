"""Names as nobody should choose them, for tables, schemas and columns: each goes through describe, plan, install, one
job and undo. A few of them by default; HOLDFAST_NAMES=3000 for many."""

from __future__ import annotations

import os
from contextlib import closing

import msgspec
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as checking
from hypothesis import strategies as st

from holdfast.errors import BadSettings
from holdfast.model.mapping import Mapping, mapping_of
from holdfast.model.proposal import propose
from holdfast.model.table import Table, TableColumn
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.adopted import literal, quoted
from holdfast.store.base import Store
from holdfast.store.sqlite.connect import path_of
from tests.contract.places import open_connection
from tests.factories import claim, ref
from tests.servers import drop_schema, new_schema

EXAMPLES = int(os.environ.get("HOLDFAST_NAMES", "15"))
LONGEST = 63  # bytes of a name on PostgreSQL
HOSTILE = (
    "select", "user", "order", "table", "group", "end", "new", "old", "holdfast", "json", "null", "rowid", "true",
    'a"b', '"', "'", "a'b", "''", "%", "%s", "%(now)s", "100%%", "a b", " a", "a ", ".", "a.b", "a,b", ";", "--", "/*",
    "*/", "a\\", "$1", "$$", "$f$", ":now", "::text", "@jobs", "@now", "?", "{}", "{0}", "A", "Ä", "é", "名前", "🦀",
    "\t", "a\nb", "public.jobs", "`a`", "[a]", "#", "&", "|", "!", "=", "\u202e", "x" * 63, "é" * 31, "名" * 21,
    "a" * 62 + '"',
)  # fmt: skip


def short(name: str) -> bool:
    return 0 < len(name.encode()) <= LONGEST


NAMES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.sampled_from("ab\"'%$:@;.-\\ {}()*/?é名🦀\n"), min_size=1, max_size=20),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40),
).filter(short)


def distinct(names: list[str]) -> bool:
    """SQLite takes names for equal that differ in the case of ASCII letters only."""
    folded = ["".join(c.lower() if c.isascii() else c for c in name) for name in names]
    return len(set(folded)) == len(folded)


@pytest.fixture
def place(settings: Settings) -> Settings:
    with closing(open_store(settings)) as store:
        store.schema.migrate()
    return settings


@checking(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(
    table=NAMES,
    columns=st.lists(NAMES, min_size=5, max_size=5).filter(distinct),
    words=st.lists(NAMES, min_size=4, max_size=4, unique=True),
)
@example(table='a"b', columns=['"', "'", "%s", ":now", "@jobs"], words=["'", '"', "%", "\\"])
@example(table='"', columns=['a"', '"b', 'c""', '"d"', '"'], words=['"a', '"', '""', '"b"'])
@example(table="u", columns=["j", "u", "o", "p", "r"], words=["j", "u", "p", "r"])
@example(table="order", columns=["select", "user", "end", "new", "old"], words=["null", "''", ":now", "@now"])
@example(table="false", columns=["rowid", "true", "null", "excluded", "current_time"], words=["true", "null", "1", "0"])
@example(table="x" * 63, columns=["x" * 63, "é" * 31, "名" * 21, "a.b", "$$"], words=["$f$", "%%", "{}", "a b"])
def test_any_name_is_a_name(place: Settings, table: str, columns: list[str], words: list[str]) -> None:
    schema = None if place.url.startswith("sqlite") else new_schema() + '"%s'
    try:
        with closing(open_store(place)) as store:
            round_trip(store, place, schema, table, columns, words)
    except BaseException:
        start_anew(place, schema)  # so that the next example finds nothing of this one
        raise


def start_anew(place: Settings, schema: str | None) -> None:
    if schema is None:
        for path in path_of(place).parent.glob("jobs.db*"):
            path.unlink()
    else:
        for one in (schema.replace('"', '""'), place.schema):
            drop_schema(place.url, one)
    with closing(open_store(place)) as store:
        store.schema.migrate()


def round_trip(
    store: Store, settings: Settings, schema: str | None, table: str, columns: list[str], words: list[str]
) -> None:
    """Nothing here has parameters: what is written is what the database reads."""
    written = quoted(table) if schema is None else f"{quoted(schema)}.{quoted(table)}"
    id, status, attempts, payload, error = map(quoted, columns)
    queued, running, succeeded, failed = words
    mapping = mapping_of(
        written,
        {
            "states": {"queued": queued, "running": running, "succeeded": succeeded, "failed": failed},
            "name": "adopted", "status": columns[1], "attempts": columns[2], "error_message": columns[4],
        },
    )  # fmt: skip

    with closing(open_connection(settings)) as connection:

        def run(text: str) -> list[tuple[object, ...]]:
            done = connection.execute(text)
            rows = done.fetchall() if done.description else []
            connection.commit()
            return list(rows)

        def insert(number: int) -> None:
            run(f"insert into {written} ({id}, {status}, {payload}) values ({number}, {literal(queued)}, 'x')")

        def statuses() -> list[object]:
            return [found for (found,) in run(f"select {status} from {written} order by {id}")]

        if schema is not None:
            run(f"create schema {quoted(schema)}")
        run(
            f"create table {written} ({id} integer primary key, {status} text not null, "
            f"{attempts} integer not null default 0, {payload} text, {error} text)"
        )
        insert(1)
        live = store.adopted.describe(written)
        assert (live.name, [column.name for column in live.columns]) == (table, columns)
        plan = store.adopted.plan(mapping)
        assert not [problem for problem in plan.problems if problem.fatal]
        assert plan.rows == {queued: 1}
        store.adopted.install(mapping)
        assert store.adopted.words(live, columns[1]) == {queued: 1}
        insert(2)
        store.adopted.settle("adopted")
        held = claim(store, 2, tasks=("adopted",)).jobs
        assert [msgspec.json.decode(job.args)["row"][columns[3]] for job in held] == ["x", "x"]
        assert statuses() == [running] * 2
        for job in held:
            store.attempts.succeed(ref(job), b"null")
        store.adopted.settle("adopted")
        assert statuses() == [succeeded] * 2
        assert [problem for problem in store.adopted.check(mapping) if problem.fatal] == []
        assert store.adopted.odd_rows(mapping) == []
        store.adopted.undo("adopted")
        insert(3)
        assert store.adopted.installed() == []
        assert store.adopted.describe(written).triggers == ()
        run(f"drop table {written}")
        if schema is not None:
            run(f"drop schema {quoted(schema)}")


@checking(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=NAMES)
def test_a_proposal_of_any_name_can_be_made(table: str) -> None:
    columns = tuple(TableColumn(name=name, type="text", kind="text") for name in ("id", "status", table + "_"))
    live = Table(schema="", name=table, columns=columns, primary_key=("id",))
    found = propose(live, {}, quoted(table))
    assert isinstance(found.mapping, Mapping)


@pytest.mark.parametrize("engine", ["postgres"])
def test_equal_names_in_two_schemas_are_two_tables(place: Settings) -> None:
    first, second = new_schema(), new_schema()
    states = {"queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed"}
    connection = open_connection(place)
    with closing(open_store(place)) as store:
        try:
            for schema, size in ((first, 1), (second, 2)):
                connection.execute(f"create schema {schema}")
                connection.execute(f"create table {schema}.audits (id integer primary key, status text not null)")
                for number in range(size):
                    connection.execute(f"insert into {schema}.audits values ({number}, 'pending')")
                connection.commit()
                store.adopted.install(mapping_of(f"{schema}.audits", {"states": states, "name": f"in_{schema}"}))
            for schema, size in ((first, 1), (second, 2)):
                assert len(claim(store, 9, tasks=(f"in_{schema}",)).jobs) == size
            with pytest.raises(BadSettings):
                store.adopted.describe("audits")
        finally:
            connection.close()
            for schema in (first, second):
                drop_schema(place.url, schema)
