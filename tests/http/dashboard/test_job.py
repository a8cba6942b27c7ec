"""The page of one job: what became of it, and all that may be done to it."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, JobContext, Secret, State
from holdfast.http.dashboard import job as page
from holdfast.http.dashboard import render
from holdfast.http.dashboard.page import Look
from holdfast.http.dashboard.shown import verbs_for
from holdfast.http.dashboard.timeline import timeline
from holdfast.model.access import Access
from holdfast.model.job import Wants
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from tests.adopt.legacy import MAPPED, Legacy, a_legacy_table
from tests.http.dashboard.looking import Looking, Seen
from tests.running import working
from tests.waiting import PATIENCE, wait_until

LARGE = 2**80 + 1


def offered(seen: Seen) -> set[str]:
    """The verbs that the page has buttons for."""
    return {
        *re.findall(r'name="verb" value="(\w+)"', seen.html),
        *(["replay"] if re.search(r'href="[^"]*/replay"', seen.html) else []),
    }


def test_a_failed_job_shows_its_error_first(tasked: Holdfast, looking: Looking) -> None:
    job = tasked.tasks["fail"].enqueue("no such\nhost <b>")
    tasked.drain()
    seen = looking.at(f"/jobs/{job.id}")
    assert seen.text.index("Error: ValueError") < seen.text.index("Timeline") < seen.text.index("Arguments")
    assert "no such\nhost &lt;b&gt;" in seen.html
    assert '<pre class="mine">' in seen.html
    assert "raise ValueError(message)" in seen.text
    assert f"errors/{job.refresh().record.error_fingerprint}" in seen.html
    assert "Attempt 1 errored" in seen.text


def test_arguments_and_results_are_exact_and_secrets_are_hidden(tasked: Holdfast, looking: Looking) -> None:
    @tasked.task
    def pay(order: int, card: Secret[str], more: dict[str, Any]) -> dict[str, Any]:
        return {"order": order, "token": "s3cr3t-t0ken", "text": "</pre><script>alert(1)</script>"}

    job = pay.enqueue(LARGE, "4111-1111", {"api_key": "k-1234", "n": 1.5})
    tasked.drain()
    seen = looking.at(f"/jobs/{job.id}")
    assert f'"order": {LARGE}' in seen.element("arguments")
    assert '"card": "***"' in seen.element("arguments")
    assert '"api_key": "***"' in seen.element("arguments")
    assert '"n": 1.5' in seen.element("arguments")
    assert f'"order": {LARGE}' in seen.element("result")
    assert '"token": "***"' in seen.element("result")
    for secret in ("4111-1111", "k-1234", "s3cr3t-t0ken"):
        assert secret not in seen.html
    assert "<script>alert" not in seen.html


def test_the_timeline_tells_what_it_waited_for_and_where_it_ran(tasked: Holdfast, looking: Looking) -> None:
    calls: list[int] = []

    @tasked.task(max_attempts=3, retry=[0])
    def flaky() -> str:
        calls.append(1)
        if len(calls) < 2:
            raise ConnectionError("down")
        return "ok"

    job = flaky.enqueue()
    job.pause("until noon", by="ann")
    job.resume(by="ann")
    tasked.drain()
    seen = looking.at(f"/jobs/{job.id}")
    order = ["Pause by ann", "Resume by ann", "Attempt 1 errored", "ConnectionError: down", "Attempt 2 succeeded"]
    places = [seen.text.index(what) for what in order]
    assert places == sorted(places)
    assert "until noon" in seen.text
    assert "Last error" not in seen.text, "it has succeeded in the end"
    waiting = tasked.tasks["add"].using(delay=3600).enqueue(1)
    assert "Waits until it is due" in looking.at(f"/jobs/{waiting.id}").text
    assert "SCHEDULED" in looking.at(f"/jobs/{waiting.id}").text


def test_the_timeline_goes_on_through_another_life(tasked: Holdfast, looking: Looking) -> None:
    job = tasked.tasks["fail"].enqueue("x")
    tasked.drain()
    job.retry("mended", by="ann")
    waiting = looking.at(f"/jobs/{job.id}").text
    order = ["Attempt 1 of life 1 errored", "Had ended, until it was retried", "Waits for a free slot"]
    assert [waiting.index(what) for what in order] == sorted(waiting.index(what) for what in order)
    tasked.drain()
    job.cancel("known", by="ann")
    seen = looking.at(f"/jobs/{job.id}").text
    order = [*order[:2], "Retry by ann", "Attempt 1 of life 2 errored", "Cancel by ann"]
    assert all(what in seen for what in order)
    assert seen.index(order[1]) < seen.index(order[3]) < seen.index(order[4])
    assert "Waited for the next try" not in seen


def test_the_timeline_draws_what_has_just_begun_as_short_as_it_is(tasked: Holdfast) -> None:
    record = tasked.tasks["add"].enqueue(1).refresh().record
    begun = record.created_at + timedelta(hours=6)
    running = msgspec.structs.replace(record, state=State.RUNNING, attempt=1, started_at=begun, run_at=begun)
    *_, waited, runs = timeline(running, [], [], begun + timedelta(seconds=9))
    assert (waited.kind, runs.kind) == ("due", "run")
    assert waited.width > 900 > 100 > runs.width


def test_time_alone_does_not_change_what_is_sent(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tasked.tasks["add"].using(delay=3600).enqueue(1)
    created, look = job.refresh().record.created_at, Look(tasked, {"id": job.id}, None)

    def sent(seconds: float) -> str:
        now = created + timedelta(seconds=seconds)
        monkeypatch.setattr(tasked.store.reads, "now", lambda: now)
        return render.part("job", {"now": now, **page.load(look)}, base="", access=Access("viewer"))

    first = sent(1.5)
    assert sent(12.5) == first
    job.change(priority=3)
    assert sent(12.5) != first


def test_progress_checkpoint_stack_and_output_of_a_running_job(hasty: Holdfast) -> None:
    seen = threading.Event()

    @hasty.task
    def long(ctx: JobContext) -> None:
        ctx.checkpoint({"page": 7, "password": "hunter22"}, pending=5, done=3)
        ctx.progress(3, total=12, note="page three")
        assert seen.wait(PATIENCE)

    job, looking = long.enqueue(), Looking(hasty)
    with working(hasty):
        wait_until(lambda: job.refresh().record.total and job.record.checkpoint)
        page = looking.at(f"/jobs/{job.id}")
        now = looking.at(f"/jobs/{job.id}/now")
        seen.set()
    assert "3 of 12 (25%)" in page.text
    assert "page three" in page.text
    assert '"page": 7' in page.text
    assert "hunter22" not in page.html
    assert "5 items of work pending" in page.text
    assert "LEASED" in page.text
    assert "seen.wait(PATIENCE)" in now.text
    assert offered(page) == {"pause", "cancel", "replay"}


def test_output_is_shown_with_its_attempt(tasked: Holdfast, looking: Looking) -> None:
    job = tasked.tasks["add"].enqueue(1)
    wants = Wants(fence=str(uuid.uuid4()), worker="w~1", tasks=("add",), limit=1, lease=60.0)
    [claimed] = tasked.store.exchange([], wants).claimed.jobs
    written = "line <1>\nline 2\x1b[31m"
    tasked.store.exchange([Outcome("succeed", claimed.id, claimed.fence, output=written)], None)
    seen = looking.at(f"/jobs/{job.id}")
    assert "line &lt;1&gt;\nline 2\\x1b[31m" in seen.html


# -- what may be done -------------------------------------------------------------------------------------------------


def in_every_state(app: Holdfast) -> dict[str, str]:
    """The id of a job in each state."""
    add, fail = app.tasks["add"], app.tasks["fail"]
    made = {"failed": fail.enqueue("x"), "succeeded": add.enqueue(1)}
    app.drain()
    made |= {"queued": add.enqueue(2), "paused": add.enqueue(3), "cancelled": add.enqueue(4)}
    made["scheduled"] = add.using(delay=3600).enqueue(5)
    made["paused"].pause()
    made["cancelled"].cancel()
    return {state: job.id for state, job in made.items()}


VERBS = {
    "queued": {"change", "pause", "cancel", "replay"},
    "scheduled": {"change", "pause", "cancel", "replay"},
    "paused": {"change", "resume", "cancel", "replay"},
    "failed": {"retry", "cancel", "delete", "replay"},
    "cancelled": {"retry", "delete", "replay"},
    "succeeded": {"delete", "replay"},
}


def test_in_every_state_exactly_what_is_offered_is_done_and_the_rest_is_refused_in_words(
    tasked: Holdfast, looking: Looking
) -> None:
    for state, verbs in VERBS.items():
        for verb in sorted({"retry", "cancel", "pause", "resume", "change", "delete"}):
            id = in_every_state(tasked)[state]
            assert offered(looking.at(f"/jobs/{id}")) == verbs, state
            more = {"priority": "5"} if verb == "change" else {}
            seen = looking.send(f"/jobs/{id}/do", verb=verb, reason="because", back=f"/jobs/{id}", **more)
            assert seen.status == 200
            [*calls] = tasked.audit(job=id, verb=verb)
            if verb in verbs:
                assert not seen.wrong, (state, verb, seen.said)
                assert (calls[0].by, calls[0].reason) == ("anyone", "because")
            else:
                assert seen.wrong, (state, verb)
                assert f"can't {verb} job {id}" in seen.said
                assert not any(call.changed + call.asked for call in calls if call.reason == "because")


def test_a_running_job_is_asked_and_the_request_can_be_taken_back(hasty: Holdfast) -> None:
    seen = threading.Event()

    @hasty.task
    def deaf() -> None:
        assert seen.wait(PATIENCE)

    job, looking = deaf.enqueue(), Looking(hasty)
    with working(hasty):
        wait_until(lambda: job.refresh().state == "running")
        asked = looking.send(f"/jobs/{job.id}/do", verb="pause", back=f"/jobs/{job.id}")
        assert "is asked to park" in asked.said
        assert offered(asked) == {"resume", "cancel", "replay"}
        assert "asked to pause" in asked.text
        back = looking.send(f"/jobs/{job.id}/do", verb="resume", back=f"/jobs/{job.id}")
        assert "taken back" in back.said
        assert offered(back) == {"pause", "cancel", "replay"}
        stop = looking.send(f"/jobs/{job.id}/do", verb="cancel", back=f"/jobs/{job.id}")
        assert "asked to stop" in stop.said
        assert offered(stop) == {"replay"}
        refused = looking.send(f"/jobs/{job.id}/do", verb="delete", back=f"/jobs/{job.id}")
        assert refused.wrong
        seen.set()


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"verb": "explode"}, "which verb?"),
        ({}, "which verb?"),
        ({"verb": "change"}, "what is to change?"),
        ({"verb": "change", "priority": "high"}, "priority is a whole number"),
        ({"verb": "change", "run_at": "tomorrow"}, "is no time"),
        ({"verb": "change", "delay": "1h", "run_at": "2030-01-01T00:00"}, "exclude each other"),
        ({"verb": "change", "queue": "a\x00b"}, "queue must be a text"),
        ({"verb": "pause", "reason": "x" * 10_001}, "reason"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_in_words(
    tasked: Holdfast, looking: Looking, form: dict[str, str], said: str
) -> None:
    job = tasked.tasks["add"].enqueue(1)
    seen = looking.send(f"/jobs/{job.id}/do", back=f"/jobs/{job.id}", **form)
    assert (seen.status, seen.wrong, seen.path) == (200, True, f"/jobs/{job.id}")
    assert said in seen.said
    assert tasked.audit() == []


def test_a_job_is_changed_moved_and_deleted(tasked: Holdfast, looking: Looking) -> None:
    job = tasked.tasks["add"].enqueue(1)
    form = {"queue": "slow", "priority": "-7", "run_at": "2030-01-31T12:00"}
    looking.send(f"/jobs/{job.id}/do", verb="change", back="/jobs", **form)
    record = job.refresh().record
    assert (record.queue, record.priority, record.run_at.isoformat()) == ("slow", -7, "2030-01-31T12:00:00+00:00")
    job.cancel()
    retried = looking.send(f"/jobs/{job.id}/do", verb="retry", queue="quick", back=f"/jobs/{job.id}")
    assert (job.refresh().record.queue, job.state) == ("quick", "queued"), retried.said
    job.cancel()
    gone = looking.send(f"/jobs/{job.id}/do", verb="delete", back=f"/jobs/{job.id}")
    assert (gone.said, gone.path) == (f"Job {job.id} is deleted.", "/jobs")
    assert looking.at(f"/jobs/{job.id}").status == 404


@pytest.mark.parametrize("id", ["999999", "x", "1e3", "-1", "%00", "<script>", "' or 1=1 --", "9" * 40, "٣"])
def test_a_job_that_is_not_there_is_not_found(looking: Looking, id: str) -> None:
    for seen in (looking.at(f"/jobs/{id}"), looking.at(f"/jobs/{id}/replay"), looking.at(f"/jobs/{id}/now")):
        assert seen.status == 404
        assert "<script>" not in seen.html
    assert looking.send(f"/jobs/{id}/do", verb="retry", back="/jobs").wrong


def test_who_may_only_look_is_offered_nothing(tasked: Holdfast, viewing: Looking) -> None:
    for id in in_every_state(tasked).values():
        seen = viewing.at(f"/jobs/{id}")
        assert seen.status == 200
        assert offered(seen) == set()
        assert 'method="post"' not in seen.html
        assert "hx-get" not in seen.html, "asking a worker is for operators"


def test_a_key_that_went_to_another_job_takes_the_retry_with_it(tasked: Holdfast, looking: Looking) -> None:
    failed = tasked.tasks["fail"].using(key="k").enqueue("x")
    tasked.drain()
    newer = tasked.tasks["fail"].using(key="k").enqueue("y")
    assert newer.created
    assert "retry" not in offered(looking.at(f"/jobs/{failed.id}"))
    assert looking.send(f"/jobs/{failed.id}/do", verb="retry", back="/jobs").wrong
    tasked.drain()
    assert "retry" in offered(looking.at(f"/jobs/{failed.id}"))
    assert not looking.send(f"/jobs/{failed.id}/do", verb="retry", back="/jobs").wrong


def test_a_job_of_a_task_that_is_not_declared_here_can_not_be_replayed(tasked: Holdfast, looking: Looking) -> None:
    job = tasked.tasks["add"].enqueue(1)
    del tasked.tasks["add"], tasked._names["add"]
    assert "replay" not in offered(looking.at(f"/jobs/{job.id}"))
    assert "replay" not in verbs_for(tasked, job.refresh().record)


# -- replay -----------------------------------------------------------------------------------------------------------


def test_a_replay_with_edited_arguments_is_a_new_job_linked_both_ways(tasked: Holdfast, looking: Looking) -> None:
    @tasked.task
    def pay(order: int, card: Secret[str], note: str = "") -> str:
        return f"{order} {card} {note}"

    old = pay.using(queue="bank", priority=4).enqueue(LARGE, "4111-1111")
    form = looking.at(f"/jobs/{old.id}/replay")
    assert str(LARGE) in form.element("args")
    assert "4111" not in form.html
    edited = form.element("args").replace('"note": ""', '"note": "again"').replace("\n}", ',\n "note": "again"\n}')
    seen = looking.send(f"/jobs/{old.id}/replay", args=edited, reason="a typo")
    new = tasked.job(seen.path.rpartition("/")[2])
    assert seen.said == f"Job {new.id} is enqueued: a replay of job {old.id}."
    tasked.drain()
    assert new.refresh().result == f"{LARGE} 4111-1111 again", "the secret that was left alone is what it was"
    assert (new.record.queue, new.record.priority) == ("bank", 4)
    assert f"Replay of job {old.id}" in looking.at(f"/jobs/{new.id}").text
    assert f"Replayed as job {new.id}" in looking.at(f"/jobs/{old.id}").text
    [call] = tasked.audit(verb="replay")
    assert (call.reason, call.parameters["job"]) == ("a typo", new.id)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ('{"a": "one"}', "argument `a`"),
        ('{"a": 1, "c": 2}', "c"),
        ('{"a": 1', "the arguments are not JSON"),
        ("[1, 2]", "a JSON object"),
        ('{"a": "</textarea><script>alert(1)</script>"}', "argument `a`"),
        ("", "the arguments are not JSON"),
        ("[" * 5000, "the arguments are not JSON"),
    ],
)
def test_arguments_that_the_task_refuses_are_named_and_the_text_is_kept(
    tasked: Holdfast, looking: Looking, args: str, said: str
) -> None:
    job = tasked.tasks["add"].enqueue(1)
    seen = looking.send(f"/jobs/{job.id}/replay", args=args, reason="a typo")
    assert seen.status == 422
    assert said in seen.element("wrong")
    assert seen.element("args").lstrip("\n") == args
    assert seen.field("reason") == "a typo"
    assert "<script>alert" not in seen.html
    assert len(tasked.jobs()) == 1


# -- rows of other tables ---------------------------------------------------------------------------------------------


@pytest.fixture
def legacy(settings: Settings) -> Iterator[Legacy]:
    with a_legacy_table(settings) as legacy:
        yield legacy


def test_a_job_of_an_adopted_row_names_its_row(tasked: Holdfast, legacy: Legacy) -> None:
    audits = tasked.adopt(legacy.table, **MAPPED)

    @audits.task
    def analyse(row: dict[str, Any]) -> dict[str, int]:
        return {"score": 1}

    audits.install()
    job = audits.submit(url="https://a.example").refresh()
    tasked.drain()
    seen = Looking(tasked).at(f"/jobs/{job.id}")
    assert re.search(rf"Row id {job.source_id} of the table {job.source}", seen.text)
    assert "url=https://a.example" in Looking(tasked).at("/jobs").rows()[f"job-{job.id}"]
    assert "replay" not in offered(seen)
    assert "delete" not in offered(seen)
