"""The README and the page say what is in the files."""

from __future__ import annotations

import re
import shlex

import click

from examples.crawl.__main__ import main
from tests.examples.claim_check.application import REPOSITORY

HERE = REPOSITORY / "examples/crawl"
README = (HERE / "README.md").read_text()
PAGE = (REPOSITORY / "docs/examples/crawl.md").read_text()
FILES = sorted(HERE.glob("*.*"))
SOURCE = "\n".join(path.read_text() for path in FILES if path.suffix in (".py", ".sql"))


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_command_is_one() -> None:
    commands = re.findall(r"python -m examples\.crawl (.*)", "\n".join(blocks("sh", README)))
    told = set()
    for line in commands:
        name, *arguments = shlex.split(line.partition(">")[0], comments=True)
        command = main.commands[name]
        assert isinstance(command, click.Command)
        command.make_context(name, arguments)
        told |= {name, *re.findall(r"\w+", line.partition("#")[2])}
    assert set(main.commands) <= told, "and none is left out"


def test_the_code_and_the_tables_of_the_page_are_the_applications() -> None:
    after = blocks("python", PAGE.partition("## After")[2])
    assert len(after) == 5
    for block in after:
        assert block in SOURCE, block
    tables = blocks("sql", PAGE)[0]
    for statement in tables.replace("create table ", "create table if not exists ").split(";\n"):
        assert statement.strip() in SOURCE, statement


def test_every_variable_and_column_is_there() -> None:
    for variables in re.findall(r"^\| (`[A-Za-z_]+`(?:, `[A-Za-z_]+`)*) \|", README, re.MULTILINE):
        for name in re.findall("[A-Za-z_]+", variables):
            assert name in SOURCE, name


def test_every_file_is_named() -> None:
    named = set(re.findall("`([^`]+)`", README.partition("## Files")[2]))
    for path in FILES:
        assert {path.name, re.sub("_.*", "_*.sql", path.name)} & {*named, "__init__.py", "README.md"}, path.name
