"""How we hear of new work. A worker hears on the connection it claims by: the session that was woken to tell it is then
awake to serve the claim, and no second one has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psycopg import pq

from holdfast.errors import StoreUnavailable
from holdfast.store.postgres.connect import Connection, ready
from holdfast.store.postgres.trip import Trip

SELF_CHECK = 5.0  # seconds a new listener has to hear itself
KINDS = {"q": "queue", "l": "lane", "f": "finished", "r": "requests"}


def begin_to_listen(connection: Connection, channel: str, where: str) -> None:
    connection.execute(f'listen "{channel}"', prepare=False)
    # Behind a pooler LISTEN may be lost without a word: it counts once we heard ourselves.
    connection.execute("select pg_notify(%s, 'self')", (channel,))
    if not list(connection.notifies(timeout=SELF_CHECK, stop_after=1)):
        raise StoreUnavailable(
            f"{where} does not deliver notifications (a pooler in between?); polling goes on", number="HF3402"
        )


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
    def __init__(self, trip: Trip, where: str) -> None:
        self._trip = trip
        self._where = where
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

    def close(self) -> None:
        self._trip.close()
