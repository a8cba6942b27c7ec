"""The overview says what is wrong, in words that lead to the list they count, and charts what was counted."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.http.dashboard import findings as wrong
from holdfast.http.dashboard.charts import Chart, charts, spark
from holdfast.http.dashboard.overview import throughput
from holdfast.model import alerts as judged
from holdfast.model.series import GRAINS, Line, Series, Span
from tests.contract.test_workers import register
from tests.http.dashboard.looking import Looking, Seen
from tests.http.test_operators import failed
from tests.running import working
from tests.waiting import wait_until

WELL = "Nothing is wrong."


def finding(seen: Seen, id: str) -> tuple[str, str]:
    """What it says, and where it leads."""
    found = re.search(rf'<div class="finding (?:bad|warn|info)" id="finding-{id}">(.*?)</div>', seen.html, re.DOTALL)
    assert found is not None, f"there is no finding {id} in {seen.text}"
    [link] = re.findall(r'<a href="([^"]*)"', found[1])
    return Seen(200, "", found[1]).text, html.unescape(link)


def chart(seen: Seen, id: str) -> dict[str, Any]:
    found = re.search(rf'id="{id}" data-chart="([^"]*)"', seen.html)
    assert found is not None, f"there is no chart {id}"
    data: dict[str, Any] = json.loads(html.unescape(found[1]))
    return data


def test_an_empty_database_says_what_to_do_first(looking: Looking) -> None:
    seen = looking.at("/")
    assert "Nothing is here yet." in seen.text
    assert "holdfast worker APP" in seen.text


def test_if_nothing_is_wrong_it_says_so(tasked: Holdfast, viewing: Looking) -> None:
    with working(tasked):
        tasked.tasks["add"].enqueue(1).wait(timeout=30)
        wait_until(lambda: tasked.workers())
        seen = viewing.at("/")
    assert WELL in seen.text
    assert "1 workers up" in seen.text
    assert not re.search(r'class="finding (bad|warn)"', seen.html)


def test_a_queue_that_nobody_serves_is_named_with_the_command_that_helps(tasked: Holdfast, viewing: Looking) -> None:
    for _ in range(3):
        tasked.tasks["add"].using(queue="mail").enqueue(1)
    seen = viewing.at("/")
    text, link = finding(seen, "unserved-mail")
    assert "No worker serves queue mail: 3 jobs are due; the oldest became due" in text
    assert "holdfast worker APP -q mail" in text
    assert WELL not in seen.text
    listed = viewing.at("/" + link)
    assert len(listed.rows()) == 3


def test_a_task_that_no_worker_has_is_named_with_its_like(tasked: Holdfast, viewing: Looking) -> None:
    register(tasked.store, tasks=["adds"])
    tasked.tasks["add"].enqueue(1)
    text, _ = finding(viewing.at("/"), "task-default-add")
    assert "Workers serve queue default, but none has task add (like it: adds): 1 job of it is due" in text


def test_errors_of_the_last_hour_are_grouped_and_counted(tasked: Holdfast, viewing: Looking) -> None:
    failed(tasked, 3, "the disk is full")
    [group] = tasked.error_groups()
    text, link = finding(viewing.at("/"), f"group-{group.id}")
    assert "3 jobs of fail failed within the hour with ValueError: the disk is full" in text
    assert len(viewing.at("/" + link).rows()) == 3


def test_many_kinds_of_errors_are_summed_up(tasked: Holdfast, viewing: Looking) -> None:
    for kind in ("wind", "sun", "rain", "snow", "hail", "fog", "frost"):
        failed(tasked, 1, f"too much {kind}")
    text, link = finding(viewing.at("/"), "groups")
    assert "2 more jobs failed within the hour, with errors of 2 other kinds." in text
    assert link == "errors"


def test_a_worker_that_is_silent_is_named(tasked: Holdfast, viewing: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tasked.store, "w1", lease=0.001)
    monkeypatch.setattr("holdfast.model.job.LATE", 0.0)
    wait_until(lambda: not tasked.store.workers.all()[0].alive(tasked.store.reads.now()))
    seen = viewing.at("/")
    text, link = finding(seen, "silent-w1")
    assert "Worker w1 is silent" in text
    assert link == "workers#worker-w1"
    assert "No worker is up" in finding(seen, "no-worker")[0]
    assert 'id="worker-w1"' in viewing.at("/workers").html


@pytest.mark.parametrize(
    ("name", "subject", "to"),
    [
        ("queue_depth", "mail", "jobs?filter=queue%3Amail%20state%3Aqueued"),
        ("failed_spike", "", "errors"),
        ("slow_jobs", "add", "jobs?filter=task%3Aadd"),
        ("job_age", "mail", "jobs?filter=queue%3Amail%20state%3Aqueued"),
        ("worker_unhealthy", "w1", "workers"),
    ],
)
def test_an_alert_is_named_while_it_stands(
    tasked: Holdfast, viewing: Looking, name: str, subject: str, to: str
) -> None:
    register(tasked.store)
    begun = tasked.store.alerts.begin(judged.Finding(name, subject, "this is too much", 7.0))
    assert begun is not None
    text, link = finding(viewing.at("/"), f"alert-{begun.id}")
    assert f"Alert: this is too much; {begun.advice}." in text
    assert link == to
    assert viewing.at("/" + link).status == 200
    [standing] = tasked.store.alerts.standing()
    tasked.store.alerts.end(standing)
    assert WELL in viewing.at("/").text


def test_pauses_say_who_why_and_until_when_and_are_not_wrong(tasked: Holdfast, viewing: Looking) -> None:
    register(tasked.store)
    tasked.pause_queue("mail", reason="the provider is down", until=timedelta(hours=1), by="ops")
    tasked.pause_task("add", by="ops")
    tasked.pause_matching("queue:default args.b:7", by="ops")
    tasked.tasks["add"].using(queue="mail").enqueue(1)
    seen = viewing.at("/")
    assert WELL in seen.text
    assert "Queue mail is paused by ops: the provider is down, ends in" in finding(seen, "pause-queue-mail")[0]
    assert "Task add is paused by ops, until somebody resumes" in finding(seen, "pause-task-add")[0]
    assert "args.b:7 are paused by ops" in seen.text
    assert "not while it is paused" in seen.rows()["waits-mail"]


def test_jobs_that_wait_for_long_are_named(tasked: Holdfast, viewing: Looking, monkeypatch: pytest.MonkeyPatch) -> None:
    register(tasked.store, tasks=["add", "fail", "hidden"])
    tasked.tasks["add"].enqueue(1)
    assert WELL in viewing.at("/").text
    monkeypatch.setattr(wrong, "LATE", timedelta(0))
    text, link = finding(Looking(tasked, "viewer").at("/"), "late-default")
    assert "Queue default is late: 1 job of it waits; the oldest became due" in text
    assert "(nothing finishes: never at this rate)" in text or "(growing: never at this rate)" in text
    assert len(viewing.at("/" + link).rows()) == 1


def test_tiles_and_charts_show_what_was_counted(tasked: Holdfast, viewing: Looking) -> None:
    for n in range(4):
        tasked.tasks["add"].enqueue(n)
    failed(tasked, 1)
    tasked.tasks["add"].using(delay=60).enqueue(1)
    seen = viewing.at("/", range="day")
    assert "1 failed" in seen.text
    assert seen.link("1 failed").startswith("/jobs?filter=state%3Afailed")
    waits = chart(seen, "chart-wait")
    assert (len(waits["at"]), waits["unit"]) == (96, "ms")
    assert [line["name"] for line in waits["lines"]] == ["p50", "p95"]
    # Two, if a quarter of an hour began just then.
    assert {sum(value is not None for value in line["values"]) for line in waits["lines"]} <= {1, 2}
    by_queue = viewing.at("/", range="hour", by="queue")
    assert {line["name"] for line in chart(by_queue, "chart-wait")["lines"]} == {"default"}
    assert [line["name"] for line in chart(viewing.at("/"), "chart-run")["lines"]] == ["p50", "p95"]


@pytest.mark.parametrize("page", ["/", "/queues"])
def test_the_number_of_queued_jobs_leads_to_as_many(tasked: Holdfast, viewing: Looking, page: str) -> None:
    """The list has those that are not due yet, too."""
    tasked.enqueue_many(tasked.tasks["add"].bind(n) for n in range(3))
    assert viewing.at(page).link("3 due")
    tasked.enqueue_many(tasked.tasks["add"].using(delay=60).bind(n) for n in range(2))
    listed = viewing.at(viewing.at(page).link("3 due, 2 later"))
    assert len(listed.rows()) == 5


def drawn(span: Span, *, jobs: list[Line], run: list[Line]) -> dict[str, Chart]:
    found = charts(Series(span, "queue", GRAINS[span][1], [datetime.now(UTC)] * 2, jobs, run, run))
    return {chart.id: chart for chart in found}


@pytest.mark.parametrize(("current", "expected"), [(None, 4.0), (26.0, 9.0)])
def test_the_throughput_has_the_current_minute_as_soon_as_its_rate_is_known(
    current: float | None, expected: float
) -> None:
    """So that it is not 0 a minute after the first job."""
    succeeded = [90.0, 0.0, 5.0, 4.0, 6.0, 0.0, None if current is None else current + 2.0]
    failed = [90.0, 0.0, 5.0, 0.0, 0.0, 0.0, None if current is None else 6.0]
    jobs = [Line("succeeded", succeeded), Line("failed", failed), Line("enqueued", [50.0] * 7)]
    assert throughput(Series("hour", "outcome", 60, [], jobs, [], [])) == expected


def test_a_queue_has_one_colour_in_all_charts() -> None:
    """Also where another queue has nothing to show, as one whose jobs were cancelled before they ran."""
    mail = Line("mail", [1.0, 2.0])
    found = drawn("hour", jobs=[Line("exports", [3.0, 0.0]), mail], run=[Line("exports", [None, None]), mail])
    of = {
        id: {line["name"]: line["colour"] for line in json.loads(found[id].data)["lines"]}
        for id in ("chart-jobs", "chart-run")
    }
    assert of == {"chart-jobs": {"exports": 0, "mail": 1}, "chart-run": {"mail": 1}}


def test_where_the_first_rate_is_not_known_yet_a_chart_does_not_say_that_nothing_happened() -> None:
    found = drawn("week", jobs=[Line("mail", [0.0, None])], run=[Line("mail", [None, 40.0])])
    assert found["chart-run"].drawn
    assert found["chart-jobs"].empty == "Nothing to draw yet: a rate is known once 45m were counted."
    found = drawn("week", jobs=[Line("mail", [0.0, None])], run=[Line("mail", [None, None])])
    assert found["chart-jobs"].empty == "Nothing happened in this time."


def test_a_chart_is_a_table_too(tasked: Holdfast, viewing: Looking) -> None:
    failed(tasked, 1)
    seen = viewing.at("/")
    [table] = re.findall(r'id="chart-run-table">(.*?)</details>', seen.html, re.DOTALL)
    assert re.fullmatch(r".* From p50 p95( \d{4}-\d\d-\d\d \d\d:\d\d UTC \S+ \S+){1,2}", Seen(200, "", table).text)


def test_a_chart_of_a_time_without_jobs_says_so(tasked: Holdfast, viewing: Looking) -> None:
    register(tasked.store)
    seen = viewing.at("/", range="month")
    assert seen.text.count("Nothing happened in this time.") == 3
    assert "data-chart" not in seen.html


@pytest.mark.parametrize("query", [{"range": "year"}, {"by": "colour"}])
def test_a_range_that_there_is_not_is_refused(viewing: Looking, query: dict[str, str]) -> None:
    seen = viewing.at("/", **query)
    assert seen.status == 422
    assert "the address" in seen.text


def test_a_sparkline_spans_its_box_and_leaves_out_what_is_not_known() -> None:
    assert spark([0.0, 5.0, 10.0, None]) == "M0.0,21.0L45.0,11.0L90.0,1.0"
    assert spark([0.0, None, 0.0]) == spark([]) == spark([7.0]) == ""
