"""How jobs get into a SQLite file: one, many, or on a caller's own connection."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, cast

from holdfast.errors import BadSettings, ValueRefused
from holdfast.model.job import MAX_PRIORITY, MIN_PRIORITY, Enqueued, NewJob
from holdfast.settings import Settings
from holdfast.store.base import Row, Store
from holdfast.store.columns import parameters
from holdfast.store.sqlite.codec import PLACES, ROW, row_of, rows_of
from holdfast.store.sqlite.connect import PLACE_LOOK, Connection, is_transient, translate
from holdfast.store.statements import Statements
from holdfast.store.steps import Steps, keyed_steps, run_steps
from holdfast.store.user_connection import underlying

CHUNK = 5_000  # jobs kept at a time
INSERT = f"insert into @jobs ({ROW}) values ({PLACES})"  # noqa: S608 - our own names
INSERT_WITH_ID = f"insert into @jobs (id, {ROW}) values (?, {PLACES})"  # noqa: S608


def _fit(job: NewJob) -> NewJob:
    """Refuses in plain words what the table's constraints would refuse in theirs."""
    if not MIN_PRIORITY <= job.priority <= MAX_PRIORITY:
        raise ValueRefused(f"a priority is from {MIN_PRIORITY} to {MAX_PRIORITY}, not {job.priority}")
    if job.max_attempts < 1:
        raise ValueRefused(f"a job has one attempt at least, not {job.max_attempts}")
    return job


class SqliteEnqueue(Store):
    """The part of the SQLite store that takes jobs in."""

    settings: Settings
    statements: Statements
    path: Path
    _clock: Callable[[], datetime]
    _stamp: Callable[[], str]  # what it shows, as it is stored

    @abstractmethod
    def _use(self) -> Connection: ...

    @abstractmethod
    def _parameters(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def rows(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]: ...

    @abstractmethod
    def readable(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]: ...

    def enqueue(self, job: NewJob) -> Enqueued:
        _fit(job)
        with self._use() as connection:
            connection.refuse_if_misplaced(PLACE_LOOK)
            if job.key is None:
                row = row_of(job, self._stamp())
                return Enqueued(str(connection.insert(self.statements.fill(INSERT), row)), True)
            with connection.writing() as db:
                return self._enqueue(db, job)

    def _enqueue(self, db: sqlite3.Connection, job: NewJob) -> Enqueued:
        return cast(Enqueued, run_steps(self._enqueue_steps(job), lambda t, p: self.rows(db, t, p)))

    def _enqueue_steps(self, job: NewJob) -> Steps:
        """An enqueue described apart from its execution, for any connection."""
        values = parameters(job, self.codec)
        if job.key is not None:
            return (yield from keyed_steps(self.statements, job, values))
        rows = yield self.statements["enqueue"], values
        return Enqueued(str(rows[0]["id"]), True)

    def enqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        execute = self._execute_on(connection)
        return cast(Enqueued, run_steps(self._enqueue_steps(job), execute))

    async def aenqueue_on(self, connection: Any, job: NewJob) -> Enqueued:
        return self.enqueue_on(connection, job)

    def _execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        if not isinstance(connection, sqlite3.Connection):
            connection = underlying(connection)
        if not isinstance(connection, sqlite3.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise BadSettings(f"conn= needs a sqlite3 connection to {self.path}, not a {kind}", number="HF1112")
        opened = {Path(row[2]) for row in connection.execute("pragma database_list").fetchall() if row[2]}
        if self.path.resolve() not in {path.resolve() for path in opened}:
            raise BadSettings(f"conn= is open on another file than the jobs are in ({self.path})", number="HF1112")

        def execute(text: str, parameters: dict[str, Any]) -> list[Row]:
            cursor = connection.cursor()
            cursor.row_factory = None
            try:
                rows = cursor.execute(text, self._parameters(text, parameters)).fetchall()
            except sqlite3.Error as error:
                # What is refused on a caller's own connection is the caller's affair. That others write is not.
                if is_transient(error):
                    raise translate(str(self.path), error) from error
                raise
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in rows]

        return execute

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        source = map(_fit, jobs)
        chunk = list(islice(source, CHUNK))
        if not chunk:
            return
        with self._use() as connection:
            connection.refuse_if_misplaced()
            if len(chunk) < CHUNK:
                with connection.writing() as db:
                    done = self._keep(db, chunk)
                yield done
                return
            # A long stream is collected apart first, so that a slow source never holds the writers' lock.
            yield from self._keep_spooled(connection, chunk, source)

    def _keep(self, db: sqlite3.Connection, chunk: list[NewJob]) -> list[Enqueued]:
        keyed = iter([self._enqueue(db, job) for job in chunk if job.key is not None])
        plain = [job for job in chunk if job.key is None]
        first = self._next_id(db)
        db.executemany(
            self.statements.fill(INSERT_WITH_ID),
            ((first + n, *row) for n, row in enumerate(rows_of(plain, self._stamp()))),
        )
        ids = iter(range(first, first + len(plain)))
        return [Enqueued(str(next(ids)), True) if job.key is None else next(keyed) for job in chunk]

    def _next_id(self, db: sqlite3.Connection) -> int:
        row = db.execute("select seq from sqlite_sequence where name = ?", (f"{self.settings.prefix}jobs",)).fetchone()
        return (row[0] if row else 0) + 1

    def _keep_spooled(
        self, connection: Connection, chunk: list[NewJob], source: Iterator[NewJob]
    ) -> Iterator[list[Enqueued]]:
        db = connection.db
        keyed: dict[int, NewJob] = {}  # by place in the stream; each is kept by a statement of its own
        total = 0
        db.execute(f"create temp table spool (n integer primary key, {ROW})")
        try:
            while chunk:
                places = {n: job for n, job in enumerate(chunk, total) if job.key is None}
                keyed |= {n: job for n, job in enumerate(chunk, total) if job.key is not None}
                rows = zip(places, rows_of(places.values(), self._stamp()), strict=True)
                db.execute("begin")
                db.executemany(
                    f"insert into temp.spool (n, {ROW}) values (?, {PLACES})",  # noqa: S608 - our own names
                    ((n, *row) for n, row in rows),
                )
                db.execute("commit")
                total += len(chunk)
                chunk = list(islice(source, CHUNK))
            with connection.writing():
                first = self._next_id(db)
                db.execute(
                    self.statements.fill(
                        f"insert into @jobs (id, {ROW}) select n + ?, {ROW} from temp.spool order by n"  # noqa: S608
                    ),
                    (first,),
                )
                answers = {n: self._enqueue(db, job) for n, job in keyed.items()}
        finally:
            if db.in_transaction:
                db.execute("rollback")
            db.execute("drop table temp.spool")
            db.execute("pragma shrink_memory")  # all that passed through is not soon needed again
        for start in range(0, total, CHUNK):
            places_here = range(start, min(start + CHUNK, total))
            yield [answers[n] if n in keyed else Enqueued(str(first + n), True) for n in places_here]
