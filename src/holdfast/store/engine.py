"""What a database engine provides, in four small contracts: its connections and statements, its schema, its wake-ups,
and work on a connection of the user's. PostgreSQL and SQLite each implement them; everything else in the store is
written once, on top."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Protocol

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.model.facts import Holder
from holdfast.model.job import Thing
from holdfast.model.peers import Place
from holdfast.store.columns import Codec, JobId, Row
from holdfast.store.statements import Statements


class Schema(Protocol):
    store_id: str  # known once the schema was checked

    def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of what was applied. Safe from many processes at once."""

    def pending(self) -> list[str]:
        """The names of what `migrate` would apply."""

    def check(self) -> None:
        """Refuse with one clear sentence (SchemaOutdated) if database and code don't fit."""

    def drop(self) -> None:
        """Delete our tables with all that is in them: for stores that tests throw away."""

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        """What our tables are made of: as they are, and as this version would make them."""


class Transaction(Protocol):
    """An open transaction of ours."""

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement by its name."""


class Database(Protocol):
    shown_url: str  # without secrets
    statements: Statements
    # Statements by which an enqueue retries the failed job that has its key. No row of the first: it has not failed.
    retry_holder: tuple[str, ...]

    @property
    def codec(self) -> Codec: ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A write transaction: committed at the end of the block, rolled back by an exception."""

    def snapshot(self) -> AbstractContextManager[Transaction]:
        """Reads that all see the database as it is at the first of them."""

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that writes, committed by itself."""

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that only reads."""

    def writing(self) -> Holder | None:
        """Who keeps all others from writing right now. None: nobody, or this database has no such lock."""

    def shares_sessions(self) -> bool:
        """Does something between us and the database share its sessions among clients?"""

    @property
    def has_several_hosts(self) -> bool:
        """Does the URL name more than one server?"""

    def look_around(self) -> None:
        """Check that we work with the one server that should take writes."""

    def writable(self) -> list[str]:
        """The servers that take writes, of all that the URL names."""

    def close(self) -> None: ...


PATIENCE = 5.0  # seconds that those who only look give a statement


def takes_too_long(where: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{where}: reading this took longer than {PATIENCE:g} s, so it was stopped: look at less, or try again when "
        "the database is less busy",
        number="HF3008",
    )


def only_reads(where: str) -> StoreError:
    return StoreError(f"{where} was opened only for reading: nothing can be changed through it", number="HF3009")


Received = Callable[[str, str, int | None], None]
RESTLESS = 0.05  # seconds within which one who listens for finished jobs notices a stop: until then nobody can fork


class Wakeups(Protocol):
    can_listen: bool  # can they wake a sleeping worker?

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None:
        """Notify all listeners, after the commit: jobs wait in these queues, these jobs finished, people requested
        something, a worker came or left. Coalesced; never fails."""

    def tell(self, queues: Sequence[str]) -> None:
        """Jobs wait again, each in one of these queues: one job notifies a few workers, several all of them."""

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        """Notify a few workers of one job, after the commit: it waits in this queue, with this task and priority if
        given, or falls due in so many seconds. Coalesced; never fails."""

    def listen(
        self, received: Received, stop: Callable[[], bool], *, finished: bool = False,
        place: Callable[[], Place] = Place,
    ) -> None:  # fmt: skip
        """Call `received(kind, text, turn)` for every wake-up until `stop()`, on a connection of its own; raises
        StoreUnavailable when that breaks. `turn`: how many workers act on it before this one; None: it is for all at
        once. The first call comes once it listens: whoever looks for work then misses nothing. Kinds: `listening`;
        `queue` and its name (none: any); `lane` and a due job's queue, task and priority as JSON; `due` and in how many
        seconds one falls due; `requests`; `workers`: some came or left; `inbox` and an adopted table whose rows others
        wrote; `finished` and an id; `changed`: something did; `moved`: it listens elsewhere, as `place` changed, so
        look for what was said there before; `mark`: another listener's, to hear itself by; `other`: anything else.

        `finished`: listen for jobs that finish, and nothing else. `place`: this worker's among its peers."""

    def close(self) -> None: ...


Permit = Future[None]  # done: it was granted


class Permits:
    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[Permit] = deque()
        self._lock = Lock()

    def ask(self) -> Permit:
        permit = Permit()
        with self._lock:
            if self._free:
                self._free -= 1
                permit.set_result(None)
            else:
                self._line.append(permit)
        return permit

    def give_back(self, permit: Permit) -> None:
        """Whether it was granted or is still waited for."""
        if permit.cancel():
            return
        with self._lock:
            heir = self._next()
            if heir is None:
                self._free += 1
        if heir is not None:
            heir.set_result(None)  # not under the lock: this runs callbacks of whoever waits

    def _next(self) -> Permit | None:
        while self._line:
            heir = self._line.popleft()
            if heir.set_running_or_notify_cancel():
                return heir
        return None


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
