"""A schema with the roles that `holdfast sql roles` makes, and a real login of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.postgres.roles import RIGHTS, ROLES, script
from tests.servers import ROLES_PASSWORD, as_role, drop_schema

TABLES = tuple(thing for thing in RIGHTS["worker"] if " " not in thing)


class Roles:
    """`settings` are those of who set up the server; `of` those of a login that has one of the roles, or several."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.schema = settings.schema
        self.admin = psycopg.connect(settings.url, autocommit=True)
        self._logins: list[str] = []
        self._stores: list[Store] = []

    def make(self) -> None:
        self.admin.execute(script(self.schema).encode())

    def login(self, name: str, *roles: str, options: str = "") -> Settings:
        """A new login with these roles."""
        login = f"{self.schema}_login_{name}"
        self.admin.execute(f"create role \"{login}\" login password '{ROLES_PASSWORD}' {options}".encode())
        self._logins.append(login)
        for role in roles:
            self.admin.execute(f'grant "{self.schema}_{role}" to "{login}"'.encode())
        return replace(self.settings, url=as_role(self.settings.url, login))

    def store(self, settings: Settings) -> Store:
        store = open_store(settings)
        self._stores.append(store)
        return store

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """As who set up the server; `{s}` is the schema."""
        cursor = self.admin.execute(text.replace("{s}", f'"{self.schema}"').encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def contents(self) -> dict[str, Any]:
        """Every row of every table: to show that nothing changed."""
        return {
            table: json.loads(
                self.sql(f"select coalesce(json_agg(t order by t::text), '[]')::text from {{s}}.{table} t")[0][0]
            )
            for table in TABLES
        }

    def close(self) -> None:
        for store in self._stores:
            store.close()
        drop_schema(self.settings.url, self.schema)
        groups = [f"{self.schema}_{role}" for role in ROLES]
        for role in [*self._logins, *groups]:
            if self.sql("select 1 from pg_roles where rolname = %s", role):
                self.sql(f'drop owned by "{role}"')
                self.sql(f'drop role "{role}"')
        self.admin.close()


@contextmanager
def roles_of(settings: Settings) -> Iterator[Roles]:
    """The tables, and the four roles."""
    roles = Roles(settings)
    try:
        roles.store(settings).schema.migrate()
        roles.make()
        yield roles
    finally:
        roles.close()
