"""What the ledger and the table say together, once all is done."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.adopt.systems.ledger import Ledger, Line
from tests.adopt.systems.system import MAX_ATTEMPTS, System

CLOSED = {"end", "fail", "died", "stopped"}


def assert_never_two_at_once(ledger: Ledger) -> None:
    held: dict[str, str] = {}
    for line in ledger.lines():
        if line.what == "start":
            assert line.id not in held, f"{line.who} runs {line.id}, and so does {held[line.id]}"
            held[line.id] = line.who
        elif line.what in CLOSED and held.get(line.id) == line.who:
            del held[line.id]


def assert_each_done_once(system: System, ledger: Ledger) -> None:
    """Every row that somebody submitted here has finished, once, with its attempts counted as the table counts them."""
    lines: dict[str, list[Line]] = defaultdict(list)
    for line in ledger.lines():
        own = lines[line.id]
        if line.what == "reset":
            own.clear()
        if line.what == "too late":  # somebody has paused or cancelled it meanwhile
            own.remove(next(before for before in reversed(own) if before.who == line.who))
        else:
            own.append(line)
    submitted = {line.id for line in ledger.lines(what="submit")}
    free = losses_in_company(system)
    for row in system.db.rows(f"select *, {system.attempts} as n from {system.table}"):
        assert row["status"] in system.words - {system.waiting, system.running, "paused"}, row
        if row["id"] in submitted and row["status"] in (system.done, system.failed):
            own = lines[row["id"]]
            ended = sum(line.what == "end" for line in own)
            assert ended == (row["status"] == system.done), _told(row, own)
            if system.counting is not None:
                expected = expected_attempts(system, row["status"], own) - free.get(row["id"], 0)
                assert row["n"] == expected, _told(row, own)


def losses_in_company(system: System) -> dict[str, int]:
    """By row: the runs of its newest life that nobody is charged for, as their worker died while it still had a lease
    from another claim, be it of a row that somebody had paused just then."""
    at = "holdfast_" if system.db.engine == "sqlite" else "holdfast."
    lost = system.db.rows(
        f"select source_id, count(*) as n from {at}jobs j join {at}attempts a on a.job_id = j.id and a.life = j.life "
        "where source is not null and outcome = 'lost' group by source_id"
    )
    return {row["source_id"]: row["n"] for row in lost}


def _told(row: dict[str, Any], lines: list[Line]) -> str:
    return "\n".join([str(row), *(f"{line.at:.4f} {line.what} {line.who} {line.number}" for line in lines)])


def expected_attempts(system: System, word: str, lines: list[Line]) -> int:
    """By the runs of its newest life. What was stopped, or came too late, is not charged."""
    base = lines[0].number if lines[0].what == "reset" and lines[0].number < MAX_ATTEMPTS else 0
    runs = sum(line.what in ("end", "fail", "died") for line in lines)
    last_is_free = system.counting == "at_recovery" or (system.counting == "at_failure" and word == system.done)
    return base + runs - last_is_free


def assert_in_step(system: System, store_rows: list[dict[str, Any]], meanings: dict[str, str]) -> None:
    """Every row's word is the state of its job. (Rows that had finished before we came have none.)"""
    words = {row["id"]: row["status"] for row in system.db.rows(f"select id, status from {system.table}")}
    for job in store_rows:
        assert not job["owed"], job
        if job["source_id"] in words:
            assert meanings[words[job["source_id"]]] == job["state"], (words[job["source_id"]], job)
