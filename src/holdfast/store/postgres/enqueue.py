"""How jobs get into PostgreSQL: one at a time, or many by COPY."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, cast

import psycopg
from psycopg import pq

from holdfast import events
from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.store.columns import parameters
from holdfast.store.enqueue_steps import asks_for_more, enqueue_steps, run_steps
from holdfast.store.pool import ConnectionPool
from holdfast.store.postgres.codec import BEGIN, END, CopyRows
from holdfast.store.postgres.connect import Connection, translated
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.notify import aimed
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.session import Unanswered, limited
from holdfast.store.postgres.wakeups import PostgresWakeups

# A connection that enqueues jobs one at a time, each with its wake-up right behind it: a transaction of its own, sent
# in the same message, which the server begins as soon as the job is committed. The caller waits only for the job; the
# result of the wake-up is read when the connection is used next. So workers hear of the job as early as possible, and
# the job's own transaction contains no NOTIFY, which would make commits queue for one lock.

# A wake-up waits only briefly for the one lock that all NOTIFYs take: the next job waits behind it. It never waits for
# the disk, as it writes nothing.
WAKE = b"select set_config('lock_timeout', '50ms', true), pg_notify($1, $2)"


class EnqueueConnection(Pipeline):
    def __init__(self, connection: Connection, enqueue: bytes) -> None:
        super().__init__(connection, {"enqueue": enqueue, "wake": WAKE})
        self._wake_sent = False  # its answer has not been read yet
        self._wakeup = ("", "")  # the last one that was sent
        # Of the last job: seconds until it was committed, and whether its wake-up was sent along.
        self.waited, self.along = 0.0, False
        self.failure: tuple[tuple[str, str], str] | None = None  # a wake-up that could not be sent, and why

    def in_order(self) -> bool:
        """As far as its answers say. `usable` finds out what happened since the last one."""
        return self._pgconn.status == pq.ConnStatus.OK and self._unread == self._wake_sent

    def usable(self) -> bool:
        """The answer to the last wake-up stays unread: we read it while the server works on the next job."""
        return self._hears() and self.in_order()

    def enqueue(self, values: list[Any], wakeup: tuple[str, str], turn: Callable[[tuple[str, str]], bool]) -> int:
        """Commit one job, of which these are the values, and return its id; send the wake-up (its channel and text)
        behind it, if `turn` allows it. That is asked while the server is already working."""
        self.along = False
        self.send([("enqueue", self.encoded(values))])
        sent = time.monotonic()
        if turn(wakeup):
            self.along = True
            self.send([("wake", self.encoded((aimed(wakeup[0]), wakeup[1])))])
        self.flush()
        self._read_wake_answer()
        if self.along:
            self._wake_sent, self._wakeup = True, wakeup
        [answer] = self.answer()
        self.waited = time.monotonic() - sent
        id = answer.get_value(0, 0) if answer.ntuples else None
        if id is None:
            raise StoreError("the database took the job and kept nothing: is there a trigger on the table of jobs?")
        return int.from_bytes(id)

    def _read_wake_answer(self) -> None:
        """Of the previous job, if a wake-up was sent behind it."""
        if not self._wake_sent:
            return
        self._wake_sent = False
        try:
            self.answer()
        except psycopg.Error as error:
            if not self.in_step(error):
                raise
            self.failure = self._wakeup, str(error)


CHUNK = 2_500  # jobs in the first COPY
LARGEST = 10_000  # in later ones, unless the jobs are large
LARGE = 2**21  # bytes of arguments from which on a COPY is large
STUCK = 8  # abandoned enqueues of this process at most, while the server still waits for a standby
PIECE = 250  # jobs written at a time: less than the socket's buffer


class PostgresEnqueue:
    """`pool`: the connections by which single jobs are enqueued."""

    def __init__(self, db: PostgresDatabase, wakeups: PostgresWakeups) -> None:
        self._db = db
        self._wakeups = wakeups
        self._given_up: set[int] = set()  # server processes that did not answer an enqueue in time
        self.pool: ConnectionPool[EnqueueConnection] = ConnectionPool(
            self._open, EnqueueConnection.in_order, EnqueueConnection.usable
        )

    def enqueue(self, job: NewJob) -> Enqueued:
        if self._given_up:
            self._refuse_while_stuck()
        if job.key is None and self._db.settings.prepare:
            return Enqueued(str(self._post(job)), True)
        began = time.monotonic()
        try:
            done = self._enqueue_steadily(job)
        except OutcomeUnknown as error:
            if self._gave_up(error) or job.key is None:
                raise _unsure(job, error) from error
            # Whoever took the key since we began, it is the job we asked for. Our backend may still be working on it:
            # then nobody sees it yet, and who asks for the same key waits for it.
            try:
                done = self._taken_since(job, began) or self._enqueue_steadily(job)
                if not done.created:
                    done = self._taken_since(job, began) or done
            except StoreUnavailable:
                raise _unsure(job, error) from error
        if done.created:
            self._wake([self._wakeups.of(job)])
        return done

    def _gave_up(self, error: OutcomeUnknown) -> bool:
        """Did we stop waiting? Then the server is still working on it."""
        if isinstance(error.__cause__, Unanswered):
            self._given_up.add(error.__cause__.process)
            return True
        return False

    def _refuse_while_stuck(self) -> None:
        """Each abandoned enqueue keeps a connection of the server busy until a standby confirms it. Without a bound,
        callers that try again and again would use up all connections."""
        rows = self._db.read("stuck", processes="{" + ",".join(map(str, self._given_up)) + "}")
        self._given_up = {row["pid"] for row in rows}
        if len(self._given_up) >= STUCK:
            raise StoreUnavailable(
                f"{self._db.shown_url} waits for a synchronous standby, with {STUCK} enqueues of this process or more "
                "that were given up: nothing more was sent"
            )

    def _enqueue_steadily(self, job: NewJob) -> Enqueued:
        """In a transaction of several statements."""
        with (
            self._db.use() as connection,
            limited(connection, self._db.settings.enqueue_timeout),
            connection.transaction(),
        ):
            return run_steps(enqueue_steps(self._db, job), lambda t, p: self._db.rows(connection, t, p))

    def _taken_since(self, job: NewJob, began: float) -> Enqueued | None:
        """The job that took this key since then (monotonic), if any."""
        rows = self._db.read("key_taken", task=job.task, key=job.key)
        # The age was measured before this moment, so it is an upper bound.
        young = rows and rows[0]["age"] <= time.monotonic() - began
        return Enqueued(str(rows[0]["id"]), True) if young else None

    def _wake(self, wakeups: list[tuple[str, str]]) -> None:
        """Behind a pooler our sessions keep no settings, and the table's trigger has notified already."""
        if wakeups and self._db.settings.prepare:
            self._wakeups.notifier.send(wakeups)

    def _values(self, job: NewJob) -> list[Any]:
        """The parameters of `enqueue`, in its order."""
        values = self._db.parameters(parameters(job, self._db.codec))
        _, names = self._db.numbered(self._db.statements["enqueue"])
        return [values[name] for name in names]

    def _post(self, job: NewJob) -> int:
        wakeup = self._wakeups.of(job)
        post = self.pool.take()
        seconds = self._db.settings.enqueue_timeout
        post.connection.deadline = time.monotonic() + seconds if seconds else None
        try:
            with translated(self._db.shown_url, post.connection):
                id = post.enqueue(self._values(job), wakeup, self._wakeups.notifier.turn)
            self._wakeups.notifier.enqueued(id, post.waited)
            along, failure, post.failure = post.along, post.failure, None
        except BaseException as error:
            # Earlier jobs may rely on the wake-up that was to go along; or this job was enqueued, and we don't know.
            if post.along or isinstance(error, OutcomeUnknown):
                self._wakeups.notifier.send([wakeup])
            if isinstance(error, OutcomeUnknown):
                self._gave_up(error)
                raise _unsure(job, error) from error
            raise
        finally:
            self.pool.give_back(post)
        if failure is not None:
            events.emit("notify_failed", error=failure[1])
            self._wakeups.notifier.send([failure[0]])  # it may wait longer than one that has jobs behind it
        if not along:
            self._wakeups.notifier.send([wakeup])
        return id

    def close(self) -> None:
        self.pool.close()

    def _open(self) -> EnqueueConnection:
        enqueue, _ = self._db.numbered(self._db.statements["enqueue"])
        return self._db.begin(self._db.connect(), lambda connection: EnqueueConnection(connection, enqueue))

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        if self._given_up:
            self._refuse_while_stuck()
        queues: set[str] = set()
        kept: list[Enqueued] = []  # one of them, whose id we reserved before it was sent
        source = iter(jobs)
        first = list(islice(source, 2))
        try:
            yield from self._enqueue_all(chain(first, source), queues, kept)
        except OutcomeUnknown as error:
            self._gave_up(error)
            # All or none: if one exists, all were committed.
            committed = False
            with suppress(StoreUnavailable):  # then the outcome stays unknown
                committed = bool(kept) and self._is_there(int(kept[0].id))
            if not committed:
                raise OutcomeUnknown(
                    f"{error.message}; either all of these jobs were enqueued or none: look for one of them, or give "
                    "them keys, which makes it safe to enqueue them again"
                ) from error
        # Jobs that joined others wake nobody.
        if len(first) == 1 and queues:
            self._wake([self._wakeups.of(first[0])])
        else:
            self._wake([(self._wakeups.channel, "q" + queue) for queue in queues])

    def _is_there(self, id: int) -> bool:
        """By its id alone: an enqueuer has no right to read jobs."""
        return bool(self._db.read("newest", before=id + 1)[0]["id"] == id)

    def _enqueue_all(
        self, source: Iterator[NewJob], queues: set[str], kept: list[Enqueued]
    ) -> Iterator[list[Enqueued]]:
        with self._db.use() as connection, limited(connection, 0), connection.transaction():
            # The source may be slow.
            connection.execute("set local idle_in_transaction_session_timeout = 0")
            answers: list[Enqueued] = []
            chunk = list(islice(source, CHUNK))
            while chunk:
                following: list[NewJob] = []
                ahead = islice(source, _next_size(chunk))
                plain = [job for job in chunk if job.key is None]
                with self._copying(connection, plain, ahead, following) as ids:
                    if answers:  # of the previous jobs, while the database stores these
                        yield answers
                    answers = [Enqueued(str(id), True) for id in ids]
                    kept[:] = answers[:1] or kept
                if len(plain) < len(chunk):
                    keyed = self._enqueue_keyed(connection, [job for job in chunk if job.key is not None])
                    made = iter(answers)
                    answers = [next(made) if job.key is None else next(keyed) for job in chunk]
                queues.update(job.queue for job, answer in zip(chunk, answers, strict=True) if answer.created)
                chunk = following
            if answers:
                yield answers
            if seconds := self._db.settings.enqueue_timeout:
                connection.deadline = time.monotonic() + seconds  # for the commit

    @contextmanager
    def _copying(
        self, connection: Connection, jobs: list[NewJob], ahead: Iterator[NewJob], following: list[NewJob]
    ) -> Iterator[list[int]]:
        """Send these jobs and take the following ones from the source meanwhile, so that we and the database work at
        the same time. The jobs have arrived when the block ends. Yields their ids."""
        if not jobs:
            following += ahead
            yield []
            return
        [reserved] = self._db.rows(
            connection,
            self._db.statements["reserve_ids"],
            {"sequence": f"{self._db.schema}.jobs_id_seq", "jobs": f"{self._db.schema}.jobs", "n": len(jobs)},
        )
        if reserved["first"] is None:
            following += ahead
            document = {"jobs": json.dumps([self._document(n, job) for n, job in enumerate(jobs)])}
            yield [row["id"] for row in self._db.rows(connection, self._db.statements["enqueue_many"], document)]
            return
        ids = reserved["ids"] or list(range(reserved["first"], reserved["last"] + 1))
        rows = CopyRows(self._db.lists.enqueued(), reserved["now"])
        command = self._db.statements.fill(f"copy @jobs ({rows.names}) from stdin (format binary)").encode()
        with connection.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(BEGIN)
            for at in range(0, len(jobs), PIECE):
                copy.write(rows.of(ids[at : at + PIECE], jobs[at : at + PIECE]))
                following += islice(ahead, 2 * PIECE)
            copy.write(END)
            following += ahead
            yield ids

    def _enqueue_keyed(self, connection: Connection, jobs: list[NewJob]) -> Iterator[Enqueued]:
        if not jobs:
            return iter(())
        document = {"jobs": json.dumps([self._document(n, job) for n, job in enumerate(jobs)])}
        self._db.rows(connection, self._db.statements["give_up_keys"], dict(document))
        retried: set[tuple[str, str]] = set()
        if any(job.after_failure == "retry" for job in jobs):
            rows = self._db.rows(connection, self._db.statements["retry_keys"], dict(document))
            retried = {(row["task"], row["key"]) for row in rows}
        made = self._db.rows(connection, self._db.statements["enqueue_keyed_many"], dict(document))
        held = self._db.rows(connection, self._db.statements["keys_held"], dict(document))
        created = {(row["task"], row["key"]): str(row["id"]) for row in made}
        known = {(row["task"], row["key"]): row for row in held}
        if any((row := known.get((job.task, cast(str, job.key)))) and asks_for_more(job, row) for job in jobs):
            self._db.rows(connection, self._db.statements["raise_priorities"], dict(document))
        for place, n in Counter((row["queue"], row["task"]) for row in held if row["state"] == State.SUCCEEDED).items():
            self._db.rows(connection, self._db.statements["cache_hit"], {"queue": place[0], "task": place[1], "n": n})
        answers = []
        for job in jobs:
            name = (job.task, cast(str, job.key))
            if name in created:
                answers.append(Enqueued(created.pop(name), True))  # the first of equal jobs created it
            elif name in retried and job.after_failure == "retry":
                retried.remove(name)
                answers.append(Enqueued(str(known[name]["id"]), False, retried=True))
            elif name in known:
                answers.append(Enqueued(str(known[name]["id"]), False, State(known[name]["state"])))
            else:  # the key changed hands between the statements: enqueue this job by itself
                answers.append(run_steps(enqueue_steps(self._db, job), lambda t, p: self._db.rows(connection, t, p)))
        return iter(answers)

    def _document(self, n: int, job: NewJob) -> dict[str, Any]:
        """A job in the document of statements that enqueue many."""
        given = parameters(job, self._db.codec)
        return given | {
            "n": n, "run_at": job.run_at and job.run_at.isoformat(), "reuse": min(job.reuse or 0.0, 1e10),
            "after_failure": job.after_failure,
        }  # fmt: skip


def _next_size(chunk: list[NewJob]) -> int:
    """Jobs in the next COPY. Larger chunks make client and server wait for each other less often, but are held in
    memory."""
    small = sum(len(job.args) for job in chunk) < LARGE
    return min(2 * len(chunk), LARGEST) if small else CHUNK


def _unsure(job: NewJob, error: OutcomeUnknown) -> OutcomeUnknown:
    find_out = (
        "look for it among the newest, or give jobs a key, which makes it safe to enqueue one again"
        if job.key is None
        else f"enqueue it again with its key, {job.key!r}, which makes no second one"
    )
    return OutcomeUnknown(f"{error.message}; the job of task {job.task} may have been enqueued or not: {find_out}")
