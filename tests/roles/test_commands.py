"""Every command, by a login of each role: it works, or ends with one sentence, and nothing changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest import mock

import click
import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli import cli
from holdfast.store.base import Store
from holdfast.store.postgres.roles import ROLES
from tests.cli.forking import run_holdfast
from tests.cli.shell import Shell
from tests.roles.matrix import COMMANDS, MAY, NO_DATABASE, SCENE
from tests.roles.places import Roles

STAYS = "worker"  # where it may; tests/crash/test_roles.py starts one
OF_THEIR_OWN = {
    "worker",
    "drain",
    "enqueue",
    "cron add",
    "jobs replay",
}  # processes: they import an application, or heed signals
NO_ANSWER = {"stack": 8, "jobs output": 8, "cron remove": 2}  # there is no such worker, or cron


@pytest.fixture(scope="module")
def shells(kept_roles: Roles, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shell]:
    return {role: Shell(tmp_path_factory.mktemp(role), kept_roles.login(role, role)) for role in ROLES}


def commands(command: click.Command = cli, *above: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        if command.invoke_without_command and above:
            yield " ".join(above)
        for name, below in command.commands.items():
            yield from commands(below, *above, name)
    else:
        yield " ".join(above)


def test_every_command_has_its_place() -> None:
    assert {*COMMANDS, *NO_DATABASE} == set(commands())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_for_those_roles_that_it_should_be_for(
    kept_roles: Roles, shells: dict[str, Shell], command: str
) -> None:
    what, arguments = COMMANDS[command]
    words = shlex.split(f"{command} {arguments}")
    kept_roles.sql(SCENE)
    before = kept_roles.contents()
    for role in set(ROLES) - {*MAY[what]}:
        done = run(shells[role], words)
        assert done.code == 1, (role, done.said)
        assert "HF3006" in done.said, role
        assert "Traceback" not in done.said, role
    assert kept_roles.contents() == before
    for role in MAY[what] if command != STAYS else ():
        kept_roles.sql(SCENE)
        done = run(shells[role], words)
        assert done.code == NO_ANSWER.get(command, 0), (role, done.said)
        if command != "doctor":
            assert "HF3006" not in done.said, (role, done.said)


class Done(NamedTuple):
    code: int
    said: str


def run(shell: Shell, words: list[str]) -> Done:
    if OF_THEIR_OWN & {words[0], " ".join(words[:2])}:
        done = run_holdfast(words, cwd=shell.directory, env=shell.environment, timeout=60)
        return Done(done.returncode, done.stderr)
    with closing_what_it_opens():
        result = CliRunner(env=shell.environment).invoke(cli, words)
    return Done(result.exit_code, result.stderr)


@contextmanager
def closing_what_it_opens() -> Iterator[None]:
    """A command leaves that to the end of its process."""
    opened: list[Store] = []
    open_one = Holdfast._opened

    def open_and_note(app: Holdfast) -> Store:
        opened.append(open_one(app))
        return opened[-1]

    with mock.patch.object(Holdfast, "_opened", open_and_note):
        yield
    for store in opened:
        store.close()


def test_the_doctor_tells_what_a_role_may_not_see(kept_roles: Roles, shells: dict[str, Shell]) -> None:
    kept_roles.sql(SCENE)

    def unseen(role: str) -> set[str]:
        with closing_what_it_opens():
            found = json.loads(CliRunner(env=shells[role].environment).invoke(cli, ["doctor", "-o", "json"]).stdout)
        return {one["code"] for one in found if "could not be looked at" in one["found"]}

    assert unseen("enqueuer") == {"HF4301", "HF4304", "HF4201", "HF4203", "HF4204", "HF4207", "HF4208", "HF4501"}
    assert unseen("reader") == unseen("worker") == unseen("owner") == {"HF4301"}
    kept_roles.sql(f'grant pg_read_all_stats to "{kept_roles.schema}_login_reader"')
    assert unseen("reader") == set()
