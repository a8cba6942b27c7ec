"""`holdfast cron`, and what a worker's process does with its resources, run as a user runs it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until

APP = """
import os, pathlib, time
from holdfast import Holdfast, Secret

hf = Holdfast()

def note(text):
    with open("notes", "a") as notes:
        notes.write(text + "\\n")

@hf.resource
def pool():
    if os.environ.get("BROKEN"):
        raise ConnectionRefusedError("nobody there")
    note("open pool")
    yield "pool"
    note("close pool")

@hf.resource
async def browser():
    note("open browser")
    yield "browser"
    note("close browser")

@hf.on_start
def started():
    note("start")

@hf.on_stop
def stopped():
    note("stop")

@hf.task(cron="30 6 * * MON-FRI", timezone="Europe/Berlin", queue="reports")
async def report(pool=pool.injected, browser=browser.injected):
    note(f"report with {pool} and {browser}")

@hf.task
def greet(user: int, token: Secret[str] = ""):
    pass

@hf.task(cron="0 0 29 2 *", catch_up="none")
def leap_day():
    pass
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    shell = Shell(tmp_path, settings)
    (tmp_path / "app.py").write_text(APP)
    shell.environment["HOLDFAST_APP"] = "app:hf"
    return shell


def test_crons_are_listed_paused_resumed_and_run(shell: Shell, kept: Store) -> None:
    """Also by who has only the database: what a cron is stands in it, once a worker has said so."""
    table = shell("cron", "list").stdout.splitlines()
    assert table[0].split() == ["cron", "task", "expression", "zone", "next", "last", "state"]
    assert [line.split()[0] for line in table[1:]] == ["leap_day", "report"]
    assert shell("drain").stdout == "0 jobs done (0 attempts)\n"
    report = json.loads(shell("cron", "list", "--next", "5", "-o", "jsonl", HOLDFAST_APP="").stdout.splitlines()[1])
    assert (report["name"], report["expression"], report["timezone"]) == ("report", "30 6 * * MON-FRI", "Europe/Berlin")
    assert (report["queue"], report["catch_up"], report["last_at"], report["workers"]) == ("reports", "latest", None, 0)
    assert len(report["next"]) == 5
    assert "paused" in shell("cron", "pause", "report", "--by", "ops", "--reason", "too loud", HOLDFAST_APP="").stderr
    words = shell("cron", "list", HOLDFAST_APP="").stdout
    assert re.search(r"paused by ops since \d{4}-\d\d-\d\d \d\d:\d\d UTC: too loud; no worker declares it", words)
    [leap_day, paused] = json.loads(shell("cron", "list", "-o", "json", HOLDFAST_APP="").stdout)
    assert (leap_day["paused"], paused["paused"], paused["paused_reason"]) == (False, True, "too loud")
    id = shell("cron", "run", "report", HOLDFAST_APP="").stdout.strip()
    assert kept.reads.get(id).queue == "reports"
    assert json.loads(shell("cron", "run", "leap_day", "-o", "json").stdout)["id"] != id
    assert "is resumed" in shell("cron", "resume", "report", HOLDFAST_APP="").stderr
    assert "was not paused" in shell("cron", "resume", "report", HOLDFAST_APP="").stderr
    assert shell("drain").stdout == "2 jobs done (2 attempts)\n"
    wrong = shell("cron", "run", "reprot", code=2).stderr
    assert "there is no cron 'reprot'" in wrong
    assert "there are: leap_day, report" in wrong


