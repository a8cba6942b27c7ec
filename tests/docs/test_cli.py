"""The page of the command line: every command is on it, and what it shows can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from holdfast.cli import cli
from holdfast.cli.base import EXIT_CODES
from tests.cli.test_examples import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SHOWN = re.findall(r"^holdfast .+$", PAGE, re.MULTILINE)


def test_every_command_is_on_the_page() -> None:
    missing = [
        " ".join(names)
        for names, command in COMMANDS.items()
        if not isinstance(command, click.Group) and not re.search(rf"holdfast {' '.join(names)}\b", PAGE)
    ]
    assert missing == []


def test_every_exit_code_is_on_the_page() -> None:
    listed = {int(code) for line in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE) for code in line.split(",")}
    assert listed >= {code for _, code in EXIT_CODES} | {0, 130, 143}


@pytest.mark.parametrize("line", SHOWN)
def test_what_is_shown_can_be_typed(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "holdfast"
    context: click.Context = click.Context(cli, info_name="holdfast")
    command: click.Command = cli
    while isinstance(command, click.Group) and arguments:
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, name
        command = found
    command.make_context(command.name, arguments, parent=context)
