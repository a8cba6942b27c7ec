"""What people do with jobs, queues and tasks: through handles and the application."""

from __future__ import annotations

import getpass
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import BadArguments, Fail, Holdfast, Job, JobNotFound, Refused, Secret, State, UnknownTask
from holdfast.model.audit import VERBS
from holdfast.model.job import Changed
from tests.factories import wants
from tests.running import working
from tests.waiting import wait_until


def test_a_queued_job_is_paused_and_resumed(hf: Holdfast) -> None:
    @hf.task
    def task() -> int:
        return 1

    job = task.enqueue()
    assert job.pause() is State.PAUSED
    assert hf.drain() == 0
    assert job.resume() is State.QUEUED
    assert hf.drain() == 1
    assert job.refresh().result == 1
    with pytest.raises(Refused, match=f"can't resume job {job.id}: it is succeeded, and must be paused"):
        job.resume()
    with pytest.raises(Refused, match=f"can't pause job {job.id}: it is succeeded, and must be queued or running"):
        job.pause()


def test_a_job_is_cancelled_with_a_reason_and_retried(hf: Holdfast) -> None:
    @hf.task
    def task() -> int:
        return 1

    job = task.enqueue()
    assert job.cancel("not needed any more") is State.CANCELLED
    job.refresh()
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("CANCELLED", "not needed any more")
    with pytest.raises(Refused, match="can't cancel"):
        job.cancel()
    assert job.retry(queue="slow") is State.QUEUED
    assert job.refresh().record.queue == "slow"
    assert hf.drain() == 1
    assert job.refresh().result == 1
    with pytest.raises(Refused, match="can't retry"):
        job.retry()


def test_a_failed_job_gets_another_life(hf: Holdfast) -> None:
    fails = [True]

    @hf.task(max_attempts=2, retry=None)
    def task() -> int:
        if fails[0]:
            raise ZeroDivisionError("no")
        return 1

    job = task.enqueue()
    assert hf.drain().attempts == 2
    assert job.refresh().state is State.FAILED
    job.retry()
    assert (job.refresh().record.attempt, job.refresh().record.life) == (0, 2)
    hf.drain()
    fails[0] = False
    assert job.refresh().state is State.FAILED
    job.retry()
    hf.drain()
    assert job.refresh().result == 1
    assert [(a.life, a.number, a.outcome) for a in job.attempts()] == [
        (1, 1, "errored"), (1, 2, "errored"), (2, 1, "errored"), (2, 2, "errored"),
    ]  # fmt: skip


def test_a_queued_job_is_changed(hf: Holdfast) -> None:
    order: list[int] = []

    @hf.task
    async def task(n: int) -> None:
        order.append(n)

    first, second = task.enqueue(1), task.enqueue(2)
    assert second.change(priority=10, tags=["urgent"]) is State.QUEUED
    record = second.refresh().record
    assert (record.priority, record.tags) == (10, ("urgent",))
    hf.drain()
    assert order == [2, 1]
    later = task.enqueue(3)
    later.change(delay=timedelta(hours=1))
    assert hf.drain() == 0
    later.change(run_at=datetime(2001, 1, 1, tzinfo=UTC))
    assert later.refresh().record.run_at == datetime(2001, 1, 1, tzinfo=UTC)
    assert hf.drain() == 1
    with pytest.raises(Refused, match="can't change job"):
        first.change(priority=1)


