"""Where the contenders keep their jobs: databases on one private PostgreSQL server with its default durability, and
SQLite files. A fresh one for every run."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from bench.embedded import EmbeddedPostgres


class Database(Protocol):
    url: str

    def any_row(self, query: str) -> bool: ...

    def tidy(self) -> None:
        """Let no upkeep of what was written so far fall into what is measured next."""

    def transactions(self) -> int | None:
        """How many it has seen, or None if it doesn't count."""


class Server:
    """A private PostgreSQL."""

    def __init__(self) -> None:
        self._embedded = EmbeddedPostgres()
        self._admin = psycopg.connect(self._embedded.url, autocommit=True)
        self._made = 0

    @contextmanager
    def database(self) -> Iterator[Database]:
        self._made += 1
        name = f"bench_{self._made}"
        self.execute(f"create database {name}")
        try:
            with psycopg.connect(self._embedded.url_of(name), autocommit=True) as connection:
                yield PostgresDatabase(self, name, self._embedded.url_of(name), connection)
        finally:
            self.execute(f"drop database {name} with (force)")

    @contextmanager
    def without_autovacuum(self) -> Iterator[None]:
        """Its visits are transactions, too, and nobody's fault."""
        self._set_autovacuum("off")
        try:
            yield
        finally:
            self._set_autovacuum("on")

    def execute(self, statement: str) -> None:
        self._admin.execute(statement.encode())

    def transactions(self, name: str) -> int:
        # Read from another database, so that reading is not counted.
        row = self._admin.execute(
            "select xact_commit + xact_rollback from pg_stat_database where datname = %s", [name]
        ).fetchone()
        assert row is not None
        return int(row[0])

    @property
    def version(self) -> str:
        return self._admin.info.parameter_status("server_version") or ""

    def close(self) -> None:
        self._admin.close()
        self._embedded.destroy()

    def _set_autovacuum(self, value: str) -> None:
        self.execute(f"alter system set autovacuum = {value}")
        self.execute("select pg_reload_conf()")


class PostgresDatabase:
    def __init__(self, server: Server, name: str, url: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        self.url = url
        self._server = server
        self._name = name
        self._connection = connection

    def any_row(self, query: str) -> bool:
        return self._connection.execute(query.encode()).fetchone() is not None

    def tidy(self) -> None:
        self._connection.execute("vacuum analyze")
        self._server.execute("checkpoint")

    def transactions(self) -> int:
        return self._server.transactions(self._name)


class SqliteDatabase:
    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def any_row(self, query: str) -> bool:
        with closing(sqlite3.connect(self._path)) as connection:
            return connection.execute(query).fetchone() is not None

    def tidy(self) -> None:
        with closing(sqlite3.connect(self._path)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")

    def transactions(self) -> None:
        return None
