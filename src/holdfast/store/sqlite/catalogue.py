"""What a fresh database of this version looks like: migrated in memory, to be compared with a live one."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from holdfast.model.job import Thing
from holdfast.store.migrate import migrations
from holdfast.store.statements import Statements

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
