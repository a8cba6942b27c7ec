"""What was wrong with the old system, and is not with this one. Ten minutes pass by an UPDATE of the claim's time."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from examples.claim_check import inputs
from examples.claim_check.analyse import longest_attempt
from examples.claim_check.model import ModelConfig
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.claim_check.application import OLD_CLAIM, Start, serving, status, submit, workers_up
from tests.examples.claim_check.standin import StandIn
from tests.http.asking import Ask
from tests.running import working
from tests.waiting import wait_until

OLD_WORKERS_FINISH = """
    update analysis_jobs set status = 'done', bs_score = 9.5, result_json = '{"bunk_score": 9.5}', model_used = 'old'
     where id = :id and status = 'running' and claim_id = :claim
"""


def row(sql: Database, id: str) -> dict[str, Any]:
    found = sql.row("select * from analysis_jobs where id = :id", id=id)
    assert found is not None
    return found


def old_claim(sql: Database) -> str | None:
    """What the worker that was here before does; on SQLite, what its function would."""
    if sql.engine == "postgres":
        found = sql.row(OLD_CLAIM)
    else:
        found = sql.row("""
            update analysis_jobs set status = 'running', claimed_at = {now}, claim_id = {new_uuid},
                   attempts = attempts + 1, updated_at = {now}
             where id = (select id from analysis_jobs where attempts < 3 and (status = 'queued'
                         or status = 'running' and claimed_at < {ago}) order by created_at limit 1)
            returning id
        """, seconds=600)  # fmt: skip
    return None if found is None else str(found["id"])


def minutes_pass(sql: Database, id: str, minutes: int = 11) -> None:
    sql.changed("update analysis_jobs set claimed_at = {ago} where id = :id", id=id, seconds=60 * minutes)


# -- a failed row that was submitted again kept its attempts, and waited for ever --------------------------------------


def test_a_failed_row_that_is_submitted_again_has_no_attempts_and_is_claimed(
    hf: Holdfast, ask: Ask, sql: Database, standin: StandIn
) -> None:
    asked = inputs.read({"text": "a claim"})
    job = submit(ask, text=asked.value)
    sql.changed("""
        update analysis_jobs set status = 'failed', attempts = 3, last_error_code = 'TIMEOUT',
               last_error_message = 'late'
    """)  # fmt: skip
    assert status(ask, job)["last_error_code"] == "TIMEOUT"
    again = submit(ask, text=asked.value)
    assert again == job
    found = row(sql, job["job_id"])
    assert (found["status"], found["attempts"], found["last_error_code"]) == ("queued", 0, None)
    assert int(hf.drain()) == 1
    assert (status(ask, job)["status"], status(ask, job)["attempts"]) == ("done", 1)
    assert standin.calls == 1


def test_a_failed_row_that_is_submitted_again_is_claimed_by_an_old_worker_too(
    hf: Holdfast, ask: Ask, sql: Database
) -> None:
    job = submit(ask, text="a claim")
    sql.changed("update analysis_jobs set status = 'failed', attempts = 3")
    submit(ask, text="a claim")
    assert old_claim(sql) == job["job_id"]


def test_a_failed_row_is_claimed_again_by_a_real_worker(start: Start, sql: Database, hf: Holdfast) -> None:
    """Whether it is woken or polls: the old insert trigger did not tell of rows that were queued again."""
    with serving(start) as client:
        text = "a claim [[invalid-always]]"
        job = submit(client, text=text)
        for life in (1, 2):
            wait_until(lambda: status(client, job)["status"] == "failed", "it to fail")
            assert row(sql, job["job_id"])["attempts"] == 1
            if life == 1:
                assert submit(client, text=text) == job
    assert hf.adopted["analysis_jobs"].job(job["job_id"]).record.life == 2


# -- a job that killed its worker was claimed every ten minutes for ever -----------------------------------------------


def test_a_job_that_always_kills_an_old_worker_is_not_claimed_for_ever(hf: Holdfast, ask: Ask, sql: Database) -> None:
    """Ours only watch here; the old workers claim."""
    job = submit(ask, text="a claim")
    hf.pause_task("analysis_jobs")
    hf.reconfigure(lease=1.0)  # how long a watchdog that has just started looks on
    with working(hf):
        for attempt in (1, 2, 3):
            wait_until(lambda: status(ask, job)["status"] == "queued", "it to be given back")
            with sql.transaction():
                assert old_claim(sql) == job["job_id"]
                minutes_pass(sql, job["job_id"])
            assert status(ask, job)["attempts"] == attempt
        wait_until(lambda: status(ask, job)["status"] == "failed", "it to be failed")
    failed = status(ask, job)
    assert (failed["attempts"], bool(failed["last_error_code"]), bool(failed["last_error_message"])) == (3, True, True)
    assert old_claim(sql) is None
    assert int(hf.drain()) == 0


@pytest.mark.parametrize("claims", [2, 3])
def test_attempts_that_old_workers_count_among_themselves_count(
    hf: Holdfast, ask: Ask, sql: Database, claims: int
) -> None:
    """One of theirs takes over from another before ours come to it."""
    job = submit(ask, text="a claim")
    hf.pause_task("analysis_jobs")
    assert old_claim(sql) == job["job_id"]
    hf.store.adopted.settle("analysis_jobs")  # ours have seen this one
    for _ in range(claims - 1):
        minutes_pass(sql, job["job_id"])
        assert old_claim(sql) == job["job_id"]
    minutes_pass(sql, job["job_id"])
    if sql.engine == "postgres":
        sql.changed("update holdfast.leases set expires_at = {ago}", seconds=60)
    hf.reconfigure(lease=1.0)
    with working(hf):
        wait_until(lambda: status(ask, job)["status"] != "running", "it to be taken back")
    found = status(ask, job)
    assert (found["status"], found["attempts"]) == ("queued" if claims == 2 else "failed", claims)


def test_a_job_whose_attempts_are_used_up_is_not_claimed_even_where_only_old_workers_run(
    engine: str, ask: Ask, sql: Database
) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has no function that could have the defect")
    job = submit(ask, text="a claim")
    for _ in range(3):
        assert old_claim(sql) == job["job_id"]
        minutes_pass(sql, job["job_id"])
    assert old_claim(sql) is None
    assert sql.row("select * from claim_next_job(4)") is not None


def test_a_job_that_always_kills_our_worker_is_not_claimed_for_ever(
    start: Start, hf: Holdfast, ask: Ask, sql: Database, standin: StandIn
) -> None:
    """With SIGKILL, while the model thinks."""
    job = submit(ask, text="a claim [[slow 60]]")

    def asked(times: int) -> bool:
        return standin.calls == times

    for attempt in (1, 2, 3):
        worker = start("worker")
        wait_until(partial(asked, attempt), f"attempt {attempt} to ask the model")
        assert row(sql, job["job_id"])["attempts"] == attempt
        worker.kill()
        worker.wait()
    start("worker")
    wait_until(lambda: status(ask, job)["status"] == "failed", "it to be given up")
    assert status(ask, job)["attempts"] == 3
    assert standin.calls == 3
    assert old_claim(sql) is None


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_claim_that_is_dead_for_ten_minutes_is_recovered(hf: Holdfast, ask: Ask, sql: Database) -> None:
    dead, alive = submit(ask, text="one"), submit(ask, text="two")
    assert {old_claim(sql), old_claim(sql)} == {dead["job_id"], alive["job_id"]}
    minutes_pass(sql, dead["job_id"], 11)
    minutes_pass(sql, alive["job_id"], 9)
    hf.reconfigure(lease=1.0)
    with working(hf):
        wait_until(lambda: status(ask, dead)["status"] == "done", "the dead one")
        assert status(ask, dead)["attempts"] == 2
        assert status(ask, alive)["status"] == "running", "nine minutes are not ten"
    assert old_claim(sql) is None


def test_an_old_worker_that_comes_late_writes_nothing(hf: Holdfast, ask: Ask, sql: Database) -> None:
    """If it looks at its claim's id, which it always wrote."""
    job = submit(ask, text="a claim")
    assert old_claim(sql) == job["job_id"]
    claim = row(sql, job["job_id"])["claim_id"]
    minutes_pass(sql, job["job_id"])
    hf.reconfigure(lease=1.0)
    with working(hf):
        wait_until(lambda: status(ask, job)["status"] == "done")
    assert sql.changed(OLD_WORKERS_FINISH, id=job["job_id"], claim=claim) == 0
    assert status(ask, job)["model_used"] != "old"


