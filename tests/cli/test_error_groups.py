"""An incident on the command line: thousands of failed jobs, a few causes, one of them retried with care."""

from __future__ import annotations

import pytest

from holdfast.cli.jobs import MESSAGE, shown_error
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import a_running_job, new_job, ref

AWAY = Error("OSError", "can't reach 10.0.0.1", place="shop.fetch")
BAD = Error("ValueError", "no such currency: 'X1'", place="shop.pay")


def fail(store: Store, error: Error, count: int = 1) -> list[str]:
    ids = []
    for _ in range(count):
        held = a_running_job(store)
        store.attempts.fail(ref(held), error)
        ids.append(str(held.id))
    return ids


def test_groups_are_listed_looked_at_and_retried(shell: Shell, kept: Store) -> None:
    fail(kept, BAD)
    ids = fail(kept, AWAY, 7)
    listed = shell("jobs", "list", "--group-by", "error")
    header, first, second = listed.stdout.splitlines()
    assert header.split() == ["group", "jobs", "first", "last", "task", "example", "error"]
    assert first.split()[:2] == [AWAY.fingerprint, "7"]
    assert first.rstrip().endswith(f"greet  {ids[-1]}        OSError: can't reach 10.0.0.1")
    assert second.split()[:2] == [BAD.fingerprint, "1"]
    assert f"holdfast jobs list group:{AWAY.fingerprint}" in listed.stderr
    assert [group["jobs"] for group in shell.json("jobs", "list", "--group-by", "error", "-n", "1")] == [7]
    assert [job["id"] for job in shell.json("jobs", "list", f"group:{AWAY.fingerprint}", "-n", "2")] == ids[:-3:-1]

    retry = ("jobs", "retry", "--group", AWAY.fingerprint, "--limit", "6", "--spread", "10m")
    shown = shell(*retry, "--dry-run")
    assert "retry: the oldest 6 of 7 jobs in " in shown.stderr
    assert ", over 10m, the first 5:" in shown.stderr
    assert [line.split()[0] for line in shown.stderr.splitlines()[2:]] == ids[:5]
    assert shell.json(*retry, "--dry-run") == {"verb": "retry", "jobs": 6, "capped": False}
    assert "HF1401 this would retry 6 jobs" in shell(*retry, code=2).stderr
    assert kept.reads.get(ids[0]).state is State.FAILED
    assert shell(*retry, "--yes").stdout == "retried 6 jobs\n"
    due = [kept.reads.get(id).run_at for id in ids[:6]]
    assert [round((at - due[0]).total_seconds()) for at in due] == [0, 100, 200, 300, 400, 500]
    assert [job["id"] for job in shell.json("jobs", "list", "state:failed")] == [ids[6], "1"]
    assert shell("jobs", "cancel", "--group", BAD.fingerprint).stdout == "cancelled 1 job\n"
    assert [job["id"] for job in shell.json("jobs", "list", "state:failed")] == [ids[6]]


def test_a_group_leaves_out_what_was_dismissed(shell: Shell, kept: Store) -> None:
    dismissed, failed = fail(kept, AWAY, 2)
    kept.operator.cancel(dismissed)
    assert shell("jobs", "retry", "--group", AWAY.fingerprint, "--yes").stdout == "retried 1 job\n"
    assert kept.reads.get(failed).state is State.QUEUED
    assert kept.reads.get(dismissed).state is State.CANCELLED


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("jobs retry", "which jobs?"),
        (
            "jobs retry --group nonsense",
            "group:nonsense names no group of errors: `holdfast jobs list --group-by error`",
        ),
        ("jobs retry state:failed --spread soon", "--spread soon is no duration: write 90 (seconds), 90s, 10m or 1h"),
        ("jobs retry state:failed --limit 0", "0 is not in the range"),
        ("jobs list --group-by error --before 5", "leave one out"),
        ("jobs list --group-by queue", "'queue' is not 'error'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(shell: Shell, kept: Store, words: str, said: str) -> None:
    assert said in shell(*words.split(), code=2).stderr


def test_no_group_is_no_error(shell: Shell, kept: Store) -> None:
    assert shell.json("jobs", "list", "--group-by", "error") == []
    assert "no job matches" in shell("jobs", "retry", "--group", "0123456789", "--yes").stderr


def test_a_table_shows_the_beginning_of_a_message_on_one_line() -> None:
    assert shown_error(None, None) == ""
    assert shown_error("Boom", "it broke\n  twice") == "Boom: it broke twice"
    assert shown_error("KeyError", "KeyError") == "KeyError"
    assert shown_error("E", "x" * MESSAGE) == "E: " + "x" * MESSAGE
    assert shown_error("E", "x" * 1000) == "E: " + "x" * (MESSAGE - 1) + "…"


RUNNERS = """
import os, signal, time
from holdfast import Holdfast

hf = Holdfast()

def connect(n: int) -> None:
    raise ConnectionError(f"10.0.0.{n} is away")

@hf.task(max_attempts=1)
def shared(n: int) -> None:
    connect(n)

@hf.task(max_attempts=1)
async def in_a_loop(n: int) -> None:
    connect(n)

@hf.task(max_attempts=1, isolation="process")
def isolated(n: int) -> None:
    connect(n)

@hf.task(max_attempts=1, isolation="process")
def crashes(n: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)

@hf.task(max_attempts=1, isolation="process", timeout=0.2)
def late(n: int) -> None:
    time.sleep(600)
"""


def test_every_kind_of_runner_stores_the_same_fingerprint(shell: Shell, kept: Store) -> None:
    (shell.directory / "app.py").write_text(RUNNERS)
    for processes in ("0", "1"):
        for task in ("shared", "in_a_loop", "isolated", "crashes", "late"):
            kept.enqueue(new_job(task, b'{"n":%s}' % processes.encode(), max_attempts=1))
        shell("drain", "app:hf", HOLDFAST_PROCESSES=processes, HOLDFAST_GRACE="1")
    found = {tuple(group["tasks"]): group for group in shell.json("jobs", "list", "--group-by", "error")}
    assert {tasks: (group["jobs"], group["error_code"]) for tasks, group in found.items()} == {
        ("in_a_loop", "isolated", "shared"): (6, "ConnectionError"),
        ("crashes",): (2, "CRASHED"),
        ("late",): (2, "TIMED_OUT"),
    }
