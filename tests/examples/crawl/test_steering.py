"""People stop a crawl: by our verbs, by the page's, and by an old user interface that writes the status column."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

import pytest

from examples.crawl import app
from examples.crawl.database import Database
from holdfast import Holdfast, Job
from tests.examples.crawl.application import Start, await_word, crawl, stored, word
from tests.examples.crawl.killing import runner_of
from tests.examples.crawl.site import Asked, Page, Reply, Site, page
from tests.waiting import wait_until

SIZE = 40


def row_of_pages() -> dict[str, Page]:
    return {"/": page("/1"), **{f"/{n}": page(f"/{n + 1}") for n in range(1, SIZE)}, f"/{SIZE}": page()}


def ours(verb: str) -> Callable[[Database, Job[None]], None]:
    return lambda db, job: getattr(job, verb)()


def old(word: str) -> Callable[[Database, Job[None]], None]:
    """What the old interface does."""
    return lambda db, job: [None][
        db.changed("update crawl_jobs set status = :word where id = :id", word=word, id=job.source_id) - 1
    ]


@pytest.mark.parametrize("who", ["our verb", "an old interface"])
def test_a_paused_crawl_finishes_what_is_under_way_and_goes_on_with_another_worker(
    who: str, start: Start, db: Database
) -> None:
    pause, resume = (ours("pause"), ours("resume")) if who == "our verb" else (old("paused"), old("pending"))
    with Site(row_of_pages(), latency=0.02) as site:
        job = crawl(site)
        first = start("worker")
        wait_until(lambda: len(stored(db, job)) >= 5, "some pages", timeout=60.0)
        pause(db, job)
        wait_until(lambda: runner_of(first.pid) is None, "its process to end", timeout=60.0)
        wait_until(lambda: parked(db, job), "its worker to let go", timeout=60.0)
        assert word(db, job) == "paused"
        at = len(stored(db, job))
        assert at < SIZE, "it was stopped under way"
        asked = [path for path in site.paths if path in stored(db, job)]
        assert sorted(asked) == sorted(stored(db, job)), "what was asked is stored: nothing was thrown away"
        assert db.value("select total_pending from crawl_states where crawl_id = :id", id=job.source_id) == 1
        os.kill(first.pid, signal.SIGTERM)
        first.wait()
        start("worker")
        resume(db, job)
        assert await_word(db, job, "completed", "failed") == "completed"
    assert set(stored(db, job)) == set(row_of_pages())
    assert max(site.times.values()) == 1, "and no page was asked for twice"
    [row] = db.rows("select retry_count, worker_id from crawl_jobs")
    assert row == {"retry_count": 0, "worker_id": None}


def parked(db: Database, job: Job[None]) -> bool:
    return db.row("select worker_id from crawl_jobs where id = :id", id=job.source_id) == {"worker_id": None}


@pytest.mark.parametrize("who", ["our verb", "an old interface"])
def test_a_cancelled_crawl_stops_and_can_be_given_another_life(who: str, start: Start, db: Database) -> None:
    cancel = ours("cancel") if who == "our verb" else old("cancelled")
    with Site(row_of_pages(), latency=0.02) as site:
        job = crawl(site)
        worker = start("worker")
        wait_until(lambda: len(stored(db, job)) >= 3, "some pages", timeout=60.0)
        cancel(db, job)
        wait_until(lambda: runner_of(worker.pid) is None, "its process to end", timeout=60.0)
        wait_until(lambda: parked(db, job), "its worker to let go", timeout=60.0)
        assert word(db, job) == "cancelled"
        assert len(stored(db, job)) < SIZE
        job.retry()
        assert await_word(db, job, "completed", "failed") == "completed"
    assert set(stored(db, job)) == set(row_of_pages())
    assert max(site.times.values()) == 1


def test_a_crawl_is_stopped_before_it_begins(hf: Holdfast, db: Database) -> None:
    with Site({"/": page()}) as site:
        paused, cancelled = crawl(site), crawl(site)
        paused.pause()
        old("cancelled")(db, cancelled)
        hf.drain()
        assert (word(db, paused), word(db, cancelled), site.asked) == ("paused", "cancelled", [])


def test_a_frozen_runner_is_ended_and_the_crawl_goes_on(start: Start, db: Database) -> None:
    """SIGSTOP: its process lives and its worker's heartbeats go on. Only progress tells."""
    with Site(row_of_pages(), latency=0.02) as site:
        # On a busy machine a process may take longer to begin than this: that is no progress, either.
        job = app.crawls.submit(start_url=f"{site.url}/", delay=0.0, max_retries=1_000)
        worker = start("worker", CRAWL_PROGRESS_TIMEOUT="4")
        wait_until(lambda: len(stored(db, job)) >= 3, "some pages", timeout=60.0)
        frozen = wait_until(lambda: runner_of(worker.pid), "its runner")
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        beat = heartbeat(db, job)
        wait_until(lambda: heartbeat(db, job) > beat, "a heartbeat of the frozen one", timeout=60.0)
        assert await_word(db, job, "completed", "failed") == "completed", worker.log
    assert set(stored(db, job)) == set(row_of_pages())
    failed = {(str(attempt.outcome), attempt.error_code) for attempt in job.attempts() if attempt.error_code}
    assert failed == {("timed_out", "STALLED")}
    assert re.search(r"STALLED.*4", worker.log)


def heartbeat(db: Database, job: Job[None]) -> str:
    return str(db.value("select last_heartbeat from crawl_jobs where id = :id", id=job.source_id))


def test_the_supervisor_beats_for_a_runner_that_waits_for_a_slow_page(start: Start, db: Database) -> None:
    gate: list[bool] = []

    def slow(asked: Asked) -> Reply:
        wait_until(lambda: gate, "the test", timeout=60.0)
        return Reply(page())

    with Site({"/": slow}) as site:
        job = crawl(site)
        start("worker", CRAWL_TIMEOUT="60")
        wait_until(lambda: "/" in site.paths, "the page to be asked for", timeout=60.0)
        for _ in range(3):
            beat = heartbeat(db, job)
            wait_until(lambda: heartbeat(db, job) > beat, "the next heartbeat", timeout=60.0)  # noqa: B023
        gate.append(True)
        assert await_word(db, job, "completed", "failed") == "completed"


def test_the_preset_beats_every_ten_seconds_and_takes_two_minutes_of_silence_for_death() -> None:
    fresh = Holdfast("sqlite:///unused.db", preset="crawl")
    assert (fresh.settings.heartbeat, fresh.settings.lease) == (10.0, 120.0)
    mapping = app.crawls.mapping
    assert (mapping.lease, mapping.counting, mapping.max_attempts) == (120.0, "at_recovery", "max_retries")
    assert app.crawl._defaults.isolation == "process"
