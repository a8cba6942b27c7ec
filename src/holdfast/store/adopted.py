"""Tables of the user's that are queues. Each row has a native job; triggers and a settle step keep both in step.

The table is the truth for what others want, the job for what Holdfast does. Each engine provides `AdoptedTables` in its
own way; what a mapping means for a live table (`resolve`) is the same for both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from holdfast.model.job import AfterFailure, Enqueued
from holdfast.model.lifecycle import UNFINISHED, State
from holdfast.model.mapping import FITS, Mapping
from holdfast.model.table import Problem, Table, TableColumn
from holdfast.settings import MINIMUM_BEATS

# What we set to null when a row is no longer worked.
CLEARED = ("worker", "lease_until", "fence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A mapping on a live table: names are the catalogue's and quoted, so they go into SQL as they are."""

    mapping: Mapping
    table: Table
    sql_table: str  # "public"."audits"
    id: TableColumn
    status: TableColumn
    columns: dict[str, TableColumn]  # by meaning, as Mapping.columns
    payload: tuple[TableColumn, ...]
    counts_table: Table | None = None  # the second table, if counts live there

    def __getitem__(self, meaning: str) -> str:
        """The quoted name of the column that means this."""
        return quoted(self.columns[meaning].name)

    def __contains__(self, meaning: str) -> bool:
        return meaning in self.columns

    @property
    def unfinished(self) -> list[str]:
        """Words of rows that have work left."""
        return self.mapping.words(*UNFINISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An adopted table as it is installed."""

    name: str
    mapping: Mapping
    suspended: bool
    swept_to: str | None = None  # where the first walk along the table is; None: it has been walked
    refused: str | None = None  # why it can't be worked at the moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What adopting a table does, to be shown before it is done."""

    resolved: Resolved
    problems: Sequence[Problem]
    statements: Sequence[str]  # in order: what is created
    undo: Sequence[str]
    locks: Sequence[str]  # in words: which lock, on what, for how long
    rows: dict[str, int] = field(default_factory=dict)  # word -> rows
    wishes: Sequence[str] = ()  # columns that would help, as DDL


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Where rows and jobs are not in step yet."""

    inbox: int = 0  # rows that others changed
    inbox_since: datetime | None = None
    owed: int = 0  # jobs whose outcome is still to be written to their rows
    owed_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    settled: int = 0  # entries that were dealt with
    waiting: int = 0  # entries whose row or job was locked: again later
    woke: bool = False  # a job is due


@dataclass(frozen=True, slots=True)
class Swept:
    reached: str | None  # the last id looked at; None: the end of the table
    strays: int  # rows that no trigger had told of


@dataclass(frozen=True, slots=True)
class SameKey:
    """What is done if a row with the same key has finished. One that has not is returned."""

    reuse: float | None = None  # seconds after its success for which it is returned
    after_failure: AfterFailure = "new"


AS_NEW = SameKey()
Submitted = tuple[str, Enqueued]  # the row's id, and its job


class AdoptedTables(Protocol):
    def describe(self, table: str) -> Table:
        """The live table that this name means; BadSettings if there is none, or several."""

    def words(self, table: Table, column: str) -> dict[str, int]:
        """How many rows have each word in this column."""

    def installed(self) -> list[Source]: ...

    def plan(self, mapping: Mapping) -> Plan: ...

    def install(self, mapping: Mapping, progress: Callable[[str], None] = ...) -> None:
        """Make triggers and functions, then a job for each row that has work left. Safe to repeat, also after it was
        cut short."""

    def suspend(self, name: str) -> None:
        """Leave the table alone until `resume`: nothing is claimed, nothing written to it. Its columns can be changed
        meanwhile."""

    def resume(self, name: str) -> None: ...

    def undo(self, name: str) -> int:
        """Take triggers, functions and the source away; the table stays as it is. Returns how many jobs were removed:
        those that had not finished. RefusedError while one of them runs."""

    def check(self, mapping: Mapping) -> list[Problem]:
        """Compare the mapping with the live table, and with what is installed; everything at once."""

    def odd_rows(self, mapping: Mapping) -> list[Problem]:
        """Rows in conditions that nothing leads out of. Reads the whole table."""

    def unsettled(self, name: str) -> Unsettled:
        """How far rows and jobs are apart."""

    def submit(self, mapping: Mapping, values: dict[str, Any], same: SameKey = ..., *, conn: Any = None) -> Submitted:
        """Insert a row, and return its id and its job; or those of the row that has its key."""

    async def asubmit_on(self, conn: Any, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submitted:
        """The same on an asynchronous connection."""

    def row(self, mapping: Mapping, id: str) -> dict[str, Any] | None:
        """All columns of the row with this id, as JSON has them; None: there is none."""

    def settle(self, name: str, most: int = 200, *, stays: bool = False) -> Settled:
        """Bring rows and jobs in step that disagree. (SQLite: triggers have done so.) `stays`: the caller looks again
        for the next 200 ms, so that nobody need tell it of more."""

    def beat(self, name: str) -> None:
        """Keep the table's heartbeats of what our workers hold fresh, and hear those of foreign holders."""

    def sweep(self, name: str, after: str | None, most: int = 1000) -> Swept:
        """Look at the next rows along the primary key for what no trigger told."""


def rare_beats(mapping: Mapping, heartbeat: float) -> list[Problem]:
    """Where a worker's heartbeats are so far apart that others would take what it works for abandoned."""
    renewed = (mapping.heartbeat_at, mapping.claimed_at, mapping.lease_until) if mapping.renew else ()
    if not any(renewed) or mapping.lease >= MINIMUM_BEATS * heartbeat:
        return []
    what = (
        f"its rows are taken for abandoned after {mapping.lease:g} s (lease), and heartbeats are {heartbeat:g} s "
        f"apart: a lease needs at least {MINIMUM_BEATS} of them"
    )
    return [Problem(what=what, fix=f"set heartbeat to {mapping.lease / 4:g} or less")]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it. (PostgreSQL: with standard_conforming_strings, which our functions don't change.)"""
    return "'" + text.replace("'", "''") + "'"


def word_of(mapping: Mapping, state: str) -> str:
    """SQL: the word for the state that the expression `state` has."""
    cases = " ".join(f"when {literal(one)} then {literal(mapping.word(one))}" for one in State)
    return f"(case {state} {cases} end)"


def said_by(mapping: Mapping, word: str) -> str:
    """SQL: the state that the word means that the expression `word` has; null: none of ours."""
    cases = " ".join(f"when {literal(one)} then {literal(state)}" for one, state in mapping.meanings.items())
    return f"(case {word} {cases} end)"


def words_in(words: Sequence[str]) -> str:
    return "(" + ", ".join(map(literal, words)) + ")"


def id_of(column: TableColumn, text: str) -> str | int | None:
    """An id as its column takes it; None: no row of it can have this one."""
    try:
        if column.kind == "integer":
            return int(text) if text.isascii() and -(2**63) <= int(text) < 2**63 else None
        if column.kind == "uuid" and column.type.lower() == "uuid":
            return str(UUID(text))
    except ValueError:
        return None
    return None if "\0" in text else text


def resolve(mapping: Mapping, table: Table, counts_table: Table | None = None) -> tuple[Resolved | None, list[Problem]]:
    """The mapping on this table, and everything that speaks against it. None: columns are missing without which nothing
    can be said."""
    problems: list[Problem] = []
    found: dict[str, TableColumn] = {}
    wanted = dict(mapping.columns)
    if mapping.id is None:
        if len(table.primary_key) != 1:
            what = "has no primary key" if not table.primary_key else "has a primary key of several columns"
            problems.append(Problem(what=f"{table.name} {what}", fix="name a unique column with id=…"))
        else:
            wanted["id"] = table.primary_key[0]
    elif (mapping.id,) != table.primary_key and (mapping.id,) not in table.unique:
        problems.append(
            Problem(
                what=f"{mapping.id} is not unique", fix="name the primary key or a unique column", column=mapping.id
            )
        )
    for meaning, name in wanted.items():
        column = table.column(name)
        if column is None:
            problems.append(_missing(table, meaning, name))
            continue
        found[meaning] = column
        problems.extend(_misfits(meaning, column))
    for name in mapping.payload or ():
        if table.column(name) is None:
            problems.append(_missing(table, "payload", name))
    if "id" not in found or "status" not in found:
        return None, problems
    if found["id"].nullable:
        name = found["id"].name
        what, fix = f"{name} can be null, and then nothing names the row", "make it NOT NULL, or name another column"
        problems.append(Problem(what=what, fix=fix, column=name))
    problems.extend(_words(mapping, found["status"]))
    named = {column.name for meaning, column in found.items() if meaning != "id"}
    payload = tuple(
        column
        for column in table.columns
        if (column.name in mapping.payload if mapping.payload is not None else column.name not in named)
    )
    if found["id"] not in payload:
        payload = (found["id"], *payload)
    resolved = Resolved(
        mapping=mapping, table=table, id=found["id"], status=found["status"], columns=found, payload=payload,
        sql_table=".".join(quoted(part) for part in (table.schema, table.name) if part), counts_table=counts_table,
    )  # fmt: skip
    return resolved, problems


def _missing(table: Table, meaning: str, name: str) -> Problem:
    from holdfast.model.text import nearest

    near = nearest(name, [column.name for column in table.columns])
    hint = f" (perhaps {near[0]!r})" if near else ""
    return Problem(
        what=f"{table.name} has no column {name!r}, which the mapping names as {meaning}",
        fix=f"name another column{hint}, or leave {meaning} out",
        column=name,
    )


def _misfits(meaning: str, column: TableColumn) -> list[Problem]:
    problems = []
    kinds = FITS.get(meaning)
    if kinds is not None and column.kind not in kinds:
        problems.append(
            Problem(
                what=f"{column.name} is {column.type or 'of no type'}, and {meaning} needs {' or '.join(kinds)}",
                fix="name another column, or leave it out",
                column=column.name,
            )
        )
    if column.generated and (meaning in FITS or meaning.startswith("results.")):
        problems.append(
            Problem(what=f"{column.name} is generated, and can't be written", fix="leave it out", column=column.name)
        )
    if meaning in CLEARED and not column.nullable:
        problems.append(
            Problem(
                what=f"{column.name} can't be null, and a row that nobody works has no {meaning}",
                fix=f"drop its NOT NULL, or leave {meaning} out",
                column=column.name,
            )
        )
    return problems


def _words(mapping: Mapping, status: TableColumn) -> list[Problem]:
    if status.words is None:
        return []
    return [
        Problem(
            what=f"{status.name} doesn't allow the word {word!r}",
            fix=f"it allows {', '.join(map(repr, status.words))}: name one of them, or change the constraint",
            column=status.name,
        )
        for word in dict.fromkeys(mapping.word(state) for state in State)
        if word not in status.words
    ]
