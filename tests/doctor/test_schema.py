"""Does the schema fit, and was anything dropped, altered or added behind our back?"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.doctor import Level, examine
from holdfast.settings import Settings
from tests.contract.places import raw
from tests.doctor.examined import complaints, only

ON_POSTGRES = pytest.mark.parametrize("engine", ["postgres"])
ON_SQLITE = pytest.mark.parametrize("engine", ["sqlite"])


def test_a_database_without_our_tables_is_an_error_and_ends_the_examination(settings: Settings, engine: str) -> None:
    if engine == "sqlite":
        with raw(settings) as sql:
            sql("create table others (id integer)")
    *_, last = examine(settings)
    assert (last.code, last.level) == ("HF4004", Level.ERROR)
    assert "holdfast migrate" in last.found


@pytest.mark.parametrize(("version", "oldest", "code"), [(0, 0, "HF4004"), (999, 999, "HF4004"), (999, 1, None)])
def test_the_version_of_the_schema_must_fit_the_code(
    healthy: Settings, version: int, oldest: int, code: str | None
) -> None:
    with raw(healthy) as sql:
        sql("update {meta} set version = ?, oldest_code = ?", version, oldest)
        sql("create index of_the_next_version on {jobs} (id, queue)")
    assert [finding.code for finding in complaints(healthy)] == ([code] if code else [])
    if code is None:  # code N with schema N + 1
        assert any("still serves" in finding.found for finding in examine(healthy))


def test_a_dropped_index_is_missed_and_its_definition_told(healthy: Settings, engine: str) -> None:
    name = "holdfast_jobs_ready" if engine == "sqlite" else f'"{healthy.schema}".jobs_ready'
    with raw(healthy) as sql:
        sql(f"drop index {name}")
    finding = next(one for one in complaints(healthy) if one.code == "HF4101")
    assert finding.level is Level.ERROR
    assert "missing: index" in finding.found
    assert "jobs_ready" in finding.found
    assert "queue, task, priority, ready_at, id" in finding.fix


def test_an_index_that_was_made_anew_otherwise_is_altered(healthy: Settings, engine: str) -> None:
    prefix = "holdfast_" if engine == "sqlite" else f'"{healthy.schema}".'
    index = "holdfast_jobs_failed" if engine == "sqlite" else "jobs_failed"
    with raw(healthy) as sql:
        sql(f"drop index {prefix}jobs_failed")
        sql(f"create index {index} on {{jobs}} (failed_at, state)")
    finding = only(healthy)
    assert (finding.code, finding.level) == ("HF4102", Level.ERROR)
    assert "failed_at, state" in finding.found
    assert "failed_at is not null" in finding.fix.lower()


def test_what_others_added_is_a_warning(healthy: Settings) -> None:
    with raw(healthy) as sql:
        sql("create index mine on {jobs} (state)")
        sql("alter table {jobs} add column mine integer")
    found = complaints(healthy)
    assert {(finding.code, finding.level) for finding in found} == {("HF4103", Level.WARNING)}
    assert sorted(finding.found.split(":")[1].split()[0] for finding in found) == ["column", "index"]


def test_a_trigger_on_our_tables_is_told(healthy: Settings, engine: str) -> None:
    with raw(healthy) as sql:
        if engine == "sqlite":
            sql("create trigger mine after insert on {jobs} begin select 1; end")
        else:
            schema = healthy.schema
            sql(f'create function "{schema}".f () returns trigger language plpgsql as $$ begin return new; end $$')
            sql(f'create trigger mine before insert on {{jobs}} for each row execute function "{schema}".f()')
    assert "trigger mine" in only(healthy).found


WAKE = "create or replace function {schema}.wake() returns trigger language plpgsql as $$ begin return null; end $$"


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("drop trigger jobs_wake on {jobs}", "HF4101"),
        ("alter table {jobs} disable trigger jobs_wake", "HF4102"),
        (WAKE, "HF4102"),
    ],
)
def test_a_trigger_of_ours_that_wakes_nobody_is_told(healthy: Settings, change: str, code: str) -> None:
    with raw(healthy) as sql:
        sql(change.replace("{schema}", f'"{healthy.schema}"'))
    finding = only(healthy)
    assert (finding.code, finding.level) == (code, Level.ERROR)
    assert "trigger jobs_wake" in finding.found
    assert "pg_notify" in finding.fix


def test_a_renamed_column_is_missing_and_added(healthy: Settings) -> None:
    with raw(healthy) as sql:
        sql("alter table {pauses} rename column reason to why")
    found = [(one.code, one.found) for one in complaints(healthy) if "pauses." in one.found]
    assert [code for code, _ in found] == ["HF4101", "HF4103"]
    assert found[0][1].endswith("pauses.reason")
    assert "pauses.why" in found[1][1]


def test_a_missing_table_is_told_once_and_the_rest_of_the_examination_goes_on(healthy: Settings) -> None:
    with raw(healthy) as sql:
        sql("drop table {attempts}")
    finding = only(healthy)
    assert (finding.code, finding.level) == ("HF4101", Level.ERROR)
    assert "table" in finding.found
    assert "attempts" in finding.found
    with raw(healthy) as sql:
        sql("drop table {workers}")
    found = complaints(healthy)
    assert [one.code for one in found if one.level is Level.ERROR] == ["HF4101", "HF4101"]
    assert any("could not be looked at" in one.found for one in found)


@ON_POSTGRES
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("alter table {jobs} alter column note type varchar(10)", "column jobs.note"),
        ("alter table {jobs} alter column task drop not null", "column jobs.task"),
        ("alter table {jobs} alter column attempt drop default", "column jobs.attempt"),
        ("alter table {workers} alter column slots type bigint", "column workers.slots"),
        ("alter domain {state} drop constraint state_check", "column jobs.state"),
    ],
)
def test_an_altered_column_is_told(healthy: Settings, change: str, what: str) -> None:
    with raw(healthy) as sql:
        sql(change)
    finding = only(healthy)
    assert finding.code == "HF4102"
    assert what in finding.found


@ON_POSTGRES
def test_a_dropped_check_is_missed_by_what_it_says(healthy: Settings) -> None:
    with raw(healthy) as sql:
        [(name,)] = sql(
            "select conname from pg_constraint where conrelid = '{jobs}'::regclass "
            "and pg_get_constraintdef(oid) like '%%fence IS NOT NULL%%'"
        )
        sql(f"alter table {{jobs}} drop constraint {name}")
        sql("alter table {jobs} add check (attempt < 100)")
    missing, added = complaints(healthy)
    assert (missing.code, added.code) == ("HF4101", "HF4103")
    assert "fence IS NOT NULL" in missing.found


@ON_POSTGRES
def test_an_index_that_could_not_be_built_is_altered(healthy: Settings) -> None:
    """As a `create index concurrently` that failed leaves it: there, and of no use."""
    with raw(healthy) as sql:
        sql(f"update pg_index set indisvalid = false where indexrelid = '\"{healthy.schema}\".jobs_held'::regclass")
    finding = only(healthy)
    assert finding.code == "HF4102"
    assert "not valid" in finding.found


@ON_SQLITE
@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("check (state <> 'running' or fence is not null)", "check (true)", "constraints of table holdfast_jobs"),
        ("note             text", "note             integer", "column holdfast_jobs.note"),
        ("task             text not null", "task             text", "column holdfast_jobs.task"),
    ],
)
def test_an_altered_table_is_told(healthy: Settings, path: Path, old: str, new: str, what: str) -> None:
    with raw(healthy) as sql:
        [(text,)] = sql("select sql from sqlite_master where name = 'holdfast_jobs'")
        assert old in text
        sql("pragma writable_schema = on")
        sql("update sqlite_master set sql = ? where name = 'holdfast_jobs'", text.replace(old, new))
    finding = only(healthy)
    assert finding.code == "HF4102"
    assert what in finding.found
