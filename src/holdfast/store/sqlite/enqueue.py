"""How jobs get into a SQLite file: one, or many."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

from holdfast.errors import ValueRefused
from holdfast.model.job import MAX_PRIORITY, MIN_PRIORITY, Enqueued, NewJob
from holdfast.store.enqueue_steps import enqueue_steps, run_steps
from holdfast.store.sqlite.codec import PLACES, ROW, row_of, rows_of
from holdfast.store.sqlite.connect import PLACE_LOOK, Connection
from holdfast.store.sqlite.counting import count_enqueued
from holdfast.store.sqlite.database import SqliteDatabase

CHUNK = 5_000  # jobs stored at a time
INSERT = f"insert into @jobs ({ROW}) values ({PLACES})"  # noqa: S608 - our own names
INSERT_WITH_ID = f"insert into @jobs (id, counted, {ROW}) values (?, 1, {PLACES})"  # noqa: S608


def _fit(job: NewJob) -> NewJob:
    """Refuse in plain words what the table's constraints would refuse in theirs."""
    if not MIN_PRIORITY <= job.priority <= MAX_PRIORITY:
        raise ValueRefused(f"a priority is from {MIN_PRIORITY} to {MAX_PRIORITY}, not {job.priority}")
    if job.max_attempts < 1:
        raise ValueRefused(f"a job has one attempt at least, not {job.max_attempts}")
    return job


class SqliteEnqueue:
    def __init__(self, db: SqliteDatabase) -> None:
        self._db = db

    def enqueue(self, job: NewJob) -> Enqueued:
        _fit(job)
        with self._db.use_to_write() as connection:
            connection.refuse_if_misplaced(PLACE_LOOK)
            if job.key is None:
                row = row_of(job, self._db.stamp())
                return Enqueued(str(connection.insert(self._db.statements.fill(INSERT), row)), True)
            with connection.writing() as db:
                return self._enqueue(db, job)

    def close(self) -> None:
        """It has no connections but those of the database."""

    def _enqueue(self, db: sqlite3.Connection, job: NewJob) -> Enqueued:
        return run_steps(enqueue_steps(self._db, job), lambda text, given: self._db.rows(db, text, given))

    def enqueue_many(self, jobs: Iterable[NewJob]) -> Iterator[list[Enqueued]]:
        source = map(_fit, jobs)
        chunk = list(islice(source, CHUNK))
        if not chunk:
            return
        with self._db.use() as connection:
            connection.refuse_if_misplaced()
            if len(chunk) < CHUNK:
                with connection.writing() as db:
                    done = self._keep(db, chunk)
                yield done
                return
            # A long stream is first collected in a temporary table, so that a slow source never holds the write lock.
            yield from self._keep_spooled(connection, chunk, source)

    def _keep(self, db: sqlite3.Connection, chunk: list[NewJob]) -> list[Enqueued]:
        keyed = iter([self._enqueue(db, job) for job in chunk if job.key is not None])
        plain = [job for job in chunk if job.key is None]
        first, counts = self._next_id(db), Counter[tuple[str, str]]()
        db.executemany(
            self._db.statements.fill(INSERT_WITH_ID),
            ((first + n, *row) for n, row in enumerate(rows_of(plain, self._db.stamp(), counts))),
        )
        count_enqueued(self._db, db, counts)
        ids = iter(range(first, first + len(plain)))
        return [Enqueued(str(next(ids)), True) if job.key is None else next(keyed) for job in chunk]

    def _next_id(self, db: sqlite3.Connection) -> int:
        row = db.execute(
            "select seq from sqlite_sequence where name = ?", (f"{self._db.settings.prefix}jobs",)
        ).fetchone()
        return (row[0] if row else 0) + 1

    def _keep_spooled(
        self, connection: Connection, chunk: list[NewJob], source: Iterator[NewJob]
    ) -> Iterator[list[Enqueued]]:
        db = connection.db
        keyed: dict[int, NewJob] = {}  # by place in the stream; each is enqueued by itself
        total = 0
        counts = Counter[tuple[str, str]]()
        db.execute(f"create temp table spool (n integer primary key, {ROW})")
        try:
            while chunk:
                places = {n: job for n, job in enumerate(chunk, total) if job.key is None}
                keyed |= {n: job for n, job in enumerate(chunk, total) if job.key is not None}
                rows = zip(places, rows_of(places.values(), self._db.stamp(), counts), strict=True)
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
                    self._db.statements.fill(
                        f"insert into @jobs (id, counted, {ROW}) select n + ?, 1, {ROW} from temp.spool order by n"  # noqa: S608
                    ),
                    (first,),
                )
                count_enqueued(self._db, db, counts)
                answers = {n: self._enqueue(db, job) for n, job in keyed.items()}
        finally:
            if db.in_transaction:
                db.execute("rollback")
            db.execute("drop table temp.spool")
            db.execute("pragma shrink_memory")  # the pages that passed through are not needed again soon
        for start in range(0, total, CHUNK):
            places_here = range(start, min(start + CHUNK, total))
            yield [answers[n] if n in keyed else Enqueued(str(first + n), True) for n in places_here]
