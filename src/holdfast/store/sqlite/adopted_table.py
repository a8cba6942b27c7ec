"""What SQLite's catalogue says of a table of the user's, and what a mapping means for it."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.errors import BadSettings
from holdfast.model.mapping import FITS, INSTANTS, Mapping
from holdfast.model.table import Problem, Table, TableColumn
from holdfast.model.text import nearest
from holdfast.store.adopted import Resolved, quoted, resolve

# By what a declared type has in it, the first that fits. (SQLite keeps any value in any column.)
KINDS = (
    ("JSON", "json"), ("UUID", "uuid"), ("GUID", "uuid"), ("BOOL", "boolean"), ("DATETIME", "naive_instant"),
    ("TIMESTAMP", "naive_instant"), ("INT", "integer"), ("CHAR", "text"), ("CLOB", "text"), ("TEXT", "text"),
    ("ENUM", "text"), ("DATE", "text"), ("TIME", "text"), ("BLOB", "bytes"), ("BINARY", "bytes"), ("REAL", "number"),
    ("FLOA", "number"), ("DOUB", "number"), ("NUM", "number"), ("DEC", "number"),
)  # fmt: skip
_NAME = r"""(?:"(?:[^"]|"")+"|\[[^\]]+\]|`[^`]+`|\w+)"""
_WORDS = re.compile(rf"check\s*\(\s*({_NAME})\s+in\s*\(((?:[^')]|'(?:[^']|'')*')*)\)\s*\)", re.IGNORECASE)
_WORD = re.compile(r"'((?:[^']|'')*)'")


def describe(db: sqlite3.Connection, table: str, prefix: str) -> Table:
    """The live table that this name means."""
    name, ddl = _found(db, table, prefix)
    words = _words(ddl)
    rows = db.execute(
        'select name, type, "notnull", dflt_value, pk, hidden from pragma_table_xinfo(?)', (name,)
    ).fetchall()
    columns = tuple(
        TableColumn(
            name=column,
            type=type_,
            kind=_kind(type_),
            nullable=not needed and not pk,
            default=default,
            words=words.get(column.lower()),
            generated=hidden in (2, 3),
        )
        for column, type_, needed, default, pk, hidden in rows
        if hidden != 1
    )
    key = tuple(row[0] for row in sorted((row for row in rows if row[4]), key=lambda row: row[4]))
    triggers = db.execute("select name from sqlite_master where type = 'trigger' and tbl_name = ?", (name,)).fetchall()
    return Table(
        schema="", name=name, columns=columns, primary_key=key, unique=_unique(db, name),
        triggers=tuple(row[0] for row in triggers),
    )  # fmt: skip


def _found(db: sqlite3.Connection, table: str, prefix: str) -> tuple[str, str]:
    """Its name in the catalogue, and its definition. Names differ in more than the case of their letters."""
    bare = table.removeprefix("main.")
    for name in dict.fromkeys((table, bare, _unquoted(bare))):
        found = db.execute(
            "select name, sql, type from sqlite_master where name = ? collate nocase and type in ('table', 'view')",
            (name,),
        ).fetchone()
        if found is not None:
            break
    else:
        names = [row[0] for row in db.execute("select name from sqlite_master where type = 'table'").fetchall()]
        near = nearest(table, [name for name in names if not name.startswith((prefix, "sqlite_"))])
        hint = f" (perhaps {near[0]!r})" if near else ""
        raise BadSettings(f"there is no table {table!r} in this database{hint}: create it first", number="HF1165")
    if found[2] == "view" or found[1].lstrip()[:14].lower() == "create virtual":
        raise BadSettings(f"{found[0]!r} is no ordinary table: adopt the table that its rows are in", number="HF1165")
    if found[0].lower().startswith((prefix.lower(), "sqlite_")):
        raise BadSettings(f"{found[0]!r} is a table of Holdfast or SQLite: adopt one of your own", number="HF1165")
    return found[0], found[1]


def _unquoted(name: str) -> str:
    if len(name) > 1 and (name[0], name[-1]) in (('"', '"'), ("`", "`"), ("[", "]")):
        return name[1:-1].replace(name[-1] * 2, name[-1])
    return name


def _kind(type_: str) -> str:
    return next((kind for part, kind in KINDS if part in type_.upper()), "other")


