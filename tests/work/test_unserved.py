"""A worker that starts says which due jobs nobody can run."""

from __future__ import annotations

from holdfast import Holdfast
from tests.factories import HOUR, new_job
from tests.running import Heard, working
from tests.waiting import wait_until


def test_a_worker_says_at_start_which_due_jobs_nobody_can_run(hf: Holdfast, heard: Heard) -> None:
    @hf.task(queue="mail")
    def send_mail() -> None: ...

    @hf.task(queue="img")
    def resize() -> None: ...

    for job in (
        new_job("sent_mail", queue="mail", priority=3),
        new_job("sent_mail", queue="mail"),
        new_job("send_mail", queue="mail"),
        new_job("resize", queue="img"),
        new_job("sent_mail", queue="mail", delay=HOUR),
        new_job("later", queue="mail", delay=HOUR),
    ):
        hf.store.enqueue(job)
    with working(hf, ["mail"]):
        wait_until(lambda: heard.of("unserved"))
        wait_until(lambda: hf.jobs(state="succeeded"))
    told = sorted((event["queue"], event["task"], event["many"], event["because"]) for event in heard.of("unserved"))
    assert told == [
        ("img", "resize", "1", "no worker that is up serves that queue"),
        ("mail", "sent_mail", "2", "no worker that serves it has that task (nearest: send_mail)"),
    ]


def test_a_worker_that_can_run_all_that_waits_says_nothing(hf: Holdfast, heard: Heard) -> None:
    @hf.task
    def greet() -> None: ...

    greet.enqueue()
    with working(hf):
        wait_until(lambda: hf.jobs(state="succeeded"))
    assert heard.of("unserved") == []
