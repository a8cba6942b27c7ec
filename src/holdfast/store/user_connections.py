"""UserConnections: a caller's own connection, on which we run statements, and those that handlers get for their own
writes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.store.columns import Row
from holdfast.store.permits import Permits

# Finds the driver's connection beneath SQLAlchemy's sessions and connections, and Django's connections. They are
# recognised by the module of their classes, so that neither library is imported. Anything else is returned unchanged.

DISK_TROUBLE = (10, 13)  # SQLITE_IOERR, SQLITE_FULL
CLOSED = "the connection is closed"  # psycopg's only message for a connection that its user has closed


def underlying(connection: Any) -> Any:
    """The driver's connection of a Session or Connection of SQLAlchemy, or a connection of Django."""
    if _is_of("sqlalchemy", connection) and hasattr(connection, "connection") and not _is_async(connection):
        if hasattr(connection, "get_bind"):  # a session: its connection opens a transaction if none is open
            connection = connection.connection()
        if not connection.in_transaction():
            connection.begin()  # as its own `execute` would; otherwise its `commit` would commit nothing
        return connection.connection.driver_connection
    if _is_of("django", connection) and hasattr(connection, "ensure_connection"):
        connection.ensure_connection()
        return connection.connection
    return connection


async def aunderlying(connection: Any) -> Any:
    """As `underlying`, for an AsyncSession or AsyncConnection, too."""
    if _is_of("sqlalchemy", connection) and _is_async(connection):
        if hasattr(connection, "sync_session"):
            connection = await connection.connection()
        if not connection.in_transaction():
            await connection.begin()
        return (await connection.get_raw_connection()).driver_connection
    return underlying(connection)


def is_cut_off(error: BaseException | None) -> bool:
    """Does this error, or one it was raised from, say that a driver lost its database? (That driver is imported.)"""
    psycopg, sqlite3 = sys.modules.get("psycopg"), sys.modules.get("sqlite3")
    for _ in range(20):  # a bound, whatever the chain looks like
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
    """Does its class, or a base of it, come from this package?"""
    return any(kind.__module__.partition(".")[0] == package for kind in type(connection).__mro__)


class UserConnections(Protocol):
    may_raise: bool  # may an enqueue there raise the priority of a job that waits under the same key?

    @property
    def permits(self) -> Permits | None:
        """For transactions of handlers, where only so many may be open at once."""

    def execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        """What runs our statements on a caller's open transaction."""

    async def aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Awaitable[list[Row]]]:
        """The same on an asynchronous connection."""

    def transaction(self, note: str = "") -> AbstractContextManager[Any]:
        """A connection with an open transaction, for a handler's own writes: commits at the end. `note` tells those who
        wait for it whose it is. Whoever calls this holds one of `permits`, if there are any."""
