"""The driver's own connection beneath what a framework calls one: SQLAlchemy's sessions and connections, Django's.
Known by where their classes come from; neither is imported. What is none of them is returned as it is."""

from __future__ import annotations

from typing import Any


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


def _is_async(connection: Any) -> bool:
    return hasattr(connection, "sync_session") or hasattr(connection, "sync_connection")


def _is_of(package: str, connection: Any) -> bool:
    """Its class, or one it was derived from, is that package's."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(connection).__mro__)
