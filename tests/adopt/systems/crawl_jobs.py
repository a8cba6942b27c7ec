"""Crawl: a supervisor heartbeats, a watchdog takes back what has been silent for two minutes and counts that, and
people pause, resume and cancel. How much each crawl has before it stands in a second table."""

from __future__ import annotations

from typing import Any, ClassVar

from tests.adopt.systems.system import LONG_AGO, NOW, System, Taken


class CrawlJobs(System):
    table = "crawl_jobs"
    preset = "crawl"
    subject = "start_url"
    waiting, running, done = "pending", "processing", "completed"
    counting, attempts = "at_recovery", "retry_count"
    status_type: ClassVar = {
        "sqlite": "text not null default 'pending' check (status in "
                  "('pending', 'processing', 'completed', 'failed', 'paused', 'cancelled'))",
        "postgres": "crawl_status not null default 'pending'",
    }  # fmt: skip
    ddl = """
        create table crawl_jobs (
            id {uuid} primary key default {new_uuid},
            start_url text not null,
            max_depth integer not null default 3,
            status {status},
            created_at {instant} not null default ({now}),
            worker_id text,
            last_heartbeat {instant},
            retry_count integer not null default 0,
            max_retries integer not null default 3,
            error_message text
        );

        create table crawl_states (
            crawl_id {uuid} primary key references crawl_jobs (id) on delete cascade,
            frontier text not null default '',
            visited text not null default '',
            total_pending integer default 0
        )
    """

    @property
    def words(self) -> set[str]:
        return super().words | {"paused", "cancelled"}

    def create(self) -> None:
        if self.db.engine == "postgres":
            self.db.script("""
                create type crawl_status as enum
                    ('pending', 'processing', 'completed', 'failed', 'paused', 'cancelled')
            """)  # fmt: skip
        self.db.script(self.ddl.replace("{status}", self.status_type[self.db.engine]))

    def leave_rows(self) -> None:
        claimed = {"status": "processing", "total_pending": 7}
        message = "Job crashed and exceeded max retries"
        rows: dict[str, dict[str, Any]] = {
            "waiting": {},
            "tried": {"retry_count": 1, "last_heartbeat": LONG_AGO},
            "used-up": {"retry_count": 3, "last_heartbeat": LONG_AGO},
            "alive": {**claimed, "worker_id": "old-alive", "last_heartbeat": NOW},
            "dead": {**claimed, "worker_id": "old-dead", "last_heartbeat": LONG_AGO, "retry_count": 1},
            "last-chance": {**claimed, "worker_id": "old-dead", "last_heartbeat": LONG_AGO, "retry_count": 2},
            "done": {"status": "completed"},
            "failed": {"status": "failed", "retry_count": 2, "error_message": message},
            "paused": {"status": "paused", "total_pending": 7},
            "cancelled": {"status": "cancelled"},
        }
        for kind, columns in rows.items():
            pending = columns.pop("total_pending", 0)
            id = self.leave(start_url=f"https://{kind}.example", created_at=LONG_AGO, **columns)
            self.db.changed("insert into crawl_states (crawl_id, total_pending) values (:id, :n)", id=id, n=pending)

    def submit(self, subject: str) -> str:
        with self.db.transaction():
            id = str(self.db.value("insert into crawl_jobs (start_url) values (:url) returning id", url=subject))
            self.db.changed("insert into crawl_states (crawl_id) values (:id)", id=id)
        return id

    def delete(self, id: str) -> int:
        self.db.changed("delete from crawl_states where crawl_id = :id", id=id)
        return super().delete(id)

    def reset(self, id: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'pending', retry_count = 0, error_message = null
             where id = :id and status = 'failed'
        """, id=id)  # fmt: skip

    # -- what people ask for -------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'cancelled' where id = :id and status in ('pending', 'processing', 'paused')
        """, id=id)  # fmt: skip

    def pause(self, id: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'paused' where id = :id and status in ('pending', 'processing')
        """, id=id)  # fmt: skip

    def resume(self, id: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'pending', worker_id = null where id = :id and status = 'paused'
        """, id=id)  # fmt: skip

    # -- the old supervisor and watchdog -------------------------------------------------------------------------------

    def claim(self, worker: str) -> Taken | None:
        with self.db.transaction():
            found = self.db.row("""
                select id, start_url from crawl_jobs where status = 'pending' order by created_at limit 1 {skip_locked}
            """)  # fmt: skip
            if found is None:
                return None
            self.db.changed("""
                update crawl_jobs set status = 'processing', worker_id = :worker, last_heartbeat = {now} where id = :id
            """, id=found["id"], worker=worker)  # fmt: skip
        return Taken(found["id"], found["start_url"])

    def heartbeat(self, id: str, worker: str) -> None:
        self.db.changed("""
            update crawl_jobs set last_heartbeat = {now}
             where id = :id and status = 'processing' and worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def finish(self, id: str, worker: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'completed', worker_id = null
             where id = :id and status = 'processing' and worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def fail(self, id: str, worker: str) -> int:
        return self.db.changed("""
            update crawl_jobs set status = 'failed', worker_id = null, error_message = 'the site did not answer'
             where id = :id and status = 'processing' and worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def let_go(self, id: str, worker: str) -> None:
        self.db.changed("""
            update crawl_jobs set worker_id = null
             where id = :id and status in ('paused', 'cancelled') and worker_id = :worker
        """, id=id, worker=worker)  # fmt: skip

    def watchdog(self) -> int:
        stale = "status = 'processing' and last_heartbeat < {ago}"
        return self.db.changed(f"""
            update crawl_jobs set status = 'pending', worker_id = null, retry_count = retry_count + 1
             where {stale} and retry_count + 1 < max_retries
        """, seconds=self.lease) + self.db.changed(f"""
            update crawl_jobs set status = 'failed', worker_id = null,
                                  error_message = 'Job crashed and exceeded max retries'
             where {stale} and retry_count + 1 >= max_retries
        """, seconds=self.lease)  # fmt: skip

    # -- readers -------------------------------------------------------------------------------------------------------

    def total_pending(self) -> int:
        """How much the crawls that run have before them."""
        return int(self.db.value("""
            select coalesce(sum(s.total_pending), 0) from crawl_states s join crawl_jobs j on j.id = s.crawl_id
             where j.status = 'processing'
        """))  # fmt: skip

    def pending(self) -> dict[str, int]:
        """The same, of each."""
        found = self.db.rows("""
            select j.id, s.total_pending from crawl_states s join crawl_jobs j on j.id = s.crawl_id
             where j.status = 'processing'
        """)  # fmt: skip
        return {row["id"]: row["total_pending"] for row in found}

    def stale(self) -> list[str]:
        found = self.db.rows(
            "select id from crawl_jobs where status = 'processing' and last_heartbeat < {ago}", seconds=self.lease
        )
        return [row["id"] for row in found]

    def wrong(self) -> list[dict[str, Any]]:
        return self.db.rows("""
            select * from crawl_jobs
             where status = 'processing' and (worker_id is null or last_heartbeat is null)
                or status = 'pending' and worker_id is not null
                or status = 'failed' and error_message is null
        """)  # fmt: skip
