"""Three ways to work one table at once, each in processes of its own: a worker that polls, one that is told, and a cron
job that drains over HTTP. On PostgreSQL the old worker claims beside them by its function."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from holdfast import Holdfast, presets
from tests.adopt.systems.database import Database
from tests.examples.claim_check.application import OLD_CLAIM, Start, serving, status, submit, workers_up
from tests.examples.claim_check.standin import StandIn
from tests.waiting import wait_until

JOBS = 24
POLLS_ONLY = {"HOLDFAST_LISTEN": "0"}


def test_each_job_is_done_once_by_whoever_comes_first(
    engine: str, start: Start, sql: Database, hf: Holdfast, standin: StandIn
) -> None:
    key = hf.create_api_key("cron", "operator")
    stopped = threading.Event()
    old: list[str] = []
    drained: list[int] = []

    def cron(url: str) -> None:
        """A crontab's line, more often than each minute."""
        import httpx2

        headers = {"Authorization": f"Bearer {key}"}
        while not stopped.wait(0.2):
            answer = httpx2.post(f"{url}/jobs/v1/drain", json={"seconds": 5, "jobs": 2}, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text
            drained.append(answer.json()["jobs"])

    def old_worker() -> None:
        db = sql.another()
        while not stopped.wait(0.1):
            if (found := db.row(OLD_CLAIM)) is not None:
                old.append(str(found["id"]))
                db.changed("""
                    update analysis_jobs set status = 'done', bs_score = 1.5, result_json = '{"bunk_score": 1.5}',
                           model_used = 'old' where id = :id and status = 'running' and attempts = :attempts
                """, id=found["id"], attempts=found["attempts"])  # fmt: skip
        db.close()

    with serving(start, "--no-worker") as client:
        start("worker", **POLLS_ONLY), start("worker")
        workers_up(hf, 2)
        threads = [threading.Thread(target=cron, args=(str(client.base_url).rstrip("/"),))]
        if engine == "postgres":
            threads.append(threading.Thread(target=old_worker))
        for thread in threads:
            thread.start()
        try:
            jobs = [submit(client, text=f"claim {n}") for n in range(JOBS)]
            wait_until(
                lambda: sql.value("select count(*) from analysis_jobs where status = 'done'") == JOBS, "all of them",
                timeout=60,
            )  # fmt: skip
        finally:
            stopped.set()
            for thread in threads:
                thread.join()
        assert {status(client, job)["attempts"] for job in jobs} == {1}
    asked = Counter(str(body["messages"][-1]["content"]).rpartition("\n")[2] for body in standin.requests)
    assert set(asked.values()) == {1}, "the model is asked once about each"
    assert len(asked) + len(old) == JOBS
    assert len(set(old)) == len(old)
    assert sum(drained) > 0
    if engine == "postgres":
        assert old, "the old worker has had its share"


@pytest.mark.parametrize("engine", ["postgres"])  # it has the old system's function
def test_an_old_claim_and_ours_never_take_the_same_row(
    start: Start, sql: Database, hf: Holdfast, standin: StandIn
) -> None:
    """Both take what they can, as fast as they can."""
    number = 150
    sql.changed("""
        insert into analysis_jobs (input_type, input_value, normalized_input, cache_key)
        select 'text', 'claim ' || n, 'claim ' || n, 'key ' || n from generate_series(1, :number) n
    """, number=number)  # fmt: skip
    taken: list[str] = []

    def old_worker() -> None:
        db = sql.another()
        while db.value("select count(*) from analysis_jobs where status = 'queued'"):
            if (found := db.row(OLD_CLAIM)) is not None:
                taken.append(str(found["input_value"]))
        db.close()

    fast = {"HOLDFAST_AFTER_JOB_DELAY": "0", "HOLDFAST_CLAIM_SIZE": "0", "HOLDFAST_THREADS": "8"}
    start("worker", **fast)
    workers_up(hf, 1)
    thread = threading.Thread(target=old_worker)
    thread.start()
    thread.join()
    wait_until(
        lambda: sql.value("select count(*) from analysis_jobs where status = 'done'") == number - len(taken),
        "ours to be done", timeout=60,
    )  # fmt: skip
    ours = [str(body["messages"][-1]["content"]).rpartition("\n")[2] for body in standin.requests]
    assert len(ours) == len(set(ours))
    assert len(taken) == len(set(taken))
    assert not set(ours) & set(taken)
    assert len(ours) + len(taken) == number
    assert ours, "ours has had its share"


def test_the_preset_is_the_old_systems_rhythm(hf: Holdfast) -> None:
    from examples.claim_check import app

    fresh = Holdfast("sqlite:///never-opened.db", preset="claim-check", pinned=True).settings
    assert app.hf.settings.preset == "claim-check"
    assert (fresh.poll_base, fresh.poll_max, fresh.after_job_delay, fresh.concurrency, fresh.lease) == (
        1.5, 1.5, 0.5, 1, 600.0,
    )  # fmt: skip
    assert presets.analysis_jobs["renew"] is False