def _words(ddl: str) -> dict[str, tuple[str, ...]]:
    """What a CHECK of the form `column in (…)` allows, by column."""
    return {
        _unquoted(match[1]).lower(): tuple(word[1].replace("''", "'") for word in _WORD.finditer(match[2]))
        for match in _WORDS.finditer(ddl)
    }


def _unique(db: sqlite3.Connection, table: str) -> tuple[tuple[str, ...], ...]:
    """Unique keys of whole tables: a partial index leaves rows out."""
    indexes = db.execute(
        """select name from pragma_index_list(?) where "unique" and not partial""", (table,)
    ).fetchall()
    return tuple(
        tuple(row[0] for row in db.execute("select name from pragma_index_info(?) order by seqno", index).fetchall())
        for index in indexes
    )


def resolved_in(db: sqlite3.Connection, mapping: Mapping, prefix: str) -> tuple[Resolved | None, list[Problem]]:
    """The mapping on the live table, and everything that speaks against it."""
    table = describe(db, mapping.table, prefix)
    mapping = _with_names_of(mapping, table)
    second, problems = _second_table(db, mapping, prefix)
    found, more = resolve(mapping, _read_as_mapped(mapping, table), second)
    problems += more
    if found is not None:
        problems += _unfit(found)
    return found, problems


def _with_names_of(mapping: Mapping, table: Table) -> Mapping:
    """Its names as the catalogue has them: in SQLite, the case of letters makes no difference."""
    names = {column.name.lower(): column.name for column in table.columns}

    def actual(name: str | None) -> str | None:
        return None if name is None else names.get(name.lower(), name)

    changed: dict[str, Any] = {
        meaning: actual(name) for meaning, name in mapping.columns.items() if hasattr(mapping, meaning)
    }
    if mapping.payload is not None:
        changed["payload"] = [actual(name) for name in mapping.payload]
    changed["results"] = {actual(column): field for column, field in mapping.results.items()}
    if mapping.counts is not None and mapping.counts.table is None:
        counts = {name: actual(getattr(mapping.counts, name)) for name in ("pending", "done", "total")}
        changed["counts"] = msgspec.structs.replace(mapping.counts, **counts)
    return msgspec.structs.replace(mapping, **changed)


def _read_as_mapped(mapping: Mapping, table: Table) -> Table:
    """Most tables in SQLite keep instants as TEXT: those that the mapping names are read so."""
    instants = {
        name for meaning, name in mapping.columns.items() if FITS.get(meaning) == INSTANTS
    }  # fmt: skip
    columns = tuple(
        replace(column, kind="naive_instant") if column.name in instants and column.kind == "text" else column
        for column in table.columns
    )
    return replace(table, columns=columns)


def _second_table(db: sqlite3.Connection, mapping: Mapping, prefix: str) -> tuple[Table | None, list[Problem]]:
    counts = mapping.counts
    if counts is None or counts.table is None:
        return None, []
    try:
        second = describe(db, counts.table, prefix)
    except BadSettings as error:
        return None, [Problem(what=error.message, fix="name another table in counts, or leave it out")]
    return second, [
        Problem(
            what=f"{second.name} has no column {name!r}, which counts names", fix="name another column", column=name
        )
        for name in (counts.id, counts.pending, counts.done, counts.total)
        if name is not None and name.lower() not in {column.name.lower() for column in second.columns}
    ]


def _unfit(found: Resolved) -> list[Problem]:
    """What only SQLite can't do."""
    problems = []
    if found.id.kind in ("bytes", "other"):
        problems.append(
            Problem(
                what=f"the id {quoted(found.id.name)} is {found.id.type or 'of no declared type'}, and has no one text",
                fix="declare it as INTEGER or TEXT",
                column=found.id.name,
            )
        )
    for name in found.mapping.results:
        column = found.table.column(name)
        if column is not None and column.kind == "bytes":
            problems.append(
                Problem(what=f"{name} is {column.type}, and a result is JSON", fix="name a column of text", column=name)
            )
    return problems


def unworkable(mapping: Mapping, problems: list[Problem]) -> BadSettings:
    fatal = "; ".join(str(problem) for problem in problems if problem.fatal)
    return BadSettings(f"{mapping.table} can't be adopted with this mapping: {fatal}", number="HF1162")
