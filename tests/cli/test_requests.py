"""On the command line: who asked and why, how far a job is, which steps are done, and how much work is pending."""

from __future__ import annotations

import getpass
import re

from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import BOOM, a_queued_job, a_running_job, ref


def test_a_pause_and_a_cancel_keep_who_asked_and_why(shell: Shell, kept: Store) -> None:
    held, queued = a_running_job(kept), a_queued_job(kept)
    asked = shell("jobs", "pause", str(held.id), "--reason", "until monday", "--by", "ops")
    assert asked.stdout == "asked 1 running job to park, which takes effect when the handler next checks\n"
    shown = shell.json("jobs", "show", str(held.id))
    assert (shown["asked_by"], shown["asked_why"], shown["pause_requested"]) == ("ops", "until monday", True)
    assert "by ops (until monday), and will at the next place" in shell("why", str(held.id)).stdout
    kept.attempts.park(ref(held))
    assert "asked_why        until monday\n" in shell("jobs", "show", str(held.id)).stdout
    assert "the job itself is paused by ops (until monday) since" in shell("why", str(held.id)).stdout
    shell("jobs", "cancel", queued, "--reason", "ordered twice")
    [row] = shell.json("jobs", "list", f"id:{queued}")
    assert (row["asked_by"], row["asked_why"], row["error_message"]) == (
        getpass.getuser(), "ordered twice", "ordered twice",
    )  # fmt: skip


def test_a_job_shows_its_progress_and_its_steps(shell: Shell, kept: Store) -> None:
    held = a_running_job(kept, args=b'{"password":"hunter2"}')
    kept.attempts.progress(ref(held), 412, 1000, "page [b]412[/b]\x1b[31m", 8.0)
    kept.attempts.keep_step(ref(held), "fetch", b'{"password":"hunter2","size":12}')
    kept.attempts.keep_step(ref(held), "count", b"7")
    shown = shell("jobs", "show", str(held.id)).stdout
    assert re.search(r"progress         412 of 1,000 \(41%\), 8/s, 74s left, \d+m?s ago: page \[b\]412\[/b\]", shown)
    assert "\x1b" not in shown
    assert re.search(r"step count       done \d+m?s ago: 7\n", shown)
    assert "hunter2" not in shown
    document = shell.json("jobs", "show", str(held.id))
    progress = document["progress"]
    assert (progress["done"], progress["total"], progress["rate"], progress["fraction"]) == (412, 1000, 8.0, 0.412)
    assert progress["seconds_left"] == 588 / 8
    assert [(step["name"], step["life"], step["attempt"]) for step in document["steps"]] == [
        ("fetch", 1, 1), ("count", 1, 1),
    ]  # fmt: skip
    assert document["steps"][0]["result"]["size"] == 12
    [row] = shell.json("jobs", "list")
    assert row["progress"] == progress
    kept.attempts.fail(ref(held), BOOM)
    [row] = shell.json("jobs", "list")
    assert (row["progress"]["done"], row["progress"]["rate"], row["progress"]["seconds_left"]) == (412, None, None)


def test_queues_sum_the_work_that_is_pending(shell: Shell, kept: Store) -> None:
    for pending in (1000, 234):
        kept.attempts.checkpoint(ref(a_running_job(kept, queue="crawl")), b"1", pending=pending)
    parked = a_running_job(kept, queue="crawl")
    kept.attempts.checkpoint(ref(parked), b"1", pending=66)
    kept.operator.pause(str(parked.id))
    kept.attempts.park(ref(parked))
    a_queued_job(kept)
    crawl, default = shell.json("queues", "list")
    assert (crawl["queue"], crawl["pending_running"], crawl["pending"]) == ("crawl", 1234, 1300)
    assert (default["pending_running"], default["pending"]) == (0, 0)
    assert "1,300 (1,234 running)" in shell("queues", "list").stdout
    [task] = [row for row in shell.json("tasks", "list") if row["task"] == "greet"]
    assert task["pending"] == 1300
