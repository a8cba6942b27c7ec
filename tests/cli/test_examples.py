"""Every help ends in two examples, and they run: as written, in a directory with an application and its jobs."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import click
import pytest

from holdfast.cli import cli
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.cli.forking import run_holdfast
from tests.cli.shell import Shell, wait_until
from tests.contract.test_schedules import schedule
from tests.factories import BOOM, HOUR, a_queued_job, claim, ref

APP = """
from holdfast import Fail, Holdfast

hf = Holdfast()

@hf.task(queue="mail")
def audit(url: str) -> str:
    return url

@hf.task
def report(user_id: int = 0) -> None: ...

@hf.task(cron="0 3 * * *")
def nightly_report() -> None: ...

@hf.task(cron="0 8 * * 1")
def weekly_digest() -> None: ...
"""
MANY_MINUTES = {"bench"}  # measured by its own tests: here its examples are only read
UNTIL_STOPPED = {"worker", "dev", "serve", "ui"}
OTHERWISE = {"serve": ["--port", "0"]}  # the port of its example may be taken
WAITS = {"enqueue"}  # for a worker
MAY_FIND = {"doctor": {0, 1}, "stack": {4}, "health": {1}}  # 1 is a finding, or nobody there; 4: its job does not run


def commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, command
    if isinstance(command, click.Group):
        for name, sub in sorted(command.commands.items()):
            yield from commands(sub, *names, name)


COMMANDS = dict(commands(cli))


def examples(names: tuple[str, ...]) -> list[str]:
    command = COMMANDS[names]
    with click.Context(command, info_name="holdfast") as context:
        lines = command.get_help(context).rstrip().splitlines()
    found = [line.strip() for line in lines[-2:]]
    assert lines[-3].strip() == "Examples:", f"the help of {' '.join(names)} ends otherwise"
    assert all(line.startswith(" ".join(["holdfast", *names])) or not names for line in found), found
    return found


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_help_ends_in_two_examples(names: tuple[str, ...]) -> None:
    assert all(line.startswith("holdfast ") for line in examples(names))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project: an application, and jobs 1 to 60, some of them in the states that the examples speak of."""
    home = tmp_path_factory.mktemp("project")
    (home / "app.py").write_text(APP)
    (home / "holdfast.toml").write_text('app = "app:hf"\n')
    store = open_store(Settings(url=f"sqlite:///{home}/holdfast.db", synchronous="off"))
    store.schema.migrate()
    for number in range(1, 61):
        task, args = ("audit", b'{"url":"x"}') if number % 2 else ("report", b"{}")
        ended = number in (42, 46)
        a_queued_job(store, task=task, args=args, queue="mail", tags=("import",), delay=0 if ended else HOUR)
        if ended:
            [held] = claim(store, tasks=(task,)).jobs
            assert held.id == number
            store.attempts.fail(ref(held), BOOM) if number == 42 else store.attempts.succeed(ref(held))
    store.operator.pause("45")
    for name, task, args in (("audit-example", "audit", b'{"url":"x"}'), ("report-7", "report", b"{}")):
        schedule(store, name, task=task, stored_args=args)
    for name in ("web1-812", "web1-813"):
        store.workers.register(id=f"{name}~1", name=name, host="web1", pid=1, queues=None, tasks=["audit"], slots=1)
    for name in ("ci", "old"):
        store.credentials.add_key(name, "viewer")
    store.close()
    with closing(sqlite3.connect(home / "holdfast.db")) as db:
        db.execute("create table audits (id integer primary key, url text, status text not null default 'pending')")
    shutil.copy(home / "holdfast.db", home / "jobs.db")  # for the examples that name one
    return home


RUN = [(names, n) for names in COMMANDS for n in range(2) if not MANY_MINUTES & {*names}]


@pytest.mark.parametrize(
    ("names", "number"), RUN, ids=lambda value: " ".join(value) if isinstance(value, tuple) else None
)
def test_each_example_runs(prepared: Path, tmp_path: Path, names: tuple[str, ...], number: int) -> None:
    home = tmp_path / "project"
    shutil.copytree(prepared, home)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    line = examples(names)[number]
    arguments = shlex.split(line)[1:]
    environment |= {"NO_COLOR": "1", "HOLDFAST_APP": "app:hf"}
    with ExitStack() as stack:
        if arguments[0] in WAITS:
            worker = Shell(home, Settings(url=f"sqlite:///{home}/holdfast.db"), APP).start("worker", "app:hf")
            stack.callback(worker.communicate)
            stack.callback(worker.terminate)
        if arguments[0] in UNTIL_STOPPED and "--help" not in arguments:
            code, said = until_stopped(arguments, home, environment)
        else:
            done = run_holdfast(arguments, cwd=home, env=environment, timeout=60)
            code, said = done.returncode, done.stdout + done.stderr
    assert code in MAY_FIND.get(arguments[0], {0}), f"{line}: {code}\n{said}"


def until_stopped(arguments: list[str], home: Path, environment: dict[str, str]) -> tuple[int, str]:
    log = home / "said.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments, *OTHERWISE.get(arguments[0], [])], cwd=home,
            env=environment, stdout=said, stderr=said, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        wait_until(lambda: "Ctrl-C stops it" in log.read_text() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        return process.wait(60), log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", sorted(MANY_MINUTES))
def test_examples_that_take_long_can_at_least_be_read(name: str) -> None:
    for line in examples((name,)):
        COMMANDS[name,].make_context(name, shlex.split(line)[2:])