def test_a_worker_of_ours_that_comes_late_overwrites_nothing(
    hf: Holdfast, ask: Ask, sql: Database, standin: StandIn
) -> None:
    """The old ones never looked whether the claim was still theirs."""
    job = submit(ask, text="a claim [[slow 1]]")
    with working(hf):  # at its end it waits for what it runs
        wait_until(lambda: standin.calls, "ours to ask the model")
        with sql.transaction():
            minutes_pass(sql, job["job_id"])
            assert old_claim(sql) == job["job_id"]
        claim = row(sql, job["job_id"])["claim_id"]
    left = row(sql, job["job_id"])
    assert (left["status"], left["attempts"], left["claim_id"]) == ("running", 2, claim)
    assert sql.changed(OLD_WORKERS_FINISH, id=job["job_id"], claim=claim) == 1
    done = status(ask, job)
    assert (done["status"], done["model_used"], done["bs_score"]) == ("done", "old", 9.5)


def test_a_running_row_has_a_claim_of_its_own_and_none_when_it_waits(
    start: Start, ask: Ask, sql: Database, standin: StandIn
) -> None:
    job = submit(ask, text="a claim [[slow 60]]")
    worker = start("worker")
    wait_until(lambda: standin.calls, "it to run")
    held = row(sql, job["job_id"])
    assert (held["status"], held["attempts"]) == ("running", 1)
    assert held["claim_id"] is not None
    assert held["claimed_at"] is not None
    assert old_claim(sql) is None
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait()
    given_back = row(sql, job["job_id"])
    assert (given_back["status"], given_back["attempts"], given_back["claim_id"]) == ("queued", 0, None), worker.log
    assert old_claim(sql) == job["job_id"]