def test_schedules_are_added_changed_and_removed(shell: Shell, kept: Store) -> None:
    """They need the application when they are made, to check the arguments; later the database is enough."""
    said = shell("cron", "add", "greet-7", "greet", "user=7", "token=hush", "--cron", "0 3 * * *", "--queue", "mail")
    assert said.stdout.startswith("greet-7: next at ")
    shell("cron", "add", "greet-7", "greet", "--json", '{"user": 8, "token": "hush"}', "--cron", "0 3 * * *",
          "--timezone", "Europe/Berlin", "--catch-up", "all", "--priority", "5")  # fmt: skip
    listed = shell("cron", "list", "-o", "json", HOLDFAST_APP="").stdout
    [made] = [one for one in json.loads(listed) if one["name"] == "greet-7"]
    assert (made["task"], made["declared"], made["args"]["user"]) == ("greet", False, 8)
    assert (made["queue"], made["priority"], made["catch_up"]) == ("default", 5, "all")
    assert "hush" not in listed
    assert "no worker has its task" in shell("cron", "list", HOLDFAST_APP="").stdout
    assert "is paused" in shell("cron", "pause", "greet-7", HOLDFAST_APP="").stderr
    id = shell("cron", "run", "greet-7", HOLDFAST_APP="").stdout.strip()
    assert b'"user":8' in kept.reads.get(id).args
    assert shell("cron", "remove", "greet-7", HOLDFAST_APP="").stdout == "greet-7: removed\n"
    assert "there is no schedule 'greet-7'" in shell("cron", "remove", "greet-7", code=2, HOLDFAST_APP="").stderr
    assert "declared by its task" in shell("cron", "remove", "leap_day", code=2).stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["report", "greet", "user=7", "--cron", "0 3 * * *"], "a task declares a cron of this name"),
        (["x", "gret", "user=7", "--cron", "0 3 * * *"], "there is no task 'gret'"),
        (["x", "greet", "user=seven", "--cron", "0 3 * * *"], "argument `user`"),
        (["x", "greet", "user=7", "--cron", "often"], "is not a cron expression"),
        (["x", "greet", "user=7", "--cron", "0 3 * * *", "--timezone", "Europe/Berln"], "did you mean 'Europe/Berlin'"),
    ],
)
def test_a_schedule_that_could_not_run_is_refused_in_one_line(
    shell: Shell, kept: Store, arguments: list[str], why: str
) -> None:
    done = shell.any("cron", "add", *arguments)
    assert done.returncode != 0
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_five_ticks_are_shown_in_the_zone_of_the_cron(shell: Shell, kept: Store) -> None:
    lines = shell("cron", "list", "--next", "5").stdout.splitlines()
    assert len(lines) == 1 + 5 + 5
    assert len([line for line in lines if " 06:30:00 (in " in line]) == 5
    assert len([line for line in lines if "-02-29 00:00:00 (in " in line]) == 5


def test_sigterm_closes_resources_in_good_order(shell: Shell, kept: Store) -> None:
    worker = shell.start("worker")
    notes = shell.directory / "notes"
    try:
        wait_until(lambda: worker.poll() is not None or kept.workers.all())
        shell("cron", "run", "report")
        wait_until(lambda: worker.poll() is not None or "report with" in notes.read_text())
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)
    finally:
        worker.kill()
    assert worker.returncode == 0, said
    assert notes.read_text().splitlines() == [
        "open pool", "open browser", "start", "report with pool and browser", "stop", "close browser", "close pool",
    ]  # fmt: skip


def test_a_worker_whose_resource_can_not_be_opened_exits_with_one_sentence(shell: Shell, kept: Store) -> None:
    shell("cron", "run", "report")
    said = shell("worker", code=1, BROKEN="1").stderr
    assert "the resource pool could not be opened" in said
    assert "ConnectionRefusedError: nobody there" in said
    assert "Traceback" not in said
    [job] = kept.reads.jobs()
    assert (job.state.value, job.attempt) == ("queued", 0)
    assert kept.workers.all() == []


def test_every_command_shows_two_examples(tmp_path: Path) -> None:
    shell = Shell(tmp_path, Settings(url=f"sqlite:///{tmp_path}/jobs.db"))
    for command in (
        ["cron"],
        ["cron", "list"],
        ["cron", "pause"],
        ["cron", "resume"],
        ["cron", "run"],
        ["cron", "add"],
        ["cron", "remove"],
    ):
        text = shell(*command, "--help").stdout
        assert len([line for line in text.splitlines() if line.strip().startswith("holdfast ")]) == 2, command
