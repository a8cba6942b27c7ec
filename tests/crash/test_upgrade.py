"""Rolling upgrades: workers of this code go on while the database is brought to the next version's schema, beside
workers of that version; and stop, saying why, where it no longer serves them. The next version is a copy of this
one with a migration more."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from tests.crash.fleet import ROOT, Fleet, wait_until

# What a next version may do while this one works: new columns that have a default or may be null, tables, indexes.
ADDITIVE = """
alter table @jobs add column colour text;
alter table @jobs add column weight integer not null default 1;
alter table @leases add column reason text;
create table @colours (name text primary key);
create index {index} on @jobs (colour) where colour is not null;
"""

MakeNext = Callable[[int], Path]


@pytest.fixture
def next_version(tmp_path: Path) -> MakeNext:
    """Makes the next version, serving code from `oldest` on; returns what to put on PYTHONPATH."""

    def make(oldest: int) -> Path:
        place = tmp_path / "next"
        shutil.copytree(ROOT / "src" / "holdfast", place / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
        for name, index in (("sqlite", "@jobs_by_colour"), ("postgres", "jobs_by_colour")):
            migration = place / "holdfast" / "store" / name / "migrations" / "0002_colours.sql"
            migration.write_text(ADDITIVE.format(index=index))
        rule = place / "holdfast" / "store" / "migrate.py"
        text = rule.read_text()
        assert "\nOLDEST_CODE = 1 " in text
        rule.write_text(text.replace("\nOLDEST_CODE = 1 ", f"\nOLDEST_CODE = {oldest} "))
        return place

    return make


def migrate(fleet: Fleet, code: Path) -> None:
    """As an operator does; again, where the tables were busy."""

    def applied() -> bool:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "migrate"], cwd=fleet.home, text=True, capture_output=True, check=False,
            env={**fleet.environment(), "PYTHONPATH": str(code)}, timeout=60,
        )  # fmt: skip
        assert done.returncode in (0, 5), done.stderr
        assert done.returncode or done.stdout == "0002_colours\n", done.stdout
        return done.returncode == 0

    wait_until(applied, what="the migration is applied")


def test_workers_go_on_through_an_upgrade_of_the_schema_beside_workers_of_the_next_version(
    hasty_fleet: Fleet, next_version: MakeNext, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = hasty_fleet
    old = fleet.start_many(2)
    fleet.enqueue("quick", 200)
    fleet.enqueue("aquick", 200)
    napping = fleet.enqueue("nap", 4, seconds=2.0)
    fleet.await_starts(100)
    migrate(fleet, code := next_version(1))
    fleet.enqueue("aquick", 100)  # by a producer of this version, on the connections it had
    monkeypatch.setenv("PYTHONPATH", str(code))
    new = fleet.start()
    fleet.enqueue("quick", 300, number=1)
    fleet.await_states(succeeded=804)
    assert not any(fleet.store.reads.attempts(id) for id in napping), "it ran through the upgrade, once"
    started = {trace.pid for trace in fleet.traces("start")}
    assert all(started & {*fleet.runners(process)} for process in old), "both went on"
    fleet.stop(new)
    before = len(fleet.traces("start"))
    fleet.enqueue("aquick", 50)  # those of this version are still at it, alone
    wait_until(lambda: len(fleet.traces("start")) == before + 50)
    fleet.await_states(succeeded=854)
    fleet.stop(*old)
    for process in old:
        log = fleet.log_of(process)
        assert not [word for word in ("ERROR", "Traceback", "unavailable", "trying again") if word in log], log


@pytest.fixture
def command_line_worker(hasty_fleet: Fleet) -> Iterator[subprocess.Popen[str]]:
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "tests.crash.app:hf"], cwd=ROOT, env=hasty_fleet.environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until(lambda: worker.pid in {known.pid for known in hasty_fleet.store.workers.all()}, what="it registers")
    yield worker
    worker.kill()
    worker.communicate()


def test_a_schema_that_no_longer_serves_this_code_ends_its_workers_in_good_order(
    hasty_fleet: Fleet, command_line_worker: subprocess.Popen[str], next_version: MakeNext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fleet, worker = hasty_fleet, command_line_worker
    [running] = fleet.enqueue("doze", seconds=4.0)
    fleet.await_starts(1)
    migrate(fleet, code := next_version(2))
    # It looks at least once a lease: it ends by itself, and what runs is finished and recorded first.
    _, said = worker.communicate(timeout=30)
    assert worker.returncode == 6, said
    assert "is at 2 and serves code from 2 on, this version knows 1: upgrade Holdfast" in said.splitlines()[-1]
    assert "Traceback" not in said
    assert fleet.job(running).state is State.SUCCEEDED
    assert fleet.store.workers.all() == []
    [waiting] = fleet.enqueue("quick")
    refused = subprocess.run(
        [sys.executable, "-m", "holdfast", "drain", "tests.crash.app:hf"], cwd=ROOT, env=fleet.environment(), text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 6, refused.stderr
    assert fleet.job(waiting).state is State.QUEUED
    monkeypatch.setenv("PYTHONPATH", str(code))
    upgraded = fleet.start()
    fleet.await_states(succeeded=2)
    fleet.stop(upgraded)
