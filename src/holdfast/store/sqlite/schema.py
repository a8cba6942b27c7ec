"""The schema in a SQLite file: migrated, checked, described."""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import cast

from holdfast.errors import StoreError
from holdfast.model.job import Thing
from holdfast.store.migrate import OLDEST_CODE, check_version, migrations, pending
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.statements import Statements

# What a fresh database of this version looks like: migrated in memory, to be compared with a live one.

_COMMENT = re.compile(r"--[^\n]*")


def fresh(statements: Statements) -> list[Thing]:
    with closing(sqlite3.connect(":memory:")) as db:
        for migration in migrations("sqlite"):
            for statement in parts(statements.with_tables(migration.sql)):
                db.execute(statement)
        own = "select name from sqlite_master where type = 'table' and name not like 'sqlite~_%' escape '~'"
        tables = [row[0] for row in db.execute(own)]
        return things(db, statements, tables)


def things(db: sqlite3.Connection, statements: Statements, tables: list[str]) -> list[Thing]:
    rows = db.execute(statements["catalogue"], {"tables": json.dumps(tables)})
    return [Thing(kind, relation, name, _plain(definition)) for kind, relation, name, definition in rows]


def parts(script: str) -> Iterator[str]:
    """The statements of a migration, one by one: `executescript` would end our transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""


def _plain(definition: str) -> str:
    """Without comments and line breaks, for comparison."""
    return " ".join(_COMMENT.sub("", definition).split())


META = """insert into @meta (only_row, store_id, version, oldest_code)
values (1, :store_id, :version, :oldest_code) on conflict (only_row)
    do update set version = excluded.version, oldest_code = excluded.oldest_code"""


class SqliteSchema:
    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db
        self.store_id = ""
        self._oldest: int | None = None

    def migrate(self) -> list[str]:
        with self._db.use() as connection:
            connection.use_log()
            with connection.writing() as db:
                applied = pending("sqlite", self._version(db) or 0)
                for migration in applied:
                    for statement in parts(self._db.statements.with_tables(migration.sql)):
                        db.execute(statement)
                if applied:
                    meta = {"store_id": str(uuid.uuid4()), "version": applied[-1].version, "oldest_code": OLDEST_CODE}
                    db.execute(self._db.statements.fill(META), meta)
        self.check()
        return [m.name for m in applied]

    def pending(self) -> list[str]:
        with self._db.use() as connection:
            return [m.name for m in pending("sqlite", self._version(connection.db) or 0)]

    def check(self) -> None:
        self._oldest = None
        with self._db.use() as connection:
            found = self._version(connection.db)
        check_version("sqlite", self._db.shown_url, found, self._oldest)

    def drop(self) -> None:
        with self._db.use() as connection, connection.writing() as db:
            self._db.adopting.drop_in_file(db)
            mine = "select name from sqlite_master where type = 'table' and substr(name, 1, length(?1)) = ?1"
            for (table,) in db.execute(mine, (self._db.settings.prefix,)).fetchall():
                db.execute(f'drop table "{table}"')

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        expected = fresh(self._db.statements)
        tables = [thing.name for thing in expected if thing.kind == "table"]
        with self._db.use() as connection:
            return things(connection.db, self._db.statements, tables), expected

    def _version(self, db: sqlite3.Connection) -> int | None:
        name = f"{self._db.settings.prefix}meta"
        if not db.execute("select 1 from sqlite_master where type = 'table' and name = ?", (name,)).fetchone():
            return None
        row = db.execute(self._db.statements["meta"]).fetchone()
        if row is None:
            raise StoreError(
                f"the table {name} in {self._db.path} is empty: it is not one of ours, or was damaged", number="HF2104"
            )
        self.store_id, self._oldest = row[0], row[2]
        return cast(int, row[1])
