"""The tables as the application has them, and its own SQL. Nothing here knows Holdfast."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from examples import databases
from examples.databases import connect, is_sqlite

__all__ = ["connect", "is_sqlite"]

RECENT = """
    select id, url, status, created_at, completed_at, priority, retry_count, score, error_message
      from audits order by created_at desc limit 30
"""
# How the sites of the night stand: the failed ones first, then the worst.
NIGHTLY = """
    select sites.url, last.id, last.status, last.score, last.completed_at, (
           select score from audits where url = sites.url and status = 'completed' and created_at < last.created_at
            order by created_at desc limit 1) as score_before
      from sites join audits as last on last.id = (
           select id from audits where url = sites.url and status in ('completed', 'failed')
            order by created_at desc limit 1)
     order by case when last.status = 'failed' then -1 else last.score end, sites.url limit 1000
"""
# A site's audits, newest first. It is the same site if the same address was asked for, or if it led to the same page.
HISTORY = """
    select one.id, one.completed_at, one.score
      from audits as this join audits as one
        on (one.site = this.site or one.url = this.url) and one.status = 'completed'
     where this.id = ? order by one.completed_at desc limit 50
"""
# What was found of the same site before.
PREVIOUS = """
    select older.id, older.completed_at, older.score, older.scores, older.findings
      from audits as this join audits as older
        on (older.site = this.site or older.url = this.url) and older.status = 'completed'
       and older.completed_at < this.completed_at
     where this.id = ? order by older.completed_at desc limit 1
"""
COUNTED = "select status, count(*) as audits from audits group by status"
# The page's own question about its queue, as it was before: who has not been heard of for five minutes?
STALE = {
    True: """
        select id, processing_worker_id, last_heartbeat from audits
         where status = 'processing' and last_heartbeat < strftime('%Y-%m-%d %H:%M:%f', 'now', '-5 minutes')
    """,
    False: """
        select id, processing_worker_id, last_heartbeat from audits
         where status = 'processing' and last_heartbeat < now() - interval '5 minutes'
    """,
}
ANALYZE = "insert into audits (url) values (?) returning id"
# One audit a night for each site, unless one is under way. The rule of who goes first: sites that were bad the last
# time, then those that were never audited, then the others. People who wait come before all of them (10).
OVERNIGHT = """
    insert into audits (url, priority)
    select sites.url, case when last.score < 50 then 5 when last.score is null then 3 else 0 end
      from sites left join audits as last on last.id = (
           select id from audits where url = sites.url and status = 'completed' order by completed_at desc limit 1)
     where not exists (select 1 from audits
                        where audits.url = sites.url and audits.status in ('pending', 'processing'))
"""
BROKEN = "select url, problem, found_on, pages from broken_links where audit_id = ? order by pages desc, url"


def create(url: str) -> None:
    databases.create(url, Path(__file__).parent)


def rows(url: str, statement: str, *values: Any) -> list[dict[str, Any]]:
    """What a statement of ours finds, with times as text and JSON as values."""
    with connect(url) as db:
        found = db.execute(written(url, statement), values)
        names = [column[0] for column in found.description or ()]
        return [{name: _plain(name, value) for name, value in zip(names, row, strict=True)} for row in found.fetchall()]


def written(url: str, statement: str) -> str:
    """With parameters as this database's driver has them."""
    return statement if is_sqlite(url) else statement.replace("?", "%s")


def analyze(url: str, address: str) -> str:
    """All that the button does: a row that waits."""
    [row] = rows(url, ANALYZE, address)
    return str(row["id"])


def keep_broken(db: Any, url: str, audit: str, links: Iterable[tuple[str, str, str, int]]) -> None:
    """In the transaction of `db`."""
    db.execute(written(url, "delete from broken_links where audit_id = ?"), [audit])
    insert = written(url, "insert into broken_links (audit_id, url, problem, found_on, pages) values (?, ?, ?, ?, ?)")
    db.cursor().executemany(insert, [(audit, *link) for link in links])


def counted(url: str) -> dict[str, int]:
    """Audits by their status."""
    return {row["status"]: row["audits"] for row in rows(url, COUNTED)}


def stale(url: str) -> list[dict[str, Any]]:
    return rows(url, STALE[is_sqlite(url)])


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, int):
        return value
    if name in ("scores", "findings"):
        return json.loads(value) if isinstance(value, str) else value
    if name.endswith("_at") or name == "last_heartbeat":
        return value.isoformat() if hasattr(value, "isoformat") else f"{value.replace(' ', 'T')}Z"
    return str(value)