def test_bad_changes_are_refused(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    job = task.enqueue()
    before = job.refresh().record
    for bad in (
        {"priority": 101}, {"delay": -1}, {"run_at": datetime(2030, 1, 1)}, {"tags": "text"}, {"tags": ["\x00"]},
        {"delay": 1, "run_at": datetime.now(UTC)},
    ):  # fmt: skip
        with pytest.raises(BadArguments, match="change"):
            job.change(**bad)
    assert job.refresh().record == before


def test_a_sleeping_worker_notices_a_change_a_retry_and_a_resume(hf: Holdfast) -> None:
    @hf.task
    def task() -> str:
        return "done"

    later, cancelled, paused = (task.using(delay=3600).enqueue() for _ in range(3))
    cancelled.cancel()
    paused.pause()
    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        later.change(delay=0)
        assert later.wait(timeout=10) == "done"
        cancelled.retry()
        assert cancelled.wait(timeout=10) == "done"
        paused.resume()
        paused.change(delay=0)  # it kept its due time
        assert paused.wait(timeout=10) == "done"


def test_a_job_is_deleted_with_its_history(hf: Holdfast) -> None:
    @hf.task
    def task() -> None:
        raise Fail("no")

    job = task.enqueue()
    hf.drain()
    assert job.delete() is State.FAILED
    with pytest.raises(JobNotFound):
        job.refresh()
    assert job.attempts() == []
    for verb in (job.delete, job.pause, job.resume, job.cancel, job.retry):
        with pytest.raises(JobNotFound, match=f"there is no job {job.id}"):
            verb()


def test_jobs_are_listed_newest_first_by_state_queue_and_task(hf: Holdfast) -> None:
    @hf.task
    def one() -> None: ...

    @hf.task(queue="b")
    def two() -> None: ...

    a, b, c = one.enqueue(), two.enqueue(), one.enqueue()
    a.pause()
    assert [record.id for record in hf.jobs()] == [c.id, b.id, a.id]
    assert [record.id for record in hf.jobs(state="paused")] == [a.id]
    assert [record.id for record in hf.jobs(queue="b")] == [b.id]
    assert [record.id for record in hf.jobs(task="one", state=State.QUEUED)] == [c.id]
    assert [record.id for record in hf.jobs(before=c.id, limit=1)] == [b.id]


@pytest.mark.parametrize("kind", ["queue", "task"])
def test_a_queue_or_a_task_is_paused_with_who_and_why(hf: Holdfast, kind: str) -> None:
    @hf.task(queue="held")
    def held() -> None: ...

    @hf.task
    def free() -> None: ...

    jobs = [held.enqueue(), free.enqueue()]
    made = getattr(hf, f"pause_{kind}")("held", by="operator", reason="the printer burns")
    [pause] = hf.pauses()
    assert pause == made
    assert (pause.kind, pause.name, pause.by, pause.reason, pause.until) == (
        kind, "held", "operator", "the printer burns", None,
    )  # fmt: skip
    assert hf.drain() == 1
    assert [job.refresh().state for job in jobs] == [State.QUEUED, State.SUCCEEDED]
    assert getattr(hf, f"resume_{kind}")("held") is True
    assert getattr(hf, f"resume_{kind}")("held") is False
    assert hf.pauses() == []
    assert hf.drain() == 1


def test_a_pause_ends_by_itself(hf: Holdfast) -> None:
    @hf.task
    def task() -> str:
        return "done"

    began = time.monotonic()
    hf.pause_queue("default", until=timedelta(seconds=0.6))
    [pause] = hf.pauses()
    assert pause.until is not None
    job = task.enqueue()
    with working(hf):
        assert job.wait(timeout=10) == "done"
    assert time.monotonic() - began >= 0.55
    with pytest.raises(BadArguments, match="is past"):
        hf.pause_queue("default", until=datetime.now(UTC) - timedelta(seconds=1))
    task.enqueue()
    assert hf.drain() == 1


def test_jobs_are_paused_by_their_arguments(hf: Holdfast) -> None:
    @hf.task(queue="sync")
    def sync(customer: int) -> int:
        return customer

    @hf.task
    def bill(customer: int) -> int:
        return customer

    first, other, bills = sync.enqueue(42), sync.enqueue(7), bill.enqueue(42)
    made = hf.pause_matching(
        "task:sync", args={"customer": 42}, by="ana", reason="their API is down", until=timedelta(hours=2)
    )
    [pause] = hf.pauses()
    assert pause == made
    assert (pause.kind, pause.name, pause.by, pause.reason, pause.jobs) == (
        "filter", "task:sync args.customer:42", "ana", "their API is down", 1,
    )  # fmt: skip
    second = sync.enqueue(42)
    assert hf.drain() == 2
    assert [job.refresh().state for job in (first, second, other, bills)] == [State.QUEUED] * 2 + [State.SUCCEEDED] * 2
    assert "are paused by ana (their API is down) until" in first.why()[0].text
    assert hf.resume_matching("args.customer:42") is False
    assert hf.resume_matching("args.customer:42 task:sync") is True
    assert hf.drain() == 2
    hf.pause_matching("queue:sync task:sync")
    assert [(pause.kind, pause.name) for pause in hf.pauses()] == [("filter", "task:sync queue:sync")]
    assert hf.resume_matching("task:sync queue:sync") is True
    assert (hf.pause_matching("queue:sync").kind, hf.pauses()[0].name) == ("queue", "sync"), "one thing is one pause"
    assert hf.resume_queue("sync") is True


def test_the_jobs_there_are_and_those_to_come_are_paused_by_different_calls(hf: Holdfast) -> None:
    @hf.task
    def task(n: int) -> None: ...

    now = task.enqueue(1)
    assert hf.pause_jobs("args.n:1") == Changed(1, 0)
    assert hf.pauses() == []
    assert (task.enqueue(1).state, now.refresh().state) == (State.QUEUED, State.PAUSED)
    assert hf.pause_matching("args.n:1").jobs == 1, "what waits; the paused one is paused by itself"
    later = task.enqueue(1)
    assert hf.drain() == 0
    assert hf.resume_jobs("args.n:1") == Changed(1, 2)
    assert hf.drain() == 0, "the pause of the filter holds it"
    assert later.refresh().state is State.QUEUED
    assert hf.resume_matching(args={"n": 1})
    assert hf.drain() == 3


def test_a_pause_by_arguments_ends_by_itself_under_a_worker(hf: Holdfast) -> None:
    @hf.task
    def task(n: int) -> str:
        return "done"

    hf.reconfigure(lease=3.0)
    with working(hf):
        hf.pause_matching(args={"n": 1}, until=timedelta(seconds=1))
        began = time.monotonic()
        job, other = task.enqueue(1), task.enqueue(2)
        assert other.wait(timeout=10) == "done"
        assert job.refresh().state is State.QUEUED
        assert job.wait(timeout=10) == "done"
        assert time.monotonic() - began >= 0.9


def test_the_end_of_a_pause_wakes_sleeping_workers(hf: Holdfast) -> None:
    @hf.task
    def task() -> str:
        return "done"

    hf.pause_task("task")
    job = task.enqueue()
    with working(hf) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        assert job.refresh().state is State.QUEUED
        hf.resume_task("task")
        assert job.wait(timeout=10) == "done"


def test_a_job_is_forgotten_only_when_it_has_finished(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    job = task.enqueue()
    with pytest.raises(Refused, match=r"can't delete job \d+: it is queued, and must have finished; cancel it first"):
        job.delete()
    assert hf.delete("task:task") == Changed(0, 1)
    job.cancel()
    assert job.delete() is State.CANCELLED


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda hf, job: job.cancel(5), "HF1202 cancel: reason must be a text"),
        (lambda hf, job: hf.cancel("task:task", reason=[]), "HF1202 cancel: reason must be a text"),
        (lambda hf, job: hf.jobs(limit=-1), "HF1202 jobs: limit must be a whole number of 1 to 1,000,000, not -1"),
        (lambda hf, job: hf.jobs(limit=2**63), "HF1202 jobs: limit must be a whole number of 1 to 1,000,000"),
        (lambda hf, job: hf.jobs(None), "HF1203 a filter is a text"),
        (lambda hf, job: hf.jobs(before=5), "HF1202 jobs: before must be a text"),
        (lambda hf, job: hf.jobs(queue="\ud800"), "HF1202 jobs: queue must be a text"),
        (lambda hf, job: hf.jobs(limit="5"), "HF1202 jobs: limit must be a whole number"),
        (lambda hf, job: hf.jobs(window=0), "HF1202 jobs: window must be a whole number"),
        (lambda hf, job: hf.alerts(limit=-1), "HF1202 alerts: limit must be a whole number"),
        (lambda hf, job: hf.drain(jobs=-1), "HF1202 drain: jobs must be a whole number of 0 to 1,000,000, not -1"),
        (lambda hf, job: hf.drain(seconds="soon"), "HF1202 drain: seconds must be 0 or more seconds"),
        (lambda hf, job: hf.pause_queue("a", reason=7), "HF1202 pause: reason must be a text"),
        (lambda hf, job: hf.pause_queue("a", by=7), "HF1202 pause: by must be a text"),
        (
            lambda hf, job: hf.pause_queue("a", until=60),
            r"HF1202 pause: until must be a timedelta: timedelta\(seconds=60\)",
        ),
        (lambda hf, job: hf.pause_queue("a", until="soon"), "HF1202 pause: until must be"),
        (lambda hf, job: job.change(), "HF1202 change: what is to change"),
        (lambda hf, job: hf.change("task:task", reason="why"), "HF1202 change: what is to change"),
    ],
)
def test_values_that_are_none_are_refused_in_our_words(
    hf: Holdfast, ask: Callable[[Holdfast, Job[None]], object], complaint: str
) -> None:
    @hf.task
    def task() -> None: ...

    with pytest.raises(BadArguments, match=complaint):
        ask(hf, task.enqueue())


