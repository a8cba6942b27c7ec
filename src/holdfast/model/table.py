"""What a database says of a table of the user's, and what speaks against working it as a queue."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    name: str  # exactly as the catalogue has it, unquoted
    type: str  # as the database writes it: `uuid`, `timestamp with time zone`, `character varying(20)`, `INTEGER`
    kind: str  # integer, number, text, uuid, boolean, instant, naive_instant, json, bytes, enum, other
    nullable: bool = True
    default: str | None = None
    words: tuple[str, ...] | None = None  # all that an ENUM or a CHECK of the form `column in (…)` allows
    generated: bool = False  # nobody can write it


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    schema: str  # "" on SQLite
    name: str
    columns: tuple[TableColumn, ...]
    primary_key: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...] = ()  # other unique keys
    triggers: tuple[str, ...] = ()  # enabled ones, ours among them
    rows: int | None = None  # an estimate
    row_security: bool = False  # it may hide rows from who works it
    partitioned: bool = False
    owner: str = ""
    problems: tuple[str, ...] = field(default=())  # rights that are missing, and the like

    def column(self, name: str) -> TableColumn | None:
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that speaks against a mapping. `fatal`: the table isn't worked until it is mended."""

    what: str
    fix: str
    fatal: bool = True
    column: str | None = None
    rows: int | None = None  # how many are affected

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"
