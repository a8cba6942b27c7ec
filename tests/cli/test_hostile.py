"""Whoever may write to the tables may write anything. What the command line shows of it is text: no order to the
terminal, no line that looks like one of ours, no command that does something else when it is pasted."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime

import pytest

from holdfast.harmless import UNSAFE, harmless
from holdfast.model.cron import CronRecord
from holdfast.model.job import ClaimedJob, NewJob
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.cli.tty import terminal
from tests.contract.test_schedules import schedule
from tests.factories import claim, ref

HOSTILE = (
    "x\x1b[31mRED\x1b]0;title\x07\nHF9999 forged\r\nHF9999 forged\u202eb\x9b2J\x7f\u2028[red]m[/red]"
    "[link=http://e.example]y[/link]'\";$(touch pwned)"
)
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def hostile_rows(store: Store) -> dict[str, str]:
    """Jobs in every state, workers, pauses, crons and steps with such a text wherever a text fits; their ids."""
    new = NewJob(task=HOSTILE, queue=HOSTILE, args=b"{}", key=HOSTILE, tags=(HOSTILE,), correlation_id=HOSTILE)

    def running(key: str) -> tuple[str, ClaimedJob]:
        store.enqueue(NewJob(task=HOSTILE, queue=HOSTILE, args=b"{}", key=key + HOSTILE, correlation_id=HOSTILE))
        [held] = claim(store, tasks=(HOSTILE,), worker=HOSTILE).jobs
        return str(held.id), held

    failed, held = running("failed")
    store.attempts.fail(ref(held), Error(HOSTILE, HOSTILE, HOSTILE))
    runs, held = running("runs")
    store.attempts.progress(ref(held), 1, 2, HOSTILE, 1.0)
    store.attempts.keep_step(ref(held), HOSTILE, json.dumps(HOSTILE).encode())
    store.operator.pause(runs, HOSTILE, HOSTILE)
    queued = store.enqueue(new).id
    for kind in ("queue", "task"):
        store.pauses.add(kind, HOSTILE, by=HOSTILE, reason=HOSTILE)
    store.crons.declare(
        CronRecord(
            name=HOSTILE, task=HOSTILE, expression="0 0 * * *", timezone="UTC", catch_up="latest", queue=HOSTILE,
            priority=0, max_attempts=3, tags=(HOSTILE,), next_at=datetime(2030, 1, 1, tzinfo=UTC),
            now=datetime.now(UTC),
        )
    )  # fmt: skip
    store.workers.register(
        id=HOSTILE, name=HOSTILE, host=HOSTILE, pid=1, queues=[HOSTILE, "x"], tasks=[HOSTILE + "x"], slots=1, lease=1e6
    )
    store.pauses.add("cron", HOSTILE, by=HOSTILE, reason=HOSTILE)
    schedule(store, HOSTILE + "made", task=HOSTILE, stored_args=json.dumps({HOSTILE: HOSTILE}).encode())
    return {"failed": failed, "runs": runs, "queued": queued}


def commands(ids: dict[str, str]) -> list[list[str]]:
    """All that look, and some that complain."""
    return [
        ["jobs", "list"], *(["jobs", "show", id] for id in ids.values()), *(["why", id] for id in ids.values()),
        ["why", "--queue", HOSTILE], ["queues", "list"], ["tasks", "list"], ["workers"], ["pauses"], ["cron", "list"],
        ["top", "--once"], ["doctor"], ["jobs", "cancel", f"id:{ids['queued']},{ids['runs']}", "--dry-run"],
        ["--debug", "jobs", "show", HOSTILE], ["enqueue", HOSTILE, "--app", "app:hf"], ["queues", "pause", HOSTILE],
        ["queues", "resume", "x" + HOSTILE], ["cron", "resume", HOSTILE], ["jobs", "list", f"task:x{ids['runs']}"],
    ]  # fmt: skip


def assert_harmless(shown: str) -> None:
    left = STYLE.sub("", shown).replace("\r\n", "\n")
    assert re.findall(UNSAFE.replace(r"\x00-\x1f", r"\x00-\x09\x0b-\x1f"), left) == []
    assert not [line for line in left.split("\n") if line.startswith("HF9999")]
    assert "\x1b[31mRED" not in shown


def test_nothing_a_command_prints_is_obeyed(shell: Shell, kept: Store) -> None:
    ids = hostile_rows(kept)
    for arguments in commands(ids):
        done = shell.any(*arguments)
        assert_harmless(done.stdout)
        assert_harmless(done.stderr)
        assert "RED" in done.stdout + done.stderr or "task:x" in arguments[-1]
        assert "\nTraceback" not in done.stderr


def test_json_stays_data(shell: Shell, kept: Store) -> None:
    hostile_rows(kept)
    for arguments, name in ((("jobs", "list"), "queue"), (("queues", "list"), "queue"), (("pauses",), "name")):
        done = shell(*arguments, "-o", "json")
        assert_harmless(done.stdout)
        assert {row[name] for row in json.loads(done.stdout)} - {"x"} == {HOSTILE}


@pytest.mark.parametrize("arguments", [("jobs", "list"), ("why", "ID"), ("doctor",), ("top",)], ids="-".join)
def test_a_terminal_gets_no_orders(shell: Shell, kept: Store, arguments: tuple[str, ...]) -> None:
    ids = hostile_rows(kept)
    arguments = tuple(ids["queued"] if word == "ID" else word for word in arguments)
    with terminal(shell, *arguments, columns=300, lines=60) as tty:
        if arguments == ("top",):
            tty.shows(harmless(HOSTILE.split("\n")[0])[:10])
            tty.press("q")
        tty.process.wait(60)
        # What a full screen and its end need: another page, the cursor, the place to write to.
        shown = re.sub(r"\x1b\[(?:\?(?:1049|25)[hl]|[0-9]*[ABCDGHJK]|[0-9;]*[Hf])", "", tty.raw.decode())
    assert "RED" in shown
    assert_harmless(re.sub(r"\r(?!\n)", "", shown))
    assert "\x1b[31mRED" not in shown


NAME = "two words; $(touch pwned) 'x' [b]"


def test_printed_commands_name_what_they_are_about(shell: Shell, kept: Store) -> None:
    id = kept.enqueue(NewJob(task="greet", queue=NAME, args=b"{}")).id
    kept.pauses.add("queue", NAME)
    for text in (shell("why", id).stdout, shell("pauses").stdout, shell("queues", "pause", NAME).stderr):
        [command] = re.findall(r"holdfast queues resume .*?(?=\s*$)", text, re.MULTILINE)
        assert shlex.split(command) == ["holdfast", "queues", "resume", NAME]
    [command] = re.findall(r"holdfast worker APP .*", shell("why", id).stdout)
    assert shlex.split(command)[-2:] == ["-q", NAME]
    assert f"fix: Start a worker for it: {command}" in shell("doctor").stdout


def test_people_get_at_what_plain_sql_wrote(shell: Shell, kept: Store) -> None:
    """A pause of such a queue is made by a filter, as its name is none to keep."""
    id = kept.enqueue(NewJob(task="greet", queue=HOSTILE, args=b"{}")).id
    where = 'queue:"' + HOSTILE.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert "HF1204" in shell("queues", "pause", HOSTILE, code=2).stderr
    shell("pause", where)
    assert [(pause.kind, pause.name) for pause in kept.pauses.all()] == [("queue", HOSTILE)]
    shell("queues", "resume", HOSTILE)
    assert kept.pauses.all() == []
    shell("jobs", "pause", where)
    assert kept.reads.get(id).state is State.PAUSED
    shell("jobs", "resume", id)
    shell("jobs", "cancel", where)
    assert kept.reads.get(id).state is State.CANCELLED


ENTRANCES = [
    ("queues", "pause", HOSTILE), ("tasks", "pause", HOSTILE), ("cron", "pause", HOSTILE),
    ("queues", "pause", "mail", "--reason", HOSTILE), ("queues", "pause", "mail", "--by", HOSTILE),
    ("jobs", "pause", "1", "--reason", HOSTILE), ("jobs", "cancel", "1", "--by", HOSTILE),
    ("pause", "args.a:1", "--reason", HOSTILE), ("worker", "app:hf", "-q", HOSTILE),
    ("enqueue", "double", "n=1", "--app", "app:hf", "--queue", HOSTILE),
    ("enqueue", "double", "n=1", "--app", "app:hf", "--key", HOSTILE),
]  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("arguments", ENTRANCES, ids=lambda words: " ".join(words[:-1]))
def test_the_command_line_takes_no_such_name(shell: Shell, kept: Store, arguments: tuple[str, ...]) -> None:
    done = shell.any(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("HF1204 "), done.stderr
    assert_harmless(done.stderr)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("name", ["HOLDFAST_WORKER_NAME", "HOLDFAST_HOST", "WORKER_ID"])
def test_a_worker_takes_no_such_name(shell: Shell, kept: Store, name: str) -> None:
    done = shell("drain", "app:hf", code=2, **{name: HOSTILE})
    assert done.stderr.startswith("HF1204 ")
    assert_harmless(done.stderr)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_of_settings_takes_no_such_name(shell: Shell, kept: Store) -> None:
    (shell.directory / "holdfast.toml").write_text('worker_name = "a\\u001bb"\n')
    assert shell("drain", "app:hf", code=2).stderr.startswith("HF1204 worker_name has the control character \\x1b")


SHOUTING = """
import logging
from holdfast import Holdfast

hf = Holdfast()

@hf.task(retry=None)
def shout(text: str) -> None:
    logging.getLogger("app").warning("got %s", text)
    raise ValueError(text)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_of_a_worker_has_no_forged_line(shell: Shell, kept: Store, form: str) -> None:
    (shell.directory / "app.py").write_text(SHOUTING)
    arguments = json.dumps({"text": HOSTILE}).encode()
    kept.enqueue(NewJob(task="shout", queue=HOSTILE, args=arguments, correlation_id=HOSTILE, max_attempts=1))
    said = shell.any("drain", "app:hf", "--log-format", form).stderr
    assert said.count("RED") >= 2
    assert_harmless(said)
    if form == "json":
        assert f"got {HOSTILE}" in {json.loads(line)["message"] for line in said.splitlines() if line[0] == "{"}
