"""How jobs get into PostgreSQL: one, many by COPY, or on a caller's own connection."""

from __future__ import annotations

import json
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row

from holdfast import events
from holdfast.errors import BadSettings, OutcomeUnknown
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Row, Store
from holdfast.store.foreign import aunderlying, underlying
from holdfast.store.pool import Pool
from holdfast.store.postgres.connect import VALUE_CLASSES, Connection, translated
from holdfast.store.postgres.copy import BEGIN, COPIED, END, CopyRows
from holdfast.store.postgres.notify import Notifier, lane_wakeup
from holdfast.store.postgres.post import Post
from holdfast.store.statements import Statements
from holdfast.store.steps import Steps, arun_steps, keyed_steps, run_steps

CHUNK = 2_500  # jobs sent in the first COPY
LARGEST = 10_000  # in later ones, unless they are large
LARGE = 2**21  # bytes of arguments of one COPY
PIECE = 250  # jobs written at a time: less than the socket takes in
GIVEN = 7_000  # bytes of a job that is given to a worker; a wake-up has 8,000
REFUSED = 10.0  # seconds without another try after the server refused to give one away


class PostgresEnqueue(Store):
    """The part of the PostgreSQL store that takes jobs in."""

    statements: Statements
    channel: str
    _schema: str
    settings: Settings
    _clock: Callable[[], datetime] | None
    _posts: Pool[Post]
    _notifier: Notifier
    _gives_from: float  # monotonic: since when jobs are given to workers that offered to take them

    @abstractmethod
    def _use(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _parameters(self, parameters: dict[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def _numbers(self, text: str) -> tuple[bytes, tuple[str, ...]]: ...

    @abstractmethod
    def _execute(self, connection: Connection, text: str, parameters: dict[str, Any]) -> psycopg.RawCursor[Any]: ...

    @abstractmethod
    def _rows(self, connection: Connection, text: str, parameters: dict[str, Any]) -> list[Row]: ...

    def enqueue(self, job: NewJob) -> Enqueued:
        if job.key is None and self.settings.prepare:
            return Enqueued(str(self._post(job)), True)
        with self._use() as connection, connection.transaction():
            done: Enqueued = run_steps(self._enqueue_steps(job), lambda t, p: self._rows(connection, t, p))
        if done.created:
            self.notify([job.queue])
        return done

    def _way(self, name: str) -> tuple[bytes, Callable[[NewJob], list[Any]]]:
        """A statement that takes a job in, and what it takes, in its order."""
        text, names = self._numbers(self.statements[name])

        def values(job: NewJob) -> list[Any]:
            channel, wakeup = self._wakeup(job)
            given = self._parameters(_columns(job) | {"channel": channel, "wakeup": wakeup})
            return [given[name] for name in names]

        return text, values

    def _wakeup(self, job: NewJob) -> tuple[str, str]:
        lane = _due_now(job)
        return self.channel, lane_wakeup(job.queue, job.task, job.priority) if lane else "q" + job.queue

    def _post(self, job: NewJob) -> int:
        wakeup = self._wakeup(job)
        alone = _may_be_given(job) and time.monotonic() >= self._gives_from and self._notifier.alone()
        post = self._posts.take()
        try:
            with translated(self.shown_url, post.connection):
                given = post.give(job) if alone else None
                if isinstance(given, psycopg.Error):
                    self._gives_from = _gives_from(given)
                id = given if isinstance(given, int) else post.enqueue(job, wakeup, self._notifier.turn)
            self._notifier.enqueued(id, post.waited)
            along, failure, post.failure = post.along, post.failure, None
        except BaseException as error:
            # Jobs before this one may count on the wake-up that was to go along; or it was enqueued, and nobody knows.
            if post.along or isinstance(error, OutcomeUnknown):
                self._notifier.send([wakeup])
            raise
        finally:
            self._posts.give_back(post)
        if failure is not None:
            events.emit("notify_failed", error=failure[1])
            self._notifier.send([failure[0]])  # with more patience than one behind which jobs wait
        if not along:
            self._notifier.send([wakeup])
        return id

    def _enqueue_steps(self, job: NewJob) -> Steps:
        """An enqueue described apart from its execution, for any connection."""
        if job.key is not None:
            return (yield from keyed_steps(self.statements, "enqueue_keyed", job, _columns(job) | {"key": job.key}))
        rows = yield self.statements["enqueue"], _columns(job)
        return Enqueued(str(rows[0]["id"]), True)

    def _enqueue_steps_on(self, job: NewJob) -> Steps:
        done = yield from self._enqueue_steps(job)
        if done.created:
            yield (
                self.statements["wake_on"],
                {
                    "channel": self.channel, "payload": "q" + job.queue, "queue": job.queue, "task": job.task,
                    "priority": job.priority, "id": int(done.id),
                },
            )  # fmt: skip
        return done

    def enqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        execute = self._execute_on(connection)
        return cast(Enqueued, run_steps(self._enqueue_steps_on(job), execute))

    async def aenqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        execute = await self._aexecute_on(connection)
        return cast(Enqueued, await arun_steps(self._enqueue_steps_on(job), execute))

    def _execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        if not isinstance(connection, psycopg.Connection):
            connection = underlying(connection)
        if not isinstance(connection, psycopg.Connection):
            raise BadSettings(_wrong_connection(connection, psycopg.AsyncConnection, "aenqueue"), number="HF1112")

        def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            # Not by way of the caller's own kind of cursor, which may know no parameters or formats of ours.
            with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
                cursor.execute(text.encode(), self._parameters(parameters), binary=True)
                return cursor.fetchall() if cursor.description else []

        return execute

    async def _aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Any]:
        if not isinstance(connection, psycopg.AsyncConnection):
            connection = await aunderlying(connection)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise BadSettings(_wrong_connection(connection, psycopg.Connection, "enqueue"), number="HF1112")

        async def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
                await cursor.execute(text.encode(), self._parameters(parameters), binary=True)
                return await cursor.fetchall() if cursor.description else []

        return execute

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        queues: set[str] = set()
        source = iter(jobs)
        with self._use() as connection, connection.transaction():
            # The source may take its time.
            connection.execute("set local idle_in_transaction_session_timeout = 0")
            answers: list[Enqueued] = []
            chunk = list(islice(source, CHUNK))
            while chunk:
                following: list[NewJob] = []
                ahead = islice(source, _next_size(chunk))
                plain = [job for job in chunk if job.key is None]
                with self._copying(connection, plain, ahead, following) as ids:
                    if answers:  # of the jobs before, while the database takes in these
                        yield answers
                    answers = [Enqueued(str(id), True) for id in ids]
                    queues.update(job.queue for job in chunk)
                if len(plain) < len(chunk):
                    keyed = self._enqueue_keyed(connection, [job for job in chunk if job.key is not None])
                    made = iter(answers)
                    answers = [next(made) if job.key is None else next(keyed) for job in chunk]
                chunk = following
            if answers:
                yield answers
        self.notify(queues)

    @contextmanager
    def _copying(
        self, connection: Connection, jobs: list[NewJob], ahead: Iterator[NewJob], following: list[NewJob]
    ) -> Iterator[list[int]]:
        """Send these jobs, and have the following ones made meanwhile: the database works on what it was sent while we
        write, and we while it works. They have arrived when the block ends. Gives their ids."""
        if not jobs:
            following += ahead
            yield []
            return
        [reserved] = self._rows(
            connection,
            self.statements["reserve_ids"],
            {"sequence": f"{self._schema}.jobs_id_seq", "n": len(jobs)},
        )
        ids = reserved["ids"] or list(range(reserved["first"], reserved["last"] + 1))
        # The column's default is the database's clock; only a clock that a test moves has to be told.
        columns = COPIED + ("" if self._clock is None else ", created_at")
        rows = CopyRows(reserved["now"], tell_clock=self._clock is not None)
        command = self.statements.fill(f"copy @jobs ({columns}) from stdin (format binary)").encode()
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
        document = {"jobs": json.dumps([_document(n, job) for n, job in enumerate(jobs)])}
        self._rows(connection, self.statements["give_up_keys"], dict(document))
        made = self._rows(connection, self.statements["enqueue_keyed_many"], dict(document))
        held = self._rows(connection, self.statements["keys_held"], dict(document))
        created = {(row["task"], row["key"]): str(row["id"]) for row in made}
        known = {(row["task"], row["key"]): row for row in held}
        answers = []
        for job in jobs:
            name = (job.task, cast(str, job.key))
            if name in created:
                answers.append(Enqueued(created.pop(name), True))  # the first of equal ones made it
            elif name in known:
                answers.append(Enqueued(str(known[name]["id"]), False, State(known[name]["state"])))
            else:  # it changed hands between the statements: one by one then
                answers.append(run_steps(self._enqueue_steps(job), lambda t, p: self._rows(connection, t, p)))
        return iter(answers)


def _next_size(chunk: list[NewJob]) -> int:
    """Jobs in the next COPY. The more there are, the less often client and server wait for each other; but they are
    all in memory."""
    small = sum(len(job.args) for job in chunk) < LARGE
    return min(2 * len(chunk), LARGEST) if small else CHUNK


def _due_now(job: NewJob) -> bool:
    return job.run_at is None and not job.delay


def _gives_from(refusal: psycopg.Error) -> float:
    """When to give a job away again (monotonic). Who may only insert jobs never does; what was wrong with this one says
    nothing of the next."""
    if isinstance(refusal, psycopg.errors.InsufficientPrivilege):
        return math.inf
    return 0.0 if (refusal.sqlstate or "")[:2] in VALUE_CLASSES else time.monotonic() + REFUSED


def _may_be_given(job: NewJob) -> bool:
    """Whoever takes it is told all of it by a wake-up, which has its limits. A job that may be tried once is not given
    to somebody who may never hear of it."""
    size = len(job.args) + 6 * (len(job.queue) + len(job.task) + len(job.correlation_id or ""))  # as JSON writes text
    return size <= GIVEN and job.max_attempts > 1 and _due_now(job)


def _columns(job: NewJob) -> dict[str, Any]:
    return {
        "queue": job.queue,
        "task": job.task,
        "args": job.args.decode(),
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "run_at": job.run_at,
        "delay": job.delay,
        "expires_in": job.expires_in,
        "correlation_id": job.correlation_id,
        "tags": list(job.tags) or None,
    }


def _document(n: int, job: NewJob) -> dict[str, Any]:
    return _columns(job) | {
        "n": n,
        "run_at": job.run_at and job.run_at.isoformat(),
        "key": job.key,
        "reuse": min(job.reuse or 0.0, 1e10),
    }


def _wrong_connection(connection: Any, other: type, method: str) -> str:
    if isinstance(connection, other):
        return f"this is a {other.__module__.partition('.')[0]}.{other.__name__}: use {method}"
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return f"conn= needs a psycopg connection to the database the jobs are in, not a {kind}"
