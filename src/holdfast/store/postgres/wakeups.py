"""Wake-ups by NOTIFY: what is sent on which channel, and who listens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from holdfast.model.job import NewJob
from holdfast.model.peers import CHANNELS, TIMES
from holdfast.store.columns import JobId
from holdfast.store.postgres.connect import Connection, translated
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.listen import PostgresEar, begin_to_listen, listen
from holdfast.store.postgres.notify import Notifier, few, lane_wakeup
from holdfast.store.postgres.trips import PostgresExchange


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
