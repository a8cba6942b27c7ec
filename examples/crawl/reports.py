"""How crawls stand, for the page and the command line."""

from __future__ import annotations

from typing import Any

from examples.crawl.database import Database

WINDOW = 10.0  # seconds over which pages a second are counted
NEWEST = 8  # pages, errors and hosts that are shown

JOBS = """
    select j.id, j.start_url, j.scope, j.max_depth, j.max_pages, j.delay, j.status, j.created_at, j.worker_id,
           j.last_heartbeat, j.retry_count, j.max_retries, j.error_message, coalesce(s.total_pending, 0) as pending,
           (select count(*) from crawl_pages p where p.crawl_id = j.id) as pages
      from crawl_jobs j left join crawl_states s on s.crawl_id = j.id
"""


def all_crawls(db: Database) -> list[dict[str, Any]]:
    """The newest first."""
    return [_plain(row) for row in db.rows(f"{JOBS} order by j.created_at desc, j.id limit 50")]


def total_pending(db: Database) -> int:
    """How much the crawls that run have before them: the query that was there before."""
    return int(
        db.value("""
            select coalesce(sum(s.total_pending), 0) as n from crawl_states s join crawl_jobs j on j.id = s.crawl_id
             where j.status = 'processing'
        """)
    )


def one_crawl(db: Database, id: str) -> dict[str, Any] | None:
    if not known(db, id):
        return None
    [found] = [_plain(row) for row in db.rows(f"{JOBS} where j.id = :id", id=id)]
    counts = {row["state"]: row["n"] for row in db.rows(
        "select state, count(*) as n from crawl_urls where crawl_id = :id group by state", id=id
    )}  # fmt: skip
    recent = db.value(
        "select count(*) as n from crawl_pages where crawl_id = :id and fetched_at > {epoch} - :window",
        id=id, window=WINDOW,
    )  # fmt: skip
    return found | {
        "pages_a_second": round(recent / WINDOW, 1),
        "todo": counts.get("todo", 0),
        "dead": counts.get("dead", 0),
        "skipped": counts.get("skipped", 0),
        "redirected": counts.get("redirected", 0),
        "errors": db.value("select count(*) as n from crawl_errors where crawl_id = :id", id=id),
        "links": db.value(
            "select count(*) as n from crawl_links l join crawl_pages p on p.url_id = l.page_id where p.crawl_id = :id",
            id=id,
        ),
        "bytes": db.value("select coalesce(sum(size), 0) as n from crawl_pages where crawl_id = :id", id=id),
        "hosts": _hosts(db, id),
        "hosts_known": db.value("select count(distinct host) as n from crawl_urls where crawl_id = :id", id=id),
        "newest_pages": db.rows(
            """
            select url, title, status, size, fetched_at from crawl_pages where crawl_id = :id
             order by fetched_at desc limit :most
            """,
            id=id, most=NEWEST,
        ),
        "newest_errors": db.rows(
            """
            select u.url, u.tries, u.state, e.at, e.code, e.message
              from crawl_errors e join crawl_urls u on u.id = e.url_id
             where e.crawl_id = :id order by e.id desc limit :most
            """,
            id=id, most=NEWEST,
        ),
    }  # fmt: skip


def known(db: Database, id: str) -> bool:
    """Ids are compared as text: what is no UUID is no crawl, and no error."""
    return bool(db.rows("select 1 as found from crawl_jobs where cast(id as text) = :id", id=id))


def _hosts(db: Database, id: str) -> list[dict[str, Any]]:
    """Those with the most to ask."""
    return db.rows(
        """
        select u.host, count(*) as urls, sum(case when u.state = 'todo' then 1 else 0 end) as todo,
               max(r.status) as robots_status,
               max(case when h.not_before > {epoch} then h.not_before - {epoch} else 0 end) as asks_to_wait
          from crawl_urls u
          left join crawl_robots r on r.origin = u.host
          left join crawl_hosts h on h.host = replace(replace(u.host, 'https://', ''), 'http://', '')
         where u.crawl_id = :id group by u.host order by 3 desc, 2 desc, 1 limit :most
        """,
        id=id, most=NEWEST,
    )  # fmt: skip


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Ids and times as text."""
    return {
        name: str(value) if value is not None and name in ("id", "created_at", "last_heartbeat") else value
        for name, value in row.items()
    }
