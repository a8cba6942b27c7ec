"""How we hear of new work. A worker hears on the connection it claims by: the session that was woken to tell it is then
awake to serve the claim, and no second one has to be. On a channel of its own it hears of jobs that it need not
claim."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from psycopg import pq

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.connect import Connection, ready
from holdfast.store.postgres.trip import Trip

SELF_CHECK = 5.0  # seconds a new listener has to hear itself
KINDS = {"q": "queue", "l": "lane", "f": "finished", "r": "requests", "o": "given"}


def begin_to_listen(connection: Connection, channel: str, where: str) -> None:
    connection.execute(f'listen "{channel}"', prepare=False)
    # Behind a pooler LISTEN may be lost without a word: it counts once we heard ourselves.
    connection.execute("select pg_notify(%s, 'self')", (channel,))
    if not list(connection.notifies(timeout=SELF_CHECK, stop_after=1)):
        raise StoreUnavailable(
            f"{where} does not deliver notifications (a pooler in between?); polling goes on", number="HF3402"
        )


def begin_to_be_told(connection: Connection) -> str:
    """Hear of jobs that this session alone is told of. Returns the name it goes by, which nobody else knows: anyone may
    listen on any channel. Whoever gets the lock made of that name knows that the session is gone."""
    name = secrets.token_hex(16)
    connection.execute(f'listen "holdfast:ear:{name}"', prepare=False)
    connection.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (name,), prepare=False)
    return name


def is_shared(connection: Connection) -> bool:
    """Does a pooler share this session among clients? It makes up a process number for them; the server tells the one
    of its own process."""
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    return row is not None and row[0] != connection.info.backend_pid


def listen(connection: Connection, heard: Callable[[str, str], None], stop: Callable[[], bool]) -> None:
    pgconn = connection.pgconn
    while not stop():
        for kind, what in wakeups(pgconn):
            heard(kind, what)
        if ready(pgconn.socket, timeout=0.5):
            pgconn.consume_input()


def wakeups(pgconn: pq.abc.PGconn) -> Iterator[tuple[str, str]]:
    """Those that have arrived: their kind, and what they tell."""
    while (wakeup := pgconn.notifies()) is not None:
        payload = wakeup.extra.decode()
        yield KINDS.get(payload[:1], "other"), payload[1:]


class PostgresEar:
    def __init__(self, trip: Trip, name: str | None, where: str) -> None:
        self._trip = trip
        self._name = name
        self._where = where
        self.can_offer = name is not None
        self._pgconn = trip.connection.pgconn

    def fileno(self) -> int:
        return self._pgconn.socket

    def hear(self) -> Iterator[tuple[str, str]]:
        if not self._trip.usable():
            raise StoreUnavailable(f"the connection to {self._where} broke")
        return wakeups(self._pgconn)

    @contextmanager
    def trips(self) -> Iterator[Trip]:
        try:
            yield self._trip
        finally:
            self._trip.abandon()

    def offer(self, worker: str, kinds: Mapping[str, tuple[str, str]]) -> float:
        assert self._name is not None
        return self._trip.offer(self._name, worker, kinds)

    def close(self) -> None:
        self._trip.close()
