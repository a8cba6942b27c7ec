"""The driver's own connection beneath what a framework calls one: SQLAlchemy's sessions and connections, Django's.
Known by where their classes come from; neither is imported. What is none of them is returned as it is."""

from __future__ import annotations

import sys
from typing import Any

DISK_TROUBLE = (10, 13)  # SQLITE_IOERR, SQLITE_FULL
CLOSED = "the connection is closed"  # all that psycopg says of one that its user has closed


def underlying(connection: Any) -> Any:
    """Of a Session or Connection of SQLAlchemy, or a connection of Django's."""
    if _is_of("sqlalchemy", connection) and hasattr(connection, "connection") and not _is_async(connection):
        if hasattr(connection, "get_bind"):  # a session: its connection has a transaction open, and opens one if not
            connection = connection.connection()
        if not connection.in_transaction():
            connection.begin()  # as its own `execute` would: else its `commit` had nothing to commit
        return connection.connection.driver_connection
    if _is_of("django", connection) and hasattr(connection, "ensure_connection"):
        connection.ensure_connection()
        return connection.connection
    return connection


async def aunderlying(connection: Any) -> Any:
    """As `underlying`, of an AsyncSession or AsyncConnection, too."""
    if _is_of("sqlalchemy", connection) and _is_async(connection):
        if hasattr(connection, "sync_session"):
            connection = await connection.connection()
        if not connection.in_transaction():
            await connection.begin()
        return (await connection.get_raw_connection()).driver_connection
    return underlying(connection)


def is_cut_off(error: BaseException | None) -> bool:
    """Does this, or what it was raised from, say that a driver lost its database? (One that raised it is imported.)"""
    psycopg, sqlite3 = sys.modules.get("psycopg"), sys.modules.get("sqlite3")
    for _ in range(20):  # whatever it leads to
        if error is None:
            return False
        if psycopg is not None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return (not error.sqlstate and str(error) != CLOSED) or (error.sqlstate or "")[:3] in ("57P", "080")
        if sqlite3 is not None and isinstance(error, sqlite3.Error):
            return getattr(error, "sqlite_errorcode", 0) & 0xFF in DISK_TROUBLE
        error = getattr(error, "orig", None) or error.__cause__ or error.__context__  # `orig`: SQLAlchemy's
    return False


def _is_async(connection: Any) -> bool:
    return hasattr(connection, "sync_session") or hasattr(connection, "sync_connection")


def _is_of(package: str, connection: Any) -> bool:
    """Its class, or one it was derived from, is that package's."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(connection).__mro__)
