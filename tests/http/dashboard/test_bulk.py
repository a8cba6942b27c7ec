"""Verbs on many jobs: what would be done, that it is done, and how those that are under way stand."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import Changed, Holdfast, operations
from holdfast.model.filter import parse
from holdfast.store.bulk_calls import SILENT, BulkCalls, Plan
from tests.http.asking import Ask
from tests.http.dashboard.looking import Looking
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def failed(tasked: Holdfast) -> Holdfast:
    """Twelve failed jobs, a cancelled one and a queued one."""
    fail = tasked.tasks["fail"]
    tasked.enqueue_many(fail.bind(f"order {n}") for n in range(12))
    tasked.drain()
    tasked.tasks["add"].using(tags=["x"]).enqueue(1).cancel()
    tasked.tasks["add"].using(tags=["x"]).enqueue(2)
    return tasked


def test_a_preview_says_how_many_would_change_and_how_many_would_be_refused(failed: Holdfast, looking: Looking) -> None:
    seen = looking.at("/bulk/new", verb="retry", filter="tag:x")
    assert "Retry 1 job?" in seen.text
    assert "1 more match and are in a state that does not allow it" in seen.text
    assert "Cancelled jobs among them are retried, too." in seen.text
    none = looking.at("/bulk/new", verb="resume", filter="tag:x")
    assert "No job would change." in none.text
    assert "/bulk/start" not in none.html
    assert "It must be failed or cancelled" in seen.text


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"verb": "explode", "filter": "task:add"}, 422, "there is no verb explode"),
        ({"verb": "retry", "filter": "nonsense"}, 422, "is no filter"),
        ({"verb": "retry", "filter": " "}, 422, "an empty filter would match every job"),
        ({"verb": "retry", "filter": "id:x"}, 404, "there is no job"),
        ({"verb": "<script>", "filter": "task:add"}, 422, "there is no verb"),
    ],
)
def test_a_preview_of_nonsense_says_what_is_wrong(
    looking: Looking, query: dict[str, str], status: int, said: str
) -> None:
    seen = looking.at("/bulk/new", **query)
    assert seen.status == status
    assert said in seen.text
    assert "<script>" not in seen.html.replace('<script src="', "").replace("<script defer", "")


def test_ten_are_retried_first_the_oldest_and_the_others_over_ten_minutes(failed: Holdfast, looking: Looking) -> None:
    ten = looking.send("/bulk/start", verb="retry", filter="state:failed", limit="10", reason="a try", then="/bulk")
    assert ten.said == "Retried 10 jobs."
    assert [job.id for job in failed.jobs("state:failed")] == ["12", "11"]
    looking.send("/bulk/start", verb="retry", filter="state:failed", spread="10m", then="/bulk")
    first, last = failed.job("11").record.run_at, failed.job("12").record.run_at
    assert timedelta(minutes=4) < last - first < timedelta(minutes=6), "two, evenly over ten minutes"
    spread, limited = failed.audit(verb="retry")
    assert (limited.changed, limited.reason, limited.by) == (10, "a try", "anyone")
    assert limited.parameters == {"limit": 10}
    assert spread.parameters == {"spread": 600.0}
    row = looking.at("/bulk").rows()[f"bulk-{limited.id}"]
    assert "retry limit 10 state:failed done 10 retried anyone a try" in row


def test_jobs_are_changed_and_deleted(failed: Holdfast, looking: Looking) -> None:
    form = {"verb": "change", "filter": "tag:x state:queued", "queue": "slow", "priority": "7", "delay": "1h"}
    assert looking.send("/bulk/start", then="/jobs", **form).said == "Changed 1 job."
    record = failed.job("14").record
    assert (record.queue, record.priority) == ("slow", 7)
    assert record.run_at - record.created_at > timedelta(minutes=59)
    assert looking.send("/bulk/start", verb="delete", filter="state:failed", then="/jobs").said == "Deleted 12 jobs."
    assert failed.count("state:failed") == 0


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"verb": "retry", "limit": "ten"}, "limit is a whole number"),
        ({"verb": "retry", "limit": "0"}, "limit must be a whole number of 1 to"),
        ({"verb": "retry", "spread": "soon"}, "spread must be 0 or more"),
        ({"verb": "retry", "queue": "\x1b[31m"}, "control character"),
        ({"verb": "change"}, "what is to change?"),
        ({"verb": "change", "priority": "1000"}, "priority"),
        ({"verb": "retry", "expected": "11"}, "this would retry 12 jobs, and 11 were shown: look again"),
        ({"verb": "explode"}, "there is no verb explode"),
        ({"verb": "retry", "filter": ""}, "an empty filter"),
    ],
)
def test_what_can_not_be_done_is_told_and_nothing_changes(
    failed: Holdfast, looking: Looking, form: dict[str, str], said: str
) -> None:
    before = [call.id for call in failed.audit()]
    seen = looking.send("/bulk/start", **{"filter": "state:failed", "back": "/bulk/new?verb=retry", **form})
    assert (seen.status, seen.wrong) == (200, True)
    assert said in seen.said
    assert seen.path.startswith("/bulk/new")
    assert [call.id for call in failed.audit()] == before


def test_a_long_call_goes_on_after_the_answer_and_shows_how_far_it_is(
    tasked: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is told within a second or so, whatever the call takes."""
    tasked.enqueue_stream(tasked.tasks["add"].bind(n) for n in range(1200))
    on, original = threading.Event(), BulkCalls._once

    def held(calls: BulkCalls, call: object, ids: object, delays: object) -> object:
        rows = original(calls, call, ids, delays)  # type: ignore[arg-type]
        assert on.wait(PATIENCE)
        return rows

    monkeypatch.setattr(BulkCalls, "_once", held)
    monkeypatch.setattr("holdfast.http.dashboard.bulk.SOON", 0.05)
    ask = Ask(tasked.asgi(open="operator"))

    async def start_and_look() -> tuple[str, str]:
        async with ask.client() as client:
            form = {"verb": "cancel", "filter": "task:add", "expected": "1200", "reason": "ordered twice"}
            answer = await client.post("/bulk/start", data=form)
            while not (calls := await tasked.abulk_operations()) or not calls[0].done:  # noqa: ASYNC110 - it is in the database
                await asyncio.sleep(0.02)
            page = await client.get("/bulk")
            on.set()
            return answer.headers["location"], page.text

    location, page = asyncio.run(start_and_look())
    assert location == "../bulk"
    assert "under way" in page
    assert "500 of 1,200 cancelled" in page
    assert "ordered twice" in page
    wait_until(lambda: tasked.audit()[0].ended_at)
    [ended] = tasked.bulk_operations()
    assert (ended.state, ended.done) == ("ended", 1200)
    assert "1,200 cancelled" in Looking(tasked).at("/bulk").text


