"""Workers that are killed, stopped or silent, in processes of their own."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from holdfast import Holdfast, presets
from tests.adopt.systems.database import Database
from tests.examples.processes import Start
from tests.examples.site_audit.application import await_status, inserted, row
from tests.examples.site_audit.sites import Sites
from tests.running import working
from tests.waiting import wait_until
from tests.work.test_cron import set_back, the_cron

# The page's own question: whose heartbeat is older than five minutes?
STALE = "select id from audits where status = 'processing' and last_heartbeat < {ago}"


def test_a_killed_worker_repeats_at_most_one_tier(
    start: Start, hf: Holdfast, sql: Database, url: str, sites: Sites
) -> None:
    """It is killed while it follows links. The page was read and looked at before; that is not done again."""
    sites.hold("/slow")
    id = inserted(url, sites.good("/", '<a href="/slow">x</a>'))
    worker = start("worker")
    wait_until(lambda: "/slow" in sites.requests, "it to follow links")
    assert sites.requests.count("/robots.txt") == 1
    held = row(sql, id)
    assert (held["status"], held["retry_count"], held["processing_worker_id"] is None) == ("processing", 0, False)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    sites.held.set()
    start("worker")
    found = await_status(sql, id, "completed")
    assert sites.requests.count("/robots.txt") == 1, "the tier of the page is not repeated"
    assert sites.requests.count("/slow") == 2, "the tier of the links is"
    assert (found["retry_count"], found["score"] is None) == (1, False)
    [killed] = [str(one.outcome) for one in hf.adopted["audits"].job(id).attempts()]
    assert killed in ("crashed", "lost")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_worker_that_is_killed_while_it_reads_the_page_repeats_that_tier(
    start: Start, sql: Database, url: str, sites: Sites
) -> None:
    sites.hold("/robots.txt")
    id = inserted(url, sites.good("/"))
    worker = start("worker")
    wait_until(lambda: "/robots.txt" in sites.requests, "it to read the page")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    sites.held.set()
    start("worker")
    assert await_status(sql, id, "completed")["retry_count"] == 1
    assert sites.requests.count("/robots.txt") == 2


def test_a_worker_that_is_stopped_gives_its_audit_back_uncharged(
    start: Start, hf: Holdfast, sql: Database, url: str, sites: Sites
) -> None:
    sites.hold("/slow")
    id = inserted(url, sites.good("/", '<a href="/slow">x</a>'))
    worker = start("worker", HOLDFAST_GRACE="0")
    wait_until(lambda: "/slow" in sites.requests, "it to follow links")
    worker.send_signal(signal.SIGTERM)
    worker.wait(30)
    given_back = row(sql, id)
    assert (given_back["status"], given_back["retry_count"]) == ("pending", 0), worker.log
    assert given_back["processing_worker_id"] is None
    sites.held.set()
    start("worker")
    found = await_status(sql, id, "completed")
    assert (found["retry_count"], sites.requests.count("/robots.txt")) == (0, 1)


def test_a_heartbeat_comes_every_thirty_seconds_and_five_minutes_without_one_are_too_long(hf: Holdfast) -> None:
    fresh = Holdfast("sqlite:///never-opened.db", preset="site-audit", pinned=True).settings
    assert (fresh.heartbeat, fresh.lease, fresh.poll_base, fresh.poll_max) == (30.0, 300.0, 5.0, 5.0)
    assert (fresh.concurrency, fresh.grace) == (1, 0.0)
    assert hf.adopted["audits"].mapping.lease == presets.audits["lease"] == 300.0
    assert hf.adopted["audits"].mapping.max_attempts == 3


def test_the_heartbeat_is_renewed_every_thirty_seconds_while_an_audit_runs(
    hf: Holdfast, sql: Database, url: str, sites: Sites
) -> None:
    """Half a minute passes by an UPDATE; the worker looks five times a second whether it has."""
    hf.reconfigure(heartbeat=0.2)
    sites.hold("/slow")
    id = inserted(url, sites.good("/", '<a href="/slow">x</a>'))
    with working(hf):
        wait_until(lambda: "/slow" in sites.requests, "it to follow links")
        sql.changed("update audits set last_heartbeat = {ago} where id = :id", id=id, seconds=31)
        wait_until(lambda: not sql.rows(STALE, seconds=30), "a heartbeat")
        sites.held.set()
        await_status(sql, id, "completed")


@pytest.mark.parametrize(
    ("minutes", "retries", "becomes"), [(4, 0, "processing"), (6, 0, "completed"), (6, 2, "failed")]
)
def test_an_audit_whose_worker_is_silent_for_five_minutes_is_taken_back(
    hf: Holdfast, sql: Database, url: str, sites: Sites, minutes: int, retries: int, becomes: str
) -> None:
    """A worker of the old kind had it. Its third failure is the last."""
    id = inserted(url, sites.good("/"))
    sql.changed("""
        update audits set status = 'processing', processing_started_at = {ago}, last_heartbeat = {ago},
               processing_worker_id = 'old', retry_count = :retries where id = :id
    """, id=id, seconds=60 * minutes, retries=retries)  # fmt: skip
    assert len(sql.rows(STALE, seconds=300)) == (minutes > 5)
    other = inserted(url, sites.good("/other"))
    hf.reconfigure(lease=1.0)  # how long a watchdog that has just started looks on
    with working(hf):
        await_status(sql, other, "completed")
        found = await_status(sql, id, becomes)
    if becomes == "processing":
        assert found["processing_worker_id"] == "old"
    else:
        assert (found["retry_count"], found["processing_worker_id"]) == (retries + 1, None)
        assert sql.rows(STALE, seconds=300) == []


# -- a night -----------------------------------------------------------------------------------------------------------

SITES = 200


class Checker:
    """Reads the table beside the run, as the page did before: with its own SQL, in one moment each time."""

    def __init__(self, sql: Database, total: int) -> None:
        self._sql = sql
        self._total = total
        self.looks = 0
        self.wrong: list[Any] = []
        self.most_at_work = 0

    def look(self) -> bool:
        """Is the night over?"""
        with self._sql.snapshot():
            counts = {
                one["status"]: one["n"]
                for one in self._sql.rows("select status, count(*) as n from audits group by status")
            }
            stale = self._sql.rows(STALE, seconds=300)
            odd = self._sql.rows("""
                select * from audits
                 where status = 'processing' and (processing_worker_id is null or last_heartbeat is null
                                                  or processing_started_at is null)
                    or status = 'completed' and (score is null or findings is null or completed_at is null)
                    or status <> 'processing' and processing_worker_id is not null or retry_count > 3
            """)  # fmt: skip
        self.looks += 1
        self.wrong += [*stale, *odd]
        if sum(counts.values()) not in (0, self._total) or counts.keys() - {"pending", "processing", "completed"}:
            self.wrong.append(counts)
        self.most_at_work = max(self.most_at_work, counts.get("processing", 0))
        return counts.get("completed") == self._total


def test_two_hundred_sites_in_one_night(start: Start, hf: Holdfast, sql: Database, sites: Sites, url: str) -> None:
    """The clock is moved to two o'clock; two workers share them, and one of these is killed on the way."""
    for n in range(SITES):
        address = sites.good(f"/{n}/", f'<a href="/{n}/more">x</a>') if n % 2 else sites.bad(f"/{n}/")
        sites.page(f"/{n}/more", "<p>More</p>")
        sql.changed("insert into sites (url) values (:url)", url=address)
    hf.drain()  # as a worker of the day before, which made the schedule known
    assert the_cron(hf, "overnight").expression == "0 2 * * *"
    assert sql.value("select count(*) from audits") == 0
    set_back(hf, "overnight", 24 * 3600)
    beside = sql.another()
    checker = Checker(beside, SITES)
    fast = {"HOLDFAST_CONCURRENCY": "4", "HOLDFAST_THREADS": "4", "HOLDFAST_CLAIM_SIZE": "0"}
    workers = [start("worker", **fast) for _ in range(2)]
    wait_until(lambda: checker.look() or len(hf.workers()) == 2, "two workers", timeout=60)
    wait_until(lambda: checker.look() or len(_done(sql)) > SITES // 10, "some to be done", timeout=60)
    [victim] = [one.id for one in hf.workers() if one.pid == workers[0].pid]
    held = "select id from audits where status = 'processing' and processing_worker_id = :worker"
    was_held = {one["id"] for one in wait_until(lambda: sql.rows(held, worker=victim), "it to hold some")}
    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait()
    wait_until(checker.look, "all to be done", timeout=120)
    beside.close()
    assert checker.wrong == []
    assert checker.looks > 10
    assert sql.value("select count(distinct url) from audits") == SITES
    assert was_held <= {one["id"] for one in _done(sql)}
    assert sql.value("select max(retry_count) from audits") <= 1
    [night] = hf.jobs("task:overnight")
    assert (night.state.value, night.result) == ("succeeded", SITES)


def _done(sql: Database) -> list[Any]:
    return sql.rows("select id from audits where status = 'completed'")


def test_a_night_after_a_night_audits_each_site_once_more_and_no_site_twice(
    hf: Holdfast, sql: Database, sites: Sites
) -> None:
    sql.changed("insert into sites (url) values (:url)", url=sites.good("/"))
    for _ in range(2):  # the second comes while the first still waits
        hf.run_cron("overnight")
        hf.drain(["schedule"])
    assert sql.value("select count(*) from audits") == 1
    hf.drain()
    hf.run_cron("overnight")
    hf.drain()
    assert sql.value("select count(*) from audits where status = 'completed'") == 2