def test_what_was_only_asked_of_running_jobs_is_counted_apart(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    jobs = [task.enqueue() for _ in range(3)]
    hf.store.attempts.claim(wants(2, tasks=["task"]))
    assert hf.cancel("task:task") == Changed(1, 0, 2)
    assert [job.refresh().state for job in jobs] == [State.RUNNING, State.RUNNING, State.CANCELLED]


def test_every_call_of_an_operator_is_recorded(hf: Holdfast) -> None:
    @hf.task(cron="0 0 1 1 *", queue="mail")
    def task() -> None: ...

    job = task.enqueue()
    calls: dict[str, Callable[[], object]] = {
        "pause": lambda: job.pause("a", by="ops"),
        "resume": lambda: job.resume("b", by="ops"),
        "change": lambda: job.change(priority=1, reason="c", by="ops"),
        "cancel": lambda: job.cancel("d", by="ops"),
        "retry": lambda: hf.retry("state:cancelled", "e", by="ops"),
        "pause_queue": lambda: hf.pause_queue("mail", reason="f", by="ops"),
        "resume_queue": lambda: hf.resume_queue("mail", reason="g", by="ops"),
        "pause_task": lambda: hf.pause_task("task", reason="h", by="ops"),
        "resume_task": lambda: hf.resume_task("task", reason="i", by="ops"),
        "pause_cron": lambda: hf.pause_cron("task", reason="j", by="ops"),
        "resume_cron": lambda: hf.resume_cron("task", reason="k", by="ops"),
        "pause_matching": lambda: hf.pause_matching("args.n:1", reason="l", by="ops"),
        "resume_matching": lambda: hf.resume_matching("args.n:1", reason="m", by="ops"),
        "schedule": lambda: hf.schedule("nightly", task.bind(), cron="0 3 * * *", reason="n", by="ops"),
        "unschedule": lambda: hf.unschedule("nightly", reason="o", by="ops"),
        "replay": lambda: hf.replay(job.id, reason="q", by="ops"),
        "run_cron": lambda: hf.run_cron("task", reason="p", by="ops"),
    }
    elsewhere = {"delete", "stop_worker", "create_api_key", "revoke_api_key"}  # tried in other tests
    tables = {"adopt", "suspend_table", "resume_table", "undo_table"}
    assert {*calls, *elsewhere, *tables} == set(VERBS)
    for call in calls.values():
        call()
    found = hf.audit()[::-1]
    assert [record.verb for record in found] == [*calls]
    assert "".join(record.reason or "" for record in found) == "abcdefghijklmnoqp"
    assert {record.by for record in found} == {"ops"}
    assert all(record.ended_at and record.changed == 1 for record in found)
    assert found[-1].parameters == {"job": hf.jobs()[0].id}
    assert hf.audit(job=hf.jobs()[0].id) == [found[-1]], "the job that it enqueued"
    assert [record.verb for record in hf.audit(by="ops", what="MAIL", since=timedelta(minutes=5))] == [
        "resume_queue", "pause_queue",
    ]  # fmt: skip
    assert [record.verb for record in hf.audit(job=job.id, verb="retry")] == ["retry"], "by a filter"


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"verb": "retri"}, r"HF1202 audit: there is no verb retri \(did you mean retry\?\); there are adopt, cancel"),
        ({"since": 60}, r"since must be a timedelta: timedelta\(seconds=60\), or a datetime with a time zone"),
        ({"since": datetime(2030, 1, 1)}, "HF1202 audit: since must be a datetime with a time zone"),
        ({"by": ""}, "HF1202 audit: by must be a text"),
        ({"what": 7}, "HF1202 audit: what must be a text"),
        ({"job": "state:failed"}, "HF1301 there is no job 'state:failed'"),
    ],
)  # fmt: skip
def test_a_question_to_the_audit_that_means_nothing_is_refused(
    hf: Holdfast, wanted: dict[str, Any], complaint: str
) -> None:
    with pytest.raises((BadArguments, JobNotFound), match=complaint):
        hf.audit(**wanted)


