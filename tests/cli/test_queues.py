"""Queues, tasks and workers on the command line."""

from __future__ import annotations

import pytest

from holdfast.model.job import LATE
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.factories import BOOM, HOUR, a_queued_job, a_running_job, new_job, ref


def test_a_queue_shows_what_waits_runs_and_failed(shell: Shell, kept: Store) -> None:
    kept.attempts.fail(ref(a_running_job(kept, task="double", queue="mail")), BOOM)
    a_running_job(kept, task="double")
    for queue in ("mail", "mail", "news"):
        a_queued_job(kept, task="double", queue=queue)
    a_queued_job(kept, task="refuse", queue="mail", delay=HOUR)
    rows = shell.json("queues", "list")
    keys = ("queue", "due", "scheduled", "running", "failed", "capped", "workers", "paused")
    assert [[row[key] for key in keys] for row in rows] == [
        ["default", 0, 0, 1, 0, False, 0, None],
        ["mail", 2, 1, 0, 1, False, 0, None],
        ["news", 1, 0, 0, 0, False, 0, None],
    ]
    assert rows[0]["oldest_due_at"] is None
    assert 0 <= rows[1]["oldest_due_seconds"] < 60
    tasks = {row["task"]: row["due"] for row in shell.json("tasks", "list")}
    assert tasks == {"double": 3, "refuse": 0}
    table = shell("queues", "list").stdout.splitlines()
    heads = ["queue", "due", "scheduled", "running", "failed", "pending", "oldest", "due", "drain", "workers", "paused"]
    assert table[0].split() == heads
    assert table[2].split()[:5] == ["mail", "2", "1", "0", "1"]
    assert "growing: never at this rate" in table[2]
    assert {row["queue"]: row["drain"]["text"] for row in rows}["default"] == "empty"


@pytest.mark.parametrize("kind", ["queue", "task"])
def test_a_pause_says_who_why_and_until_when(shell: Shell, kept: Store, kind: str) -> None:
    name = {"queue": "default", "task": "double"}[kind]
    a_queued_job(kept, task="double", args=b'{"n":1}')
    shell(f"{kind}s", "pause", name, "--reason", "the [printer] burns", "--until", "1h", "--by", "ops")
    [row] = shell.json(f"{kind}s", "list")
    assert (row["paused"]["by"], row["paused"]["reason"]) == ("ops", "the [printer] burns")
    assert "by ops: the [printer] burns, ends in 60m" in shell(f"{kind}s", "list").stdout
    assert shell("drain", "app:hf").stdout == "0 jobs done (0 attempts)\n"
    assert "is resumed" in shell(f"{kind}s", "resume", name).stderr
    assert "was not paused" in shell(f"{kind}s", "resume", name).stderr
    assert shell("drain", "app:hf").stdout == "1 job done (1 attempt)\n"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_pausing_what_nobody_knows_is_done_and_pointed_out(shell: Shell, kept: Store) -> None:
    a_queued_job(kept, queue="mail")
    said = shell("queues", "pause", "mial", "--until", "2090-01-31T12:00Z").stderr
    assert "knows of queue 'mial'; did you mean 'mail'?" in said
    assert [row["queue"] for row in shell.json("queues", "list")] == ["mail", "mial"]
    assert "--until soon is no time" in shell("queues", "pause", "mail", "--until", "soon", code=2).stderr


def test_workers_are_listed_with_what_they_do(shell: Shell, kept: Store) -> None:
    worker = shell.start("worker", "app:hf", "--queues", "mail,default", "--concurrency", "3")
    try:
        [seen] = wait_until(lambda: kept.workers.all())
        [row] = shell.json("workers")
        assert (row["id"], row["pid"], row["queues"]) == (seen.id, worker.pid, ["mail", "default"])
        assert (row["tasks"], row["running"]) == (["double", "refuse"], 0)
        assert {r["queue"]: r["workers"] for r in shell.json("queues", "list")} == {"default": 1, "mail": 1}
        assert seen.id in shell("workers").stdout
    finally:
        worker.terminate()
        worker.communicate(timeout=30)
    assert shell.json("workers") == []


def test_a_worker_that_is_no_longer_heard_of_serves_no_queue(shell: Shell, kept: Store) -> None:
    a_queued_job(kept)
    for id, lease in (("gone", -LATE), ("here", HOUR)):
        kept.workers.register(
            id=id, name=id, host="h", pid=1, queues=None, tasks=["double"], slots=1, lease=lease
        )  # fmt: skip
    assert [row["workers"] for row in shell.json("queues", "list")] == [1]
    assert {row["task"]: row["workers"] for row in shell.json("tasks", "list")}["double"] == 1


@pytest.mark.parametrize("engine", ["sqlite"])
def test_no_more_than_ten_thousand_are_counted(shell: Shell, kept: Store) -> None:
    list(kept.enqueue_many(new_job() for _ in range(10_050)))
    [row] = shell.json("queues", "list")
    assert (row["due"], row["capped"]) == (10_000, True)
    assert "10,000+" in shell("queues", "list").stdout
