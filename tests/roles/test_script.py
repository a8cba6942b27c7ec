"""What `holdfast sql roles` prints: applied by psql, again and again, by whoever may; and who migrates afterwards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest

from holdfast.errors import BadSettings, RightMissing
from holdfast.settings import Settings
from holdfast.store import migrate, open_store
from holdfast.store.migrate import Migration
from holdfast.store.postgres.roles import RIGHTS, ROLES, _made, script
from tests.cli.shell import Shell
from tests.cli.test_schema import psql
from tests.factories import a_queued_job, claim
from tests.roles.matrix import table
from tests.roles.places import TABLES, Roles
from tests.servers import new_schema, shared_postgres

PAGE = Path(__file__).parents[2] / "docs" / "database-roles.md"


def rights(roles: Roles) -> list[tuple[Any, ...]]:
    """All rights to anything in the schema, and who owns what."""
    return roles.sql(
        """with class as (select * from pg_class where relnamespace = '{s}'::regnamespace)
           select relname::text, relacl::text, relowner::regrole::text from class
            union all select proname, proacl::text, proowner::regrole::text from pg_proc
                       where pronamespace = '{s}'::regnamespace
            union all select typname, typacl::text, typowner::regrole::text from pg_type
                       where typnamespace = '{s}'::regnamespace
            union all select attrelid::regclass || '.' || attname, attacl::text, '' from pg_attribute
                       where attacl is not null and attrelid = any(select oid from class)
            union all select nspname, nspacl::text, '' from pg_namespace where oid = '{s}'::regnamespace
            order by 1, 2, 3"""
    )


def test_it_is_printed_without_a_connection_and_always_the_same(tmp_path: Path) -> None:
    shell = Shell(tmp_path, Settings(url="postgresql://nobody@127.0.0.1:9/none", schema="Select"))
    printed = shell("sql", "roles").stdout
    assert printed == script("Select") == shell("sql", "roles").stdout
    assert '"Select".jobs to "Select_worker"' in printed
    other = shell("sql", "roles", "--schema", "jobs", "--role-prefix", "shop-").stdout
    assert 'grant select on table "jobs".meta to "shop-reader"' in other
    said = shell("sql", "roles", "--role-prefix", 'x"; drop table y; --', code=2).stderr
    assert "HF1101 the prefix of roles" in said
    for wrong in ("", "1st", "a'b", "a$$", "x" * 55):
        with pytest.raises(BadSettings):
            script("jobs", wrong)


def test_every_table_and_function_of_the_migrations_has_its_rights() -> None:
    assert set(TABLES) == set(_made("table"))
    assert {thing for thing in RIGHTS["worker"] if " " not in thing} == set(_made("table"))
    named = {thing.split()[1].partition("(")[0] for role in RIGHTS.values() for thing in role if "function" in thing}
    # What triggers and functions of the owner call needs no right.
    assert {*named, "wake", "adopted_out", "owe", "rest_source", "count_enqueued", "count_moved"} == set(
        _made("function")
    )


def test_applied_again_it_changes_nothing_and_takes_back_what_is_too_much(roles: Roles) -> None:
    before = rights(roles)
    roles.make()
    assert rights(roles) == before
    roles.sql(f'grant update, truncate on {{s}}.jobs to "{roles.schema}_enqueuer"')
    roles.sql(f'grant update (state) on {{s}}.jobs to "{roles.schema}_reader"')
    roles.sql("grant select on {s}.jobs to public")
    assert rights(roles) != before
    done = psql(roles.settings.url, script(roles.schema))
    assert (done.returncode, done.stderr) == (0, "")
    assert rights(roles) == before


def test_without_tables_it_says_what_to_do_first_and_makes_no_role() -> None:
    schema = new_schema()
    done = psql(shared_postgres(), script(schema))
    assert "run holdfast migrate first" in done.stderr
    with psycopg.connect(shared_postgres()) as connection:
        assert connection.execute("select 1 from pg_roles where rolname like %s", (f"{schema}%",)).fetchall() == []


@pytest.mark.parametrize("engine", ["postgres"])
def test_before_roles_are_made_nobody_can_call_what_acts_as_the_owner(settings: Settings) -> None:
    """Everybody may call a new function, as PostgreSQL has it: those have a fixed path, and are for nobody."""
    with closing(open_store(settings)) as store:
        store.schema.migrate()
    schema = f'"{settings.schema}"'
    with psycopg.connect(settings.url) as connection:
        definers = connection.execute(
            "select oid::regprocedure::text, proconfig[1], has_function_privilege('public', oid, 'execute') "
            "from pg_proc where prosecdef and pronamespace = %s::regnamespace",
            (schema,),
        ).fetchall()
    assert len(definers) == 15
    for name, path, public in definers:
        assert (path, public) == ("search_path=pg_catalog, pg_temp", False), name


def test_roles_can_be_made_under_a_running_application_and_by_no_superuser() -> None:
    """By one that may create roles and a schema, as managed servers have it."""
    schema = new_schema()
    roles = Roles(Settings(url=shared_postgres(), schema=schema))
    try:
        admin = roles.login("admin", options="createrole")
        roles.sql(f'grant create on database postgres to "{schema}_login_admin"')
        store = roles.store(admin)
        store.schema.migrate()
        a_queued_job(store)
        for _ in range(2):
            with psycopg.connect(admin.url, autocommit=True) as connection:
                connection.execute(script(schema).encode())
        assert {owner for name, _, owner in rights(roles) if name in TABLES} == {f"{schema}_owner"}
        assert len(claim(roles.store(roles.login("worker", "worker"))).jobs) == 1
        a_queued_job(store)  # who made the roles is a member of the owner
    finally:
        roles.sql("drop schema {s} cascade")
        roles.sql(f'revoke create on database postgres from "{schema}_login_admin"')
        with psycopg.connect(shared_postgres(), autocommit=True) as connection:  # who granted a role goes last
            for role in ROLES:
                connection.execute(f'drop owned by "{schema}_{role}"; drop role "{schema}_{role}"'.encode())
        roles.close()


# -- who migrates --------------------------------------------------------------------------------------------------

LATER = Migration(2, "0002_later", "create table @later (n int); alter table @jobs add column later int;")


def upgrade(roles: Roles, settings: Settings) -> list[str]:
    ours = [*migrate.migrations("postgres"), LATER]
    store = roles.store(settings)
    with mock.patch.object(migrate, "migrations", return_value=ours):
        return store.schema.migrate()


def owner_of(roles: Roles, table: str) -> str:
    [(owner,)] = roles.sql(
        "select relowner::regrole::text from pg_class where oid = %s::regclass", f'"{roles.schema}".{table}'
    )
    return str(owner)


@pytest.mark.parametrize("who", ["a member of the owner", "a superuser"])
def test_what_a_later_migration_makes_belongs_to_the_owner(roles: Roles, who: str) -> None:
    settings = roles.settings if who == "a superuser" else roles.login("someone", "owner")
    assert upgrade(roles, settings) == ["0002_later"]
    assert owner_of(roles, "later") == owner_of(roles, "jobs") == f"{roles.schema}_owner"
    assert upgrade(roles, settings) == []


def test_where_schema_and_tables_have_different_owners_who_may_be_both_migrates(roles: Roles) -> None:
    """The owner of the tables may not create any in that schema: so the user does, by the rights of both."""
    roles.login("landlord")
    both = roles.login("both", "owner", "login_landlord")
    roles.sql(f'alter schema {{s}} owner to "{roles.schema}_login_landlord"')
    roles.sql(f'revoke create on schema {{s}} from "{roles.schema}_owner"')
    tenant = roles.login("tenant", "owner")
    with pytest.raises(RightMissing, match="permission denied for schema"):
        upgrade(roles, tenant)
    assert upgrade(roles, both) == ["0002_later"]
    roles.sql(f'grant create on schema {{s}} to "{roles.schema}_owner"')
    roles.make()
    assert a_queued_job(roles.store(both))


def test_others_are_refused_in_one_sentence_and_nothing_is_made(roles: Roles) -> None:
    before = rights(roles)
    with pytest.raises(RightMissing, match="HF3006"):
        upgrade(roles, roles.login("someone", "worker"))
    assert rights(roles) == before
    stranger = open_store(replace(roles.login("stranger"), schema=new_schema()))
    with pytest.raises(RightMissing, match="let one that may run `holdfast migrate` first"):
        stranger.schema.migrate()
    stranger.close()


def test_the_page_has_the_table_of_what_was_tried() -> None:
    assert table() in PAGE.read_text()
