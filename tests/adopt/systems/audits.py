"""Site Audit: a page inserts a row with nothing but the site. Claims by SKIP LOCKED, heartbeats, a 5-minute rule, and
`retry_count`, which counts failures."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.adopt.systems.system import LONG_AGO, MAX_ATTEMPTS, NOW, System, Taken


class Audits(System):
    table = "audits"
    preset = "site-audit"
    subject = "url"
    waiting, running, done = "pending", "processing", "completed"
    counting, attempts = "at_failure", "retry_count"
    results: ClassVar = {"score": "score", "findings": "findings"}
    ddl = """
        create table audits (
            id {uuid} primary key default {new_uuid},
            url text not null,
            status text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'failed')),
            created_at {instant} not null default ({now}),
            processing_started_at {instant},
            processing_worker_id text,
            last_heartbeat {instant},
            retry_count integer not null default 0,
            score integer check (score between 0 and 100),
            findings {json}
        );

        create index audits_status on audits (status, created_at)
    """

    def leave_rows(self) -> None:
        tried = {"processing_started_at": LONG_AGO, "last_heartbeat": LONG_AGO}
        claimed = {"status": "processing", "processing_started_at": LONG_AGO}
        dead = {**claimed, "processing_worker_id": "old-dead", "last_heartbeat": LONG_AGO}
        rows: dict[str, dict[str, Any]] = {
            "waiting": {},
            "tried": {**tried, "retry_count": 1},
            "used-up": {**tried, "retry_count": 3},
            "alive": {**claimed, "processing_worker_id": "old-alive", "last_heartbeat": NOW},
            "dead": {**dead, "retry_count": 1},
            "last-chance": {**dead, "retry_count": 2},
            "done": {**tried, "status": "completed", "score": 87},
            "failed": {**tried, "status": "failed", "retry_count": 3},
        }
        for kind, columns in rows.items():
            self.leave(url=f"https://{kind}.example", created_at=LONG_AGO, **columns)

    def submit(self, subject: str) -> str:
        return str(self.db.value("insert into audits (url) values (:url) returning id", url=subject))

    def reset(self, id: str) -> int:
        return self.db.changed(
            "update audits set status = 'pending', retry_count = 0 where id = :id and status = 'failed'", id=id
        )

    def claim(self, worker: str) -> Taken | None:
        with self.db.transaction():
            found = self.db.row(
                "select id, url from audits where status = 'pending' order by created_at limit 1 {skip_locked}"
            )
            if found is None:
                return None
            self.db.changed("""
                update audits set status = 'processing', processing_started_at = {now}, processing_worker_id = :worker,
                                  last_heartbeat = {now}
                 where id = :id
            """, id=found["id"], worker=worker)  # fmt: skip
        return Taken(found["id"], found["url"])

    def heartbeat(self, id: str, worker: str) -> None:
        self.db.changed("""
            update audits set last_heartbeat = {now}
             where id = :id and status = 'processing' and processing_worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def finish(self, id: str, worker: str) -> int:
        return self.db.changed("""
            update audits set status = 'completed', score = 50, findings = '[]', processing_worker_id = null
             where id = :id and status = 'processing' and processing_worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def fail(self, id: str, worker: str) -> int:
        return self.db.changed("""
            update audits set status = case when retry_count + 1 < :most then 'pending' else 'failed' end,
                              retry_count = retry_count + 1, processing_worker_id = null
             where id = :id and status = 'processing' and processing_worker_id = :worker
        """, id=id, worker=worker, most=MAX_ATTEMPTS)  # fmt: skip

    def watchdog(self) -> int:
        return self.db.changed("""
            update audits set status = case when retry_count + 1 < :most then 'pending' else 'failed' end,
                              retry_count = retry_count + 1, processing_worker_id = null
             where status = 'processing' and last_heartbeat < {ago}
        """, most=MAX_ATTEMPTS, seconds=self.lease)  # fmt: skip

    def stale(self) -> list[str]:
        found = self.db.rows(
            "select id from audits where status = 'processing' and last_heartbeat < {ago}", seconds=self.lease
        )
        return [row["id"] for row in found]

    def wrong(self) -> list[dict[str, Any]]:
        return self.db.rows("""
            select * from audits
             where status = 'processing' and (processing_worker_id is null or processing_started_at is null)
                or status = 'completed' and score is null
                or status = 'pending' and processing_worker_id is not null
        """)  # fmt: skip
