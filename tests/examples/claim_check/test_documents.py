"""The README and the page say what is in the files."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from examples.claim_check.__main__ import main
from tests.examples.claim_check.application import REPOSITORY

README = REPOSITORY / "examples/claim_check/README.md"
PAGE = REPOSITORY / "docs/examples/claim-check.md"
FILES = sorted((REPOSITORY / "examples/claim_check").glob("*.*"))
SOURCE = "\n".join(path.read_text() for path in FILES if path.suffix in (".py", ".sql") and path.name != "README.md")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", [README, PAGE], ids=lambda page: page.name)
def test_every_command_is_one(page: object) -> None:
    text = README.read_text() if page == README else PAGE.read_text()
    commands = re.findall(r"python -m examples\.claim_check (.*)", "\n".join(blocks("sh", text)))
    assert commands or page != README
    for line in commands:
        name, *arguments = shlex.split(line, comments=True)
        command = main.commands[name]
        assert isinstance(command, click.Command)
        command.make_context(name, arguments)


def test_the_code_of_the_page_is_the_applications() -> None:
    after = PAGE.read_text().partition("## After")[2]
    shown = blocks("python", after)
    assert len(shown) == 5
    for block in shown:
        assert block in SOURCE, block


def test_the_table_of_the_page_is_the_applications() -> None:
    [shown] = blocks("sql", PAGE.read_text())
    assert shown.replace("create table ", "create table if not exists ") in SOURCE


def test_every_variable_is_read() -> None:
    for variables in re.findall(r"^\| (`[A-Z_]+`(?:, `[A-Z_]+`)*) \|", README.read_text(), re.MULTILINE):
        for name in re.findall("[A-Z_]+", variables):
            assert name.removeprefix("CLAIM_CHECK_MODEL").removeprefix("_") in SOURCE, name


def test_every_file_is_named() -> None:
    table = README.read_text().partition("## Files")[2]
    named = {name for cell in re.findall("`([^`]+)`", table) for name in [cell]}
    for path in FILES:
        patterns = {path.name, f"{path.stem}.*", re.sub("_.*", "_*.sql", path.name)}
        assert path.name in ("__init__.py", "README.md") or patterns & named, path.name
