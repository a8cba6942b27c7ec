"""Places that are migrated already: to migrate costs more than most tests do.

On SQLite a test gets a copy of a migrated file. On PostgreSQL one test after the other uses the same schemas: the next
one gets a schema as the migration left it, or it is dropped."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from holdfast.settings import Settings
from holdfast.store import open_store
from tests.servers import new_schema, shared_postgres

# What a test may have altered, rights and statistics included, but not what it has written into tables.
MADE = """
with relations as (select * from pg_class where relnamespace = %(schema)s::regnamespace)
select md5(string_agg(made, ' ' order by made)) from (
    select concat_ws('/', nspacl, nspowner, xmin) from pg_namespace where oid = %(schema)s::regnamespace
    union all select concat_ws('/', oid, relname, relacl, reloptions, relowner, relchecks) from relations
    union all select concat_ws('/', attrelid, attnum, attname, atttypid, attnotnull, atthasdef, attacl, attoptions)
                from pg_attribute where attrelid in (select oid from relations) and attnum > 0
    union all select concat_ws('/', oid, xmin) from pg_proc where pronamespace = %(schema)s::regnamespace
    union all select concat_ws('/', oid, xmin) from pg_trigger where tgrelid in (select oid from relations)
    union all select concat_ws('/', oid, xmin) from pg_constraint where connamespace = %(schema)s::regnamespace
    union all select concat_ws('/', oid, xmin) from pg_attrdef where adrelid in (select oid from relations)
    union all select concat_ws('/', starelid, staattnum) from pg_statistic where starelid in (select oid from relations)
    union all select concat_ws('/', objoid, xmin) from pg_description where objoid in (select oid from relations)
) as everything(made)
"""
WRITTEN = """
select relname from pg_class
 where relnamespace = %(schema)s::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0 order by relname
"""
COUNTED = "select sequencename from pg_sequences where schemaname = %(schema)s and last_value is not null"


@dataclass
class Schema:
    name: str
    made: str
    rows: dict[str, bytes]  # of the tables that the migration fills


class Schemas:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connect()
        self._free: list[Schema] = []

    @contextmanager
    def one(self) -> Iterator[str]:
        self._connect_again()
        schema = self._free.pop() if self._free else self._new()
        yield schema.name
        self._connect_again()
        if self._made(schema.name) == schema.made:
            self._clean(schema)
            self._free.append(schema)
        else:
            self._db.execute(SQL("drop schema if exists {} cascade").format(Identifier(schema.name)))

    def _connect(self) -> None:
        self._db = psycopg.connect(self._url, autocommit=True)

    def _connect_again(self) -> None:
        """Some tests end every session of the server."""
        try:
            self._db.execute("select 1")
        except psycopg.OperationalError:
            self._db.close()
            self._connect()

    def _new(self) -> Schema:
        name = new_schema()
        with closing(open_store(Settings(url=self._url, schema=name))) as store:
            store.schema.migrate()
        rows: dict[str, bytes] = {}
        for table in self._names(WRITTEN, name):
            with self._db.cursor().copy(SQL("copy {} to stdout").format(Identifier(name, table))) as copy:
                rows[table] = b"".join(copy)
        return Schema(name, self._made(name), rows)

    def _clean(self, schema: Schema) -> None:
        written = SQL(", ").join(Identifier(schema.name, table) for table in self._names(WRITTEN, schema.name))
        self._db.execute(SQL("truncate {}").format(written))
        for sequence in self._names(COUNTED, schema.name):
            self._db.execute(SQL("alter sequence {} restart").format(Identifier(schema.name, sequence)))
        for table, rows in schema.rows.items():
            with self._db.cursor().copy(SQL("copy {} from stdin").format(Identifier(schema.name, table))) as copy:
                copy.write(rows)

    def _made(self, schema: str) -> str:
        """A fingerprint. That of a schema which is gone is empty."""
        try:
            found = self._db.execute(MADE, {"schema": schema}).fetchone()
        except psycopg.errors.InvalidSchemaName:
            return ""
        assert found
        return str(found[0])

    def _names(self, query: str, schema: str) -> list[str]:
        return [name for (name,) in self._db.execute(query.encode(), {"schema": schema})]


@cache
def migrated_schemas() -> Schemas:
    """Those of this process."""
    return Schemas(shared_postgres())


@cache
def migrated_file() -> Path:
    """A SQLite file to copy."""
    home = tempfile.TemporaryDirectory(prefix="holdfast-tests-")
    atexit.register(home.cleanup)
    path = Path(home.name) / "jobs.db"
    with closing(open_store(Settings(url=f"sqlite:///{path}", synchronous="off"))) as store:
        store.schema.migrate()
    assert not Path(f"{path}-wal").exists(), "everything is in the file"
    return path
