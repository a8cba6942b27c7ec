"""Queues, workers, schedules and the audit: what they show, and that their forms do what they say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from holdfast import Holdfast
from holdfast.http.dashboard.schedules import change_of_clocks
from holdfast.model.cron import Schedule
from tests.contract.test_workers import register
from tests.factories import claim
from tests.http.asking import Ask
from tests.http.dashboard.looking import Looking
from tests.http.test_operators import failed
from tests.running import working
from tests.waiting import wait_until


def audited(app: Holdfast) -> list[tuple[str, str, str | None]]:
    return [(call.verb, call.what, call.reason) for call in app.audit()]


@pytest.fixture
def admin(tasked: Holdfast) -> Looking:
    return Looking(tasked, "admin")


def buttons(html: str) -> list[str]:
    return re.findall(r'<form method="post" action="([^"]*)"', html)


# -- queues ------------------------------------------------------------------------------------------------------------


def test_a_queue_is_shown_with_its_numbers_tasks_and_workers(tasked: Holdfast, looking: Looking) -> None:
    failed(tasked, 2)
    for _ in range(3):
        tasked.tasks["add"].enqueue(1)
    tasked.tasks["add"].using(delay=600).enqueue(1)
    register(tasked.store, queues=["default", "spare"])
    seen = looking.at("/queues")
    row = seen.rows()["queue-default"]
    assert re.search(r"3 1 0 2 0 \S+ ago [\d.]+ [\d.]+ ", row), row
    assert "add 3 due, 0 running, 0 failed" in row
    assert "fail 0 due, 0 running, 2 failed" in row
    assert "0 0 0 0 0" in seen.rows()["queue-spare"]
    assert looking.at(seen.link("2")).rows().keys() == {f"job-{job.id}" for job in tasked.jobs("state:failed")}


def test_a_queue_that_nobody_serves_says_how_to(tasked: Holdfast, looking: Looking) -> None:
    tasked.tasks["add"].using(queue="mail").enqueue(1)
    assert "holdfast worker APP -q mail" in looking.at("/queues").rows()["queue-mail"]


def test_a_queue_is_paused_for_a_time_with_a_reason_and_resumed(tasked: Holdfast, looking: Looking) -> None:
    tasked.tasks["add"].enqueue(1)
    form = {"queue": "default", "reason": "the provider is down", "back": "/queues"}
    done = looking.send("/queues/pause", **form, **{"for": "1h"})
    assert "The queue default is paused until" in done.said
    assert done.path == "/queues"
    [pause] = tasked.pauses()
    assert pause.until is not None
    assert timedelta(minutes=59) < pause.until - tasked.store.reads.now() <= timedelta(hours=1)
    assert "the provider is down, ends in" in done.rows()["queue-default"]
    assert "not while it is paused" in done.rows()["queue-default"]
    resumed = looking.send("/queues/resume", queue="default", reason="it is back", back="/queues")
    assert (resumed.said, tasked.pauses()) == ("The queue default goes on.", [])
    again = looking.send("/queues/resume", queue="default", back="/queues")
    assert again.said == "The queue default was not paused."
    assert ("resume_queue", "default", "it is back") in audited(tasked)
    assert ("pause_queue", "default", "the provider is down") in audited(tasked)


def test_a_task_is_paused_until_it_is_resumed(tasked: Holdfast, looking: Looking) -> None:
    tasked.tasks["add"].enqueue(1)
    done = looking.send("/tasks/pause", task="add", reason="a bug", back="/queues", **{"for": ""})
    assert done.said == "The task add is paused."
    assert [(pause.kind, pause.name, pause.until) for pause in tasked.pauses()] == [("task", "add", None)]
    assert "paused by" in done.rows()["queue-default"]
    assert looking.send("/tasks/resume", task="add", back="/queues").said == "The task add goes on."
    assert not tasked.pauses()
    assert ("pause_task", "add", "a bug") in audited(tasked)


def test_a_pause_by_filter_is_listed_with_what_it_holds_and_ended(tasked: Holdfast, looking: Looking) -> None:
    tasked.tasks["add"].enqueue(1, b=7)
    made = tasked.pause_matching("task:add args.b:7", reason="a bad customer", by="ops")
    seen = looking.at("/queues")
    row = seen.rows()[f"filter-{made.name}"]
    assert f"{made.name} 1" in row
    assert "by ops: a bad customer" in row
    assert looking.send("/filters/resume", filter=made.name, back="/queues").said == f"The jobs with {made.name} go on."
    assert not tasked.pauses()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/queues/pause", "which queue?"), ("/tasks/pause", "which task?"), ("/filters/resume", "which filter?"),
        ("/schedules/run", "which schedule?"),
    ],
)  # fmt: skip
def test_a_form_without_a_name_is_refused(looking: Looking, path: str, said: str) -> None:
    done = looking.send(path, back="/queues")
    assert (said in done.said, done.wrong) == (True, True)


def test_a_pause_that_lasts_for_nonsense_is_refused(tasked: Holdfast, looking: Looking) -> None:
    done = looking.send("/queues/pause", queue="default", back="/queues", **{"for": "a while"})
    assert done.wrong
    assert not tasked.pauses()


def test_no_queues_yet(looking: Looking) -> None:
    assert "There are no queues yet." in looking.at("/queues").text


# -- workers -----------------------------------------------------------------------------------------------------------


def test_a_worker_is_shown_with_what_it_does_and_stopped_with_a_reason(tasked: Holdfast, admin: Looking) -> None:
    with working(tasked, ["default", "mail"]) as worker:
        wait_until(lambda: tasked.workers() and tasked.workers()[0].memory)
        row = admin.at("/workers").rows()[f"worker-{worker.id}"]
        [record] = tasked.workers()
        assert f"{record.host}, pid {record.pid}, Holdfast" in row
        assert f"0 of {record.slots} default , mail 3 tasks" in row
        assert re.search(r"\d+ MB", row)
        assert re.search(r"Holdfast \d", row)
        done = admin.send("/workers/stop", worker=worker.id, reason="a new version", back="/workers")
        assert done.said.startswith(f"Asked worker {worker.id} to stop")
    assert ("stop_worker", worker.id, "a new version") in audited(tasked)


def test_what_a_worker_runs_is_a_link(tasked: Holdfast, admin: Looking) -> None:
    register(tasked.store, "w1", slots=4)
    job = tasked.tasks["add"].enqueue(1)
    assert claim(tasked.store, worker="w1", tasks=("add",)).jobs
    seen = admin.at("/workers")
    row = seen.rows()["worker-w1"]
    assert "1 of 4" in row
    assert "1 the first ends in" in row
    assert admin.at(seen.link("1 of 4")).rows().keys() == {f"job-{job.id}"}


def test_states_of_workers_are_explained(tasked: Holdfast, looking: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tasked.store, "asked", lease=600)
    tasked.stop_worker("asked", reason="an update", by="ops")
    register(tasked.store, "gone", lease=0.001)
    monkeypatch.setattr("holdfast.model.job.LATE", 0.0)
    wait_until(lambda: tasked.workers()[1].state == "silent")
    rows = looking.at("/workers").rows()
    assert "stopping It was asked to stop" in rows["worker-asked"]
    assert "by ops: an update." in rows["worker-asked"]
    assert "silent It was not heard of for two leases" in rows["worker-gone"]


def test_no_workers_yet(looking: Looking) -> None:
    seen = looking.at("/workers")
    assert "No worker has registered." in seen.text
    assert "holdfast worker APP" in seen.text


# -- schedules ---------------------------------------------------------------------------------------------------------


def test_a_schedule_is_added_shown_run_paused_resumed_and_removed(tasked: Holdfast, admin: Looking) -> None:
    done = admin.send(
        "/schedules/add", name="sums", task="add", cron="30 6 * * MON-FRI", timezone="Europe/Berlin",
        args='{"a": 40, "b": 2}', reason="wanted", back="/schedules",
    )  # fmt: skip
    assert done.said == "The schedule sums enqueues add at 06:30, Monday to Friday (Europe/Berlin)."
    row = done.rows()["schedule-sums"]
    assert "at 06:30, Monday to Friday 30 6 * * MON-FRI Europe/Berlin" in row
    assert len(re.findall(r"(?:Mon|Tue|Wed|Thu|Fri) \d{4}-\d\d-\d\d 06:30", row)) == 5
    assert "nobody fires it" in row

    ran = admin.send("/schedules/run", name="sums", reason="now", back="/schedules")
    [job] = tasked.jobs("task:add")
    assert (ran.said, job.args) == (f"Enqueued job {job.id} for sums.", {"a": 40, "b": 2})
    assert ran.link(job.id) == f"/jobs/{job.id}"

    paused = admin.send("/schedules/pause", name="sums", reason="holidays", back="/schedules", **{"for": "1d"})
    assert "holidays, ends in" in paused.rows()["schedule-sums"]
    assert tasked.crons()[0].paused
    assert "goes on" in admin.send("/schedules/resume", name="sums", back="/schedules").said
    assert not tasked.crons()[0].paused

    removed = admin.send("/schedules/remove", name="sums", reason="done", back="/schedules")
    assert removed.said == "The schedule sums is removed. Jobs that it has enqueued stay."
    assert not tasked.crons()
    assert [verb for verb, what, _ in audited(tasked) if what == "sums"] == [
        "unschedule", "resume_cron", "pause_cron", "run_cron", "schedule"
    ]  # fmt: skip
    assert ("schedule", "sums", "wanted") in audited(tasked)
    assert admin.send("/schedules/remove", name="sums", back="/schedules").wrong


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cron": "every day"}, "is not a cron expression"), ({"timezone": "Mars"}, "is not known here"),
        ({"args": "[1]"}, "a JSON object"), ({"args": "{"}, "not JSON"), ({"args": '{"a": "x"}'}, "a"),
        ({"task": "nothing"}, "there is no task 'nothing'"), ({"name": ""}, "name"),
    ],
)  # fmt: skip
def test_a_schedule_that_is_refused_keeps_what_was_typed(
    tasked: Holdfast, admin: Looking, change: dict[str, str], said: str
) -> None:
    typed = {"name": "sums", "task": "add", "cron": "5 4 * * *", "timezone": "UTC", "args": '{"a": 1}', **change}
    done = admin.send("/schedules/add", **typed, back="/schedules")
    assert done.wrong
    assert said in done.said
    assert done.field("cron") == typed["cron"]
    assert '<details class="panel add" id="add" open>' in done.html
    assert not tasked.crons()


def test_a_schedule_in_the_code_can_be_paused_and_run_but_not_removed(hf: Holdfast) -> None:
    @hf.task(cron="*/5 * * * *")
    def tick() -> None: ...

    with working(hf):
        wait_until(hf.crons)
        seen = Looking(hf, "admin").at("/schedules")
        row = seen.rows()["schedule-tick"]
        assert "every 5 minutes" in row
        assert "declared in the code" in row
        assert sorted(buttons(seen.html)) == ["schedules/add", "schedules/pause", "schedules/run"]


def test_last_runs_are_those_of_the_schedule_alone(tasked: Holdfast, admin: Looking) -> None:
    add = tasked.tasks["add"]
    for name in ("sums", "sums2"):
        tasked.schedule(name, add.bind(1), cron="0 0 1 1 *")
    add.enqueue(1)
    mine, other = tasked.run_cron("sums").id, tasked.run_cron("sums2").id
    rows = admin.at("/schedules").rows()
    assert f"{mine} queued" in rows["schedule-sums"]
    assert f"{other} queued" not in rows["schedule-sums"]
    assert f"{other} queued" in rows["schedule-sums2"]


def test_a_change_of_the_clocks_between_the_next_ticks_is_told() -> None:
    zone = ZoneInfo("Europe/Berlin")
    before = datetime(2026, 3, 26, 12, tzinfo=UTC)
    ticks = [tick.astimezone(zone) for tick in Schedule("0 6 * * *", "Europe/Berlin").first(5, before)]
    said = "The clocks go ahead before 2026-03-29 06:00: from UTC+0100 to UTC+0200."
    assert change_of_clocks(before.astimezone(zone), ticks) == said
    assert change_of_clocks(before.astimezone(zone), ticks[:2]) == ""
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC).astimezone(zone)
    later = [tick.astimezone(zone) for tick in Schedule("0 6 * * *", "Europe/Berlin").first(1, autumn)]
    assert change_of_clocks(autumn, later).startswith("The clocks go back before 2026-10-25 06:00")


def test_nothing_is_scheduled_yet(looking: Looking) -> None:
    seen = looking.at("/schedules")
    assert "Nothing is scheduled." in seen.text
    assert "holdfast cron add" in seen.text


# -- the audit ---------------------------------------------------------------------------------------------------------


def test_the_audit_is_filtered_and_paged(tasked: Holdfast, viewing: Looking) -> None:
    for n in range(60):
        tasked.pause_queue(f"q{n}", reason=f"reason {n}", by="ops" if n % 2 else "eve")
    job = tasked.tasks["add"].enqueue(1)
    job.cancel("not wanted", by="eve")
    first = viewing.at("/audit")
    newest = first.rows()
    assert len(newest) == 50
    second = viewing.at(first.link("Older"))
    assert len(second.rows()) == 11
    assert not newest.keys() & second.rows().keys()
    assert viewing.at(second.link("Newest")).rows().keys() == newest.keys()
    assert len(viewing.at("/audit", by="eve", verb="pause_queue").rows()) == 30
    [only] = viewing.at("/audit", what="q7", by="ops").rows().values()
    assert re.search(r"ago ops pause_queue q7 reason 7 1 changed", only), only
    [cancelled] = viewing.at("/audit", verb="cancel").rows().values()
    assert "eve cancel" in cancelled
    assert "not wanted" in cancelled


def test_what_was_done_leads_to_what_it_was_done_to(tasked: Holdfast, viewing: Looking) -> None:
    job = tasked.tasks["add"].enqueue(1)
    job.cancel(by="eve")
    tasked.retry("task:add", by="eve")
    tasked.pause_queue("mail", until="4h", by="eve")
    tasked.schedule("sums", tasked.tasks["add"].bind(1), cron="0 0 1 1 *", by="eve")
    seen = viewing.at("/audit")
    assert seen.link("mail") == "/queues"
    assert "delay 4h" in seen.text
    assert seen.link("sums") == "/schedules"
    assert seen.link("task:add") == "/jobs?filter=task%3Aadd"
    assert seen.link(f"id:{job.id}") == f"/jobs/{job.id}"


def test_an_audit_without_calls_says_why(tasked: Holdfast, viewing: Looking) -> None:
    assert "Nobody did anything yet." in viewing.at("/audit").text
    assert "No call is like that." in viewing.at("/audit", by="nobody").text
    assert viewing.at("/audit", verb="explode").status == 422


# -- roles -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["/", "/queues", "/workers", "/schedules", "/audit"])
def test_each_role_sees_only_the_forms_it_may_send(tasked: Holdfast, page: str) -> None:
    register(tasked.store)
    tasked.tasks["add"].enqueue(1)
    tasked.schedule("sums", tasked.tasks["add"].bind(1), cron="0 0 1 1 *")
    tasked.pause_matching("task:add args.b:7")
    offered = {role: set(buttons(Looking(tasked, role).at(page).html)) for role in ("viewer", "operator", "admin")}
    admins = {"/workers": {"workers/stop"}, "/schedules": {"schedules/remove", "schedules/add"}}.get(page, set[str]())
    assert offered["viewer"] == set()
    assert offered["admin"] - offered["operator"] == admins
    assert (offered["operator"] != set()) == (page in ("/queues", "/schedules"))
    for action in offered["admin"]:
        assert Ask(tasked.asgi(open="viewer")).post(f"/{action}", data={}).status_code == 403
