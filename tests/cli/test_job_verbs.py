"""Jobs steered from the command line: one by its id, many by a filter, never many without a yes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from holdfast.model.filter import parse
from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import BOOM, a_queued_job, a_running_job, new_job, ref


def failed(store: Store) -> str:
    held = a_running_job(store)
    store.attempts.fail(ref(held), BOOM)
    return str(held.id)


def test_one_job_is_steered_by_its_id_without_a_question(shell: Shell, kept: Store) -> None:
    id = failed(kept)
    assert shell("jobs", "retry", id).stdout == "retried 1 job\n"
    assert shell("jobs", "pause", id).stdout == "paused 1 job\n"
    assert shell.json("jobs", "resume", id) == {"verb": "resume", "changed": 1, "refused": 0, "asked": 0}
    shell("jobs", "set", id, "priority=5", "delay=10m", "tags=a,b")
    job = kept.reads.get(id)
    assert (job.priority, job.tags, 590 < (job.run_at - job.created_at).total_seconds() < 700) == (5, ("a", "b"), True)
    assert "it is queued, and must have finished; cancel it first" in shell("jobs", "delete", id, code=4).stderr
    shell("jobs", "cancel", id, "--reason", "ordered twice")
    assert kept.reads.get(id).error_message == "ordered twice"
    assert "HF1302 can't pause job" in shell("jobs", "pause", id, code=4).stderr
    shell("jobs", "delete", id)
    assert kept.reads.jobs() == []
    assert "HF1301 there is no job" in shell("jobs", "retry", id, code=3).stderr


def test_many_are_shown_and_only_changed_with_a_yes(shell: Shell, kept: Store) -> None:
    ids = [failed(kept) for _ in range(7)]
    other = a_queued_job(kept, queue="other")
    shown = shell("jobs", "retry", "state:failed", "--dry-run")
    assert shown.stdout == ""
    assert "retry: 7 jobs in" in shown.stderr
    assert "the newest 5:" in shown.stderr
    assert [line.split()[0] for line in shown.stderr.splitlines()[2:]] == ids[:1:-1]
    assert shell.json("jobs", "retry", "state:failed", "--dry-run") == {"verb": "retry", "jobs": 7, "capped": False}
    refused = shell("jobs", "retry", "state:failed", code=2)
    assert "HF1401 this would retry 7 jobs, and nobody is there to ask: say --yes" in refused.stderr
    assert len(kept.reads.jobs(state=State.FAILED)) == 7
    assert shell("jobs", "retry", "task:greet", "--yes").stdout == "retried 7 jobs; 1 not in a state for it\n"
    assert "none of 8 jobs was in a state for retry" in shell("jobs", "retry", "task:greet", "--yes", code=4).stderr
    named = shell("jobs", "cancel", *ids[:2], "999", "--yes", code=3)
    assert named.stdout == "cancelled 2 jobs\n"
    assert "HF1301 there is no job 999; the others are done" in named.stderr
    for flag in ("--dry-run", "--yes"):
        assert "HF1301 there is no job 9998, 9999\n" in shell("jobs", "retry", "9998", "9999", flag, code=3).stderr
    assert shell("jobs", "set", "queue:other", "priority=9", "--yes").stdout == "changed 1 job\n"
    assert kept.reads.get(other).priority == 9
    assert "no job matches" in shell("jobs", "delete", "queue:none", "--yes").stderr
    assert shell.json("jobs", "delete", "task:greet", "--yes") == {
        "verb": "delete",
        "changed": 2,
        "refused": 6,
        "asked": 0,
    }


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(("answer", "code", "state"), [("y", 0, State.PAUSED), ("n", 1, State.QUEUED)])
def test_on_a_terminal_it_asks(shell: Shell, kept: Store, answer: str, code: int, state: State) -> None:
    ids = [a_queued_job(kept) for _ in range(2)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "jobs", "pause", "state:queued"], cwd=shell.directory,
        env=shell.environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.write(ours, f"{answer}\n".encode())
    out, said = process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert "pause 2 jobs? [y/N]" in said
    assert process.returncode == code
    assert out == ("paused 2 jobs\n" if code == 0 else "")
    assert ("nothing was changed" in said) == (code == 1)
    assert {kept.reads.get(id).state for id in ids} == {state}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_big_counts_are_capped_and_progress_is_shown_on_a_terminal_only(shell: Shell, kept: Store) -> None:
    list(kept.enqueue_many(new_job() for _ in range(10_600)))
    assert shell.json("jobs", "cancel", "state:queued", "--dry-run") == {
        "verb": "cancel",
        "jobs": 10_000,
        "capped": True,
    }
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "jobs", "cancel", "state:queued", "--yes"], cwd=shell.directory,
        env=shell.environment, stdout=subprocess.PIPE, stderr=theirs, text=True,
    )  # fmt: skip
    os.close(theirs)
    told = b""
    while chunk := _read(ours):
        told += chunk
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert out == "cancelled 10,600 jobs\n"
    assert b"10,000+ jobs" in told
    assert b"%" in told


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how a terminal says that its other side is closed
        return b""


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["retry", "state:failed", "42"], "HF1203 '42' is no filter"),
        (["retry", "sate:failed"], "there is no qualifier 'sate', perhaps 'state'"),
        (["set", "1"], "what is to change?"),
        (["set", "priority=3"], "which jobs?"),
        (["set", "1", "colour=red"], "a job has no 'colour' to change; there are queue, priority"),
        (["set", "1", "priority=x"], "priority=x can't be read"),
        (["set", "1", "priority=900"], "priority must be a whole number from -100 to 100"),
        (["set", "1", "delay=soon"], "delay=soon can't be read"),
        (["retry"], "which jobs?"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(shell: Shell, kept: Store, arguments: list[str], said: str) -> None:
    assert said in shell("jobs", *arguments, code=2).stderr


def test_a_preview_counts_only_what_can_change(shell: Shell, kept: Store) -> None:
    for _ in range(2):
        failed(kept)
    a_queued_job(kept)
    shown = shell("jobs", "retry", "task:greet", "--dry-run").stderr
    assert "retry: 2 jobs in" in shown
    assert "(1 more not in a state for it)" in shown
    assert "queued" not in shown
    assert shell.json("jobs", "retry", "task:greet", "--dry-run")["jobs"] == 2
    assert shell.json("jobs", "delete", "task:greet", "--dry-run")["jobs"] == 2
    assert shell.json("jobs", "pause", "task:greet", "--dry-run")["jobs"] == 1
    none = shell("jobs", "resume", "task:greet", "--dry-run")
    assert "none of 3 jobs is in a state for resume" in none.stderr
    assert "1 job is in a state" not in none.stderr


def test_a_refusal_names_the_states_that_the_verb_needs(shell: Shell, kept: Store) -> None:
    for _ in range(2):
        failed(kept)
    for words, needed in (
        (("resume", "task:greet"), "it must be paused"),
        (("set", "task:greet", "priority=5"), "it must be queued or paused; retry failed or cancelled ones first"),
    ):
        done = shell("jobs", *words, "--yes", code=4).stderr
        assert (
            f"HF1302 none of 2 jobs was in a state for {'change' if words[0] == 'set' else 'resume'}: {needed}" in done
        )
        assert needed in shell("jobs", *words, "--dry-run").stderr
    kept.operator.bulk("retry", parse("state:failed"))
    assert "it must be succeeded, failed or cancelled" in shell("jobs", "delete", "task:greet", "--yes", code=4).stderr


def test_jobs_are_retried_into_another_queue_and_only_some_are_cancelled(shell: Shell, kept: Store) -> None:
    ids = [failed(kept) for _ in range(3)]
    shell("jobs", "retry", ids[0], "--queue", "slow")
    shell("jobs", "retry", "state:failed", "--limit", "1", "--queue", "slow", "--yes")
    assert [kept.reads.get(id).queue for id in ids] == ["slow", "slow", "default"]
    assert "must have no comma" in shell("jobs", "retry", ids[2], "--queue", "a,b", code=2).stderr
    assert shell("jobs", "cancel", "queue:slow", "--limit", "1").stdout == "cancelled 1 job\n"
    assert [kept.reads.get(id).state.value for id in ids] == ["cancelled", "queued", "failed"]


def test_who_retries_by_a_queue_is_told_what_was_cancelled(shell: Shell, kept: Store) -> None:
    kept.operator.cancel(failed(kept))
    failed(kept)
    told = "retry: 2 jobs (1 of them cancelled; state:failed leaves those out) in"
    assert told in shell("jobs", "retry", "task:greet", "--dry-run").stderr
    for chosen in ("state:failed,cancelled", "state:failed"):
        assert "of them cancelled" not in shell("jobs", "retry", chosen, "--dry-run").stderr
    assert "of them cancelled" not in shell("jobs", "delete", "task:greet", "--dry-run").stderr


def test_running_jobs_are_counted_as_asked_not_as_cancelled(shell: Shell, kept: Store) -> None:
    for _ in range(2):
        a_running_job(kept)
    a_queued_job(kept)
    said = shell("jobs", "cancel", "task:greet", "--yes").stdout
    assert said == "cancelled 1 job; asked 2 running jobs to stop, which takes effect when the handler next checks\n"
    assert shell.json("jobs", "pause", "task:greet", "--yes") == {
        "verb": "pause", "changed": 0, "refused": 1, "asked": 2,
    }  # fmt: skip
    [one, *_] = kept.reads.jobs(state="running")
    assert (
        shell("jobs", "cancel", one.id).stdout
        == "asked 1 running job to stop, which takes effect when the handler next checks\n"
    )


@pytest.mark.parametrize("engine", ["sqlite"])
def test_names_no_job_has_are_pointed_out(shell: Shell, kept: Store) -> None:
    a_queued_job(kept, queue="mail", task="double")
    said = shell("jobs", "list", "queue:mial", "task:duoble").stderr
    assert said == (
        f"database: {shell.environment['HOLDFAST_URL']}\nno job is of queue 'mial'; did you mean 'mail'?\n"
        "no job is of task 'duoble'; did you mean 'double'?\n"
    )
    assert "did you mean 'mail'?" in shell("jobs", "retry", "queue:mial", "--yes").stderr
    assert "no job is of queue 'zzz'\n" in shell("jobs", "list", "--queue", "zzz").stderr
    assert "no job is of" not in shell("jobs", "list", "queue:mail", "state:failed").stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_list_says_that_there_are_more(shell: Shell, kept: Store) -> None:
    ids = [a_queued_job(kept) for _ in range(3)]
    assert "there are more: --before" in shell("jobs", "list", "-n", "2").stderr
    assert f"--before {ids[1]}," in shell("jobs", "list", "-n", "2").stderr
    assert shell("jobs", "list", "-n", "3").stderr == ""
    assert shell("jobs", "list", "-n", "2", "--before", ids[2]).stderr == ""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_several_states_queues_and_tasks_mean_any_of_them(shell: Shell, kept: Store) -> None:
    dead, waiting = failed(kept), a_queued_job(kept, queue="mail")
    a_running_job(kept, queue="news", task="other")

    def listed(*words: str) -> list[str]:
        return [job["id"] for job in shell.json("jobs", "list", *words)]

    assert listed("--state", "failed", "--state", "queued") == [waiting, dead]
    assert listed("--queue", "mail", "--queue", "default") == [waiting, dead]
    assert listed("--task", "greet") == [waiting, dead]


def test_jobs_move_to_another_queue(shell: Shell, kept: Store) -> None:
    ids = [a_queued_job(kept, queue="old") for _ in range(3)]
    a_queued_job(kept, queue="mail")
    said = shell("jobs", "set", "queue=mial", ids[0])
    assert said.stdout == "changed 1 job\n"
    assert "no worker and no application knows of queue 'mial'; did you mean 'mail'?" in said.stderr
    moved = shell("jobs", "set", "queue=mail", "state:queued queue:old,mial", "--yes")
    assert moved.stdout == "changed 3 jobs\n"
    assert "knows of" not in moved.stderr
    assert {kept.reads.get(id).queue for id in ids} == {"mail"}
    [newest, *_] = shell.json("audit")
    assert (newest["verb"], newest["what"], newest["parameters"]) == (
        "change", "state:queued queue:old,mial", {"queue": "mail"},
    )  # fmt: skip
    assert "HF1202 change: queue must be a text" in shell("jobs", "set", "queue=", ids[0], code=2).stderr


def test_jobs_are_counted(shell: Shell, kept: Store) -> None:
    for _ in range(3):
        a_queued_job(kept, queue="mail")
    assert shell("jobs", "count").stdout == "3\n"
    assert shell("jobs", "count", "state:queued", "queue:mail").stdout == "3\n"
    assert shell.json("jobs", "count", "state:failed") == {"jobs": 0}
    said = shell("jobs", "count", "queue:mial")
    assert (said.stdout, "did you mean 'mail'?" in said.stderr) == ("0\n", True)
    assert "HF1203 there is no qualifier 'sate'" in shell("jobs", "count", "sate:failed", code=2).stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_who_pauses_jobs_is_told_that_later_ones_are_not(shell: Shell, kept: Store) -> None:
    id = a_queued_job(kept, queue="mail", args=b'{"n":1}', tags=("t",))
    said = shell("jobs", "pause", "state:queued", "queue:mail", "args.n:1", "--yes").stderr
    assert "jobs enqueued later are not paused; to pause those as well: holdfast pause 'queue:mail args.n:1'" in said
    shell("jobs", "resume", id)
    assert "later" not in shell("jobs", "pause", id).stderr
    shell("jobs", "resume", id)
    assert "later" not in shell("jobs", "pause", "tag:t", "--yes").stderr, "no pause can be made of a tag"
