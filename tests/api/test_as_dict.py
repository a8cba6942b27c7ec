"""What public calls return becomes JSON by `as_dict()`: all of it, with secrets hidden."""

from __future__ import annotations

import inspect
import json
import typing
from datetime import timedelta
from typing import Any

from holdfast import Holdfast, Job, JobContext, Secret
from holdfast.model.job import NewJob
from holdfast.model.record import shown
from tests.api.test_public_names import parts, returned
from tests.running import working
from tests.waiting import wait_until

# What is no data, and what is JSON already: an int, a str, a list of what has as_dict().
OTHERWISE = {
    "Adopted",
    "Updates",
    "Worker",
    "TaskDecorator",
    "Holdfast",
    "Resource",
    "Task",
    "Page",
    "Processed",
    "State",
}


def read(found: Any) -> Any:
    """The value as it comes out of JSON again."""
    return json.loads(json.dumps(found.as_dict()))


def test_every_type_that_a_public_call_returns_has_it() -> None:
    found = set()
    for owner in (Holdfast, Job):
        for hint in returned(owner).values():
            found |= {typing.get_origin(part) or part for part in parts(hint)}
    ours = {kind for kind in found if inspect.isclass(kind) and kind.__module__.startswith("holdfast")}
    assert len(ours) > 10
    missing = {kind.__name__ for kind in ours if not hasattr(kind, "as_dict")}
    assert missing <= OTHERWISE


def test_a_job_becomes_json_with_its_values_decoded_and_its_secrets_hidden(hf: Holdfast) -> None:
    @hf.task
    def pay(ctx: JobContext, user: int, card: Secret[str]) -> dict[str, Any]:
        ctx.progress(1, total=4, note="asked")
        ctx.step("look up", lambda: {"token": "t-1", "found": [1, 2]})
        return {"paid": True, "api_key": "k-123"}

    job = pay.using(tags=["a"]).enqueue(7, card="4111-1111")
    assert read(job) == {"id": job.id, "task": "pay", "state": "queued", "created": True}
    with working(hf):
        job.wait(30)
    found = read(job)
    assert found == read(job.refresh().record)
    assert (found["state"], found["tags"], found["args"]) == ("succeeded", ["a"], {"user": 7, "card": "***"})
    assert found["result"] == {"paid": True, "api_key": "***"}
    assert found["progress"]["fraction"] == 0.25
    assert found["created_at"] == job.record.created_at.isoformat()
    assert job.args["card"] == "4111-1111", "who needs the value has it"
    assert job.result["api_key"] == "k-123"
    [step] = job.steps()
    assert (step.result, read(step)["result"]) == (
        {"token": "t-1", "found": [1, 2]},
        {"token": "***", "found": [1, 2]},
    )  # fmt: skip


def test_a_secret_is_hidden_in_a_job_that_another_program_wrote_too(hf: Holdfast) -> None:
    @hf.task
    def pay(card: Secret[str]) -> None: ...

    id = hf.store.enqueue(NewJob(task="pay", args=b'{"card":"4111-1111"}')).id
    assert read(hf.job(id))["args"] == {"card": "***"}


def test_what_operators_see_becomes_json(hf: Holdfast) -> None:
    @hf.task(cron="0 3 * * *", max_attempts=1)
    def nightly() -> None:
        raise ValueError("boom")

    @hf.task
    def audit(url: str, password: str = "") -> None: ...

    job = nightly.enqueue()
    hf.drain()
    made = hf.schedule("audit-a", audit.bind("a", password="p-1"), cron="0 4 * * *")
    assert made.args == {"url": "a", "password": "p-1"}
    assert read(made)["args"] == {"url": "a", "password": "***"}
    declared, scheduled = sorted(hf.crons(), key=lambda one: one.declared, reverse=True)
    assert (declared.args, scheduled.args) == (None, made.args)
    assert (read(declared)["declared"], read(scheduled)["paused"]) == (True, False)
    pause = hf.pause_queue("default", reason="a test", until=timedelta(hours=1))
    assert pause.until is not None
    assert read(pause)["until"] == pause.until.isoformat()
    assert read(hf.retry("state:failed")) == {"changed": 1, "refused": 0, "asked": 0}
    assert [read(reason)["code"] for reason in hf.why(job.id)][:1] == ["QUEUE_PAUSED"]
    assert read(hf.why_queue("default"))["reasons"][0]["jobs"] == 1
    assert [read(one)["outcome"] for one in job.attempts()] == ["errored"]
    for many in (hf.queues(), hf.audit(), hf.pauses(), hf.doctor()):
        assert many
        assert all(read(one) for one in many)
    with working(hf):
        [worker] = wait_until(hf.workers)
        assert read(worker)["state"] == "up"


def test_stored_text_that_is_not_json_is_told_as_such() -> None:
    assert shown(b'{"a":') == "(5 bytes that can't be shown: DecodeError)"
