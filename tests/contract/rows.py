"""Jobs that are rows of an adopted table: what a test enqueues for the task "greet" is inserted into the table `greet`
by a connection that knows nothing of Holdfast. Jobs of other tasks and queues, or with what no column of that table
holds, are native ones beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from holdfast.model.job import Enqueued, NewJob
from holdfast.model.mapping import mapping_of
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.sqlite.codec import stored
from tests.contract.places import open_connection
from tests.servers import drop_schema, new_schema

COLUMNS = """
    id {id} primary key, status text not null default 'pending', due {instant}, urgency integer not null default 0,
    tries integer not null default 0, most_tries integer not null default 3, worked_by text, claim_id text,
    begun {instant}, ended {instant}, error_code text, error_message text, result {json}, pending integer, done integer,
    total integer
"""
MEANINGS: dict[str, Any] = {
    "run_at": "due", "priority": "urgency", "attempts": "tries", "max_attempts": "most_tries", "worker": "worked_by",
    "fence": "claim_id", "started_at": "begun", "finished_at": "ended", "error_code": "error_code",
    "error_message": "error_message", "results": {"result": "*"},
    "counts": {"pending": "pending", "done": "done", "total": "total"},
}  # fmt: skip
WORDS = {
    "queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed", "paused": "paused",
    "cancelled": "cancelled",
}  # fmt: skip


class Rows:
    """`sql`: run by a program of theirs, in which `{t}` is the table, `{jobs}` our jobs, and `?` a parameter."""

    def __init__(self, settings: Settings, task: str = "greet", queue: str = "default") -> None:
        self._settings = settings
        self._postgres = not settings.url.startswith("sqlite")
        self._schema = new_schema() if self._postgres else None
        self._table = f"{self._schema}.{task}" if self._postgres else task
        self._jobs = f'"{settings.schema}".jobs' if self._postgres else f"{settings.prefix}jobs"
        self._like = NewJob(task=task, queue=queue, args=b"{}")
        self._store: Store | None = None  # the one that adopted the table
        self._connection: Any = None

    def enqueue(self, store: Store, new: NewJob) -> Enqueued:
        if not self.holds(new):
            return type(store).enqueue(store, new)
        if self._store is None:
            self.adopt(store)
        clock = getattr(store.db, "clock", None)  # the test's
        due = new.run_at or (clock() if clock is not None else datetime.now(UTC)) + timedelta(seconds=new.delay)
        [(id,)] = self.sql(
            "insert into {t} (due, urgency, most_tries) values (?, ?, ?) returning id",
            due if self._postgres else stored(due), new.priority, new.max_attempts,
        )  # fmt: skip
        self._settle(store)
        [(job_id,)] = self.sql("select id from {jobs} where source = ? and source_id = ?", self._like.task, str(id))
        return Enqueued(str(job_id), created=True)

    def holds(self, new: NewJob) -> bool:
        """Can a row say all of this?"""
        asked = {"priority": 0, "max_attempts": self._like.max_attempts, "delay": 0.0, "run_at": None}
        return replace(new, **asked) == self._like

    def check(self) -> None:
        """Each row says what its job is, and nothing is left to settle."""
        assert self._store is not None, "it makes no row: leave it out"
        self._settle(self._store)
        unsettled = self._store.adopted.unsettled(self._like.task)
        assert (unsettled.inbox, unsettled.owed) == (0, 0)
        differing = self.sql(
            """select r.id, r.status, j.state, r.tries, j.attempt, r.worked_by, j.worker, r.error_code, j.error_code
                 from {t} r left join {jobs} j on j.source = ? and j.source_id = cast(r.id as text)
                where not case when j.id is null then r.status not in ('pending', 'processing', 'paused') else coalesce(
                      r.tries = j.attempt and r.urgency = j.priority and r.most_tries = j.max_attempts
                  and coalesce(r.error_code, '') = coalesce(j.error_code, '')
                  and case when j.state = 'queued' then r.due = j.run_at else true end
                  and case when j.finished_at is not null then r.ended = j.finished_at else r.ended is null end
                  and case when j.state = 'running'
                           then r.worked_by = j.worker and r.claim_id = cast(j.fence as text) and r.begun = j.started_at
                           else r.worked_by is null and r.claim_id is null end
                  and r.status = case j.state when 'queued' then 'pending' when 'running' then 'processing'
                                              when 'succeeded' then 'completed' else cast(j.state as text) end,
                  false) end""",
            self._like.task,
        )
        assert differing == []

    def adopt(self, store: Store) -> None:
        kinds = {"id": "integer", "instant": "timestamp", "json": "json"}
        if self._postgres:
            kinds = {"id": "bigint generated by default as identity", "instant": "timestamptz", "json": "json"}
            self.sql(f"create schema {self._schema}")
        self.sql(f"create table {{t}} ({COLUMNS.format(**kinds)})")
        named = {"name": self._like.task, "queue": self._like.queue, "states": WORDS}
        store.adopted.install(mapping_of(self._table, {**named, **MEANINGS}))
        self._store = store

    def sql(self, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = open_connection(self._settings)
        text = text.replace("{t}", self._table).replace("{jobs}", self._jobs)
        cursor = self._connection.execute(text.replace("?", "%s") if self._postgres else text, parameters)
        rows = cursor.fetchall() if self._postgres is False or cursor.description else []
        self._connection.commit()
        return list(rows)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._schema is not None:
            drop_schema(self._settings.url, self._schema)

    def _settle(self, store: Store) -> None:
        while store.adopted.settle(self._like.task).settled:
            pass
