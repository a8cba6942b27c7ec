"""Writes the tables of docs/guarantees.md: each promise with the tests that stand behind it, each rule of the campaign
with what breaks it. A test is named only if it fails when the promise is broken: `make mutants` plants the bugs
(scripts/planted.py) and runs them; a rule likewise, by `make mutants-chaos`.
`python -m scripts.guarantees` after a change; a test compares."""

from __future__ import annotations

from scripts.generated import fill_in
from scripts.planted import BUGS, GUARANTEES, ROOT, Bug

PAGE = ROOT / "docs" / "guarantees.md"


def table() -> str:
    rows = ["| guarantee | the tests, and the planted bugs that each of them was seen to catch |", "|---|---|"]
    for promise, bugs in GUARANTEES.items():
        rows.append(
            f"| {promise} | {'<br>'.join(f'**{test}**: {caught}' for test, caught in _by_test(bugs).items())} |"
        )
    return "\n".join(rows)


def campaign() -> str:
    """What the campaign was seen to notice, and what it can't."""
    seen = [bug for bug in BUGS if bug.rule]
    rows = [
        f"Of the {len(BUGS)} planted bugs {len(seen)} can be seen from outside. `make mutants-chaos` puts each",
        "of them under fire until the rule named for it is broken; a bug that stays unseen fails the run.",
        "",
        "| rule of the checker | planted bugs that break it |",
        "|---|---|",
    ]
    for rule in sorted({bug.rule for bug in seen}):
        rows.append(f"| {rule.replace('_', ' ')} | {_listed([bug for bug in seen if bug.rule == rule])} |")
    rows += ["", "The others show in nothing that the campaign can see:", "", "| why | planted bugs |", "|---|---|"]
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
    return f"{name.replace('_', ' ')} (`{file}`)"


def main() -> None:
    page = fill_in(PAGE.read_text(), "campaign", campaign())
    PAGE.write_text(fill_in(page, "guarantees", table()))


if __name__ == "__main__":
    main()
