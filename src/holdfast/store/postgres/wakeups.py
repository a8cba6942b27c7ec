"""Wake-ups by NOTIFY: what is sent on which channel, and who listens."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import psycopg
from psycopg import pq

from holdfast.errors import StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.model.peers import CHANNELS, TIMES, Place
from holdfast.settings import Settings
from holdfast.store.columns import JobId
from holdfast.store.engine import RESTLESS, Received
from holdfast.store.postgres.connect import Connection, ready, shares_sessions, translated
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.notify import Notifier, few, lane_wakeup

SELF_CHECK = 5.0  # seconds within which a new listener must receive its own notification
LOOK_UP = 0.5  # seconds after which a listener looks up from a silent connection: is it to stop, or to move?
MARK = "s"
KINDS = {
    "q": "queue", "l": "lane", "d": "due", "f": "finished", "r": "requests", "w": "workers", "i": "inbox", MARK: "mark"
}  # fmt: skip


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


def wakeups(pgconn: pq.abc.PGconn) -> Iterator[tuple[str, str, str]]:
    """The notifications that have arrived: their kind, their text, and their channel."""
    while (wakeup := pgconn.notifies()) is not None:
        payload = wakeup.extra.decode(errors="replace")  # anyone may send anything
        yield KINDS.get(payload[:1], "other"), payload[1:], wakeup.relname.decode(errors="replace")


class FewChannels:
    """The channels for wake-ups that concern a few workers. A worker listens on those that its place among its peers
    assigns to it."""

    def __init__(self, pgconn: pq.abc.PGconn, channels: Sequence[str]) -> None:
        """`channels`: by number."""
        self._pgconn = pgconn
        self._channels = channels
        self._numbers = {channel: number for number, channel in enumerate(channels)}
        self._place: Place | None = None

    def move(self, place: Place) -> bool:
        """Listen on the channels of this place. False: it does so already."""
        if place == self._place:
            return False
        before = frozenset[int]() if self._place is None else self._place.channels()
        after = place.channels()
        commands = [f'listen "{self._channels[number]}"' for number in after - before]
        commands += [f'unlisten "{self._channels[number]}"' for number in before - after]
        # Not by the driver's `execute`: it takes the notifications that arrive meanwhile.
        if commands and self._pgconn.exec_(";".join(commands).encode()).status != pq.ExecStatus.COMMAND_OK:
            raise psycopg.OperationalError(self._pgconn.get_error_message("utf-8"))
        self._place = place
        return True

    def turn(self, channel: str) -> int | None:
        number = self._numbers.get(channel)
        return None if number is None or self._place is None else self._place.turn(number)


class PostgresWakeups:
    def __init__(self, db: PostgresDatabase) -> None:
        self._db = db
        self.can_listen = db.settings.listen
        self.channel = f"holdfast:{db.settings.schema}"
        self.channels = [few(self.channel, number) for number in range(CHANNELS)]
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

    def listen(
        self, received: Received, stop: Callable[[], bool], *, finished: bool = False,
        place: Callable[[], Place] = Place,
    ) -> None:  # fmt: skip
        channel = self.channel + ":finished" if finished else self.channel
        with translated(self._db.shown_url), self._connect_listener(channel) as connection:
            pgconn = connection.pgconn
            few_channels = FewChannels(pgconn, self.channels)
            if not finished:
                few_channels.move(place())
            received("listening", "", None)
            while not stop():
                for kind, what, channel in wakeups(pgconn):
                    received(kind, what, few_channels.turn(channel))
                if ready(pgconn.socket, timeout=RESTLESS if finished else LOOK_UP):
                    pgconn.consume_input()
                if not finished and few_channels.move(place()):
                    received("moved", "", None)

    def _connect_listener(self, channel: str) -> Connection:
        connection = self._db.primary.connect("holdfast-listener")

        def notify(text: str) -> None:
            with self._db.use() as another:
                another.execute("select pg_notify(%s, %s)", (channel, text), prepare=False)

        self._db.begin(connection, lambda connection: begin_to_listen(connection, channel, notify, self._db.settings))
        return connection

    def close(self) -> None:
        self.notifier.close()
