"""A connection as an old system has one: SQL of its own, which knows nothing of Holdfast."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

# What the two databases write differently. `:seconds` is a parameter of the statement.
WORDS = {
    "sqlite": {
        "now": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
        "ago": "strftime('%Y-%m-%d %H:%M:%f', 'now', '-' || :seconds || ' seconds')",
        "skip_locked": "",
        "uuid": "TEXT",
        "new_uuid": "(lower(hex(randomblob(16))))",
        "instant": "TIMESTAMP",
        "json": "JSON",
    },
    "postgres": {
        "now": "clock_timestamp()",
        "ago": "(clock_timestamp() - make_interval(secs => (:seconds)::float8))",
        "skip_locked": "for update skip locked",
        "uuid": "uuid",
        "new_uuid": "gen_random_uuid()",
        "instant": "timestamptz",
        "json": "jsonb",
    },
}


class Database:
    """`{now}` and the like are written as the engine has them; `:name` is a parameter."""

    def __init__(self, engine: str, url: str) -> None:
        self.engine = engine
        self._url = url
        self._connection: Any
        if engine == "sqlite":
            path = url.removeprefix("sqlite:///")
            self._connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
        else:
            self._connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def another(self) -> Database:
        """As another process of the same system has it."""
        return Database(self.engine, self._url)

    def rows(self, text: str, **values: Any) -> list[dict[str, Any]]:
        cursor = self._connection.execute(self._written(text), values)
        found = cursor.fetchall() if cursor.description else []
        return [{name: _plain(row[name]) for name in row.keys()} for row in found]  # noqa: SIM118 - sqlite3.Row

    def row(self, text: str, **values: Any) -> dict[str, Any] | None:
        return next(iter(self.rows(text, **values)), None)

    def value(self, text: str, **values: Any) -> Any:
        [row] = self.rows(text, **values)
        [value] = row.values()
        return value

    def changed(self, text: str, **values: Any) -> int:
        """How many rows a statement changed."""
        return int(self._connection.execute(self._written(text), values).rowcount)

    def script(self, text: str) -> None:
        for statement in text.split(";\n\n"):
            self._connection.execute(self._written(statement))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One that writes. On SQLite it has the database to itself from the beginning."""
        with self._ended_by("begin immediate" if self.engine == "sqlite" else "begin"):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All that is read in here is of one moment."""
        with self._ended_by("begin" if self.engine == "sqlite" else "begin isolation level repeatable read read only"):
            yield

    @contextmanager
    def _ended_by(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
        except BaseException:
            self._connection.execute("rollback")
            raise
        self._connection.execute("commit")

    def close(self) -> None:
        self._connection.close()

    def _written(self, text: str) -> str:
        for name, written in WORDS[self.engine].items():
            text = text.replace("{" + name + "}", written)
        return text if self.engine == "sqlite" else re.sub(r"(?<!:):([a-z_]+)\b", r"%(\1)s", text)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value
