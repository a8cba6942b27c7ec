"""Connections of users to the database: a caller's own, on which we run statements, and those that handlers get for
their own writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.errors import BadSettings, Steer
from holdfast.store.columns import Row
from holdfast.store.engine import Permits, aunderlying, underlying
from holdfast.store.postgres.connect import NOT_ALLOWED, cut_off, translate
from holdfast.store.postgres.database import PostgresDatabase


class PostgresUserConnections:
    may_raise = False  # the job that waits would stay locked until the caller commits

    def __init__(self, db: PostgresDatabase) -> None:
        self._db = db
        self.permits = Permits(db.settings.handler_connections)

    def checked(self, connection: Any) -> psycopg.Connection[Any]:
        """The driver's connection."""
        if not isinstance(connection, psycopg.Connection):
            connection = underlying(connection)
        if not isinstance(connection, psycopg.Connection):
            raise BadSettings(_wrong_connection(connection, psycopg.AsyncConnection, "aenqueue"), number="HF1112")
        return connection

    def execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        connection = self.checked(connection)

        def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            # Not with the caller's kind of cursor, which may not support our parameters or formats.
            try:
                with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
                    cursor.execute(text.encode(), self._db.parameters(parameters), binary=True)
                    return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                self._translate(connection, error)
                raise

        return execute

    async def aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Any]:
        if not isinstance(connection, psycopg.AsyncConnection):
            connection = await aunderlying(connection)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise BadSettings(_wrong_connection(connection, psycopg.Connection, "enqueue"), number="HF1112")

        async def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            try:
                async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
                    await cursor.execute(text.encode(), self._db.parameters(parameters), binary=True)
                    return await cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                self._translate(connection, error)
                raise

        return execute

    def _translate(self, connection: Any, error: psycopg.Error) -> None:
        """An error on a caller's own connection is the caller's affair. But that our database is away, or that a right
        is missing for what we do there, is ours to report."""
        if error.sqlstate == NOT_ALLOWED:
            raise translate(self._db.shown_url, error) from error
        if (driver := cut_off(connection, error)) is not None:
            raise translate(self._db.shown_url, driver, away=True) from error

    @contextmanager
    def transaction(self, note: str = "") -> Iterator[Any]:
        # A connection of its own, without our settings: what the handler runs there is its own affair, and so are
        # errors. That the database is away is not.
        if self._db.primary.several:
            with self._db.pool.use():  # a session of ours finds out which server is the primary
                pass
        connection = self._db.primary.connect("holdfast-handler", ours=False)
        ends = False
        with closing(connection):
            try:
                # Inside psycopg's transaction block commit() and rollback() are refused: they would separate effect and
                # outcome.
                with connection.transaction():
                    yield connection
                    ends = True
            except Exception as error:
                driver = None if isinstance(error, Steer) else cut_off(connection, error)
                if driver is None:
                    raise
                # If it was the commit that failed, it may have happened.
                raise translate(self._db.shown_url, driver, broken=ends, away=not ends) from error


def _wrong_connection(connection: Any, other: type, method: str) -> str:
    if isinstance(connection, other):
        return f"this is a {other.__module__.partition('.')[0]}.{other.__name__}: use {method}"
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return f"conn= needs a psycopg connection to the database the jobs are in, not a {kind}"
