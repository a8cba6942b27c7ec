"""A short scene, played by real processes: a site with faults, two workers, and a crawl that is killed and paused. The
site is that of the tests, on this machine."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from examples.crawl.database import Database
from examples.crawl.reports import one_crawl, total_pending
from examples.scenes import Stage, console, say

PAGES = 250
DELAY = 0.02  # seconds between two requests
HASTE = {
    "CRAWL_ALLOW_PRIVATE": "1", "CRAWL_FIRST_RETRY": "0.1", "CRAWL_TIMEOUT": "2", "HOLDFAST_POLL_BASE": "0.2",
    "HOLDFAST_POLL_MAX": "0.2", "HOLDFAST_HEARTBEAT": "0.5",
}  # fmt: skip


def play() -> int:
    """0, if all went as it should."""
    from tests.examples.crawl.site import Page, Site, faults, page

    pages: dict[str, Page] = {
        f"/{n}": page(*(f"/{m}" for m in (2 * n + 1, 2 * n + 2) if m < PAGES), "/gone", title=f"Page {n}")
        for n in range(PAGES)
    }
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crawl-")))
        os.environ.setdefault("HOLDFAST_URL", f"sqlite:///{home}/crawl.db")
        os.environ.update(HASTE)
        site = stack.enter_context(Site(pages, latency=0.005, fault=faults(5, every=20)))
        return Scene(home, site).play()


class Scene:
    def __init__(self, home: Path, site: Any) -> None:
        from examples.crawl import app

        app.set_up()
        self._app = app
        self._stage = Stage("examples.crawl", home)
        self._site = site
        self._db = Database(app.hf.settings.url)

    def play(self) -> int:
        where = "a fresh SQLite file" if self._db.engine == "sqlite" else "PostgreSQL"
        say(f"The queue is the table crawl_jobs, in {where}.")
        say(f"A site of {PAGES} pages on this machine, some of which fail at first. Two workers.")
        self._job = self._app.submit(f"{self._site.url}/0", delay=DELAY)
        with self._stage.running("worker"), self._stage.running("worker"):
            self._killed_runner()
            self._killed_worker()
            self._paused()
            self._follow(PAGES, "to its end")
            self._stage.wait_for(lambda: self._state() != "processing", "the end")
        self._summary()
        return self._stage.verdict()

    # -- acts ----------------------------------------------------------------------------------------------------------

    def _killed_runner(self) -> None:
        from tests.examples.crawl.killing import runner_of

        console.rule("The process that crawls is killed (kill -9)", align="left")
        self._follow(PAGES // 5, "crawling")
        pid = self._stage.wait_for(
            lambda: next(filter(None, map(runner_of, self._pids())), None), "the process that crawls"
        )
        os.kill(pid, signal.SIGKILL)
        self._stage.wait_for(lambda: self._row()["retry_count"] == 1, "another attempt")
        say(f"{self._pages()} pages were stored. They stay, and the next attempt goes on behind them.")

    def _killed_worker(self) -> None:
        console.rule("Its worker is killed, too", align="left")
        self._follow(2 * PAGES // 5, "crawling")
        worker = self._stage.wait_for(lambda: self._job.refresh().record.worker, "a worker to have it")
        [pid] = [one.pid for one in self._app.hf.workers() if one.id == worker]
        os.kill(pid, signal.SIGKILL)
        self._stage.wait_for(
            lambda: self._job.refresh().record.worker not in (worker, None), "the other worker to take it"
        )
        say("The other worker has taken it over.")

    def _paused(self) -> None:
        console.rule("The site's owner complains: somebody writes 'paused' into the row", align="left")
        self._follow(3 * PAGES // 5, "crawling")
        self._db.changed("update crawl_jobs set status = 'paused' where id = :id", id=self._job.source_id)
        self._stage.wait_for(lambda: self._row()["worker_id"] is None, "the crawl to rest")
        left, asked = self._row()["pending"], len(self._site.asked)
        time.sleep(0.5)  # in which nothing may happen
        self._stage.expect(len(self._site.asked) == asked, "a paused crawl asked for pages")
        say(f"It rests, with {left} addresses before it. Then they are reconciled, and it goes on.")
        self._db.changed("update crawl_jobs set status = 'pending' where id = :id", id=self._job.source_id)

    def _summary(self) -> None:
        console.rule("Counted from the tables", align="left")
        row = self._row()
        twice = sum(times > 1 for times in self._site.times.values())
        say(
            f"{row['status']}: {row['pages']} pages, each once; {row['dead']} dead link; {row['errors']} errors on the "
            f"way; {row['retry_count']} crashes; {total_pending(self._db)} pending."
        )
        say(
            f"The site's own log: {len(self._site.asked)} requests, {twice} addresses asked more than once, and never "
            f"less than {1000 * min(self._site.gaps()):.0f} ms between two (asked for: {1000 * DELAY:.0f} ms)."
        )
        self._stage.expect((row["status"], row["pages"], row["dead"]) == ("completed", PAGES, 1), f"it ended as {row}")
        self._stage.expect(min(self._site.gaps()) >= DELAY, "the pause between requests was undercut")

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _pids(self) -> list[int]:
        return [worker.pid for worker in self._app.hf.workers()]

    def _row(self) -> dict[str, Any]:
        found = one_crawl(self._db, self._job.source_id or "")
        assert found is not None
        return found

    def _state(self) -> str:
        return str(self._row()["status"])

    def _pages(self) -> int:
        return int(self._row()["pages"])

    def _follow(self, pages: int, what: str) -> None:
        """Until it has so many, with a bar on a terminal."""
        columns = TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            shown = bar.add_task(what, total=PAGES)

            def enough() -> bool:
                bar.update(shown, completed=self._pages())
                return self._pages() >= pages or self._state() in ("completed", "failed")

            self._stage.wait_for(enough, f"{pages} pages")
