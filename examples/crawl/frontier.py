"""What a crawl knows, as rows: the addresses before it and behind it, its pages, links and errors. All that one request
leads to is written in one transaction, together with the checkpoint that says how much is left."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from examples.crawl import traps, urls
from examples.crawl.database import Database
from examples.crawl.fetch import FetchFailed
from examples.crawl.parse import Page
from examples.crawl.urls import Address
from examples.safe_http import Reply

Kind = Literal["page", "sitemap"]


@dataclass(frozen=True)
class Todo:
    """An address that is to be asked."""

    id: int
    address: Address
    kind: Kind
    depth: int
    hops: int  # redirects that led here
    chain: int
    tries: int


@dataclass(frozen=True)
class Before:
    """The same page in an earlier crawl."""

    url_id: int
    etag: str | None
    last_modified: str | None

    @property
    def headers(self) -> dict[str, str]:
        asked = {"If_None_Match": self.etag, "If_Modified_Since": self.last_modified}
        return {name: value for name, value in asked.items() if value}


class Frontier:
    """`save(pending, done)` saves the checkpoint on the connection's open transaction, or raises LeaseLost."""

    def __init__(
        self, db: Database, crawl: str, scope: urls.Scope, max_depth: int | None, save: Callable[[int, int], None]
    ) -> None:
        self._db = db
        self._crawl = crawl
        self._scope = scope
        self._max_depth = max_depth
        self._save = save
        self._known: set[str] = set()  # addresses that need no insert: this attempt saw them
        self.waiting: set[str] = set()  # hosts with addresses to ask
        self.pending = self.done = self.pages = 0

    # -- at the beginning ----------------------------------------------------------------------------------------------

    def begin(self, start: Address) -> None:
        """As the attempt before left it, or with the start page."""
        with self.transaction():
            self._add([(start, 0)], "page", depth=0)
            # If it could not be had, the crawl failed; somebody wants it tried once more.
            again = self._db.changed(
                f"""
                update crawl_urls set state = 'todo', tries = 0, reason = null
                 where crawl_id = :crawl and {NO_START}
                """,  # noqa: S608 - no values
                crawl=self._crawl,
            )
            self.pending, self.done = self.pending + again, self.done - again
        self._scope.starts = [urls.parse(row["url"]) for row in self._rows("kind = 'page' and depth = 0", "url")]
        self.waiting = {row["host"] for row in self._rows("state = 'todo'", "distinct host")}

    def _rows(self, which: str, what: str) -> list[dict[str, Any]]:
        return self._db.rows(f"select {what} from crawl_urls where crawl_id = :crawl and {which}", crawl=self._crawl)  # noqa: S608

    def _count(self) -> None:
        [row] = self._rows(
            "true", "count(*) as n, coalesce(sum(case when state = 'todo' then 1 else 0 end), 0) as todo"
        )
        self.pending, self.done = int(row["todo"]), int(row["n"]) - int(row["todo"])
        self.pages = int(
            self._db.value("select count(*) as n from crawl_pages where crawl_id = :crawl", crawl=self._crawl)
        )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is written here, and how much is left then, are one commit."""
        try:
            with self._db.transaction():
                if not self._known:
                    self._count()
                yield
                self._save(self.pending, self.done)
        except BaseException:
            self._known.clear()  # not committed: count again
            raise

    # -- what is next --------------------------------------------------------------------------------------------------

    def next_of(self, host: str) -> Todo | float | None:
        """The next address of this host, the seconds until there is one, or None: it has none left. What failed comes
        last: when a host is down, each address loses a try, before one of them loses all."""
        row = self._db.row(
            """
            select id, coalesce(asked, url) as url, kind, depth, hops, chain, tries from crawl_urls
             where crawl_id = :crawl and host = :host and state = 'todo' and not_before <= {epoch}
             order by tries, depth, id limit 1
            """,
            crawl=self._crawl, host=host,
        )  # fmt: skip
        if row is not None:
            return Todo(address=urls.parse(row.pop("url")), **row)
        wait = self._db.value(
            """
            select min(not_before) - {epoch} as wait from crawl_urls
             where crawl_id = :crawl and host = :host and state = 'todo'
            """,
            crawl=self._crawl, host=host,
        )  # fmt: skip
        return None if wait is None else max(0.0, float(wait))

    def before(self, address: Address) -> Before | None:
        row = self._db.row(
            """
            select url_id, etag, last_modified from crawl_pages
             where url = :url and crawl_id <> :crawl and (etag is not null or last_modified is not null)
             order by fetched_at desc limit 1
            """,
            url=address.url, crawl=self._crawl,
        )  # fmt: skip
        return None if row is None else Before(**row)

    # -- what came of one, inside `transaction` ------------------------------------------------------------------------

    def store(self, todo: Todo, answer: Reply, page: Page) -> None:
        """The page, and the addresses that it leads to."""
        body = answer.body
        self._db.changed(
            """
            insert into crawl_pages (url_id, crawl_id, url, status, content_type, title, size, sha256, etag,
                                     last_modified, nofollow, body, fetched_at)
            values (:id, :crawl, :url, :status, :type, :title, :size, :sha256, :etag, :modified, :nofollow, :body,
                    {epoch})
            """,
            id=todo.id, crawl=self._crawl, url=todo.address.url, status=answer.status, type=answer.kind,
            title=page.title, size=len(body), sha256=hashlib.sha256(body).hexdigest(), etag=_header(answer, "etag"),
            modified=_header(answer, "last-modified"), nofollow=page.nofollow, body=zlib.compress(body),
        )  # fmt: skip
        self._db.changed_by_all(
            "insert into crawl_links (page_id, target) values (:page, :target) on conflict do nothing",
            ({"page": todo.id, "target": link.url} for link in page.links),
        )
        self.pages += 1
        self._ended(todo, "done")
        if not page.nofollow:
            self._follow(todo, page.links)

    def store_unchanged(self, todo: Todo, before: Before) -> None:
        """The host says that the page is as an earlier crawl stored it."""
        stored = self._db.changed(
            """
            insert into crawl_pages (url_id, crawl_id, url, status, content_type, title, size, sha256, etag,
                                     last_modified, nofollow, body, fetched_at)
            select u.id, u.crawl_id, u.url, 304, content_type, title, size, sha256, etag, last_modified, nofollow, body,
                   {epoch}
              from crawl_pages p, crawl_urls u where p.url_id = :before and u.id = :id
            """,
            id=todo.id, before=before.url_id,
        )  # fmt: skip
        if not stored:
            gone = FetchFailed("HTTP_304", "the page of the earlier crawl was deleted meanwhile", again=True)
            self.failed(todo, gone, again_after=0.0)
            return
        self._db.changed(
            """
            insert into crawl_links (page_id, target)
            select u.id, target from crawl_links l, crawl_urls u where l.page_id = :before and u.id = :id
            """,
            id=todo.id, before=before.url_id,
        )  # fmt: skip
        self.pages += 1
        self._ended(todo, "done")
        links = self._db.rows(
            """
            select coalesce(u.asked, l.target) as url
              from crawl_pages p
              join crawl_links l on l.page_id = p.url_id
              left join crawl_urls u on u.crawl_id = p.crawl_id and u.url = l.target
             where p.url_id = :before and not p.nofollow
            """,
            before=before.url_id,
        )
        self._follow(todo, [urls.parse(row["url"]) for row in links])

    def store_sitemap(self, todo: Todo, pages: list[Address], sitemaps: list[Address]) -> None:
        self._ended(todo, "done")
        self._follow(todo, pages, depth=1)
        if todo.hops < MOST_NESTED:
            ours = [(a, 0) for a in sitemaps if a.origin == todo.address.origin or self._scope.includes(a)]
            self._add(ours, "sitemap", depth=0, hops=todo.hops + 1)

    def redirect(self, todo: Todo, target: Address) -> None:
        """The target is an address like any other. Where the start page redirects is a start page, too."""
        if target.url == todo.address.url:  # the host wants its parameters in another order
            self._db.changed(
                "update crawl_urls set asked = :asked, hops = hops + 1 where id = :id", id=todo.id, asked=target.asked
            )
            return
        self._ended(todo, "redirected", target.url)
        if todo.kind == "page" and todo.depth == 0:
            self._scope.starts.append(target)
        if todo.kind == "sitemap" or self._scope.includes(target):
            chained = self._chained(todo, [target])
            self._add(chained, todo.kind, depth=todo.depth, hops=todo.hops + 1, found_on=todo.id)

    def skip(self, todo: Todo, reason: str) -> None:
        self._ended(todo, "skipped", reason)

    def failed(self, todo: Todo, why: FetchFailed, again_after: float | None) -> None:
        """`again_after`: the seconds after which it is tried again; None: never."""
        self._db.changed(
            """
            insert into crawl_errors (url_id, crawl_id, at, code, message)
            values (:id, :crawl, {epoch}, :code, :message)
            """,
            id=todo.id, crawl=self._crawl, code=why.code, message=_clean(why.message),
        )  # fmt: skip
        self._db.changed("update crawl_urls set tries = tries + 1 where id = :id", id=todo.id)
        if again_after is None:
            self._ended(todo, "dead", f"{why.code}: {why.message}")
        else:
            self._db.changed(
                "update crawl_urls set not_before = {epoch} + :after where id = :id", id=todo.id, after=again_after
            )

    def why_no_start(self) -> tuple[str, str] | None:
        """A code and the reason why the start page, or what it redirects to, is no page of this crawl."""
        rows = self._rows(f"{NO_START} order by id desc limit 1", "state, reason")
        if not rows:
            return None
        reason = rows[0]["reason"]
        return reason.partition(":")[0] if rows[0]["state"] == "dead" else "SKIPPED", reason

    def leads_back(self, todo: Todo, target: Address, most: int) -> bool:
        """The target was asked before, and it redirects to this address, if not at once."""
        url = target.url
        for _ in range(most):
            rows = self._db.rows(
                "select reason from crawl_urls where crawl_id = :crawl and url = :url and state = 'redirected'",
                crawl=self._crawl, url=url,
            )  # fmt: skip
            if not rows:
                return False
            url = rows[0]["reason"]
            if url == todo.address.url:
                return True
        return False

    def give_up(self, host: str, reason: str) -> None:
        """All that is left of a host is dead."""
        self._ended_all("host = :host", "dead", reason, host=host)

    def leave_rest(self, reason: str) -> None:
        self._ended_all("true", "skipped", reason)

    def add_sitemaps(self, addresses: list[Address]) -> None:
        if self._max_depth != 0:
            self._add([(address, 0) for address in addresses], "sitemap", depth=0)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _ended(self, todo: Todo, state: str, reason: str | None = None) -> None:
        ended = self._db.changed(
            "update crawl_urls set state = :state, reason = :reason where id = :id and state = 'todo'",
            id=todo.id, state=state, reason=_clean(reason),
        )  # fmt: skip
        self.pending -= ended
        self.done += ended

    def _ended_all(self, which: str, state: str, reason: str, **values: str) -> None:
        ended = self._db.changed(
            f"""
            update crawl_urls set state = :state, reason = :reason
             where crawl_id = :crawl and state = 'todo' and {which}
            """,  # noqa: S608 - no values
            crawl=self._crawl, state=state, reason=_clean(reason), **values,
        )  # fmt: skip
        self.pending -= ended
        self.done += ended

    def _follow(self, todo: Todo, links: list[Address], depth: int | None = None) -> None:
        depth = todo.depth + 1 if depth is None else depth
        if self._max_depth is not None and depth > self._max_depth:
            return
        new = [link for link in links if link.url not in self._known and self._scope.includes(link)]
        self._add(self._chained(todo, new), "page", depth=depth, found_on=todo.id)

    def _chained(self, todo: Todo, links: list[Address]) -> list[tuple[Address, int]]:
        """With how many pages in a row were found on one of the same form: on this one, or on the one before it."""
        before = self._db.rows(
            "select url, chain from crawl_urls where id = (select found_on from crawl_urls where id = :id)", id=todo.id
        )
        behind = {traps.shape(urls.parse(row["url"])): row["chain"] for row in before}
        behind[traps.shape(todo.address)] = todo.chain
        return [(link, traps.chain(link, behind)) for link in links]

    def _add(
        self, several: list[tuple[Address, int]], kind: Kind, *, depth: int, hops: int = 0, found_on: int | None = None
    ) -> None:
        """Addresses, each with how many pages in a row were found on one of the same form."""
        todo: list[dict[str, Any]] = []
        skipped: list[dict[str, Any]] = []
        for address, chain in several:
            why = traps.trap(address, chain)
            row = {
                "crawl": self._crawl, "url": address.url[: urls.LONGEST], "host": address.origin, "kind": kind,
                "asked": address.asked[: urls.LONGEST] if address.asked != address.url else None,
                "depth": depth, "hops": hops, "chain": chain, "found_on": found_on,
                "state": "skipped" if why else "todo", "reason": why and f"trap: {why}",
            }  # fmt: skip
            (skipped if why else todo).append(row)
        self.pending += self._db.changed_by_all(ADD, todo)
        self.done += self._db.changed_by_all(ADD, skipped)
        self.waiting |= {row["host"] for row in todo}
        self._known |= {address.url for address, _ in several}


ADD = """
    insert into crawl_urls (crawl_id, url, asked, host, kind, depth, hops, chain, found_on, state, reason)
    values (:crawl, :url, :asked, :host, :kind, :depth, :hops, :chain, :found_on, :state, :reason)
    on conflict do nothing
"""
NO_START = "kind = 'page' and depth = 0 and state in ('dead', 'skipped')"
MOST_NESTED = 3  # lists of lists of sitemaps


def _header(answer: Reply, name: str) -> str | None:
    value = answer.headers.get(name)
    return None if value is None else _clean(value)


def _clean(text: str | None) -> str | None:
    """PostgreSQL keeps no NUL, and no half characters."""
    return None if text is None else text.replace("\0", "").encode("utf-8", "replace").decode()[:1_000]
