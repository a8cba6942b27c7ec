"""The templates of adopted.sql, filled in for one table."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from holdfast.model.lifecycle import State
from holdfast.model.table import TableColumn
from holdfast.store.adopted import Resolved, literal, quoted, said_by, word_of
from holdfast.store.sqlite.adopted_values import as_json
from holdfast.store.statements import source

AMONG = "in (select value from json_each(:ids))"

_TOKEN = re.compile(r"@(\w+)")
Tokens = dict[str, str]


class Templates:
    """`prefix`: of our tables."""

    def __init__(self, resolved: Resolved, prefix: str) -> None:
        self.resolved = resolved
        self.mapping = resolved.mapping
        self.prefix = prefix
        self.table = resolved.sql_table
        self.jobs = quoted(f"{prefix}jobs")
        self.id = resolved["id"]
        self.status = f"{self.table}.{resolved['status']}"
        self.seconds = f"+{resolved.mapping.lease:f} seconds"

    def fill(self, name: str, tokens: Tokens) -> str:
        return filled(name, self._common | tokens, self.prefix)

    @property
    def _common(self) -> Tokens:
        row_id = f"cast({self.table}.{self.id} as text)"
        return {
            "source": literal(self.mapping.name),
            "queue": literal(self.mapping.queue),
            "table": self.table,
            "status": self.resolved["status"],
            "id_column": self.id,
            "running": literal(self.mapping.word(State.RUNNING)),
            "row_id": row_id,
            "row_foreign": self.foreign(row_id),
            "row_said": said_by(self.mapping, self.status),
            "lease_seconds": literal(self.seconds),
        }

    def foreign(self, id: str) -> str:
        """The worker that stands for whoever else holds a row."""
        return foreign(self.mapping.name, id)

    def held(self, job: str, id: str) -> str:
        """One of ours holds it."""
        return f"({job}.state = 'running' and {job}.worker is not {self.foreign(id)})"

    @property
    def holder(self) -> str | None:
        """What a row is worked under, as the table keeps it: the meaning of a column."""
        return next((meaning for meaning in ("worker", "fence") if meaning in self.resolved), None)

    def taken(self, row: str, said: str, job: str, id: str) -> str:
        """Others work it now, by what its row says, which one of ours had (or has, as far as the job knows)."""
        if self.holder is None:
            return "0"
        name = f"{row}.{self.resolved[self.holder]}"
        return (
            f"({said} is 'running' and {name} is not null and {name} is not {job}.{self.holder} "
            f"and {job}.worker is not {self.foreign(id)})"
        )

    def agrees(self, word: str, state: str) -> str:
        return f"({said_by(self.mapping, word)} is {state} or {word} is {word_of(self.mapping, state)})"

    def args(self, row: str, blob: str) -> str:
        """The arguments of its job: the row as JSON text."""
        return "('{\"row\": ' || " + row_as_json(self.resolved.payload, row, blob) + " || '}')"


def row_as_json(columns: Sequence[TableColumn], row: str, blob: str) -> str:
    """By concatenation: a function takes 100 arguments."""
    parts = [
        f"{literal(('{' if n == 0 else ', ') + json.dumps(column.name, ensure_ascii=False) + ': ')} || "
        f"json_quote({as_json(column, f'{row}.{quoted(column.name)}', blob)})"
        for n, column in enumerate(columns)
    ]
    return " || ".join(parts) + " || '}'"


def foreign(source_name: str, id: str) -> str:
    return f"({literal(f'foreign:{source_name}:')} || {id})"


def filled(name: str, tokens: Tokens, prefix: str) -> str:
    """In one pass: what is filled in may contain anything."""
    return _TOKEN.sub(lambda m: tokens[m[1]] if m[1] in tokens else quoted(prefix + m[1]), source("sqlite", name))
