"""Statements that read all rows of an adopted table: how many have which word, and how many are in a condition that
nothing leads out of. Both databases understand them; they differ in when a due time can't be reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.errors import Refused
from holdfast.model.lifecycle import State
from holdfast.model.mapping import Mapping
from holdfast.model.table import Problem, Table
from holdfast.model.text import named, plural
from holdfast.store.adopted import Resolved, Source, literal, quoted, words_in

LEASES = ("heartbeat_at", "claimed_at", "lease_until")


def sql_name(table: Table) -> str:
    return ".".join(quoted(part) for part in (table.schema, table.name) if part)


def words_of(table: Table, column: str) -> str:
    """SQL: each word of this column, and how many rows have it."""
    return (
        f"select cast({quoted(column)} as text) as word, count(*) as number from {sql_name(table)} "  # noqa: S608
        f"where {quoted(column)} is not null group by 1 order by 2 desc, 1"
    )


class Oddity(NamedTuple):
    where: str  # SQL: rows in this condition
    column: str
    what: str
    fix: str


def oddities(resolved: Resolved, unreachable: str) -> list[Oddity]:
    """`unreachable`: SQL, with the due time's column as `{}`: it will not come in our lifetime, or can't be read."""
    mapping = resolved.mapping
    status = quoted(resolved.status.name)
    name = resolved.status.name
    waits = f"cast({status} as text) in {words_in(mapping.words(State.QUEUED))}"
    runs = f"cast({status} as text) in {words_in(mapping.words(State.RUNNING))}"
    queued, failed = mapping.word(State.QUEUED), mapping.word(State.FAILED)
    found = [
        Oddity(f"{status} is null", name, f"{name} is empty: the row is no job", f"write {queued!r} or another word"),
        Oddity(
            f"{resolved['id']} is null", resolved.id.name,
            f"{resolved.id.name} is empty: nothing names the row, so it is no job", f"write its {resolved.id.name}",
        ),
    ]  # fmt: skip
    if "attempts" in resolved:
        most = resolved["max_attempts"] if "max_attempts" in resolved else str(mapping.max_attempts)
        column = resolved.columns["attempts"].name
        found.append(
            Oddity(
                f"{waits} and {resolved['attempts']} >= {most}", column,
                f"it waits, and {column} says that its attempts are used up: they are counted from 0 again",
                f"if it should not run again, set {name} to {failed!r}; else set {column} to 0",
            )
        )  # fmt: skip
    for lease in LEASES:
        if lease in resolved:
            column = resolved.columns[lease].name
            found.append(
                Oddity(
                    f"{runs} and {resolved[lease]} is null", column,
                    f"it is said to run, and {column} is empty: nobody can tell whether it still does",
                    f"set {name} to {queued!r}, or have whoever runs it write {column}",
                )
            )  # fmt: skip
    if "run_at" in resolved:
        column = resolved.columns["run_at"].name
        found.append(
            Oddity(
                f"{waits} and ({unreachable.format(resolved['run_at'])})", column,
                f"{column} lies more than ten years ahead, or is no time: the row waits for ever",
                f"correct {column}",
            )
        )  # fmt: skip
    return found


def counts_of(resolved: Resolved, found: list[Oddity]) -> str:
    """SQL: how many rows are in each of these conditions, a column for each."""
    counts = ", ".join(f"count(*) filter (where {one.where})" for one in found)
    return f"select {counts} from {resolved.sql_table}"  # noqa: S608


def problems_of(found: list[Oddity], counted: Sequence[int]) -> list[Problem]:
    return [
        Problem(what=one.what, fix=one.fix, fatal=False, column=one.column, rows=rows)
        for one, rows in zip(found, counted, strict=True)
        if rows
    ]


def wishes(resolved: Resolved, instant: str) -> list[str]:
    """SQL: columns that would help others to see what Holdfast does. `instant`: a type for them."""
    if any(meaning in resolved for meaning in LEASES):
        return []
    return [f"alter table {resolved.sql_table} add column heartbeat_at {instant}"]


def said_otherwise(mapping: Mapping, installed: Sequence[Source]) -> list[Problem]:
    """What the application says of the table, and nobody has installed."""
    fix = f"run `holdfast adopt {named(mapping.name)} --app APP` (as in app:hf)"
    source = next((source for source in installed if source.name == mapping.name), None)
    if source is None:
        return [Problem(what=f"{mapping.table} is not adopted", fix=fix)]
    there = source.mapping
    differing = [name for name in mapping.__struct_fields__ if getattr(there, name) != getattr(mapping, name)]
    what = f"the mapping of {mapping.table} in the database differs in {', '.join(differing)}"
    return [Problem(what=what, fix=fix)] if differing else []


def leaving_loses(source: Source, running: int, owed: int) -> Refused | None:
    """What an undo would lose: what workers of ours are at, and what they did and could not write to their rows."""
    name = source.name
    if running:
        what = f"workers still run {running:,} {plural('job', running)} of {name}: wait for them, or stop those workers"
    elif owed:
        what = f"{owed:,} {plural('row', owed)} of {name} would never be told what became of their jobs: " + (
            f"stop the workers, then holdfast adopt {named(name)} --resume writes it"
            if source.suspended
            else "somebody has them locked, or the table can't be written, and holdfast doctor says why"
        )
    else:
        return None
    return Refused(f"{what}; then repeat this", number="HF1166")


def forget_source(name: str, table: Callable[[str], str]) -> list[str]:
    """SQL: the source, and the jobs of rows that have not finished. `table`: a table of ours as SQL names it."""
    mine = f"source = {literal(name)} and state in ('queued', 'running', 'paused')"
    jobs = f"(select id from {table('jobs')} where {mine})"  # noqa: S608
    beside = [f"delete from {table(one)} where job_id in {jobs}" for one in ("attempts", "steps", "pending")]  # noqa: S608
    foreign = literal(f"foreign:{name}:")
    return [
        f"delete from {table('sources')} where name = {literal(name)}",  # noqa: S608
        *beside,
        f"delete from {table('leases')} where substr(worker, 1, length({foreign})) = {foreign}",  # noqa: S608
        f"delete from {table('jobs')} where {mine}",  # noqa: S608
    ]
