"""A table as an application has it, for the command line and the doctor: `audits`, in a schema of its own on
PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from holdfast.settings import Settings
from tests.contract.places import open_connection
from tests.servers import drop_schema, new_schema

COLUMNS = """
    id integer primary key,
    url text not null,
    status {words} default 'pending',
    {instant_columns},
    processing_worker_id text,
    retry_count integer not null default 0,
    error_message text
"""
INSTANTS = ("created_at", "scheduled_at", "processing_started_at", "last_heartbeat")
STATES = {"queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed"}


class LiveTable:
    """`name`: as people write it."""

    def __init__(self, settings: Settings, schema: str | None) -> None:
        self.settings = settings
        self.schema = schema
        self.name = "audits" if schema is None else f"{schema}.audits"

    def __call__(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement in which `{t}` is the table, and commit."""
        with self.connection() as connection:
            cursor = connection.execute(sql.replace("{t}", self.name).replace("?", self._mark), parameters)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
        return list(rows)

    @property
    def _mark(self) -> str:
        return "?" if self.schema is None else "%s"

    @contextmanager
    def connection(self) -> Iterator[Any]:
        connection = open_connection(self.settings)
        try:
            yield connection
        finally:
            connection.close()

    def beside(self, table: str) -> str:
        """Another table, as people write it."""
        return table if self.schema is None else f"{self.schema}.{table}"

    def add(self, status: str = "pending", **columns: Any) -> int:
        [(number,)] = self("select coalesce(max(id), 0) + 1 from {t}")
        given = {"id": number, "url": "https://example.org", "status": status, **columns}
        self(f"insert into {{t}} ({', '.join(given)}) values ({', '.join('?' * len(given))})", *given.values())
        return int(number)

    def statuses(self) -> list[str]:
        return [status for (status,) in self("select status from {t} order by id")]


@contextmanager
def live_table(settings: Settings, words: str = "text not null") -> Iterator[LiveTable]:
    postgres = not settings.url.startswith("sqlite")
    schema = new_schema() if postgres else None
    table = LiveTable(settings, schema)
    kind = "timestamptz" if postgres else "timestamp"
    columns = COLUMNS.format(words=words, instant_columns=", ".join(f"{name} {kind}" for name in INSTANTS))
    if postgres:
        with psycopg.connect(settings.url, autocommit=True) as connection:
            connection.execute(f'create schema "{schema}"'.encode())
    table(f"create table {{t}} ({columns})")
    try:
        yield table
    finally:
        if schema is not None:
            drop_schema(settings.url, schema)
