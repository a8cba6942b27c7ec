"""The list of jobs, its filter, and a verb on those that were selected."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from holdfast import Holdfast, JobContext
from holdfast.model.filter import QUALIFIERS
from tests.http.dashboard.looking import Looking
from tests.running import working
from tests.waiting import PATIENCE, wait_until


def enqueue(app: Holdfast, n: int, **options: Any) -> list[str]:
    add = app.tasks["add"].using(**options) if options else app.tasks["add"]
    return [job.id for job in app.enqueue_many(add.bind(i) for i in range(n))]


def test_it_lists_the_newest_first_with_what_matters_about_each(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 2, queue="mail", priority=3)
    failed = tasked.tasks["fail"].enqueue("no such host")
    tasked.drain()
    [late] = enqueue(tasked, 1, delay=3600)
    rows = looking.at("/jobs").rows()
    assert list(rows) == [f"job-{late}", f"job-{failed.id}", "job-2", "job-1"]
    assert rows[f"job-{late}"].startswith(f"{late} add a=0 default scheduled 0/3 due in ")
    assert "failed 1/1" in rows[f"job-{failed.id}"]
    assert "ValueError no such host" in rows[f"job-{failed.id}"]
    assert "mail succeeded 1/3 succeeded" in rows["job-1"]


def test_a_filter_selects_and_its_words_can_be_taken_off(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 2, queue="mail")
    enqueue(tasked, 1, queue="a b")
    seen = looking.at("/jobs", filter='queue:"a b" state:queued')
    assert list(seen.rows()) == ["job-3"]
    assert looking.at("/jobs").rows().keys() == {"job-1", "job-2", "job-3"}
    removed = re.search(r'href="(jobs[^"]*)" aria-label="Remove queue:', seen.html)
    assert removed is not None
    assert list(looking.at("/" + removed[1]).rows()) == ["job-3", "job-2", "job-1"]
    assert looking.at(seen.link("failed")).rows() == {}
    assert 'value="state:failed queue:&#34;a b&#34;"' in looking.at(seen.link("failed")).html


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("state:faild", "there is no state 'faild', perhaps 'failed'"),
        ("queu:mail", "there is no qualifier 'queu', perhaps 'queue'"),
        ("since:yesterday", "since:yesterday is no time"),
        ("id:x", "there is no job 'x'"),
        ("group:xyz", "names no group"),
        ("\x00", "not a character"),
        ('error:"<script>alert(1)</script>" nonsense', "nonsense"),
        ("args.:1", "names no argument"),
        ("tag:" + "x" * 1001, "too long"),
    ],
)
def test_a_wrong_filter_is_explained_and_stays_as_it_was_typed(looking: Looking, wrong: str, said: str) -> None:
    seen = looking.at("/jobs", filter=wrong)
    assert seen.status == 200
    assert said in seen.element("filter-wrong")
    assert seen.field("filter") == wrong
    assert seen.rows() == {}
    assert "<script>alert" not in seen.html


def test_pages_lead_older_and_newer_and_say_where_they_end(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 120)
    first = looking.at("/jobs", filter="task:add")
    second = looking.at(first.link("Older →"))
    third = looking.at(second.link("Older →"))
    assert [len(page.rows()) for page in (first, second, third)] == [50, 50, 20]
    assert first.rows().keys() | second.rows().keys() | third.rows().keys() == {f"job-{n}" for n in range(1, 121)}
    assert "That is all." in third.text
    assert "Newer" not in first.text
    again = looking.at(third.link("← Newer"))
    assert again.rows().keys() == second.rows().keys()
    assert looking.at(again.link("← Newer")).rows().keys() == first.rows().keys()
    assert looking.at("/jobs", before="1e9", trail="x.y").status == 200, "nobody falls over an address that was made up"


def test_a_search_that_was_cut_short_says_so_and_goes_on(
    tasked: Holdfast, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.reads.STEP", 10)
    monkeypatch.setattr("holdfast.http.dashboard.shown.WINDOW", 20)
    enqueue(tasked, 1, queue="rare")
    enqueue(tasked, 60)
    seen = looking.at("/jobs", filter="queue:rare")
    steps = 0
    while not seen.rows():
        assert "there are older ones" in seen.text
        seen = looking.at(seen.link("Go on searching →"))
        steps += 1
    assert list(seen.rows()) == ["job-1"]
    assert steps == 3


def test_an_empty_list_says_what_to_do(looking: Looking) -> None:
    assert "holdfast enqueue TASK" in looking.at("/jobs").text
    assert "No job matches." in looking.at("/jobs", filter="queue:mail").text


def test_progress_of_running_jobs_is_shown(hasty: Holdfast) -> None:
    seen = threading.Event()

    @hasty.task
    def long(ctx: JobContext) -> None:
        ctx.progress(3, total=12, note="page three")
        assert seen.wait(PATIENCE)

    job = long.enqueue()
    with working(hasty):
        wait_until(lambda: job.refresh().progress)
        row = Looking(hasty).at("/jobs", filter="state:running").rows()[f"job-{job.id}"]
        seen.set()
    assert "3 of 12 (25%)" in row
    assert "page three" in row


# -- suggestions -------------------------------------------------------------------------------------------------------


def suggested(looking: Looking, typed: str) -> list[str]:
    return re.findall(r'data-text="([^"]*)"', looking.at("/jobs/suggest", filter=typed).html)


def test_what_is_typed_is_completed_with_what_there_is(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 1, queue="mail")
    enqueue(tasked, 1, queue='nightly "big"')
    assert suggested(looking, "sta") == ["state:"]
    assert suggested(looking, "state:fai") == ["state:failed "]
    assert suggested(looking, "state:failed,pau") == ["state:failed,paused "]
    assert suggested(looking, "state:failed queue:m") == ["state:failed queue:mail "]
    assert suggested(looking, "queue:night") == ["queue:&#34;nightly \\&#34;big\\&#34;&#34; "]
    assert suggested(looking, "hid") == ["task:hidden "], "a task that no job has yet"
    assert suggested(looking, "state:failed since:1") == ["state:failed since:15m ", "state:failed since:1h "]
    assert suggested(looking, "tag:x") == []
    offered = {text.rstrip(":.") for text in suggested(looking, "")}
    assert offered <= {name.removesuffix(".NAME") for name in QUALIFIERS}
    assert len(offered) == 12


def test_every_suggestion_is_a_filter_or_the_beginning_of_one(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 1, queue="a b: c")
    for typed in ("state:", "queue:", "task:", "since:", "fail", "add"):
        for text in suggested(looking, typed):
            if not text.endswith((":", ".")):
                assert looking.at("/jobs", filter=text.replace("&#34;", '"')).html.count("filter-wrong") == 0


def test_matches_are_counted_up_to_ten_thousand(
    tasked: Holdfast, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(tasked, 30)
    assert looking.at("/jobs/count", filter="task:add").text == "(30)"
    assert looking.at("/jobs/count", filter="task:fail").text == "(0)"
    monkeypatch.setattr("holdfast.store.reads.STEP", 10)
    monkeypatch.setattr("holdfast.http.dashboard.shown.WINDOW", 10)
    assert looking.at("/jobs/count", filter="task:add").text == "(10 or more)"
    wrong = looking.at("/jobs/count", filter="nonsense")
    assert (wrong.status, "nonsense" in wrong.text) == (422, True)


# -- selection ---------------------------------------------------------------------------------------------------------


def test_selected_jobs_are_shown_before_a_verb_is_done_to_them(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 3)
    seen = looking.send("/jobs/choose", verb="pause", id=["1", "3"], back="/jobs?filter=task:add")
    assert "Pause 2 jobs?" in seen.text
    assert seen.rows().keys() == {"job-1", "job-3"}
    assert tasked.audit() == [], "nothing has been done yet"
    form = {name: seen.field(name) for name in ("filter", "expected", "then")}
    done = looking.send("/bulk/start", verb="pause", **form)
    assert (done.said, done.path) == ("Paused 2 jobs.", "/jobs?filter=task:add")
    assert [tasked.job(id).state for id in "123"] == ["paused", "queued", "paused"]


def test_all_that_match_can_be_selected_but_never_all_there_are(tasked: Holdfast, looking: Looking) -> None:
    enqueue(tasked, 60)
    seen = looking.send("/jobs/choose", verb="cancel", all="yes", filter="task:add state:queued", back="/jobs")
    assert "Cancel 60 jobs?" in seen.text
    assert len(seen.rows()) == 5
    refused = looking.send("/jobs/choose", verb="cancel", all="yes", filter=" ", back="/jobs")
    assert (refused.wrong, "type a filter first" in refused.said) == (True, True)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"verb": "retry"}, "no job is selected"),
        ({"verb": "explode", "id": "1"}, "which verb?"),
        ({"verb": "retry", "all": "yes", "filter": "nonsense"}, "'nonsense' is no filter"),
    ],
)
def test_a_selection_that_means_nothing_is_refused_in_words(
    looking: Looking, form: dict[str, str | list[str]], said: str
) -> None:
    seen = looking.send("/jobs/choose", back="/jobs", **form)
    assert (seen.status, seen.wrong, seen.path) == (200, True, "/jobs")
    assert said in seen.said


def test_who_may_only_look_is_offered_no_selection(tasked: Holdfast, viewing: Looking) -> None:
    enqueue(tasked, 1)
    seen = viewing.at("/jobs", filter="task:add")
    assert list(seen.rows()) == ["job-1"]
    assert "checkbox" not in seen.html
    assert 'method="post"' not in seen.html
