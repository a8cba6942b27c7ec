"""Recording Runner: no heartbeat, no attempts, no watchdog. A worker reads a candidate and updates it under a
condition: that it is still queued, or that its version, or its time of change, is the one it has read."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from tests.adopt.systems.database import Database
from tests.adopt.systems.system import LONG_AGO, NOW, System, Taken

CONDITIONS = ("status = 'queued'", "version = :version", "updated_at = :updated_at")


class ExecutionJobs(System):
    table = "execution_jobs"
    preset = "recording"
    subject = "recording_id"
    waiting, running, done = "queued", "running", "completed"
    ddl = """
        create table execution_jobs (
            id {uuid} primary key default {new_uuid},
            status text not null default 'queued',
            version integer not null default 1,
            created_at {instant} not null default ({now}),
            updated_at {instant} not null default ({now}),
            started_at {instant},
            worker_id text,
            recording_id text not null,
            csv_data text,
            config {json}
        );

        create index execution_jobs_status on execution_jobs (status, created_at)
    """

    def __init__(self, db: Database, lease: float) -> None:
        super().__init__(db, lease)
        self._conditions = cycle(CONDITIONS)

    def leave_rows(self) -> None:
        gone = {"worker_id": "old-gone", "started_at": LONG_AGO, "version": 3}
        rows: dict[str, dict[str, Any]] = {
            "waiting": {},
            "requeued": {"version": 3},
            "alive": {"status": "running", "worker_id": "old-alive", "started_at": NOW, "version": 2},
            "dead": {"status": "running", "worker_id": "old-dead", "started_at": LONG_AGO, "version": 2},
            "done": {**gone, "status": "completed"},
            "failed": {**gone, "status": "failed"},
        }
        for kind, columns in rows.items():
            self.leave(recording_id=kind, created_at=LONG_AGO, updated_at=LONG_AGO, csv_data="name,city", **columns)

    def submit(self, subject: str) -> str:
        return str(self.db.value("""
            insert into execution_jobs (recording_id, csv_data, config) values (:subject, 'name,city', '{}')
            returning id
        """, subject=subject))  # fmt: skip

    def reset(self, id: str) -> int:
        return self.db.changed("""
            update execution_jobs set status = 'queued', version = version + 1, updated_at = {now}
             where id = :id and status = 'failed'
        """, id=id)  # fmt: skip

    def claim(self, worker: str) -> Taken | None:
        found = self.db.row("""
            select id, recording_id, version, updated_at from execution_jobs
             where status = 'queued' order by created_at limit 1
        """)  # fmt: skip
        if found is None or not self.update_if(next(self._conditions), worker, **found):
            return None  # another worker was first
        return Taken(found["id"], found["recording_id"])

    def update_if(self, condition: str, worker: str, **read: Any) -> int:
        """The claim itself, some time after the row was read."""
        return self.db.changed(f"""
            update execution_jobs set status = 'running', started_at = {{now}}, worker_id = :worker,
                                      version = version + 1, updated_at = {{now}}
             where id = :id and {condition}
        """, worker=worker, **read)  # fmt: skip

    def finish(self, id: str, worker: str) -> int:
        return self._end(id, worker, "completed")

    def fail(self, id: str, worker: str) -> int:
        return self._end(id, worker, "failed")

    def _end(self, id: str, worker: str, word: str) -> int:
        return self.db.changed("""
            update execution_jobs set status = :word, version = version + 1, updated_at = {now}
             where id = :id and status = 'running' and worker_id = :worker
        """, id=id, worker=worker, word=word)  # fmt: skip

    def stale(self) -> list[str]:
        found = self.db.rows(
            "select id from execution_jobs where status = 'running' and started_at < {ago}", seconds=self.lease
        )
        return [row["id"] for row in found]

    def wrong(self) -> list[dict[str, Any]]:
        return self.db.rows("""
            select * from execution_jobs
             where status = 'running' and (worker_id is null or started_at is null or version < 2)
                or status not in ('queued', 'running', 'completed', 'failed')
        """)  # fmt: skip