def test_calls_whose_process_died_and_calls_that_were_cut_short_are_told_apart(
    tasked: Holdfast, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasked.enqueue_many(tasked.tasks["add"].bind(n) for n in range(3))
    tasked.store.operator.bulk_calls._begin(Plan("retry", parse("task:add"), "why", "ann"))
    [begun] = tasked.bulk_operations()
    assert begun.state == "under way"
    monkeypatch.setattr("holdfast.store.bulk_calls.SILENT", -1.0)
    assert tasked.bulk_operations()[0].state == "silent"
    assert "a worker carries it on" in looking.at("/bulk").text
    monkeypatch.setattr("holdfast.store.bulk_calls.SILENT", SILENT)

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("a bug of ours")

    monkeypatch.setattr(BulkCalls, "_once", broken)
    with pytest.raises(RuntimeError):
        tasked.cancel("task:add")
    newest, _ = tasked.bulk_operations()
    assert (newest.state, newest.done) == ("cut short", 0)
    assert "An error or Ctrl-C ended it" in looking.at("/bulk").rows()[f"bulk-{newest.call.id}"]


def test_only_verbs_on_many_jobs_are_listed(tasked: Holdfast, looking: Looking) -> None:
    assert "Nothing was done to many jobs yet." in looking.at("/bulk").text
    job = tasked.tasks["add"].enqueue(1)
    job.pause(reason="one alone")
    tasked.pause_queue("mail")
    done = operations.bulk(tasked, "resume", "task:add", "go", "ann", counted=1)
    assert done == Changed(1, 0)
    [only] = tasked.bulk_operations()
    assert (only.call.verb, only.call.by, only.jobs, only.done) == ("resume", "ann", None, 1)
    assert list(looking.at("/bulk").rows()) == [f"bulk-{only.call.id}"]


def test_who_may_only_look_sees_how_it_stands(failed: Holdfast, looking: Looking, viewing: Looking) -> None:
    looking.send("/bulk/start", verb="retry", filter="state:failed", then="/bulk")
    seen = viewing.at("/bulk")
    assert "12 retried" in seen.text
    assert 'method="post"' not in seen.html
    assert viewing.at("/bulk/new", verb="retry", filter="state:failed").status == 403
