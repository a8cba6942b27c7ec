"""Both sides write the same rows: who wins, and that nobody's wish is lost."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from holdfast import Holdfast, State
from tests.adopt.systems.analysis_jobs import AnalysisJobs
from tests.adopt.systems.conftest import MakeApp, MakeSystem
from tests.adopt.systems.crawl_jobs import CrawlJobs
from tests.adopt.systems.execution_jobs import CONDITIONS, ExecutionJobs
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.system import System
from tests.running import await_state, working
from tests.waiting import wait_until


def adopted(make_app: MakeApp, table: str, **settings: Any) -> Holdfast:
    hf = make_app(table, **settings)
    hf.adopted[table].install()
    return hf


def row(system: System, id: str) -> dict[str, Any]:
    [found] = system.db.rows(f"select * from {system.table} where id = :id", id=id)
    return found


def await_word(system: System, id: str, word: str) -> dict[str, Any]:
    wait_until(lambda: row(system, id)["status"] == word, f"{id} to be {word}")
    return row(system, id)


def await_start(ledger: Ledger, id: str, count: int = 1) -> None:
    wait_until(lambda: len(ledger.lines(what="start", id=id)) >= count, f"start {count} of {id}")


# -- claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", CONDITIONS)
def test_an_old_worker_that_has_read_a_row_loses_it_to_ours(
    condition: str, make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = cast(ExecutionJobs, make_system("execution_jobs"))
    id = system.submit("https://plain.example")
    seen = system.db.row("select id, version, updated_at from execution_jobs")
    assert seen is not None
    with working(adopted(make_app, "execution_jobs")):
        await_word(system, id, "completed")
    assert system.update_if(condition, "old-worker", **seen) == 0
    assert row(system, id)["worker_id"] is None
    assert len(ledger.lines(what="start")) == 1


@pytest.mark.parametrize("table", ["audits", "execution_jobs", "analysis_jobs", "crawl_jobs"])
def test_a_row_that_an_old_worker_holds_is_left_to_it(
    table: str, make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = make_system(table)
    hf = adopted(make_app, table)
    theirs = system.submit("https://theirs.example")
    taken = system.claim("old-worker")
    assert taken is not None
    with working(hf):
        ours = system.submit("https://ours.example")
        await_word(system, ours, system.done)
        assert row(system, theirs)["status"] == system.running
        assert system.finish(theirs, "old-worker") == 1
        await_state(hf.adopted[table].job(theirs), State.SUCCEEDED)
    assert {line.id for line in ledger.lines(what="start")} == {ours}


@pytest.mark.parametrize("table", ["audits", "analysis_jobs"])
def test_a_try_of_an_old_worker_counts_also_if_nobody_saw_it(
    table: str, make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = make_system(table)
    hf = adopted(make_app, table)
    id = system.submit("https://doomed.example")
    assert hf.adopted[table].job(id).state is State.QUEUED
    assert system.claim("old-worker") is not None
    assert system.fail(id, "old-worker") == 1
    with working(hf):
        await_word(system, id, "failed")
    assert [line.number for line in ledger.lines(what="start")] == [2, 3]
    assert row(system, id)[system.attempts] == 3


def test_an_old_worker_is_heard_while_it_beats_and_replaced_once_it_is_silent(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    lease = 1.0
    system = make_system("audits")
    hf = adopted(make_app, "audits", lease=lease)
    id = system.submit("https://theirs.example")
    assert system.claim("old-worker") is not None
    with working(hf):
        ends = time.monotonic() + 2 * lease

        def beating() -> bool:
            system.heartbeat(id, "old-worker")
            return time.monotonic() > ends

        wait_until(beating)
        assert row(system, id)["processing_worker_id"] == "old-worker"
        found = await_word(system, id, "completed")
    assert found["retry_count"] == 1
    assert system.finish(id, "old-worker") == 0, "it comes too late"
    assert len(ledger.lines(what="start", id=id)) == 1


def test_the_claim_function_gets_what_waits_and_nothing_that_ours_runs(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = cast(AnalysisJobs, make_system("analysis_jobs"))
    hf = adopted(make_app, "analysis_jobs", worker_name="holder")
    id = system.submit("https://ours.example")
    with working(hf):
        await_start(ledger, id)
        assert system.claim("old-worker") is None
        token = row(system, id)["job_token"]
        status = system.job_status(id, token)
        assert status is not None
        assert (status["status"], status["attempts"], status["bs_score"]) == ("running", 1, None)
        assert row(system, id)["claim_id"] is not None
        assert system.job_status(id, id) is None, "a wrong token"
    # The worker was told to stop, and gave it back uncharged.
    assert (row(system, id)["status"], row(system, id)["attempts"]) == ("queued", 0)
    taken = system.claim("old-worker")
    assert taken is not None
    assert taken.id == id
    assert row(system, id)["attempts"] == 1


def test_a_status_page_sees_a_job_done_with_its_result(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = cast(AnalysisJobs, make_system("analysis_jobs"))
    good, bad = system.submit("https://plain.example"), system.submit("https://doomed.example")
    with working(adopted(make_app, "analysis_jobs")):
        await_word(system, good, "done")
        await_word(system, bad, "failed")
    done = system.job_status(good, row(system, good)["job_token"])
    assert done is not None
    assert (float(done["bs_score"]), done["model_used"], done["attempts"]) == (6.5, "sonar-pro", 1)
    failed = system.job_status(bad, row(system, bad)["job_token"])
    assert failed is not None
    assert (failed["last_error_code"], failed["attempts"]) == ("RuntimeError", 3)
    assert "did not answer" in failed["last_error_message"]
    assert failed["bs_score"] is None


def test_a_long_run_stays_fresh_for_those_who_look_for_stale_ones(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = make_system("audits")
    system.lease = lease = 1.5
    hf = adopted(make_app, "audits", lease=lease, worker_name="holder")
    id = system.submit("https://long.example")
    with working(hf):
        await_start(ledger, id)
        ends = time.monotonic() + 1.5 * lease

        def fresh() -> bool:
            assert system.stale() == []
            assert system.watchdog() == 0
            return time.monotonic() > ends

        wait_until(fresh)
        assert row(system, id)["status"] == "processing"


def test_what_an_old_worker_has_counted_stands_until_ours_counts(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = cast(CrawlJobs, make_system("crawl_jobs"))
    system.leave_rows()
    assert system.total_pending() == 21
    hf = adopted(make_app, "crawl_jobs", lease=1.0)
    assert system.total_pending() == 21
    paused = system.db.value("select id from crawl_jobs where status = 'paused'")
    with working(hf):
        wait_until(lambda: "processing" not in system.status_counts(), "those to be done whose workers are dead")
        assert system.db.value("select total_pending from crawl_states where crawl_id = :id", id=paused) == 7
        system.resume(paused)
        await_word(system, paused, "completed")
    left = {row["status"]: row["n"] for row in system.db.rows("""
        select status, sum(total_pending) as n from crawl_jobs j join crawl_states s on s.crawl_id = j.id
         group by status
    """)}  # fmt: skip
    assert left["completed"] == 0


# -- people ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def crawl(make_system: MakeSystem) -> CrawlJobs:
    return cast(CrawlJobs, make_system("crawl_jobs"))


def test_people_pause_and_resume_a_running_crawl(crawl: CrawlJobs, make_app: MakeApp, ledger: Ledger) -> None:
    id = crawl.submit("https://endless.example")
    hf = adopted(make_app, "crawl_jobs")
    with working(hf):
        await_start(ledger, id)
        wait_until(lambda: crawl.total_pending() == 4, "the first checkpoint")
        assert crawl.pause(id) == 1
        await_state(hf.adopted["crawl_jobs"].job(id), State.PAUSED)
        wait_until(lambda: row(crawl, id)["worker_id"] is None, "its worker to let go of it")
        assert (row(crawl, id)["status"], row(crawl, id)["retry_count"]) == ("paused", 0)
        assert crawl.total_pending() == 0, "it counts those that run"
        assert crawl.resume(id) == 1
        await_start(ledger, id, count=2)
        wait_until(lambda: crawl.total_pending() == 4, "the checkpoint of before")
        assert row(crawl, id)["retry_count"] == 0


def test_a_crawl_resumed_before_it_has_parked_goes_on(crawl: CrawlJobs, make_app: MakeApp, ledger: Ledger) -> None:
    id = crawl.submit("https://endless.example")
    hf = adopted(make_app, "crawl_jobs")
    with working(hf):
        await_start(ledger, id)
        assert crawl.pause(id) == 1
        assert crawl.resume(id) == 1
        # It was not stopped at all, or it was and runs again: what people said last is what counts.
        wait_until(lambda: row(crawl, id)["status"] == "processing", "the crawl to run")
        assert crawl.cancel(id) == 1
        await_state(hf.adopted["crawl_jobs"].job(id), State.CANCELLED)
    assert row(crawl, id)["status"] == "cancelled"


def test_a_pause_that_is_taken_back_before_it_is_heeded_is_none(
    crawl: CrawlJobs, make_app: MakeApp, ledger: Ledger
) -> None:
    id = crawl.submit("https://stubborn.example")
    hf = adopted(make_app, "crawl_jobs")
    job = hf.adopted["crawl_jobs"].job(id)
    with working(hf):
        wait_until(lambda: ledger.lines(what="saved", number=1), "its last page")
        assert crawl.pause(id) == 1
        wait_until(lambda: job.refresh().record.pause_requested, "the request")
        assert crawl.resume(id) == 1
        await_word(crawl, id, "processing")
        wait_until(lambda: not job.refresh().record.pause_requested, "it to be taken back")
        ledger.path.with_name("gate").touch()
        await_word(crawl, id, "completed")


def test_a_row_that_others_take_from_ours_is_given_back(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    """A watchdog with a shorter patience, say, or somebody who resets it by hand."""
    system = make_system("audits")
    id = system.submit("https://ours.example")
    hf = adopted(make_app, "audits", worker_name="holder")
    with working(hf):
        await_start(ledger, id)
        held = row(system, id)
        system.db.changed("update audits set status = 'pending', processing_worker_id = null, retry_count = 7")
        found = await_word(system, id, "processing")
        assert found["processing_worker_id"] == held["processing_worker_id"] != ""
        assert system.claim("old-worker") is None
    assert row(system, id)["retry_count"] == 0, "it was given back uncharged"


def test_people_cancel_a_running_and_a_waiting_crawl(crawl: CrawlJobs, make_app: MakeApp, ledger: Ledger) -> None:
    running = crawl.submit("https://endless.example")
    hf = adopted(make_app, "crawl_jobs", threads=1, concurrency=1)
    with working(hf):
        await_start(ledger, running)
        waiting = crawl.submit("https://waiting.example")
        wait_until(lambda: hf.count("source:crawl_jobs") == 2, "its job")
        assert crawl.cancel(waiting) == 1
        assert crawl.cancel(running) == 1
        for id in (running, waiting):
            await_state(hf.adopted["crawl_jobs"].job(id), State.CANCELLED)
    assert crawl.status_counts() == {"cancelled": 2}
    assert row(crawl, running)["worker_id"] is None
    assert not ledger.lines(what="start", id=waiting)
    assert crawl.total_pending() == 0


@pytest.mark.parametrize("table", ["audits", "execution_jobs", "analysis_jobs", "crawl_jobs"])
def test_a_failed_row_that_is_reset_runs_again(
    table: str, make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = make_system(table)
    id = system.submit("https://doomed.example")
    with working(adopted(make_app, table)):
        await_word(system, id, "failed")
        assert len(ledger.lines(what="start", id=id)) == 3
        assert system.reset(id) == 1
        await_start(ledger, id, count=6)
        await_word(system, id, "failed")
    assert [line.number for line in ledger.lines(what="start", id=id)] == [1, 2, 3, 1, 2, 3]


def test_a_deleted_row_is_not_worked_and_one_that_runs_is_stopped(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    system = make_system("audits")
    running = system.submit("https://running.example")
    hf = adopted(make_app, "audits", worker_name="holder")
    with working(hf):
        await_start(ledger, running)
        waiting = system.submit("https://waiting.example")
        wait_until(lambda: hf.count("source:audits") == 2, "its job")
        jobs = {id: hf.adopted["audits"].job(id) for id in (running, waiting)}
        assert system.db.changed("delete from audits") == 2
        for job in jobs.values():
            await_state(job, State.CANCELLED)
    assert not ledger.lines(what="start", id=waiting)
    assert ledger.lines(what="stopped", id=running)
    assert system.status_counts() == {}
