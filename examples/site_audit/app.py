"""The application: its table as a queue, the handler that works a row, and what happens at night."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import msgspec

from examples.safe_http import Fetcher, Refused
from examples.site_audit import database
from examples.site_audit.browser import browser_tier
from examples.site_audit.links import Walk
from examples.site_audit.page import LARGEST, ROBOT, fetch_page, rules_of
from examples.site_audit.reading import READER
from examples.site_audit.tier import Report, Tier, report
from holdfast import Exponential, Fail, Holdfast, JobContext, Retry, presets

URL = os.environ.get("HOLDFAST_URL", "sqlite:///site-audit.db")
ALLOW_PRIVATE = os.environ.get("SITE_AUDIT_ALLOW_PRIVATE") == "1"  # audit sites of private networks
BACKOFF = float(os.environ.get("SITE_AUDIT_BACKOFF", "60"))  # seconds before the second attempt
NIGHT = os.environ.get("SITE_AUDIT_NIGHT", "0 2 * * *")  # when the sites of the table `sites` are audited
AGENT = f"{ROBOT} (an example application)"
LONGEST = 3_600.0  # seconds for one attempt
LARGEST_RESULT = 8 * 2**20  # bytes: all that a page can make us find, and a robots.txt, have room in a checkpoint
FRESH = 3_600.0  # seconds for which a tier of an earlier attempt is still true

hf = Holdfast(URL, preset="site-audit", max_result=LARGEST_RESULT)
audits = hf.adopt(
    **presets.audits | {
        "priority": "priority", "finished_at": "completed_at", "error_code": "error_code",
        "error_message": "error_message", "payload": ["id", "url"],
        "results": {name: name for name in Report.__dataclass_fields__},
    }
)  # fmt: skip


@dataclass
class Row:
    """The columns that the handler wants."""

    id: str
    url: str


@audits.task(retry=Exponential(base=BACKOFF, factor=4.0, cap=1_800.0), timeout=LONGEST)
def analyse(ctx: JobContext, row: Row) -> Report:
    try:
        with Fetcher(AGENT, allow_private=ALLOW_PRIVATE, largest=LARGEST, compressed=True) as fetcher:
            return Audit(ctx, row, fetcher).run()
    except Refused as refused:
        if refused.permanent:
            raise Fail(refused.reason, code=refused.code) from None
        raise Retry(refused.reason, code=refused.code) from None


class Audit:
    """One attempt. Each tier's result is a checkpoint, so that a killed worker's heir repeats at most one of them."""

    def __init__(self, ctx: JobContext, row: Row, fetcher: Fetcher) -> None:
        self._ctx = ctx
        self._row = row
        self._fetcher = fetcher
        saved = ctx.saved or {}
        # A row that is to be audited once more keeps its job, and with it the old tiers. But that is another life.
        self._life = audits.job(row.id).record.life
        fresh = saved.get("life") == self._life and time.time() - saved["at"] < FRESH
        self._tiers = msgspec.convert(saved["tiers"] if fresh else {}, dict[str, Tier])

    def run(self) -> Report:
        if "page" not in self._tiers:
            self._ctx.progress(note="Reading the page")
            self._save("page", self._page())
        facts = self._tiers["page"].facts
        if "browser" not in self._tiers and facts["readable"]:
            self._ctx.progress(note="Looking at it in a browser")
            self._save("browser", browser_tier(facts["final_url"], allow_private=ALLOW_PRIVATE))
        walk = Walk(self._fetcher, facts["final_url"], rules_of(facts["robots"]))
        self._ctx.progress(note="Following links")
        for _ in self._ctx.track(walk.steps()):
            self._ctx.progress(total=len(walk.links))
        found = report(facts["final_url"], {**self._tiers, "links": walk.tier()})
        broken = [(link.url, str(link.problem), link.found_on, link.pages) for link in walk.broken]
        with self._ctx.transaction() as tx:
            database.keep_broken(tx.conn, hf.settings.url, self._row.id, broken)
            tx.set_result(found)
        return found

    def _page(self) -> Tier:
        page = fetch_page(self._fetcher, self._row.url, READER.files)
        if page.reply.status >= 500 or page.reply.status == 429:
            raise Refused("SITE_ERROR", f"{page.url} answers {page.reply.status}", permanent=False)
        return READER.tier(page)

    def _save(self, name: str, tier: Tier) -> None:
        self._tiers[name] = tier
        saved: dict[str, Any] = {"life": self._life, "at": time.time(), "tiers": msgspec.to_builtins(self._tiers)}
        self._ctx.checkpoint(saved, done=len(self._tiers))


@hf.task(cron=NIGHT, queue="schedule", retry=60.0)
def overnight(ctx: JobContext) -> int:
    """A row for each site. Rows and success are one commit: no site is audited twice in a night."""
    with ctx.transaction() as tx:
        inserted: int = tx.conn.execute(database.OVERNIGHT).rowcount
        tx.set_result(inserted)
    return inserted


def set_up() -> None:
    """The tables, and what adopts `audits`, unless they are there."""
    hf.migrate()  # first: it says what is wrong with the database, if anything is
    database.create(hf.settings.url)
    if audits.problems():
        audits.install()
