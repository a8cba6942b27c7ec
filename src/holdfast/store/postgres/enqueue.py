"""How jobs get into PostgreSQL: one, many by COPY, or on a caller's own connection."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from itertools import chain, islice
from typing import Any, cast

import psycopg
from psycopg.rows import dict_row

from holdfast import events
from holdfast.errors import BadSettings, OutcomeUnknown, StoreUnavailable
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.model.peers import TIMES
from holdfast.settings import Settings
from holdfast.store.base import Row, Store
from holdfast.store.columns import Lists, parameters
from holdfast.store.pool import Pool
from holdfast.store.postgres.connect import NOT_ALLOWED, Connection, cut_off, translate, translated
from holdfast.store.postgres.copy import BEGIN, END, CopyRows
from holdfast.store.postgres.enqueue_connection import EnqueueConnection
from holdfast.store.postgres.notify import Notifier, few, lane_wakeup
from holdfast.store.postgres.session import Unanswered, limited
from holdfast.store.statements import Statements
from holdfast.store.steps import Steps, arun_steps, asks_for_more, keyed_steps, run_steps
from holdfast.store.user_connection import aunderlying, underlying

CHUNK = 2_500  # jobs sent in the first COPY
LARGEST = 10_000  # in later ones, unless they are large
LARGE = 2**21  # bytes of arguments of one COPY
STUCK = 8  # enqueues of a process that were given up while the server still waits for a standby
PIECE = 250  # jobs written at a time: less than the socket takes in


class PostgresEnqueue(Store):
    """The part of the PostgreSQL store that takes jobs in."""

    statements: Statements
    lists: Lists
    channel: str
    _schema: str
    settings: Settings
    _clock: Callable[[], datetime] | None
    _posts: Pool[EnqueueConnection]
    _given_up: set[int]  # the server's processes whose answer to an enqueue came too late
    _notifier: Notifier

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
        if self._given_up:
            self._refuse_while_stuck()
        if job.key is None and self.settings.prepare:
            return Enqueued(str(self._post(job)), True)
        began = time.monotonic()
        try:
            done = self._enqueue_steadily(job)
        except OutcomeUnknown as error:
            if self._gave_up(error) or job.key is None:
                raise _unsure(job, error) from error
            # Whoever took the key since we began, it is the job that was asked for. (While our backend is still at it,
            # whoever asks for the same key waits for it.)
            try:
                done = self._taken_since(job, began) or self._enqueue_steadily(job)
            except StoreUnavailable:
                raise _unsure(job, error) from error
        if done.created:
            self._wake([self._wakeup(job)])
        return done

    def _gave_up(self, error: OutcomeUnknown) -> bool:
        """Was it the time that ran out? The server is still at it then."""
        if isinstance(error.__cause__, Unanswered):
            self._given_up.add(error.__cause__.process)
            return True
        return False

    def _refuse_while_stuck(self) -> None:
        """Each enqueue that was given up keeps a connection of the server until a standby confirms it. Without a bound
        those who try again and again would use up all of them."""
        rows = self.read("stuck", processes="{" + ",".join(map(str, self._given_up)) + "}")
        self._given_up = {row["pid"] for row in rows}
        if len(self._given_up) >= STUCK:
            raise StoreUnavailable(
                f"{self.shown_url} waits for a synchronous standby, with {STUCK} enqueues of this process or more "
                "that were given up: nothing more was sent"
            )

    def _enqueue_steadily(self, job: NewJob) -> Enqueued:
        """By a transaction of several statements."""
        with self._use() as connection, limited(connection, self.settings.enqueue_timeout), connection.transaction():
            done: Enqueued = run_steps(self._enqueue_steps(job), lambda t, p: self._rows(connection, t, p))
        return done

    def _taken_since(self, job: NewJob, began: float) -> Enqueued | None:
        """The job that has had this key since then (monotonic), if any."""
        rows = self.read("key_taken", task=job.task, key=job.key)
        # Since then, as the age was told before this moment.
        young = rows and rows[0]["age"] <= time.monotonic() - began
        return Enqueued(str(rows[0]["id"]), True) if young else None

    def _wake(self, wakeups: list[tuple[str, str]]) -> None:
        """Behind a pooler our sessions keep no settings: there the table's trigger has notified."""
        if wakeups and self.settings.prepare:
            self._notifier.send(wakeups)

    def _wakeup(self, job: NewJob) -> tuple[str, str]:
        """For one job: its channel and text."""
        if job.run_at is not None:  # in how long that is, the database knows
            return few(self.channel, TIMES), "q" + job.queue
        return self._hint(job.queue, (job.task, job.priority), job.delay or 0.0)

    def _hint(self, queue: str, lane: tuple[str, int] | None, due_in: float) -> tuple[str, str]:
        if due_in > 0:
            return few(self.channel, TIMES), f"d{due_in:.3f}"
        return few(self.channel), "q" + queue if lane is None else lane_wakeup(queue, *lane)

    def _values(self, job: NewJob) -> list[Any]:
        """The parameters of `enqueue`, in its order."""
        values = self._parameters(parameters(job, self.codec))
        _, names = self._numbers(self.statements["enqueue"])
        return [values[name] for name in names]

    def _post(self, job: NewJob) -> int:
        wakeup = self._wakeup(job)
        post = self._posts.take()
        seconds = self.settings.enqueue_timeout
        post.connection.deadline = time.monotonic() + seconds if seconds else None
        try:
            with translated(self.shown_url, post.connection):
                id = post.enqueue(job, wakeup, self._notifier.turn)
            self._notifier.enqueued(id, post.waited)
            along, failure, post.failure = post.along, post.failure, None
        except BaseException as error:
            # Jobs before this one may count on the wake-up that was to go along; or it was enqueued, and nobody knows.
            if post.along or isinstance(error, OutcomeUnknown):
                self._notifier.send([wakeup])
            if isinstance(error, OutcomeUnknown):
                self._gave_up(error)
                raise _unsure(job, error) from error
            raise
        finally:
            self._posts.give_back(post)
        if failure is not None:
            events.emit("notify_failed", error=failure[1])
            self._notifier.send([failure[0]])  # with more patience than one behind which jobs wait
        if not along:
            self._notifier.send([wakeup])
        return id

    def _enqueue_steps(self, job: NewJob, *, ours: bool = True) -> Steps:
        """An enqueue described apart from its execution, for any connection. `ours`: it is committed in a moment. On a
        caller's transaction no priority is raised: the job that waits would stay locked until the caller commits."""
        values = parameters(job, self.codec)
        if job.key is not None:
            return (yield from keyed_steps(self.statements, job, values, may_raise=ours))
        rows = yield self.statements["enqueue"], values
        return Enqueued(str(rows[0]["id"]), True)

    def enqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        execute = self._execute_on(connection)
        return cast(Enqueued, run_steps(self._enqueue_steps(job, ours=False), execute))

    async def aenqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        execute = await self._aexecute_on(connection)
        return cast(Enqueued, await arun_steps(self._enqueue_steps(job, ours=False), execute))

    def _execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        if not isinstance(connection, psycopg.Connection):
            connection = underlying(connection)
        if not isinstance(connection, psycopg.Connection):
            raise BadSettings(_wrong_connection(connection, psycopg.AsyncConnection, "aenqueue"), number="HF1112")

        def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            # Not by way of the caller's own kind of cursor, which may know no parameters or formats of ours.
            try:
                with psycopg.Cursor(connection, row_factory=dict_row) as cursor:
                    cursor.execute(text.encode(), self._parameters(parameters), binary=True)
                    return cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                self._tell_as_ours(connection, error)
                raise

        return execute

    async def _aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Any]:
        if not isinstance(connection, psycopg.AsyncConnection):
            connection = await aunderlying(connection)
        if not isinstance(connection, psycopg.AsyncConnection):
            raise BadSettings(_wrong_connection(connection, psycopg.Connection, "enqueue"), number="HF1112")

        async def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            try:
                async with psycopg.AsyncCursor(connection, row_factory=dict_row) as cursor:
                    await cursor.execute(text.encode(), self._parameters(parameters), binary=True)
                    return await cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                self._tell_as_ours(connection, error)
                raise

        return execute

    def _tell_as_ours(self, connection: Any, error: psycopg.Error) -> None:
        """What is refused on a caller's own connection is the caller's affair. That our database is away is not, nor
        that it needs a right for what we do there."""
        if error.sqlstate == NOT_ALLOWED:
            raise translate(self.shown_url, error) from error
        if (driver := cut_off(connection, error)) is not None:
            raise translate(self.shown_url, driver, away=True) from error

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        if self._given_up:
            self._refuse_while_stuck()
        queues: set[str] = set()
        kept: list[Enqueued] = []  # one of them, whose id was ours before it was sent
        source = iter(jobs)
        first = list(islice(source, 2))
        try:
            yield from self._enqueue_all(chain(first, source), queues, kept)
        except OutcomeUnknown as error:
            self._gave_up(error)
            # All or none: one that is there was committed with the others.
            committed = False
            with suppress(StoreUnavailable):  # then nobody knows
                committed = bool(kept) and self._is_there(int(kept[0].id))
            if not committed:
                raise OutcomeUnknown(
                    f"{error.message}; either all of these jobs were enqueued or none: look for one of them, or give "
                    "them keys, which makes it safe to enqueue them again"
                ) from error
        # Those that joined other jobs wake nobody.
        if len(first) == 1 and queues:
            self._wake([self._wakeup(first[0])])
        else:
            self._wake([(self.channel, "q" + queue) for queue in queues])

    def _is_there(self, id: int) -> bool:
        """By its id alone: who may enqueue may not read jobs."""
        return bool(self.read("newest", before=id + 1)[0]["id"] == id)

    def _enqueue_all(
        self, source: Iterator[NewJob], queues: set[str], kept: list[Enqueued]
    ) -> Iterator[list[Enqueued]]:
        with self._use() as connection, limited(connection, 0), connection.transaction():
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
                    kept[:] = answers[:1] or kept
                if len(plain) < len(chunk):
                    keyed = self._enqueue_keyed(connection, [job for job in chunk if job.key is not None])
                    made = iter(answers)
                    answers = [next(made) if job.key is None else next(keyed) for job in chunk]
                queues.update(job.queue for job, answer in zip(chunk, answers, strict=True) if answer.created)
                chunk = following
            if answers:
                yield answers
            if seconds := self.settings.enqueue_timeout:
                connection.deadline = time.monotonic() + seconds  # of the commit

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
            {"sequence": f"{self._schema}.jobs_id_seq", "jobs": f"{self._schema}.jobs", "n": len(jobs)},
        )
        if reserved["first"] is None:
            following += ahead
            document = {"jobs": json.dumps([self._document(n, job) for n, job in enumerate(jobs)])}
            yield [row["id"] for row in self._rows(connection, self.statements["enqueue_many"], document)]
            return
        ids = reserved["ids"] or list(range(reserved["first"], reserved["last"] + 1))
        rows = CopyRows(self.lists.enqueued(), reserved["now"])
        command = self.statements.fill(f"copy @jobs ({rows.names}) from stdin (format binary)").encode()
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
        self._rows(connection, self.statements["give_up_keys"], dict(document))
        made = self._rows(connection, self.statements["enqueue_keyed_many"], dict(document))
        held = self._rows(connection, self.statements["keys_held"], dict(document))
        created = {(row["task"], row["key"]): str(row["id"]) for row in made}
        known = {(row["task"], row["key"]): row for row in held}
        if any((row := known.get((job.task, cast(str, job.key)))) and asks_for_more(job, row) for job in jobs):
            self._rows(connection, self.statements["raise_priorities"], dict(document))
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

    def _document(self, n: int, job: NewJob) -> dict[str, Any]:
        """A job in the document of statements that enqueue many."""
        given = parameters(job, self.codec)
        return given | {
            "n": n, "run_at": job.run_at and job.run_at.isoformat(), "reuse": min(job.reuse or 0.0, 1e10)
        }  # fmt: skip


def _next_size(chunk: list[NewJob]) -> int:
    """Jobs in the next COPY. The more there are, the less often client and server wait for each other; but they are
    all in memory."""
    small = sum(len(job.args) for job in chunk) < LARGE
    return min(2 * len(chunk), LARGEST) if small else CHUNK


def _unsure(job: NewJob, error: OutcomeUnknown) -> OutcomeUnknown:
    find_out = (
        "look for it among the newest, or give jobs a key, which makes it safe to enqueue one again"
        if job.key is None
        else f"enqueue it again with its key, {job.key!r}, which makes no second one"
    )
    return OutcomeUnknown(f"{error.message}; the job of task {job.task} may have been enqueued or not: {find_out}")


def _wrong_connection(connection: Any, other: type, method: str) -> str:
    if isinstance(connection, other):
        return f"this is a {other.__module__.partition('.')[0]}.{other.__name__}: use {method}"
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return f"conn= needs a psycopg connection to the database the jobs are in, not a {kind}"
