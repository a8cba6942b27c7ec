"""The README and the page say what is in the files."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from examples.site_audit.__main__ import main
from examples.site_audit.browser import BY_BROWSER
from examples.site_audit.check import CHECKS, ON_PAGES
from examples.site_audit.score import CATEGORIES, COSTS
from tests.examples.claim_check.test_documents import blocks
from tests.examples.processes import REPOSITORY

FOLDER = REPOSITORY / "examples/site_audit"
README = FOLDER / "README.md"
PAGE = REPOSITORY / "docs/examples/site-audit.md"
FILES = sorted(FOLDER.glob("*.*"))
SOURCE = "\n".join(path.read_text() for path in FILES if path.suffix in (".py", ".sql"))


@pytest.mark.parametrize("page", [README, PAGE], ids=lambda page: page.name)
def test_every_command_is_one(page: Path) -> None:
    commands = re.findall(r"python -m examples\.site_audit (.*)", "\n".join(blocks("sh", page.read_text())))
    assert commands or page != README
    for line in commands:
        name, *arguments = shlex.split(line, comments=True)
        command = main.commands[name]
        assert isinstance(command, click.Command)
        command.make_context(name, arguments)


def test_the_code_of_the_page_is_the_applications() -> None:
    before, _, after = PAGE.read_text().partition("## After")
    shown = [*blocks("python", after), blocks("python", before)[0]]
    assert len(shown) == 6
    for block in shown:
        assert block in SOURCE, block


def test_the_sql_of_the_page_is_the_applications() -> None:
    table, question = blocks("sql", PAGE.read_text())
    assert table.replace("create table ", "create table if not exists ") in SOURCE
    assert question in SOURCE


def test_every_variable_is_read() -> None:
    variables = re.findall(r"^\| `([A-Z_]+)` \|", README.read_text(), re.MULTILINE)
    assert set(variables) == set(re.findall(r'environ\.get\("([A-Z_]+)"', SOURCE))


def test_every_file_is_named() -> None:
    named = set(re.findall("`([^`]+)`", README.read_text().partition("## Files")[2]))
    for path in FILES:
        assert path.name in ("__init__.py", "README.md") or {path.name, re.sub("_.*", "_*.sql", path.name)} & named, (
            path.name
        )


def test_the_numbers_of_checks_and_weights_are_those_of_the_files() -> None:
    text = " ".join(README.read_text().split())
    assert f"{len(CHECKS)} checks say what is wrong" in text
    assert f"{len(ON_PAGES)} checks of the page" in text
    assert len(CHECKS) == len(ON_PAGES) + len(BY_BROWSER) + 1
    assert "performance (30), search (25), accessibility (25) and security (20)" in text
    assert list(CATEGORIES.values()) == [30, 25, 25, 20]
    assert "critical, 75 % if serious, 50 % if moderate, 25 % if minor" in text
    assert list(COSTS.values()) == [1.0, 0.75, 0.5, 0.25, 0.0]
