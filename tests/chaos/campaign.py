"""One round: a database, a fleet, faults for a while, then quiet until everything has ended, then judgement."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos import report
from tests.chaos.checker import RULES, History, Violation, judge
from tests.chaos.evidence import gather
from tests.chaos.faults import Faults
from tests.chaos.fleet import GRACE, Fleet
from tests.chaos.liveness import measure
from tests.chaos.places import Place, Postgres, Sqlite, unfinished

WORKERS, PRODUCERS = 3, 2
BACKLOG = 150  # unfinished jobs at which producers wait
PATIENCE = 180.0  # seconds after the last fault until we give up on what has not ended; the bar is lower
SOON = 40.0  # the same where one rule is all we want to know about
LOOK = 4.0  # seconds between two looks whether that rule is broken already
# Before that they mean nothing.
AT_THE_END = ("everything_ends", "everything_settles", "nothing_is_left_behind", "what_happened_is_counted")


@dataclass
class Round:
    found: dict[str, Any]
    page: str
    violations: list[Violation]


def run(
    engine: str, seed: int, seconds: float, home: Path, source: Path, only: Sequence[str] | None = None,
    tasks: Sequence[str] = (), until: str | None = None, slack: float = 1.0,
) -> Round:  # fmt: skip
    """`only`: these faults, no others. `tasks`: producers choose among these. `until`: enough as soon as this rule is
    seen broken. `slack`: how many times as long everything may take."""
    home.mkdir(parents=True)
    place: Place = Sqlite(home) if engine == "sqlite" else Postgres(home)
    fleet = Fleet(place, home, source, seed, tasks)
    try:
        fleet.run("holdfast", "migrate")
        place.install()
        troubles, early = _under_fire(fleet, seconds, Faults(fleet, seed, only), until)
        if early:
            fleet.close()
        else:
            _until_quiet(fleet, PATIENCE * min(slack, 2) if until is None else SOON)
            fleet.stop("worker", timeout=(GRACE + 20) * slack)
        time.sleep(0.5)
        left = fleet.left()
        history = History(gather(place, home, left))
    finally:
        fleet.close()
        place.close()
    figures, violations = measure(history, slack)
    violations = judge(history) + violations
    if early:  # what the others say of what was cut short means nothing
        violations = [violation for violation in violations if violation.rule == until]
    violations += [Violation("the_campaign_works", trouble) for trouble in troubles]
    about = {"seed": seed, "seconds": seconds, "commit": report.commit_of(source), "home": str(home)}
    found = report.report(history, violations, figures, **about)
    job = report.shortest(history, violations)
    page = report.page(found, report.timeline(history, job) if job else [])
    (home / "report.json").write_text(json.dumps(found, indent=2, default=str))
    (home / "report.txt").write_text(page + "\n")
    return Round(found, page, violations)


def _under_fire(fleet: Fleet, seconds: float, faults: Faults, until: str | None) -> tuple[list[str], bool]:
    """What went wrong with the faults themselves, and whether the rule was seen broken."""
    for slot in range(WORKERS):
        fleet.start("worker", slot)
    for slot in range(PRODUCERS):
        fleet.start("producer", slot)
    fleet.start("people", 0)
    deadline = time.monotonic() + PATIENCE
    while not all(worker.at_work for worker in fleet.of("worker")) and time.monotonic() < deadline:
        _throttle(fleet)
        _watch(fleet, 0.2)
    faults.start()
    try:
        deadline = time.monotonic() + seconds
        broken = False
        while time.monotonic() < deadline and not broken:
            _throttle(fleet)
            _watch(fleet, 1.0 if until is None else LOOK)
            broken = until is not None and until not in AT_THE_END and _broken(fleet, until)
    finally:
        fleet.log.write(what="last")
        faults.stop()
    return faults.troubles, broken


def _broken(fleet: Fleet, rule: str) -> bool:
    """As far as can be seen while everything goes on."""
    with suppress(sqlite3.Error, psycopg.Error):
        # What is read last may know more than what was read first: so it must be there the next time, too.
        found = _found(fleet, rule)
        if found:
            time.sleep(0.5)
            return bool(found & _found(fleet, rule))
    return False


def _found(fleet: Fleet, rule: str) -> set[str | None]:
    """The jobs that break it."""
    history = History(gather(fleet.place, fleet.home, []))
    violations = RULES[rule](history) if rule in RULES else measure(history)[1]
    return {violation.job for violation in violations if violation.rule == rule}


def _throttle(fleet: Fleet) -> None:
    with suppress(sqlite3.Error, psycopg.Error):  # the database may be away
        fleet.greet({str(name) for (name,) in fleet.place.rows(f"select name from {fleet.place.table('workers')}")})
        enough = fleet.home / "enough"
        if unfinished(fleet.place) > BACKLOG:
            enough.touch()
        else:
            enough.unlink(missing_ok=True)


def _watch(fleet: Fleet, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fleet.tend()
        fleet.look()
        time.sleep(0.1)


def _until_quiet(fleet: Fleet, patience: float) -> None:
    """No more faults, producers or people: everything must end. Workers that die now (of poison) are started again."""
    fleet.keep = False
    fleet.stop("producer", timeout=30)
    fleet.stop("people", timeout=30)
    fleet.tend()
    fleet.keep = True
    fleet.log.write(what="quiet")
    began = time.monotonic()
    left = -1
    while left and time.monotonic() - began < patience:
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            fleet.run("tests.chaos.people", "settle")
        _throttle(fleet)
        _watch(fleet, 1.0)
        left = unfinished(fleet.place)
    fleet.log.write(what="settled", seconds=round(time.monotonic() - began, 1), unfinished=left)
    fleet.keep = False
