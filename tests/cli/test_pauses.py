"""The kill switch on the command line: jobs by their arguments, and all that is paused."""

from __future__ import annotations

import re

import pytest

from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import a_queued_job, a_running_job

THEIRS, OTHERS = b'{"n":42}', b'{"n":7}'


def test_jobs_with_certain_arguments_are_paused_shown_and_let_go(shell: Shell, kept: Store) -> None:
    job = a_queued_job(kept, task="double", args=THEIRS)
    a_queued_job(kept, task="double", args=OTHERS)
    said = shell("pause", "args.n:42", "task:double", "--reason", "a bug", "--until", "1h", "--by", "ops").stderr
    assert said == (
        "task:double args.n:42 is paused, 1 job held. To end the pause: holdfast resume 'task:double args.n:42'\n"
    )
    later = a_queued_job(kept, task="double", args=THEIRS)
    assert shell("drain", "app:hf").stdout == "1 job done (1 attempt)\n"
    told = shell("why", job).stdout
    assert "FILTER_PAUSED     jobs with task:double args.n:42 are paused by ops (a bug) until" in told
    [pause] = shell.json("pauses")
    assert (pause["kind"], pause["name"], pause["by"], pause["reason"]) == (
        "filter", "task:double args.n:42", "ops", "a bug",
    )  # fmt: skip
    assert (pause["jobs"], pause["capped"]) == (2, False)
    table = shell("pauses").stdout
    assert "holdfast resume 'task:double args.n:42'" in table
    assert "by ops: a bug, ends in 60m" in table
    assert "since" in table.splitlines()[0]
    assert re.search(r"task:double args.n:42 +\d+m?s ago +2 ", table)
    assert "not counted: 2 jobs held by the pause of task:double args.n:42" in shell("queues", "list").stderr
    assert [job["held_by"] for job in shell.json("jobs", "list", f"id:{later}")] == ["pause:task:double args.n:42"]
    assert "queued (paused)" in shell("jobs", "list", f"id:{later}").stdout
    wrong = shell("resume", "args.n:42").stderr
    assert wrong == "args.n:42 was not paused; these are: task:double args.n:42\n"
    assert shell("resume", "args.n:42 task:double").stderr == "task:double args.n:42 is resumed\n"
    assert shell("drain", "app:hf").stdout == "2 jobs done (2 attempts)\n"
    assert shell.json("pauses") == []


def test_what_runs_goes_on_and_is_pointed_out(shell: Shell, kept: Store) -> None:
    a_running_job(kept, args=THEIRS)
    said = shell("pause", "args.n:42").stderr
    assert "1 matching job still running. To stop: holdfast jobs cancel 'state:running args.n:42'" in said
    assert shell("jobs", "cancel", "state:running args.n:42", "--yes").returncode == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_queue_or_a_task_alone_is_paused_as_such(shell: Shell, kept: Store) -> None:
    shell("pause", "queue:mail", "--reason", "full")
    shell("pause", "task:double")
    shell("cron", "list")
    assert [(row["kind"], row["name"], row["jobs"]) for row in shell.json("pauses")] == [
        ("queue", "mail", None),
        ("task", "double", None),
    ]
    assert "holdfast queues resume mail" in shell("pauses").stdout
    assert "queue:mail is resumed" in shell("resume", "queue:mail").stderr


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("state:failed",), "HF1203 a pause means jobs by args.NAME:, task: and queue:"),
        (("customer:42",), "HF1203 there is no qualifier 'customer'"),
        (("args.n:1", "--until", "soon"), "--until soon is no time"),
        (("args.n:1", "--until", "2001-01-01"), "is past"),
    ],
)
def test_what_can_not_be_paused_is_said(shell: Shell, kept: Store, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in shell("pause", *words, code=2).stderr
    assert kept.pauses.all() == []
