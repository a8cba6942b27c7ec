"""The table changes under a running worker, as it once did under one of these systems: words, columns and the claim
function had other names one day, and its second processor broke without a word. Ours says which, loses nothing, and
goes on when it is mended."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast, State
from holdfast.worker import settler
from tests.adopt.systems.conftest import MakeApp, MakeSystem
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.system import System
from tests.running import Heard, heard, working
from tests.waiting import wait_until

__all__ = ["heard"]


class Change(NamedTuple):
    """Statements by engine. `said`: what our message has to name."""

    table: str
    said: str
    made: dict[str, list[str]]
    mended: dict[str, list[str]]


def both(*statements: str) -> dict[str, list[str]]:
    return {"sqlite": list(statements), "postgres": list(statements)}


CHECKED = "alter table analysis_jobs drop constraint analysis_jobs_status_check"
CHANGES = {
    "the time of a claim": Change(
        "analysis_jobs", "claimed_at",
        both("alter table analysis_jobs rename column claimed_at to started_at"),
        both("alter table analysis_jobs rename column started_at to claimed_at"),
    ),
    "the status": Change(
        "audits", "status",
        both("alter table audits rename column status to state"),
        both("alter table audits rename column state to status"),
    ),
    "a result": Change(
        "analysis_jobs", "bs_score",
        both("alter table analysis_jobs rename column bs_score to bunkd_score"),
        both("alter table analysis_jobs rename column bunkd_score to bs_score"),
    ),
    "the other table": Change(
        "crawl_jobs", "total_pending",
        both("alter table crawl_states rename column total_pending to pending_total"),
        both("alter table crawl_states rename column pending_total to total_pending"),
    ),
    "the whole table": Change(
        "execution_jobs", "execution_jobs",
        both("alter table execution_jobs rename to runs"),
        both("alter table runs rename to execution_jobs"),
    ),
    "a word of an enum": Change(
        "crawl_jobs", "processing",
        {"postgres": ["alter type crawl_status rename value 'processing' to 'running'"]},
        {"postgres": ["alter type crawl_status rename value 'running' to 'processing'"]},
    ),
    "the words of a check": Change(
        "analysis_jobs", "running",
        {"postgres": [CHECKED, "alter table analysis_jobs add constraint analysis_jobs_status_check "
                               "check (status in ('queued', 'processing', 'completed', 'failed')) not valid"]},
        {"postgres": [CHECKED, "alter table analysis_jobs add constraint analysis_jobs_status_check "
                               "check (status in ('queued', 'running', 'done', 'failed'))"]},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its tables, where nothing else tells that one was changed."""
    monkeypatch.setattr(settler, "ROUND", 0.3)
    monkeypatch.setattr(settler, "RECHECK", 0.3)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_under_a_worker_is_named_and_costs_nothing(
    name: str, engine: str, make_system: MakeSystem, make_app: MakeApp, ledger: Ledger, heard: Heard
) -> None:
    change = CHANGES[name]
    if engine not in change.made:
        pytest.skip("SQLite has no such statement")
    system = make_system(change.table)
    before = system.submit("https://before.example")
    hf, native = with_a_native_task(make_app, change.table)
    with working(hf):
        await_done(system, before)
        for statement in change.made[engine]:
            system.db.changed(statement)
        wait_until(lambda: said_by(heard, "table_refused"), "the worker to say it", timeout=30)
        assert change.said in said_by(heard, "table_refused")
        assert any(change.said in str(problem) for problem in hf.store.adopted.check(hf.adopted[change.table].mapping))
        job = hf.find_task("native").enqueue()
        wait_until(lambda: job.refresh().state is State.SUCCEEDED, "a native job, which goes on")
        assert native == [1]
        for statement in change.mended[engine]:
            system.db.changed(statement)
        after = system.submit("https://after.example")
        wait_until(lambda: heard.of("table_served"), "the worker to go on", timeout=30)
        await_done(system, after)
    assert len(ledger.lines(what="end", id=before)) == len(ledger.lines(what="end", id=after)) == 1
    assert not hf.store.adopted.check(hf.adopted[change.table].mapping)


def test_what_runs_while_a_column_is_renamed_is_recorded_once_it_is_back(
    make_system: MakeSystem, make_app: MakeApp, ledger: Ledger
) -> None:
    """Its outcome is owed to the row meanwhile."""
    system = make_system("crawl_jobs")
    id = system.submit("https://endless.example")
    hf, _ = with_a_native_task(make_app, "crawl_jobs")
    job = hf.adopted["crawl_jobs"].job(id)
    with working(hf):
        wait_until(lambda: ledger.lines(what="saved", id=id), "a checkpoint")
        system.db.changed("alter table crawl_jobs rename column worker_id to claimed_by")
        job.refresh().cancel()
        wait_until(lambda: job.refresh().state is State.CANCELLED, "it to be cancelled")
        assert system.status_counts() == {"processing": 1}, "nobody can write it now"
        system.db.changed("alter table crawl_jobs rename column claimed_by to worker_id")
        wait_until(lambda: system.status_counts() == {"cancelled": 1}, "the row to be told", timeout=30)


def test_another_claim_function_is_the_old_systems_own_matter(
    engine: str, make_system: MakeSystem, make_app: MakeApp
) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has no functions of its own")
    system = make_system("analysis_jobs")
    hf, _ = with_a_native_task(make_app, "analysis_jobs")
    with working(hf):
        system.db.changed("alter function claim_next_job rename to acquire_next_job")
        await_done(system, system.submit("https://plain.example"))
    assert not hf.store.adopted.check(hf.adopted["analysis_jobs"].mapping)


def with_a_native_task(make_app: MakeApp, table: str) -> tuple[Holdfast, list[int]]:
    hf = make_app(table)
    ran: list[int] = []

    @hf.task(isolation=None)
    def native() -> None:
        ran.append(1)

    hf.adopted[table].install()
    return hf, ran


def await_done(system: System, id: str) -> None:
    def done() -> Any:
        return system.db.value(f"select status from {system.table} where id = :id", id=id) == system.done

    wait_until(done, f"{id} to be done")


def said_by(heard: Heard, event: str) -> str:
    return " ".join(fields["error"] for fields in heard.of(event))
