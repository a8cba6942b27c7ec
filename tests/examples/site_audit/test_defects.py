"""What goes wrong with tables that are queues, and does not with this one. Minutes pass by an UPDATE."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.site_audit.application import analyze, await_status, document, inserted, row
from tests.examples.site_audit.sites import Sites
from tests.http.asking import Ask
from tests.running import working
from tests.waiting import wait_until

TAKEN = """
    update audits set status = 'processing', processing_started_at = {ago}, last_heartbeat = {ago},
           processing_worker_id = 'old' where id = :id and status = 'pending'
"""
# What a worker of the old kind writes when it is done.
FINISHED = """
    update audits set status = 'completed', score = 1, processing_worker_id = null
     where id = :id and status = 'processing' and processing_worker_id = 'old'
"""


def test_an_audit_that_always_kills_its_worker_is_not_claimed_for_ever(
    hf: Holdfast, sql: Database, url: str, sites: Sites
) -> None:
    """Ours only watch here; workers of the old kind claim, and die."""
    id = inserted(url, sites.good("/"))
    hf.pause_task("audits")
    hf.reconfigure(lease=1.0)  # how long a watchdog that has just started looks on
    with working(hf):
        for attempt in (1, 2, 3):
            assert sql.changed(TAKEN, id=id, seconds=360) == 1
            found = await_status(sql, id, "failed" if attempt == 3 else "pending")
            assert (found["retry_count"], found["processing_worker_id"]) == (attempt, None)
        assert sql.changed(TAKEN, id=id, seconds=360) == 0
    hf.resume_task("audits")
    assert int(hf.drain()) == 0


@pytest.mark.parametrize("reset", ["status = 'pending'", "status = 'pending', retry_count = 0"])
def test_a_failed_audit_that_is_asked_for_again_is_claimed(
    hf: Holdfast, ask: Ask, sql: Database, sites: Sites, reset: str
) -> None:
    """Whether or not whoever resets it thinks of the attempts: else it would wait for ever."""
    id = analyze(ask, sites.page("/", "busy", 503))
    for _ in range(3):
        hf.adopted["audits"].job(id).change(delay=0)
        hf.drain()
    assert document(ask, id)["status"] == "failed"
    sites.good("/")
    sql.changed(f"update audits set {reset} where id = :id", id=id)
    hf.drain()
    assert (document(ask, id)["status"], document(ask, id)["error_code"]) == ("completed", None)


def test_a_worker_that_comes_late_overwrites_nothing(
    hf: Holdfast, ask: Ask, sql: Database, url: str, sites: Sites
) -> None:
    id = inserted(url, sites.good("/"))
    assert sql.changed(TAKEN, id=id, seconds=360) == 1
    hf.reconfigure(lease=1.0)
    with working(hf):
        score = await_status(sql, id, "completed")["score"]
    assert score > 1
    assert sql.changed(FINISHED, id=id) == 0
    assert row(sql, id)["score"] == score


def test_a_slow_audit_does_not_keep_a_free_slot_from_polling(
    hf: Holdfast, sql: Database, url: str, sites: Sites
) -> None:
    hf.reconfigure(concurrency=2, threads=2, claim_size=0)
    sites.hold("/slow")
    slow = inserted(url, sites.good("/", '<a href="/slow">x</a>'))
    with working(hf):
        wait_until(lambda: "/slow" in sites.requests, "the slow one to run")
        quick = inserted(url, sites.good("/quick"))
        await_status(sql, quick, "completed")
        assert row(sql, slow)["status"] == "processing"
        sites.held.set()
        await_status(sql, slow, "completed")


def test_a_retry_waits_for_its_time_whoever_polls(hf: Holdfast, ask: Ask, sql: Database, sites: Sites) -> None:
    """A minute at most. The worker, a drain and a request for one job all look at it."""
    id = analyze(ask, sites.page("/", "busy", 503))
    hf.drain()
    job = hf.adopted["audits"].job(id)
    job.change(delay=60)
    sites.good("/")
    for _ in range(3):
        assert int(hf.drain()) == 0
    other = analyze(ask, sites.good("/other"))
    with working(hf):
        await_status(sql, other, "completed")
    assert (row(sql, id)["status"], sites.requests.count("/")) == ("pending", 1)


def test_one_failed_audit_never_touches_the_others(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    bad = [analyze(ask, address) for address in (sites.redirect("/ring", "/ring"), "http://no.invalid/", "http://0/")]
    good = analyze(ask, sites.good("/"))
    hf.drain()
    assert document(ask, good)["status"] == "completed"
    codes = [document(ask, id)["error_code"] or document(ask, id)["job"]["error"] for id in bad]
    assert codes[0] == "REDIRECTS"
    assert all(codes)
