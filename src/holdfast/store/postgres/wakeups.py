"""Wake-ups by NOTIFY: what is sent on which channel, and who listens."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from psycopg import pq

from holdfast.errors import StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.model.peers import CHANNELS, TIMES, Place
from holdfast.settings import Settings
from holdfast.store.columns import JobId
from holdfast.store.postgres.connect import Connection, ready, shares_sessions, translated
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.exchange import PostgresExchange, Trip
from holdfast.store.postgres.notify import Notifier, few, lane_wakeup

# Receives notifications of new work. A worker listens on the connection that it claims by: the server process that
# wakes up to deliver the notification is then awake to serve the claim, and no second one has to wake up.

SELF_CHECK = 5.0  # seconds within which a new listener must receive its own notification
MARK = "s"
KINDS = {"q": "queue", "l": "lane", "d": "due", "f": "finished", "r": "requests", "w": "workers", MARK: "mark"}


def begin_to_listen(connection: Connection, channel: str, notify: Callable[[str], object], settings: Settings) -> None:
    """`notify` sends a text to the channel by another connection. Behind a pooler LISTEN may silently have no effect,
    so it counts only once that text has arrived. (What a connection sends itself arrives with the answer, pooler or
    not.)"""
    if shares_sessions(connection, settings):
        raise _deaf(settings)  # before LISTEN: another client would receive what is meant for us
    connection.execute(f'listen "{channel}"', prepare=False)
    mark = f"{MARK}{uuid.uuid4()}"
    notify(mark)
    until = time.monotonic() + SELF_CHECK
    while (left := until - time.monotonic()) > 0:
        if any(heard.payload == mark for heard in connection.notifies(timeout=left, stop_after=1)):
            return
    raise _deaf(settings)


def _deaf(settings: Settings) -> StoreUnavailable:
    return StoreUnavailable(
        f"{settings.shown_url} does not deliver notifications (PgBouncer in transaction mode?), so we poll: set "
        "listen = false (HOLDFAST_LISTEN=0), or connect past the pooler",
        number="HF3402",
    )


def listen(connection: Connection, heard: Callable[[str, str], None], stop: Callable[[], bool]) -> None:
    pgconn = connection.pgconn
    while not stop():
        for kind, what, _ in wakeups(pgconn):
            heard(kind, what)
        if ready(pgconn.socket, timeout=0.5):
            pgconn.consume_input()


def wakeups(pgconn: pq.abc.PGconn) -> Iterator[tuple[str, str, str]]:
    """The notifications that have arrived: their kind, their text, and their channel."""
    while (wakeup := pgconn.notifies()) is not None:
        payload = wakeup.extra.decode(errors="replace")  # anyone may send anything
        yield KINDS.get(payload[:1], "other"), payload[1:], wakeup.relname.decode(errors="replace")


class PostgresEar:
    def __init__(self, trip: Trip, where: str, channels: Sequence[str]) -> None:
        """`channels`: those for wake-ups that concern a few workers, by number."""
        self._trip = trip
        self._where = where
        self._channels = channels
        self._numbers = {channel: number for number, channel in enumerate(channels)}
        self._place: Place | None = None
        self._pgconn = trip.connection.pgconn

    def fileno(self) -> int:
        return self._pgconn.socket

    def tune(self, place: Place) -> bool:
        if place == self._place:
            return False
        before = frozenset[int]() if self._place is None else self._place.channels()
        after = place.channels()
        with translated(self._where, self._trip.connection):
            self._trip.run(
                [f'listen "{self._channels[number]}"' for number in after - before]
                + [f'unlisten "{self._channels[number]}"' for number in before - after]
            )
        self._place = place
        return True

    def hear(self) -> Iterator[tuple[str, str, int | None]]:
        if not self._trip.usable():
            raise StoreUnavailable(f"the connection to {self._where} broke")
        return self._wakeups()

    def _wakeups(self) -> Iterator[tuple[str, str, int | None]]:
        for kind, what, channel in wakeups(self._pgconn):
            number = self._numbers.get(channel)
            yield kind, what, None if number is None or self._place is None else self._place.turn(number)

    @contextmanager
    def trips(self) -> Iterator[Trip]:
        try:
            yield self._trip
        finally:
            self._trip.abandon()

    def close(self) -> None:
        self._trip.close()


class PostgresWakeups:
    def __init__(self, db: PostgresDatabase, exchange: PostgresExchange) -> None:
        self._db = db
        self._exchange = exchange
        self.can_listen = db.settings.listen
        self.channel = f"holdfast:{db.settings.schema}"
        self.channels = [few(self.channel, number) for number in range(CHANNELS)]
        self.listen_everywhere = ";".join(f'listen "{name}"' for name in (self.channel, *self.channels)).encode()
        self.notifier = Notifier(db.connect)

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None:
        wakeups = [(self.channel, "q" + queue) for queue in queues]
        wakeups += [(self.channel + ":finished", f"f{id}") for id in finished]
        if requests:
            wakeups.append((self.channel, "r"))
        if workers:
            wakeups.append((self.channel, "w"))
        if wakeups:
            self.notifier.send(wakeups)

    def tell(self, queues: Sequence[str]) -> None:
        if len(queues) == 1:
            self.hint(queues[0])
        elif queues:
            self.notify(set(queues))

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        self.notifier.send([self._hint(queue, lane, due_in)])

    def of(self, job: NewJob) -> tuple[str, str]:
        """The wake-up for one job: its channel and text."""
        if job.run_at is not None:  # only the database knows how long that is
            return few(self.channel, TIMES), "q" + job.queue
        return self._hint(job.queue, (job.task, job.priority), job.delay or 0.0)

    def _hint(self, queue: str, lane: tuple[str, int] | None, due_in: float) -> tuple[str, str]:
        if due_in > 0:
            return few(self.channel, TIMES), f"d{due_in:.3f}"
        return few(self.channel), "q" + queue if lane is None else lane_wakeup(queue, *lane)

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        channel = self.channel + ":finished" if finished else self.channel
        with translated(self._db.shown_url), self._connect_listener(channel) as connection:
            if not finished:
                connection.execute(self.listen_everywhere, prepare=False)
            heard("listening", "")
            listen(connection, heard, stop)

    def open_ear(self) -> PostgresEar:
        trip = self._exchange.trip_on(self._connect_listener(self.channel))
        return PostgresEar(trip, self._db.shown_url, self.channels)

    def _connect_listener(self, channel: str) -> Connection:
        connection = self._db.primary.connect("holdfast-listener")

        def notify(text: str) -> None:
            with self._db.use() as another:
                another.execute("select pg_notify(%s, %s)", (channel, text), prepare=False)

        self._db.begin(connection, lambda connection: begin_to_listen(connection, channel, notify, self._db.settings))
        return connection

    def close(self) -> None:
        self.notifier.close()
