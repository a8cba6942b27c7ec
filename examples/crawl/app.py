"""The application: its table as a queue, and the handler that works a row."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from examples.crawl import urls
from examples.crawl.crawler import AGENT, Config, Crawler
from examples.crawl.database import Database, connect
from examples.crawl.fetch import Limits
from examples.crawl.frontier import Frontier
from examples.crawl.hosts import Hosts
from holdfast import Fail, Holdfast, Job, JobContext, presets

URL = os.environ.get("HOLDFAST_URL", "sqlite:///crawl.db")
VARIABLES = ["CRAWL_AGENT", "CRAWL_ALLOW_PRIVATE", "CRAWL_FIRST_RETRY", "CRAWL_PROGRESS_TIMEOUT", "CRAWL_TIMEOUT"]

hf = Holdfast(URL, preset="crawl")
crawls = hf.adopt(**presets.crawl_jobs)


@dataclass
class Row:
    """The columns that the handler wants."""

    id: str
    start_url: str
    scope: urls.ScopeKind
    max_depth: int | None
    max_pages: int
    delay: float


@crawls.task(
    database=True, env=VARIABLES, progress_timeout=float(os.environ.get("CRAWL_PROGRESS_TIMEOUT", "60")),
)  # fmt: skip
def crawl(ctx: JobContext, row: Row) -> None:
    try:
        start = urls.parse(row.start_url)
    except urls.NotForUs as error:
        raise Fail(str(error), code="ADDRESS") from None
    with connect(hf.settings.url) as db:
        frontier = Frontier(db, row.id, urls.Scope(row.scope), row.max_depth, checkpoint_on(ctx, db))
        crawler = Crawler(
            frontier, Hosts(db, row.id, ctx.fence), config_of(row), ctx.should_stop,
            lambda note: ctx.progress(frontier.done, total=frontier.done + frontier.pending, note=note),
        )  # fmt: skip
        frontier.begin(start)
        done = asyncio.run(crawler.run())
        if done and frontier.pages == 0 and (why := frontier.why_no_start()) is not None:
            code, reason = why
            raise Fail(f"the start page can't be had: {reason}", code=code)


def checkpoint_on(ctx: JobContext, db: Database) -> Callable[[int, int], None]:
    """Saves how much is left in the transaction that changes it: whoever lost the crawl can commit nothing."""

    def save(pending: int, done: int) -> None:
        ctx.checkpoint(None, pending=pending, done=done, conn=db.connection)

    return save


def config_of(row: Row) -> Config:
    said = os.environ.get
    limits = Limits(
        agent=said("CRAWL_AGENT", f"{AGENT}/1.0 (an example application)"),
        timeout=float(said("CRAWL_TIMEOUT", "20")),
        allow_private=said("CRAWL_ALLOW_PRIVATE") == "1",
    )
    return Config(row.delay, row.max_pages, limits, first_retry=float(said("CRAWL_FIRST_RETRY", "1")))


def submit(
    url: str,
    *,
    scope: urls.ScopeKind = "host",
    max_depth: int | None = None,
    max_pages: int = 100_000,
    delay: float = 1.0,
) -> Job[None]:
    """A row is a crawl: whoever inserts one has asked for it."""
    return crawls.submit(
        start_url=urls.parse(url).url, scope=scope, max_depth=max_depth, max_pages=max_pages, delay=delay
    )


def set_up() -> None:
    """The tables, and what adopts them, unless they are there."""
    hf.migrate()  # first: it says what is wrong with the database, if anything is
    with connect(hf.settings.url) as db:
        db.create()
    if crawls.problems():
        crawls.install()
