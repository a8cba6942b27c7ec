"""What a crawl found, as CSV: its pages, links, errors, dead links, and what it skipped."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from examples.crawl.database import Database


@dataclass(frozen=True)
class Export:
    columns: tuple[str, ...]
    query: str


EXPORTS = {
    "pages": Export(
        ("url", "status", "depth", "title", "content_type", "size", "sha256", "etag", "last_modified", "fetched_at"),
        """
        select p.url, p.status, u.depth, p.title, p.content_type, p.size, p.sha256, p.etag, p.last_modified,
               p.fetched_at
          from crawl_pages p join crawl_urls u on u.id = p.url_id where p.crawl_id = :id order by p.url_id
        """,
    ),
    "links": Export(
        ("page", "target"),
        """
        select p.url, l.target from crawl_links l join crawl_pages p on p.url_id = l.page_id
         where p.crawl_id = :id order by p.url_id, l.target
        """,
    ),
    "errors": Export(
        ("at", "url", "code", "message", "tries", "state"),
        """
        select e.at, u.url, e.code, e.message, u.tries, u.state
          from crawl_errors e join crawl_urls u on u.id = e.url_id where e.crawl_id = :id order by e.id
        """,
    ),
    "dead-links": Export(
        ("page", "target", "reason"),
        """
        with recursive dead(url, reason) as (
            select url, reason from crawl_urls where crawl_id = :id and state = 'dead'
             union
            select u.url, d.reason from dead d
              join crawl_urls u on u.crawl_id = :id and u.state = 'redirected' and u.reason = d.url
        )
        select p.url, l.target, d.reason
          from dead d
          join crawl_links l on l.target = d.url
          join crawl_pages p on p.url_id = l.page_id and p.crawl_id = :id
         order by l.target, p.url_id
        """,
    ),
    "skipped": Export(
        ("url", "reason"),
        "select url, reason from crawl_urls where crawl_id = :id and state = 'skipped' order by id",
    ),
}
TIMES = ("at", "fetched_at")


def lines(db: Database, export: Export, crawl: str) -> Iterator[str]:
    """One line at a time, however many there are."""
    yield _line(export.columns)
    times = [n for n, name in enumerate(export.columns) if name in TIMES]
    for row in db.stream(export.query, id=crawl):
        cells = list(row)
        for n in times:
            cells[n] = datetime.fromtimestamp(cells[n], UTC).isoformat(timespec="milliseconds")
        yield _line(cells)


def _line(cells: Any) -> str:
    written = io.StringIO()
    csv.writer(written).writerow([_harmless(cell) for cell in cells])
    return written.getvalue()


def _harmless(cell: Any) -> Any:
    """A title is a stranger's text: a spreadsheet would take some of them for formulas."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
