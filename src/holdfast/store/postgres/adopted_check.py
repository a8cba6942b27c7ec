"""What speaks against working a table of the user's: in its rights, and in what is installed on it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.mapping import FITS, Mapping
from holdfast.model.table import Problem, Table
from holdfast.store.adopted import Resolved, quoted
from holdfast.store.postgres.adopted_functions import suffix_of, trigger_names
from holdfast.store.postgres.adopted_table import Catalogue


def right_problems(mapping: Mapping, table: Table, counts_table: Table | None) -> Iterator[Problem]:
    """Rights that are missing, and what is wrong with a second table."""
    for one in filter(None, (table, counts_table)):
        for grant in one.problems:
            yield Problem(what=f"the owner of Holdfast's tables lacks rights to {one.name}", fix=f"run: {grant}")
        if one.row_security:
            yield Problem(
                what=f"row security hides rows of {one.name} from the owner of Holdfast's tables",
                fix="give that role BYPASSRLS, or a policy that shows it every row",
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
