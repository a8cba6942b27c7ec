"""The raw limits: plain SQL on our own table, indexes and bytes, one connection, default durability, client and server
in turn."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from bench.target import ARGS, PostgresTarget, SqliteTarget, Target
from holdfast.store.sqlite.codec import stored


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


class Raw(Protocol):
    batch: int

    def cycle(self, jobs: int) -> float:
        """Claim and complete by UPDATE, in batches, each committed."""
        ...

    def insert(self, jobs: int) -> float:
        """One row, one commit."""
        ...

    def copy(self, jobs: int) -> float:
        """All rows in one transaction: by COPY, on SQLite by executemany."""
        ...


def raw_of(target: Target) -> Raw:
    if isinstance(target, SqliteTarget):
        return RawSqlite(target)
    assert isinstance(target, PostgresTarget)
    return RawPostgres(target)


class RawSqlite:
    batch = 1_000

    def __init__(self, target: SqliteTarget) -> None:
        self._target = target

    def cycle(self, jobs: int) -> float:
        self._target.fill(jobs)
        self._target.settle()
        db = self._target.db
        claim = self._target.sql(
            "update @jobs set state = 'running', fence = ?, worker = 'raw', started_at = run_at, "
            "attempt = attempt + 1, ready_at = null where id in (select id from @jobs indexed by @jobs_ready "
            "where ready_at is not null and queue = 'default' and task = 'noop' and priority = 0 "
            "order by ready_at, id limit ?) returning id, args"
        )
        finish = self._target.sql(
            "update @jobs set state = 'succeeded', finished_at = run_at "
            "where id = ? and state = 'running' and fence = ?"
        )

        def work() -> None:
            while True:
                fence = str(uuid.uuid4())
                db.execute("begin immediate")
                taken = db.execute(claim, (fence, self.batch)).fetchall()
                db.execute("commit")
                if not taken:
                    return
                db.execute("begin immediate")
                db.executemany(finish, [(row[0], fence) for row in taken])
                db.execute("commit")

        return rate(jobs, work)

    def insert(self, jobs: int) -> float:
        insert, row = self._insert(), self._row()
        return rate(jobs, lambda: [self._target.db.execute(insert, row) for _ in range(jobs)])

    def copy(self, jobs: int) -> float:
        insert, row = self._insert(), self._row()
        db = self._target.db

        def work() -> None:
            db.execute("begin immediate")
            db.executemany(insert, (row for _ in range(jobs)))
            db.execute("commit")

        return rate(jobs, work)

    def _insert(self) -> str:
        return self._target.sql(
            "insert into @jobs (queue, task, args, created_at, run_at, ready_at) values ('default', 'noop', ?, ?, ?, ?)"
        )

    def _row(self) -> tuple[str, ...]:
        now = stored(datetime.now(UTC))
        return (ARGS, now, now, now)


class RawPostgres:
    batch = 500

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target

    def cycle(self, jobs: int) -> float:
        self._target.fill(jobs)
        self._target.settle()
        claim = self._target.sql(
            "with picked as materialized (select id from @jobs where ready_at is not null and queue = 'default' and "
            "task = 'noop' and priority = 0 and ready_at <= statement_timestamp() order by queue, task, priority, "
            "ready_at, id limit :n for update skip locked) update @jobs j set state = 'running', fence = :fence, "
            "worker = 'raw', started_at = clock_timestamp(), attempt = attempt + 1, ready_at = null from picked "
            "where j.id = picked.id returning j.id, j.args::text"
        ).encode()
        finish = self._target.sql(
            "update @jobs set state = 'succeeded', finished_at = clock_timestamp() where id = any(:ids) and "
            "state = 'running' and fence = :fence"
        ).encode()
        db = self._target.db

        def work() -> None:
            while True:
                fence = uuid.uuid4()
                taken = db.execute(claim, {"n": self.batch, "fence": fence}, prepare=True).fetchall()
                if not taken:
                    return
                db.execute(finish, {"ids": [row[0] for row in taken], "fence": fence}, prepare=True)

        return rate(jobs, work)

    def insert(self, jobs: int) -> float:
        insert = self._target.sql("insert into @jobs (queue, task, args) values ('default', 'noop', :args)").encode()
        db = self._target.db
        return rate(jobs, lambda: [db.execute(insert, {"args": ARGS}, prepare=True) for _ in range(jobs)])

    def copy(self, jobs: int) -> float:
        copy = self._target.sql("copy @jobs (queue, task, args) from stdin").encode()

        def work() -> None:
            with self._target.db.cursor() as cursor, cursor.copy(copy) as rows:
                for _ in range(jobs):
                    rows.write_row(("default", "noop", ARGS))

        return rate(jobs, work)
