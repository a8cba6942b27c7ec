"""Writes the generated parts of docs/guarantees.md: each promise with the tests behind it, and each rule of the chaos
campaign with the planted bugs that break it. A test is named only if it fails when the promise is broken. `make
mutants` plants the bugs of scripts/planted.py, runs the tests named for each, and writes the page if all were caught;
`make mutants-chaos` checks the rules. After a change of wording `python -m scripts.guarantees` writes the page; a test
compares."""

from __future__ import annotations

from scripts.generated import fill_in
from scripts.planted import BUGS, GUARANTEES, PROMISES, ROOT, Bug

PAGE = ROOT / "docs" / "guarantees.md"


def promises() -> str:
    """A section for each promise, under its name: the tests, and the bugs that each of them catches."""
    lines = []
    for name, bugs in GUARANTEES.items():
        lines += [f"### {name}", "", PROMISES[name], ""]
        lines += [f"- {test} catches: {caught}" for test, caught in _by_test(bugs).items()]
        lines.append("")
    return "\n".join(lines)


def campaign() -> str:
    """Which planted bugs the campaign notices, and which it can't."""
    seen = [bug for bug in BUGS if bug.rule]
    rows = [
        f"Of the {len(BUGS)} planted bugs {len(seen)} can be seen from outside. `make mutants-chaos` puts each",
        "of them under fire until the rule named for it is broken; a bug that goes unnoticed fails the run.",
        "",
        "| rule of the checker | planted bugs that break it |",
        "|---|---|",
    ]
    for rule in sorted({bug.rule for bug in seen}):
        rows.append(f"| {rule.replace('_', ' ')} | {_listed([bug for bug in seen if bug.rule == rule])} |")
    rows += ["", "The campaign can't notice the others:", "", "| why | planted bugs |", "|---|---|"]
    for why in dict.fromkeys(bug.hidden for bug in BUGS if bug.hidden):
        rows.append(f"| {why} | {_listed([bug for bug in BUGS if bug.hidden == why])} |")
    return "\n".join(rows)


def _listed(bugs: list[Bug]) -> str:
    return "; ".join(bug.breaks for bug in bugs)


def _by_test(bugs: list[Bug]) -> dict[str, str]:
    caught: dict[str, list[str]] = {}
    for bug in bugs:
        for test in bug.tests:
            caught.setdefault(_sentence(test), []).append(bug.breaks)
    return {test: "; ".join(dict.fromkeys(breaks)) for test, breaks in caught.items()}


def _sentence(test: str) -> str:
    file, _, name = test.partition("::test_")
    return f"*{name.replace('_', ' ')}* (`{file}`)"


def main() -> None:
    page = fill_in(PAGE.read_text(), "campaign", campaign())
    PAGE.write_text(fill_in(page, "guarantees", promises()))


if __name__ == "__main__":
    main()
