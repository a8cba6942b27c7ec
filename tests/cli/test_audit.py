"""What operators did, on the command line: who is the shell's user unless said otherwise."""

from __future__ import annotations

import getpass

import pytest

from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import a_queued_job


def test_every_command_that_changes_something_is_recorded_with_its_user(shell: Shell, kept: Store) -> None:
    id = a_queued_job(kept, task="double", args=b'{"n":1}')
    who = ("--by", "ops", "--reason", "because")
    shell("jobs", "pause", id)
    shell("jobs", "resume", id, *who)
    shell("jobs", "set", id, "priority=5", *who)
    shell("jobs", "cancel", "state:queued", "--yes", *who)
    shell("jobs", "retry", id, *who)
    shell("jobs", "cancel", id, *who)
    shell("jobs", "delete", id, *who)
    shell("queues", "pause", "mail", "--until", "1h", *who)
    shell("queues", "resume", "mail", *who)
    shell("tasks", "resume", "double")
    shell("pause", "args.n:1", *who)
    shell("resume", "args.n:1", *who)
    found = shell.json("audit")
    me = getpass.getuser()
    assert [(row["verb"], row["what"], row["by"]) for row in reversed(found)] == [
        ("pause", f"id:{id}", me), ("resume", f"id:{id}", "ops"), ("change", f"id:{id}", "ops"),
        ("cancel", "state:queued", "ops"), ("retry", f"id:{id}", "ops"), ("cancel", f"id:{id}", "ops"),
        ("delete", f"id:{id}", "ops"), ("pause_queue", "mail", "ops"), ("resume_queue", "mail", "ops"),
        ("resume_task", "double", me), ("pause_matching", "args.n:1", "ops"), ("resume_matching", "args.n:1", "ops"),
    ]  # fmt: skip
    assert {row["reason"] for row in found if row["by"] == "ops"} == {"because"}
    table = shell("audit", "-n", "5").stdout
    assert "pause_queue" in table
    assert '{"delay":3600.0}' in table
    assert "1 changed" in table
    assert "1 refused" in table, "the task was not paused"
    more = shell("audit", "-n", "2")
    assert f"there are more: --before {found[1]['id']}" in more.stderr
    assert [row["id"] for row in shell.json("audit", "-n", "2", "--before", found[1]["id"])] == [
        row["id"] for row in found[2:4]
    ]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_job_shows_what_was_done_to_it(shell: Shell, kept: Store) -> None:
    id = a_queued_job(kept)
    shell("jobs", "set", id, "priority=5", "--by", "ops", "--reason", "urgent")
    shown = shell("jobs", "show", id).stdout
    assert 'operator         change {"priority":5} by ops' in shown
    assert "1 changed: urgent" in shown
    [call] = shell.json("jobs", "show", id)["audit"]
    assert (call["verb"], call["by"]) == ("change", "ops")
    other = a_queued_job(kept)
    shell("jobs", "pause", "state:queued", "--yes", "--by", "ops", "--reason", "provider down")
    for shown in (shell("jobs", "show", one).stdout for one in (id, other)):
        assert "tags" not in shown, "it has none"
        assert "operator         pause by ops" in shown
        assert "2 changed (state:queued): provider down" in shown


@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_audit_is_searched_by_who_verb_target_job_and_time(shell: Shell, kept: Store) -> None:
    id, other = a_queued_job(kept), a_queued_job(kept)
    shell("jobs", "pause", "state:queued", "--yes", "--by", "ops")
    shell("jobs", "cancel", other, "--by", "dev")
    shell("queues", "pause", "mail", "--by", "dev")
    for words, verbs in {
        ("--by", "dev"): ["pause_queue", "cancel"],
        ("--verb", "pause"): ["pause"],
        ("--what", "mail"): ["pause_queue"],
        ("--job", id): ["pause"],
        ("--job", other, "--by", "dev"): ["cancel"],
        ("--since", "1h"): ["pause_queue", "cancel", "pause"],
        ("--since", "2999-01-31"): [],
    }.items():
        assert [row["verb"] for row in shell.json("audit", *words)] == verbs, words
    assert "there are more" not in shell("audit", "--by", "ops", "-n", "1").stderr, (
        "there are, but not of this operator"
    )
    assert "since:yesterday is no time" in shell("audit", "--since", "yesterday", code=2).stderr
    assert "'pasue' is not one of 'pause'" in shell("audit", "--verb", "pasue", code=2).stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_bad_input_is_refused(shell: Shell, kept: Store) -> None:
    assert "HF1202 audit: before is the id of a record" in shell("audit", "--before", "yesterday", code=2).stderr
    assert "HF1202 retry: by must be a text" in shell("jobs", "retry", "1", "--by", "", code=2).stderr
