"""The bugs that `make mutants` plants can still be planted. Whether they are caught takes minutes to find out."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from scripts import mutants
from scripts.planted import BUGS, GUARANTEES, PROMISES, ROOT, SOURCE, Bug
from tests.chaos.checker import RULES
from tests.chaos.liveness import BARS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.breaks)
def test_every_bug_can_be_planted_and_in_one_place_only(bug: Bug) -> None:
    for file, old, new in bug.changes:
        assert (ROOT / SOURCE / file).read_text("utf-8").count(old) == 1, "change scripts/planted.py with the code"
        assert old != new


def test_the_tests_that_must_catch_them_exist() -> None:
    for file in {test.partition("::")[0] for bug in BUGS for test in bug.tests}:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        there = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        named = {test.partition("::")[2] for bug in BUGS for test in bug.tests if test.startswith(f"{file}::")}
        assert named <= there, file


def test_there_are_bugs_against_every_guarantee_and_tests_for_every_bug() -> None:
    assert len(BUGS) >= 30
    assert GUARANTEES.keys() == PROMISES.keys()
    assert all(GUARANTEES.values())
    assert all(bug.tests for bug in BUGS)
    assert len({bug.changes for bug in BUGS}) == len({bug.breaks for bug in BUGS}) == len(BUGS)


def test_the_campaign_sees_a_bug_or_it_is_said_why_it_can_not() -> None:
    assert all(bool(bug.rule) != bool(bug.hidden) for bug in BUGS)
    assert {bug.rule for bug in BUGS if bug.rule} <= {*RULES, *BARS}


def test_the_tests_behind_a_promise_carry_its_name() -> None:
    """`pytest -m 'guarantee(name="fence")'` runs them."""
    named = {test for bug in GUARANTEES["fence"] for test in bug.tests}
    files = {f"tests/{test.partition('::')[0]}" for test in named}
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", 'guarantee(name="fence")', *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    collected = {line.partition("[")[0].removeprefix("tests/") for line in ran.stdout.splitlines() if "::" in line}
    assert collected == named


@pytest.mark.parametrize(
    ("status", "summary", "verdict"),
    [
        (0, "2 passed in 1.0s", mutants.SURVIVED),
        (1, "1 failed, 1 passed in 1.0s", mutants.CAUGHT),
        (1, "1 passed, 1 error in 1.0s", mutants.BROKEN),
        (2, "1 error in 0.1s", mutants.BROKEN),
        (4, "no tests ran in 0.1s", mutants.BROKEN),
    ],
)
def test_only_a_test_that_ran_and_failed_has_caught_a_bug(status: int, summary: str, verdict: str) -> None:
    ran = subprocess.CompletedProcess([], status, f"...F\nFAILED tests/x.py\n{summary}\n")
    assert mutants.verdict(ran) == verdict
