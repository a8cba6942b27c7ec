"""Politeness: one request to a host at a time, whichever crawl wants it, and a pause between two. Who asks next is
settled in the database, so a crawl that was killed in the middle of a request leaves its pause behind, too. What a host
asks of crawlers is kept there as well."""

from __future__ import annotations

from dataclasses import dataclass

from examples.crawl import robots
from examples.crawl.database import Database

ROBOTS_LAST = 24 * 3600.0  # seconds until a robots.txt is read again
LOOK_AGAIN = 0.25  # seconds between two looks at a host that another crawl asks


@dataclass(frozen=True)
class Hosts:
    """The hosts as one attempt of a crawl sees them. `fence`: of the attempt."""

    db: Database
    crawl: str
    fence: str

    def take(self, host: str, delay: float) -> float:
        """0: it is ours to ask, once. Otherwise the seconds after which to try again."""
        with self.db.transaction():
            self.db.changed("insert into crawl_hosts (host) values (:host) on conflict do nothing", host=host)
            lock = "for update of h" if self.db.engine == "postgres" else ""
            row = self.db.row(
                f"""
                select last_at, not_before, crawl_id, fence, {{epoch}} as now,
                       (select status from crawl_jobs j where j.id = h.crawl_id) as status
                  from crawl_hosts h where host = :host {lock}
                """,  # noqa: S608 - no values
                host=host,
            )
            assert row is not None
            if row["crawl_id"] is not None and str(row["fence"]) != self.fence:
                if str(row["crawl_id"]) != self.crawl and row["status"] == "processing":
                    return LOOK_AGAIN
                # Whoever asked it is dead, and his last request may have been sent just now.
                self._freed(host, row["fence"], 0.0)
                return max(delay, float(row["not_before"] - row["now"]))
            wait = float(max(row["last_at"] + delay, row["not_before"]) - row["now"])
            if wait > 0:
                return wait
            self.db.changed(
                "update crawl_hosts set crawl_id = :crawl, fence = :fence where host = :host",
                host=host, crawl=self.crawl, fence=self.fence,
            )  # fmt: skip
            return 0.0

    def free(self, host: str, after: float | None = None) -> None:
        """Our request is over, and the pause begins. `after`: what the host asked for on top of it."""
        self._freed(host, self.fence, after or 0.0)

    def _freed(self, host: str, fence: str, after: float) -> None:
        self.db.changed(
            """
            update crawl_hosts
               set crawl_id = null, fence = null, last_at = {epoch},
                   not_before = case when not_before > {epoch} + :after then not_before else {epoch} + :after end
             where host = :host and fence = :fence
            """,
            host=host, fence=fence, after=after,
        )  # fmt: skip

    def robots(self, origin: str, agent: str) -> robots.Robots | None:
        """What is known of its rules. None: they have to be read (again)."""
        row = self.db.row(
            "select status, body from crawl_robots where origin = :origin and until > {epoch}", origin=origin
        )
        return None if row is None else rules(row["status"], bytes(row["body"]), agent)

    def keep_robots(self, origin: str, status: int, body: bytes) -> None:
        self.db.changed(
            """
            insert into crawl_robots (origin, status, body, until) values (:origin, :status, :body, {epoch} + :lasts)
            on conflict (origin) do update
               set status = excluded.status, body = excluded.body, until = excluded.until
            """,
            origin=origin, status=status, body=body, lasts=ROBOTS_LAST,
        )  # fmt: skip


def rules(status: int, body: bytes, agent: str) -> robots.Robots:
    """A site without a robots.txt allows everything."""
    return robots.parse(body, agent) if 200 <= status < 300 else robots.Robots()