def test_who_is_the_user_of_the_process_unless_said_otherwise(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @hf.task
    def task() -> None: ...

    task.enqueue().pause()
    hf.resume_jobs("state:paused")

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert hf.pause_queue("mail").by == f"uid {os.getuid()}"
    monkeypatch.undo()
    assert [record.by for record in hf.audit()] == [f"uid {os.getuid()}", getpass.getuser(), getpass.getuser()]


@pytest.mark.parametrize("before", ["x", 7, "²", ""])
def test_a_page_of_the_audit_begins_at_an_id(hf: Holdfast, before: object) -> None:
    with pytest.raises(BadArguments, match="HF1202 audit: before is the id of a record"):
        hf.audit(before=before)  # type: ignore[arg-type]


def test_moved_jobs_wake_the_workers_of_their_new_queue(hf: Holdfast) -> None:
    @hf.task(queue="old")
    def task(n: int) -> int:
        return n

    jobs = [task.enqueue(n) for n in range(3)]
    with working(hf, queues=["new"]) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        assert jobs[0].change(queue="new", by="ops") is State.QUEUED
        assert jobs[0].wait(timeout=10) == 0
        assert hf.change("state:queued queue:old", queue="new") == Changed(2, 0)
        assert [job.wait(timeout=10) for job in jobs] == [0, 1, 2]
    with pytest.raises(Refused, match="it is succeeded, and must be queued or paused"):
        jobs[0].change(queue="old")
    with pytest.raises(BadArguments, match="change: queue must be a text"):
        hf.change("id:1", queue="")


def test_a_running_job_says_when_it_will_be_killed(hasty: Holdfast) -> None:
    ended = threading.Event()

    @hasty.task(timeout=3600)
    def patient() -> None:
        ended.wait(60)

    job = patient.enqueue()
    try:
        with working(hasty):
            wait_until(lambda: job.refresh().state is State.RUNNING)
            [leased] = job.why()
            ended.set()
    finally:
        ended.set()
    assert "and is killed at " in leased.text
    assert leased.details["kill_at"] - leased.details["stop_at"] == timedelta(seconds=hasty.settings.grace)
    assert timedelta(minutes=59) < leased.details["stop_at"] - datetime.now(UTC) < timedelta(minutes=61)


def test_a_job_is_replayed_with_other_arguments(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def pay(to: str, cents: int, card: Secret[str] = "") -> str:
        if to == "nobody":
            raise Fail("who?")
        return f"{to} {cents} {card}"

    options: dict[str, Any] = {"queue": "bank", "priority": 7, "tags": ["vip"], "correlation_id": "c1"}
    old = pay.using(key="k", **options).enqueue("nobody", 5, card="4111")
    hf.drain()
    new = hf.replay(old.id, {"to": "you"}, reason="a typo", by="ops")
    assert new.created
    record = new.refresh().record
    assert (record.queue, record.priority, record.correlation_id, record.key) == ("bank", 7, "c1", None)
    assert record.tags == ("vip", f"replay:{old.id}")
    hf.drain()
    assert new.refresh().result == "you 5 4111"
    assert old.refresh().state is State.FAILED
    assert hf.replay(new.id).refresh().record.tags == ("vip", f"replay:{new.id}")
    [call] = hf.audit(job=old.id)
    assert (call.verb, call.what, call.by, call.reason) == ("replay", f"id:{old.id}", "ops", "a typo")
    assert call.parameters == {"job": new.id, "edited": ["to"]}, "names only: a value may be secret"


def test_a_replay_that_can_t_work_enqueues_nothing(hf: Holdfast) -> None:
    @hf.task
    def task(n: int) -> None: ...

    id = task.enqueue(1).id
    for wrong in ({"n": "x"}, {"m": 1}, {"self": 1}, [1]):
        with pytest.raises(BadArguments):
            hf.replay(id, wrong)  # type: ignore[arg-type]
    with pytest.raises(JobNotFound):
        hf.replay("99")
    del hf.tasks["task"], hf._names["task"]
    with pytest.raises(UnknownTask, match="there is no task 'task' in this application"):
        hf.replay(id)
    assert hf.count() == 1
    assert hf.audit() == []


def test_a_preview_counts_and_names_the_same_jobs_later_on(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    jobs = [task.enqueue() for _ in range(5)]
    jobs[0].cancel()
    found = hf.preview("cancel", "task:task since:1h")
    assert (found.verb, found.jobs, found.refused, found.capped) == ("cancel", 4, 1, False)
    assert re.fullmatch(r'task:task since:"20.*\+00:00"', found.filter)
    assert hf.cancel(found.filter) == Changed(4, 1)
    assert hf.preview("retry", "state:queued").jobs == 0
    for verb, filter in (("explode", "id:1"), ("retry", ""), ("retry", "nonsense")):
        with pytest.raises(BadArguments):
            hf.preview(verb, filter)


def test_tasks_are_summed_up_also_without_jobs(hf: Holdfast) -> None:
    @hf.task
    def idle() -> None: ...

    @hf.task
    def busy() -> None: ...

    busy.enqueue()
    busy.using(queue="other", delay=60).enqueue()
    found = [(task.task, task.due, task.scheduled) for task in hf.task_summaries()]
    assert found == [("busy", 1, 1), ("idle", 0, 0)]