# -- calls of the model ------------------------------------------------------------------------------------------------


def test_a_job_costs_eighteen_calls_at_most(hf: Holdfast, ask: Ask, standin: StandIn) -> None:
    """Three attempts; in each, two questions; and the last of three tries of the first is answered, with no report."""
    standin.statuses = [500, 500, 200, 500, 500, 500] * 10
    standin.replies = [{"choices": [{"message": {"content": "no report"}}]}] * 10
    failed = worked(hf, ask, "a claim")
    assert (failed["attempts"], failed["last_error_code"], standin.calls) == (3, "MODEL_UNAVAILABLE", 18)


@pytest.mark.parametrize(("fault", "attempts", "calls"), [("500-always", 3, 9), ("invalid-always", 1, 2)])
def test_a_job_that_fails_costs_no_call_again(
    hf: Holdfast, ask: Ask, standin: StandIn, fault: str, attempts: int, calls: int
) -> None:
    failed = worked(hf, ask, f"a claim [[{fault}]]")
    assert (failed["attempts"], standin.calls) == (attempts, calls)
    assert int(hf.drain()) == 0
    assert standin.calls == calls


def worked(hf: Holdfast, ask: Ask, text: str) -> dict[str, Any]:
    job = submit(ask, text=text)
    hf.drain()
    found = status(ask, job)
    assert found["status"] == "failed"
    return found


def test_two_hundred_at_once_cost_one_call(start: Start, sql: Database, standin: StandIn, hf: Holdfast) -> None:
    with serving(start, "--no-worker") as client:
        start("worker"), start("worker")
        workers_up(hf, 2)
        with ThreadPoolExecutor(40) as people:
            answers = list(people.map(lambda n: submit(client, text=f"{' ' * (n % 7)}One claim"), range(200)))
        assert len({answer["job_id"] for answer in answers}) == 1
        job = next(answer for answer in answers if answer["status"] == "queued")
        assert {answer["job_token"] for answer in answers if answer["status"] == "queued"} == {job["job_token"]}
        wait_until(lambda: status(client, job)["status"] == "done", "it to be done")
        assert submit(client, text="ONE CLAIM")["status"] == "cached"
    assert sql.value("select count(*) from analysis_jobs") == 1
    assert row(sql, job["job_id"])["attempts"] == 1
    assert standin.calls == 1


def test_an_attempt_ends_before_its_claim_is_taken_for_dead(hf: Holdfast) -> None:
    """With every call as slow as it may be: a claim is not renewed, and good for ten minutes."""
    longest = longest_attempt(ModelConfig("http://model.example/v1"))
    timeout = hf.tasks["analysis_jobs"]._defaults.timeout
    assert timeout is not None
    assert longest < timeout < 600
