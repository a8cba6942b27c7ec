"""Rows that programs of ours insert: each is a job at once, and equal keys are one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import Adopted, BadArguments, Fail, Holdfast, Job, JobNotFound, State
from holdfast.store.migrate import turn
from holdfast.store.postgres import connect
from tests.adopt.legacy import MAPPED, Legacy
from tests.running import MakeApp, working
from tests.waiting import wait_until


@pytest.fixture
def audits(hf: Holdfast, legacy: Legacy) -> Adopted:
    audits = hf.adopt(legacy.table, **MAPPED)

    @audits.task
    def analyse(row: dict[str, Any]) -> dict[str, int]:
        if row["url"] == "bad":
            raise Fail("no such page", code="GONE")
        return {"score": 1}

    audits.install()
    return audits


def rows(legacy: Legacy) -> int:
    return int(legacy("select count(*) from audits")[0][0])


def test_a_row_is_submitted(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    job = audits.submit(url="https://a.example", urgency=3, pages=7)
    assert (job.created, job.state) == (True, State.QUEUED)
    assert job.refresh().args["row"]["pages"] == 7
    assert (job.record.priority, job.record.queue) == (3, "audits")
    assert int(hf.drain()) == 1
    assert job.refresh().result == {"score": 1}
    assert legacy.word(int(job.source_id or 0)) == "completed"


def test_several_that_start_together_may_all_adopt_the_table(hf: Holdfast, make_app: MakeApp, legacy: Legacy) -> None:
    """A web server and its workers, each of which sets up what is missing."""
    legacy.insert()
    tables = [make_app().adopt(legacy.table, **MAPPED) for _ in range(4)]
    together = threading.Barrier(len(tables))

    def install(table: Adopted) -> None:
        together.wait(20)
        table.install()

    for _ in range(3):
        with ThreadPoolExecutor(len(tables)) as starting:
            list(starting.map(install, tables))
        assert [table.problems() for table in tables] == [[]] * len(tables)
        assert hf.store.adopted.undo("audits") == 1


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("verb", ["migrate", "adopt"])
def test_who_sets_up_a_database_waits_for_one_who_is_slow_at_it(
    verb: str, make_app: MakeApp, legacy: Legacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than for any other lock: on a busy machine, migrating and adopting takes seconds."""
    monkeypatch.setattr(connect, "LOCK_TIMEOUT", "50ms")
    hf = make_app()
    audits = hf.adopt(legacy.table, **MAPPED)
    with (
        psycopg.connect(hf.settings.url) as slow, psycopg.connect(hf.settings.url, autocommit=True) as looking,
        ThreadPoolExecutor(1) as other,
    ):  # fmt: skip
        slow.execute("select pg_advisory_xact_lock(%s)", [turn(hf.settings.schema)])
        setting_up = other.submit(hf.migrate if verb == "migrate" else audits.install)

        def waits() -> bool:
            found = looking.execute(
                "select from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
                " and clock_timestamp() - query_start > interval '200 ms'",
                [slow.info.backend_pid],
            )
            return found.rowcount > 0

        wait_until(lambda: setting_up.done() or waits(), "it to wait")
        assert not setting_up.done()
        slow.rollback()
        setting_up.result(20)
    assert bool(audits.problems()) is (verb == "migrate")


