"""An adopted table in a SQLite file, its foreign writers, and our own workers, by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.model.job import ClaimedJob, JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.mapping import Mapping, mapping_of
from holdfast.settings import Settings
from holdfast.store.base import Ref
from holdfast.store.sqlite.store import SqliteStore
from tests.factories import claim

AUDITS = """
create table audits (
    id integer primary key, url text not null, status text not null default 'pending',
    created_at text default current_timestamp, updated_at text, due text, urgency integer, version integer default 1,
    processing_started_at text, processing_worker_id text, claim_id text, last_heartbeat text, finished_at datetime,
    retry_count integer not null default 0, max_retries integer default 3, error_code text, error_message text,
    score real, pages integer, report json, total_pending integer, photo blob)
"""
STATES: dict[str, str | list[str]] = {
    "queued": ["pending", "again"],
    "running": "processing",
    "succeeded": "completed",
    "failed": "failed",
}
ALL_STATES: dict[str, str | list[str]] = {**STATES, "paused": "paused", "cancelled": "cancelled"}
COLUMNS: dict[str, Any] = {
    "created_at": "created_at", "updated_at": "updated_at", "run_at": "due", "priority": "urgency",
    "version": "version",
    "started_at": "processing_started_at", "worker": "processing_worker_id", "fence": "claim_id",
    "heartbeat_at": "last_heartbeat", "finished_at": "finished_at", "attempts": "retry_count",
    "max_attempts": "max_retries", "error_code": "error_code", "error_message": "error_message",
    "results": {"score": "score", "pages": "pages", "report": "*"}, "counts": {"pending": "total_pending"},
}  # fmt: skip


class Audits:
    """`sql`: a connection that knows nothing of us."""

    def __init__(self, store: SqliteStore, path: Path) -> None:
        self.store = store
        self.path = path
        self.sql = sqlite3.connect(path, timeout=10, isolation_level=None)
        self.sql.row_factory = sqlite3.Row
        self.sql.execute(AUDITS)

    def mapping(self, **options: Any) -> Mapping:
        given = {"states": ALL_STATES, **COLUMNS, **options}
        return mapping_of("audits", {name: value for name, value in given.items() if value is not None})

    def adopt(self, **options: Any) -> Mapping:
        mapping = self.mapping(**options)
        self.store.adopted.install(mapping)
        return mapping

    def insert(self, **values: Any) -> int:
        values = {"url": "https://a.example", **values}
        names, places = ", ".join(values), ", ".join("?" * len(values))
        id = self.sql.execute(f"insert into audits ({names}) values ({places})", tuple(values.values())).lastrowid
        assert id is not None
        return id

    def update(self, id: int, **values: Any) -> None:
        names = ", ".join(f"{name} = ?" for name in values)
        self.sql.execute(f"update audits set {names} where id = ?", (*values.values(), id))

    def row(self, id: int) -> dict[str, Any]:
        return dict(self.sql.execute("select * from audits where id = ?", (id,)).fetchone())

    def word(self, id: int) -> str:
        return str(self.row(id)["status"])

    def job(self, id: int) -> JobRecord:
        job = self.job_if_any(id)
        assert job is not None
        return job

    def job_if_any(self, id: int) -> JobRecord | None:
        found = self.sql.execute("select id from holdfast_jobs where source = 'audits' and source_id = ?", (str(id),))
        row = found.fetchone()
        return None if row is None else self.store.reads.get(str(row[0]))

    def owed(self) -> int:
        return int(self.sql.execute("select count(*) from holdfast_jobs where owed").fetchone()[0])

    def claim(self, limit: int = 10, **options: Any) -> list[ClaimedJob]:
        return claim(self.store, limit, tasks=("audits",), **options).jobs

    def claimed(self, id: int) -> Ref:
        """The claim under which the row's job runs."""
        job = self.job(id)
        assert job.state is State.RUNNING
        return Ref(int(job.id), str(job.fence))

    def held(self, **values: Any) -> tuple[int, ClaimedJob]:
        """A row that a worker of ours runs; nothing else may be due."""
        id = self.insert(**values)
        [job] = self.claim()
        assert self.word(id) == "processing"
        return id, job

    def mismatches(self) -> list[tuple[int, str, str]]:
        """Rows whose word is not that of their job, in one snapshot; and those that wait without a job."""
        rows = self.sql.execute(
            """select a.id, a.status, coalesce(j.state, 'no job') from audits a
                 left join holdfast_jobs j on j.source = 'audits' and j.source_id = a.id
                where coalesce(case j.state when 'queued' then 'pending' when 'running' then 'processing'
                                      when 'succeeded' then 'completed' else j.state end, '') <> a.status
                  and (j.id is not null or a.status in ('pending', 'processing', 'paused'))"""
        ).fetchall()
        return [tuple(row) for row in rows]


@contextmanager
def audits_in(directory: Path, **options: Any) -> Iterator[Audits]:
    path = directory / "jobs.db"
    store = SqliteStore(Settings(url=f"sqlite:///{path}", synchronous="off"), **options)
    store.schema.migrate()
    audits = Audits(store, path)
    yield audits
    audits.sql.close()
    store.close()


def rebuild(sql: sqlite3.Connection, more: str = "") -> None:
    """As migration tools do: they copy, drop and rename, and our triggers are gone."""
    sql.execute("begin immediate")
    sql.execute(AUDITS.replace("create table audits", "create table _tmp_audits"))
    names = ", ".join(row[1] for row in sql.execute("pragma table_info(_tmp_audits)").fetchall())
    sql.execute(f"insert into _tmp_audits ({names}) select {names} from audits")
    sql.execute(more)
    sql.execute("drop table audits")
    sql.execute("alter table _tmp_audits rename to audits")
    sql.execute("commit")
