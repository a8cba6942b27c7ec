"""What the system that crawled these tables before promised, and where it contradicted itself."""

from __future__ import annotations

import re

from examples.crawl import app
from examples.crawl.database import Database
from holdfast import Holdfast
from tests.examples.crawl.application import Start, await_word, crawl
from tests.examples.crawl.site import Site, page
from tests.waiting import wait_until

LONG_AGO = {"sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', '-3 minutes')", "postgres": "now() - interval '3 minutes'"}


def abandon(db: Database, retries: int, max_retries: int = 3) -> str:
    """A row as a dead worker of old leaves it."""
    return str(db.value(
        f"""
        insert into crawl_jobs (start_url, delay, status, worker_id, last_heartbeat, retry_count, max_retries)
        values ('http://127.0.0.1:9/', 0, 'processing', 'old-worker', {LONG_AGO[db.engine]}, :retries, :most)
        returning id
        """,
        retries=retries, most=max_retries,
    ))  # fmt: skip


def test_the_watchdog_takes_back_what_was_silent_and_logs_it_word_for_word(start: Start, db: Database) -> None:
    """One with a try left is crawled again; one without fails with the message that operators know."""
    with Site({"/": page()}) as site:
        again, used_up = abandon(db, 1), abandon(db, 2)
        db.changed("update crawl_jobs set start_url = :url where id = :id", url=f"{site.url}/", id=again)
        worker = start("worker", "-v", HOLDFAST_LEASE="2")  # for so long a new watchdog takes nothing back

        def status(id: str) -> str:
            return str(db.value("select status from crawl_jobs where id = :id", id=id))

        wait_until(lambda: status(again) == "completed", "the crawl to be done", timeout=60.0)
        wait_until(lambda: status(used_up) == "failed", "the other to fail", timeout=60.0)
    log = worker.log
    assert re.search(r"Recovering stale job \d+ \(Retry 2/3\)$", log, re.MULTILINE), log
    assert re.search(r"Job \d+ failed permanently$", log, re.MULTILINE), log
    message = db.value("select error_message from crawl_jobs where id = :id", id=used_up)
    assert message == "Job crashed and exceeded max retries"


def test_a_failure_that_the_worker_itself_reports_is_tried_again_like_a_crash(
    start: Start, db: Database, hf: Holdfast
) -> None:
    """The old algorithm looked at silence only."""
    with Site({"/": page()}) as site:
        job = app.crawls.submit(start_url=site.url, delay=0.0, max_retries=1_000)
        db.changed("alter table crawl_pages rename column title to heading")
        start("worker")
        wait_until(lambda: any(one.error_code for one in job.attempts()), "an attempt to fail", timeout=60.0)
        db.changed("alter table crawl_pages rename column heading to title")
        assert await_word(db, job, "completed", "failed") == "completed"


def test_words_are_stored_in_lower_case_as_the_queries_ask_for_them(hf: Holdfast, db: Database) -> None:
    """The diagram drew them in capitals."""
    with Site({"/": page()}) as site:
        crawl(site)
        assert db.value("select count(*) as n from crawl_jobs where status = 'pending'") == 1
        hf.drain()
    assert db.value("select count(*) as n from crawl_jobs where status = 'completed'") == 1