@pytest.mark.parametrize("engine", ["postgres"])
def test_who_submits_a_key_waits_for_all_that_came_before(
    make_app: MakeApp, legacy: Legacy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a crowd is quick, and all of them together take longer than the wait for any other lock."""
    monkeypatch.setattr(connect, "LOCK_TIMEOUT", "50ms")
    hf = make_app()
    audits = hf.adopt(legacy.table, **MAPPED)
    audits.install()
    tried: set[Any] = set()
    with (
        psycopg.connect(hf.settings.url) as before, psycopg.connect(hf.settings.url, autocommit=True) as looking,
        ThreadPoolExecutor(1) as other,
    ):  # fmt: skip
        first = audits.submit(url="a", key="k", conn=before)
        submitting = other.submit(audits.submit, url="b", key="k")

        def tries() -> int:
            blocked = "select query_start from pg_stat_activity where %s = any(pg_blocking_pids(pid))"
            tried.update(looking.execute(blocked, [before.info.backend_pid]))
            return len(tried)

        wait_until(lambda: submitting.done() or tries() > 1, "it to wait longer than for a lock")
        before.commit()
        assert submitting.result(20).id == first.id
    assert rows(legacy) == 1


def test_a_worker_starts_it(hf: Holdfast, audits: Adopted) -> None:
    with working(hf):
        assert audits.submit(url="https://a.example").wait(20) == {"score": 1}
        assert asyncio.run(audits.asubmit(url="https://a.example")).wait(20) == {"score": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"uri": "x"}, r"no column 'uri' \(perhaps 'url'\)"),
        ({"url": "x", "status": "draft"}, "status is written by Holdfast"),
        ({"url": "x", "worker_id": "me"}, "worker_id is written by Holdfast"),
        ({"url": "x", "reuse": 5}, "of use with key= only"),
        ({"url": "x", "key": "k", "after_failure": "never"}, 'after_failure is "new", "retry" or "return"'),
    ],
)
def test_what_can_t_be_submitted(audits: Adopted, legacy: Legacy, given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadArguments, match=said):
        audits.submit(**given)
    assert rows(legacy) == 0


def test_a_mapping_without_a_key(hf: Holdfast) -> None:
    with pytest.raises(BadArguments, match="names no column for a key"):
        hf.adopt("t", states=MAPPED["states"]).submit(key="k")


def test_an_unfinished_row_with_the_key_is_returned(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    first = audits.submit(url="a", key="k")
    second = audits.submit(url="b", key="k")
    assert (second.id, second.created) == (first.id, False)
    legacy.insert("by hand", request_id="other")
    assert audits.submit(url="c", key="other").created is False
    hf.drain()
    assert audits.submit(url="a", key="k").id != first.id
    assert rows(legacy) == 3


def test_a_success_is_reused_for_a_while(hf: Holdfast, audits: Adopted) -> None:
    first = audits.submit(url="a", key="k")
    hf.drain()
    again = audits.submit(url="a", key="k", reuse=3600)
    assert (again.id, again.created, again.state) == (first.id, False, State.SUCCEEDED)
    assert audits.submit(url="a", key="k", reuse="forever").id == first.id
    assert audits.submit(url="a", key="k").created


def test_after_a_failure(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    first = audits.submit(url="bad", key="k")
    hf.drain()
    assert first.refresh().state is State.FAILED
    same = audits.submit(url="good", key="k", after_failure="return")
    assert (same.id, same.state) == (first.id, State.FAILED)
    retried = audits.submit(url="good", key="k", after_failure="retry")
    assert (retried.id, retried.created, retried.state) == (first.id, False, State.QUEUED)
    assert retried.refresh().record.attempt == 0
    row = legacy.row(int(retried.source_id or 0))
    assert (row["status"], row["url"], row["retries"], row["error"]) == ("pending", "bad", 0, None)
    hf.drain()
    new = audits.submit(url="good", key="k")
    assert new.created
    assert new.id != first.id


def test_where_the_key_is_unique_the_row_begins_again(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    legacy("create unique index one_key on audits (request_id)")
    first = audits.submit(url="bad", key="k")
    hf.drain()
    again = audits.submit(url="good", key="k")
    assert (again.id, again.created, again.state) == (first.id, False, State.QUEUED)
    hf.drain()
    assert legacy.row(int(first.refresh().source_id or 0))["url"] == "good"
    assert rows(legacy) == 1


def test_of_many_submissions_of_a_key_one_wins(audits: Adopted, legacy: Legacy) -> None:
    made: list[Job[Any]] = []
    together = threading.Barrier(8)

    def submit() -> None:
        together.wait()
        made.append(audits.submit(url="a", key="k"))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.id for job in made}) == 1
    assert sum(job.created for job in made) == 1
    assert rows(legacy) == 1


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_submission_waits_for_one_that_has_not_committed(audits: Adopted, legacy: Legacy) -> None:
    made: list[Job[Any]] = []
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    with legacy.connect() as connection:
        connection.execute("begin")
        first = audits.submit(url="a", key="k", conn=connection)
        second = threading.Thread(target=lambda: made.append(audits.submit(url="b", key="k")))
        second.start()
        wait_until(lambda: made or legacy(waiting) != [(0,)])
        connection.execute("commit")
    second.join()
    assert (made[0].id, made[0].created) == (first.id, False)


def test_on_an_open_transaction(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    with legacy.connect() as connection:
        connection.execute("begin")
        kept = audits.submit(url="kept", key="k", conn=connection)
        connection.execute("commit")
        connection.execute("begin")
        lost = audits.submit(url="lost", conn=connection)
        connection.execute("rollback")
    with pytest.raises(JobNotFound, match="has not committed yet, or was rolled back"):
        lost.refresh()
    assert kept.refresh().source == "audits"
    assert int(hf.drain()) == 1
    assert rows(legacy) == 1


@pytest.mark.parametrize("engine", ["postgres"])
def test_on_an_asynchronous_transaction(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    async def submit() -> Job[Any]:
        async with await psycopg.AsyncConnection.connect(hf.settings.url) as connection:
            return await audits.asubmit(url="a", key="k", conn=connection)

    assert asyncio.run(submit()).refresh().state is State.QUEUED
    assert int(hf.drain()) == 1


# -- rows that have finished, and have no job --------------------------------------------------------------------------


def finished_long_ago(hf: Holdfast, audits: Adopted, legacy: Legacy, url: str) -> str:
    """A row whose job is no longer kept. (Tables have them, too, from before they were adopted.)"""
    job = audits.submit(url=url, key=url)
    hf.drain()
    job.refresh().delete()
    with pytest.raises(JobNotFound):
        audits.job(job.source_id)
    assert job.source_id is not None
    return job.source_id


def test_a_success_outlives_its_job(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    row = finished_long_ago(hf, audits, legacy, "a")
    for _ in range(2):
        job = audits.submit(url="a", key="a", reuse="forever", after_failure="retry")
        assert (job.source_id, job.created, job.state) == (row, False, State.SUCCEEDED)
    assert int(hf.drain()) == 0
    assert rows(legacy) == 1
    assert legacy.word(int(row)) == "completed"


def test_a_failure_outlives_its_job_for_whoever_asks_what_came_of_it(
    hf: Holdfast, audits: Adopted, legacy: Legacy
) -> None:
    row = finished_long_ago(hf, audits, legacy, "bad")
    job = audits.submit(url="bad", key="bad", after_failure="return")
    assert (job.source_id, job.state) == (row, State.FAILED)
    assert [failed.id for failed in hf.jobs("state:failed")] == [job.id]
    again = audits.submit(url="bad", key="bad", after_failure="retry")
    assert (again.source_id, again.state) == (row, State.QUEUED)
    assert int(hf.drain()) == 1


def test_how_old_a_success_without_a_job_is_nobody_knows(hf: Holdfast, audits: Adopted, legacy: Legacy) -> None:
    row = finished_long_ago(hf, audits, legacy, "a")
    assert audits.submit(url="a", key="a", reuse=3600).source_id != row, "a new one"


# -- rows, read --------------------------------------------------------------------------------------------------------


def test_a_row_is_read_as_handlers_get_it(audits: Adopted, legacy: Legacy) -> None:
    job = audits.submit(url="https://a.example", pages=7)
    row = audits.row(job.source_id)
    assert (row["url"], row["pages"], row["status"]) == ("https://a.example", 7, "pending")
    assert asyncio.run(audits.arow(int(job.source_id or 0))) == row
    assert row.items() >= job.refresh().args["row"].items()


@pytest.mark.parametrize("id", [4711, "", "no number", "1 or 1=1", "%s", "9" * 40, "a\0b", "٣"])
def test_an_unknown_row_is_refused(id: object, audits: Adopted) -> None:
    with pytest.raises(JobNotFound, match="has no row"):
        audits.row(id)


def test_a_token_needs_a_column(audits: Adopted) -> None:
    with pytest.raises(BadArguments, match="the mapping names no column for a token"):
        audits.row(1, token="x")


def test_a_row_is_shown_to_whoever_has_its_token_and_to_nobody_else(hf: Holdfast, legacy: Legacy) -> None:
    pages = hf.adopt(legacy.table, **MAPPED | {"token": "url"})
    pages.install()
    mine, other = pages.submit(url="secret"), pages.submit(url="other")
    assert pages.row(mine.source_id, token="secret")["url"] == "secret"
    refusals = []
    for id, token in ((mine.source_id, "other"), (mine.source_id, ""), (mine.source_id, "secret "), ("4711", "secret"),
                      (other.source_id, "geheim ß")):  # fmt: skip
        with pytest.raises(JobNotFound) as refused:
            pages.row(id, token=token)
        refusals.append(str(refused.value).replace(f"row {id} ", ""))
    assert len(set(refusals)) == 1, "nobody learns whether there is such a row"
