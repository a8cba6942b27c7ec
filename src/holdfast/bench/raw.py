"""The raw limits: plain SQL on our own table, indexes and bytes, one connection, default durability."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from typing import Any

from holdfast.model.job import NewJob
from holdfast.store.base import Store

BATCH = 500
ARGS = b'{"pad":"' + b"x" * 80 + b'"}'


def noop_job() -> NewJob:
    return NewJob(task="noop", args=ARGS)


def fill(store: Store, jobs: int) -> None:
    for _ in store.enqueue_many(noop_job() for _ in range(jobs)):
        pass


def rate(count: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


def raw_sqlite(store: Any, jobs: int, singles: int) -> dict[str, float]:
    db = sqlite3.connect(store.path, isolation_level=None)
    db.execute("pragma synchronous = full")
    fill(store, jobs)
    insert = store.statements.fill(
        "insert into @jobs (queue, task, args, created_at, run_at, ready_at) values ('raw', 'noop', ?, 'x', 'x', 'x')"
    )
    claim = store.statements.fill(
        "update @jobs set state = 'running', fence = ?, worker = 'raw', started_at = run_at, attempt = attempt + 1, "
        "ready_at = null where id in (select id from @jobs indexed by @jobs_ready where ready_at is not null and "
        "queue = 'default' and task = 'noop' and priority = 0 order by ready_at, id limit ?) returning id, args"
    )
    finish = store.statements.fill(
        "update @jobs set state = 'succeeded', finished_at = run_at where id = ? and state = 'running' and fence = ?"
    )

    def cycle() -> None:
        while True:
            fence = str(uuid.uuid4())
            db.execute("begin immediate")
            taken = db.execute(claim, (fence, BATCH)).fetchall()
            db.execute("commit")
            if not taken:
                return
            db.execute("begin immediate")
            db.executemany(finish, [(row[0], fence) for row in taken])
            db.execute("commit")

    def one_by_one() -> None:
        for _ in range(singles):
            db.execute(insert, (ARGS.decode(),))

    def bulk() -> None:
        db.execute("begin immediate")
        db.executemany(insert, [(ARGS.decode(),)] * jobs)
        db.execute("commit")

    figures = {"raw_cycle": rate(jobs, cycle), "raw_insert": rate(singles, one_by_one), "raw_bulk": rate(jobs, bulk)}
    db.execute(store.statements.fill("delete from @jobs"))
    db.close()
    return figures


def raw_postgres(store: Any, jobs: int, singles: int) -> dict[str, float]:
    import psycopg

    fill(store, jobs)
    with psycopg.connect(store.settings.url, autocommit=True) as db:
        db.prepare_threshold = 0

        def sql(text: str) -> bytes:
            filled: str = store.statements.fill(text)
            return filled.encode()

        db.execute(sql("vacuum analyze @jobs"), prepare=False)
        insert = sql("insert into @jobs (queue, task, args) values ('raw', 'noop', :args)")
        claim = sql(
            "with picked as materialized (select id from @jobs where ready_at is not null and queue = 'default' and "
            "task = 'noop' and priority = 0 and ready_at <= statement_timestamp() order by queue, task, priority, "
            "ready_at, id limit :n for update skip locked) update @jobs j set state = 'running', fence = :fence, "
            "worker = 'raw', started_at = clock_timestamp(), attempt = attempt + 1, ready_at = null from picked "
            "where j.id = picked.id returning j.id, j.args::text"
        )
        finish = sql(
            "update @jobs set state = 'succeeded', finished_at = clock_timestamp() where id = any(:ids) and "
            "state = 'running' and fence = :fence"
        )

        def cycle() -> None:
            while True:
                fence = uuid.uuid4()
                taken = db.execute(claim, {"n": BATCH, "fence": fence}).fetchall()
                if not taken:
                    return
                db.execute(finish, {"ids": [row[0] for row in taken], "fence": fence})

        def one_by_one() -> None:
            for _ in range(singles):
                db.execute(insert, {"args": ARGS.decode()})

        def bulk() -> None:
            with db.cursor() as cursor, cursor.copy(sql("copy @jobs (queue, task, args) from stdin")) as copy:
                for _ in range(jobs):
                    copy.write_row(("raw", "noop", ARGS.decode()))

        figures = {
            "raw_cycle": rate(jobs, cycle), "raw_insert": rate(singles, one_by_one), "raw_bulk": rate(jobs, bulk),
        }  # fmt: skip
        db.execute(sql("truncate @jobs"), prepare=False)
        db.execute(sql("vacuum analyze @jobs"), prepare=False)
    return figures
