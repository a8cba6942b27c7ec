"""Writes the table of docs/guarantees.md: each promise, and the tests that cite what stands behind it.
`python -m scripts.guarantees` after a change; a test compares.

Tests cite requirements (R4.6), invariants (I5) and known failures (F1) in the comment of their first line or in their
docstring; a module cites what all of its tests are about in its own docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.generated import fill_in

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
CITED = re.compile(r"\b(?:R\d+\.\d+[a-z]?|[IFL]\d+b?)\b")
MACHINE = "test_machine.py"  # one test: its rules and checks cite what they are about

GUARANTEES: dict[str, str] = {
    "A job that was accepted is not lost: not by a killed worker, a restart or a deployment.": "I1 R1.4",
    "A rolled-back transaction leaves no job, and no wake-up for one.": "I2",
    "However many workers claim at once, a job is held by one of them.": "I3 I4 R1.3 R4.1",
    "A claim returns exactly the jobs it took, and never more than it asked for.": "I19 F24",
    "Whoever lost a job can't record anything for it any more.": "I5 F1 R4.6",
    "Only its holder renews a lease, and only forward.": "I7 F2",
    "A job is taken back only when its lease ran out or its worker is dead; to run long is no reason.": "I6 F3 F4",
    "The jobs of a dead worker run again without anybody's help.": "R1.5 F5 F6",
    "A success is recorded once. Effects committed with it happen exactly once.": "I9",
    "Success is final.": "I8",
    "Attempts are charged when claimed, never more than allowed; what was given back is not charged.": "I10 R5.1 R5.4",
    "A job that takes its workers down is quarantined, and its neighbours lose no attempt.": "I11 F10 F11",
    "No queued job is in a condition in which nobody may ever claim it.": "R5.11",
    "Of equal jobs (same task and key) one is unfinished at a time.": "I12 R7.1 F28",
    "A job starts no sooner than it is due, by the database's clock.": "I13 R5.6",
    "After a cancel a waiting job never runs; a running one ends cancelled or succeeded.": "I18 R2.5",
    "Every verb moves a job as the table of transitions says, or is refused and changes nothing.": "R2.1",
    "A cron makes one job a tick, however many workers run and whichever die.": "I17 F44",
    "A reply that was lost, and the same sent again, change nothing.": "I21 F43",
    "A job whose task no worker knows waits; it is never dropped.": "F7",
    "A stopping worker finishes what it can within its grace and gives the rest back, uncharged.": "R6.4 F13 F13b",
    "An outage of the database costs no attempt, and outcomes wait it out.": "R1.6 R5.12 F14",
    "Wake-ups are hints: without them jobs start later, and nothing else changes.": "R1.8 R3.6 F16 F17 F19 F20",
    "A checkpoint is there for the next attempt.": "R8.1 R8.2",
    "A million finished, paused, future or unserved jobs don't slow the others down.": "R9.4",
    "Workers go on through an upgrade of the schema, or stop and say why.": "F31",
    "On SQLite: commits are on disk, the file is safe from forks, full disks, network file systems and the "
    "library's own log bug.": "F36 F37 F39 F40 F41",
    "The queue is plain SQL: jobs, errors and history are ordinary columns, and an inserted row is a job.": "R1.2 R1.9",
}


class Proof(NamedTuple):
    told: str  # what the test, or the module, says it shows
    where: str
    cites: frozenset[str]


def proofs() -> list[Proof]:
    return [proof for path in sorted((ROOT / "tests").glob("*/test_*.py")) for proof in _proofs_in(path)]


def _proofs_in(path: Path) -> Iterator[Proof]:
    text = path.read_text()
    file = f"`{path.relative_to(ROOT / 'tests')}`"
    tree = ast.parse(text)
    about = ast.get_docstring(tree) or ""
    if path.name == MACHINE:
        yield Proof("after every one of many random sequences of operations", file, frozenset(CITED.findall(text)))
        return
    if cited := CITED.findall(about):
        first = re.sub(r"\s*\([^()]*\)", "", about.replace("\n", " ")).partition(". ")[0].rstrip(".")
        yield Proof(first, f"all of {file}", frozenset(cited))
    lines = text.splitlines()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno]) + (ast.get_docstring(node) or "")
            yield Proof(node.name.removeprefix("test_").replace("_", " "), file, frozenset(CITED.findall(head)))


def table() -> str:
    found = proofs()
    rows = ["| guarantee | shown by |", "|---|---|"]
    for promise, ids in GUARANTEES.items():
        shown = [proof for proof in found if proof.cites & set(ids.split())]
        if not shown:
            raise ValueError(f"no test cites any of {ids}: {promise}")
        tests = "<br>".join(f"{proof.told.replace('|', '/')} ({proof.where})" for proof in shown)
        rows.append(f"| {promise} | {tests} |")
    return "\n".join(rows)


def main() -> None:
    PAGE.write_text(fill_in(PAGE.read_text(), "guarantees", table()))


if __name__ == "__main__":
    main()
