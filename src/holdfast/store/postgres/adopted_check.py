"""What speaks against working a table of the user's: in its rights, and in what is installed on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from holdfast.model.mapping import FITS, Mapping
from holdfast.model.table import Problem, Table
from holdfast.model.text import named
from holdfast.store.adopted import Resolved, quoted
from holdfast.store.postgres.adopted_functions import TableFunctions, suffix_of, trigger_names
from holdfast.store.postgres.adopted_table import Catalogue


def right_problems(mapping: Mapping, table: Table, counts_table: Table | None) -> Iterator[Problem]:
    """Rights that are missing, and what is wrong with a second table."""
    for one in filter(None, (table, counts_table)):
        for grant in one.problems:
            yield Problem(what=f"the owner of Holdfast's tables lacks rights to {one.name}", fix=f"run: {grant}")
        if one.row_security:
            yield Problem(
                what=f"row security hides rows of {one.name} from the owner of Holdfast's tables",
                fix="give that role BYPASSRLS, or a policy for all commands, not only select, with using (true)",
            )
    counts = mapping.counts
    if counts is None or counts_table is None:
        return
    for meaning in ("id", "pending", "done", "total"):
        name = getattr(counts, meaning)
        column = counts_table.column(name) if name else None
        if name and column is None:
            yield Problem(
                what=f"{counts_table.name} has no column {name!r}, which the mapping names as counts.{meaning}",
                fix="name another column, or leave it out",
                column=name,
            )
        elif column is not None and meaning in FITS and column.kind not in FITS[meaning]:
            yield Problem(
                what=f"{counts_table.name}.{name} is {column.type}, and {meaning} needs {' or '.join(FITS[meaning])}",
                fix="name another column, or leave it out",
                column=name,
            )


def trigger_problems(catalogue: Catalogue, resolved: Resolved, schema: str) -> Iterator[Problem]:
    table = resolved.table
    there = {
        row["name"]: row for row in catalogue.triggers(catalogue.find(f"{quoted(table.schema)}.{quoted(table.name)}"))
    }
    for name in trigger_names(suffix_of(resolved.mapping.name)):
        row = there.get(name)
        what = "is missing" if row is None else "" if row["enabled"] else "is disabled"
        if row is not None and row["schema"] != schema:
            what = f"belongs to the Holdfast of schema {row['schema']}"
        if what:
            fix = (
                f"run: alter table {resolved.sql_table} enable trigger {name}"
                if what == "is disabled"
                else f"run holdfast adopt {resolved.mapping.table} again"
            )
            yield Problem(what=f"the trigger {name} of {table.name} {what}", fix=fix, fatal=False)


_COLUMN = re.compile(r'\bu\.("(?:[^"]|"")+")')  # of the user's table, as our functions name it


def function_problems(catalogue: Catalogue, resolved: Resolved, schema: str) -> Iterator[Problem]:
    """Functions name the columns that the table had when they were made. One that came since is no problem: handlers
    don't get it."""
    table, adopt = resolved.table, f"run holdfast adopt {named(resolved.mapping.name)} again"
    there = catalogue.functions(suffix_of(resolved.mapping.name))
    read = {name for body in there.values() for name in _COLUMN.findall(body)}
    known = [column.name for column in table.columns]
    mapped = [*resolved.mapping.columns.values(), *(resolved.mapping.payload or ())]  # which is said of them already
    gone = sorted(read - set(map(quoted, (*known, *mapped))))
    if gone:
        yield Problem(what=f"{table.name} has no column {', '.join(gone)} any more, which handlers got", fix=adopt)
        return
    if not set(mapped) <= set(known):  # which is said already, and leaves nothing to compare
        return
    payload = tuple(column for column in resolved.payload if quoted(column.name) in read)
    types = catalogue.types(catalogue.find(resolved.sql_table))
    made = TableFunctions(replace(resolved, payload=payload), schema=schema, types=types, path=())
    if made.bodies() != there:
        what = f"what was made for {table.name} is for other types of its columns, or of another version of Holdfast"
        yield Problem(what=what, fix=adopt, fatal=False)
