"""Chooses the server we work with. After a failover the old primary may come back and accept writes as if nothing had
happened: what is enqueued there is lost, and it knows nothing of later claims. So all sessions of a store go to one
server, and each new session asks the server who it is. All copies of a database share its system identifier, and each
promotion begins a new timeline with a higher number: the highest one is the primary, whatever comes first in the
URL."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast import events
from holdfast.errors import StoreUnavailable, TooManyConnections
from holdfast.settings import Settings
from holdfast.store.postgres.connect import CONNECT_TIMEOUT, Connection, connect

# Any role may ask this. (The timeline of pg_control_checkpoint() is that of the last checkpoint: after a promotion it
# stays behind for a while.)
WHO = "select (select system_identifier from pg_control_system()), pg_walfile_name(pg_current_wal_insert_lsn())"
SHORT_TIMEOUT = 2  # seconds for a host to answer, once another one has
HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)  # the first is Linux's own: the other end has closed
TELL_AGAIN = 60.0  # seconds after which a second server that accepts writes is reported again

Host = Mapping[str, str]  # what to connect with instead of the URL's list of hosts


class Server(NamedTuple):
    timeline: int
    system: int

    def __str__(self) -> str:
        return f"timeline {self.timeline} of system {self.system}"


class Found(NamedTuple):
    connection: Connection
    host: Host
    server: Server | None  # None: it does not say


class Primary:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hosts = hosts_of(settings.url)
        self.several = len(self._hosts) > 1
        self._seen: Server | None = None
        self._where: WeakKeyDictionary[Connection, tuple[Host, Server | None]] = WeakKeyDictionary()
        self._told: dict[str, float] = {}
        self._lock = Lock()

    def connect(self, application: str = "holdfast", *, ours: bool = True) -> Connection:
        def opened(host: Host, timeout: int = CONNECT_TIMEOUT) -> Connection:
            return connect(self._settings, application=application, ours=ours, host=host, timeout=timeout)

        current = self._current()
        if current is None and self.several:
            return self._chosen(opened)
        host = self._hosts[0] if current is None else current
        try:
            session = self._met(opened(host), host)
        except TooManyConnections:
            raise
        except StoreUnavailable as error:
            if not self.several:
                raise
            # It may have vanished, with sessions that only seem to be alive: was another server promoted?
            return self._chosen(opened, host, error)
        if self._admits(session.server):
            return self._kept(session)
        session.connection.close()
        if self.several:
            return self._chosen(opened)
        raise self._refused(session)

    def look_around(self) -> None:
        """Check whether another server accepts writes, and move to it if it is the newer one."""
        if self.several:
            self._chosen(
                lambda host, timeout: connect(
                    self._settings, application="holdfast-look", ours=False, host=host, timeout=timeout
                )
            ).close()

    def writable(self) -> list[tuple[str, Server | None]]:
        """Every server of the URL that accepts writes."""
        found = []
        for host in self._hosts:
            with suppress(StoreUnavailable):
                connection = connect(self._settings, ours=False, host=host, timeout=SHORT_TIMEOUT)
                session = self._met(connection, host)
                connection.close()
                found.append((named(host), session.server))
        return found

    def _current(self) -> Host | None:
        """The host of a live session of ours: its server is alive, too."""
        for connection, (host, server) in self._sessions():
            if _lives(connection) and self._fits(server):
                return host
        return None

    def _chosen(
        self, opened: Callable[[Host, int], Connection], tried: Host | None = None, *failures: StoreUnavailable
    ) -> Connection:
        """Connect to all hosts but the one that was `tried`, and keep the connection to the primary."""
        found: list[Found] = []
        failed = [*failures]
        try:
            for host in self._in_order():
                if host == tried:
                    continue
                try:
                    found.append(self._met(opened(host, SHORT_TIMEOUT if found else CONNECT_TIMEOUT), host))
                except StoreUnavailable as error:
                    failed.append(error)
            if not found:
                raise _all_failed(failed)
            best = self._best(found)
        except BaseException:
            for session in found:
                session.connection.close()
            raise
        for other in found:
            if other is not best:
                other.connection.close()
                self._tell(other, best)
        self._admits(best.server)
        self._cut_outdated()
        return self._kept(best)

    def _in_order(self) -> Iterator[Host]:
        """Our current host first: if it answers, we wait less for the others."""
        current = self._current()
        if current is not None:
            yield current
        yield from (host for host in self._hosts if host != current)

    def _met(self, connection: Connection, host: Host) -> Found:
        try:
            row = connection.execute(WHO, prepare=False).fetchone()
        except psycopg.Error:  # not every service allows it; a broken session is noticed when it is used
            row = None
        server = None if row is None else Server(int(row[1][:8], 16), row[0])
        return Found(connection, host, server)

    def _best(self, found: list[Found]) -> Found:
        admitted = [session for session in found if self._fits(session.server)]
        systems = {session.server.system for session in admitted if session.server is not None}
        if not admitted or len(systems) > 1:
            raise self._refused(*(admitted or found))
        return max(admitted, key=lambda session: session.server or Server(0, 0))

    def _fits(self, server: Server | None) -> bool:
        seen = self._seen
        return server is None or seen is None or (server.system == seen.system and server.timeline >= seen.timeline)

    def _admits(self, server: Server | None) -> bool:
        with self._lock:
            if not self._fits(server):
                return False
            self._seen = server or self._seen
            return True

    def _kept(self, session: Found) -> Connection:
        with self._lock:
            self._where[session.connection] = session.host, session.server
        return session.connection

    def _sessions(self) -> list[tuple[Connection, tuple[Host, Server | None]]]:
        with self._lock:  # another thread may be adding a session
            return list(self._where.items())

    def _refused(self, *found: Found) -> StoreUnavailable:
        there = " and ".join(f"{named(session.host)} ({session.server})" for session in found)
        known = f"we worked with {self._seen}" if self._seen else "they are not copies of one database"
        return StoreUnavailable(
            f"{self._settings.shown_url}: {there} takes writes, but {known}: it is refused. If it is an old primary, "
            "stop it; if the database was replaced on purpose, restart workers and applications",
            number="HF3406",
        )

    def _tell(self, other: Found, best: Found) -> None:
        """Report it, but not with every connection."""
        now, name = time.monotonic(), named(other.host)
        if now - self._told.get(name, -TELL_AGAIN) >= TELL_AGAIN:
            self._told[name] = now
            events.emit(
                "second_primary", refused=name, its=str(other.server), primary=named(best.host), ours=str(best.server)
            )

    def _cut_outdated(self) -> None:
        """End our sessions with a server that is no longer the primary; their users connect again."""
        for connection, (_, server) in self._sessions():
            if not self._fits(server):
                _hang_up(connection)


def hosts_of(url: str) -> list[Host]:
    """What to connect with for each host that the URL names; nothing where it is one or none."""
    with suppress(psycopg.Error):  # reported when we connect
        given = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        lists = {name: given[name].split(",") for name in ("host", "hostaddr", "port") if name in given}
        several = max(map(len, lists.values()), default=1)
        if several > 1 and all(len(values) in (1, several) for values in lists.values()):
            return [{name: values[n % len(values)] for name, values in lists.items()} for n in range(several)]
    return [{}]


def named(host: Host) -> str:
    return ":".join(host[name] for name in ("host", "port") if name in host) or "the server"


def _lives(connection: Connection) -> bool:
    """Is the other end still connected? Reads nothing: another thread may be using the connection."""
    try:
        line = select.poll()
        line.register(connection.pgconn.socket, HANG_UP)
        return not connection.closed and not line.poll(0)
    except (psycopg.Error, ValueError):
        return False


def _hang_up(connection: Connection) -> None:
    """Break the connection for whoever uses it, perhaps another thread."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.pgconn.socket)) as line:
        line.shutdown(socket.SHUT_RDWR)


def _all_failed(failed: list[StoreUnavailable]) -> StoreUnavailable:
    crowded = any(isinstance(error, TooManyConnections) for error in failed)
    said = "; ".join(dict.fromkeys(error.message for error in failed))
    return TooManyConnections(said) if crowded else StoreUnavailable(said, number=failed[-1].number)
