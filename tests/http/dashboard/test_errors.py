"""Failed jobs by the kind of their error, and what is done to all of a kind."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from holdfast import Holdfast
from tests.http.dashboard.looking import Looking


@pytest.fixture
def group(tasked: Holdfast) -> str:
    """Fifteen jobs failed alike, and one otherwise."""

    @tasked.task(max_attempts=1)
    def load(row: int) -> None:
        raise ValueError(f"row {row}: no price <b>")

    tasked.enqueue_many(load.bind(n) for n in range(15))
    tasked.tasks["fail"].enqueue("other")
    tasked.drain()
    return tasked.error_groups()[0].id


def test_groups_are_listed_with_how_many_how_often_and_since_when(
    tasked: Holdfast, looking: Looking, group: str
) -> None:
    rows = looking.at("/errors").rows()
    assert next(iter(rows)) == f"group-{group}", "the largest first"
    assert len(rows) == 2
    assert re.match(r"ValueError row \d+: no price <b> 15 .* ago .* ago load", rows[f"group-{group}"])
    html = looking.at("/errors").html
    assert 'aria-label="15 in the last day"' in html
    assert "no price &lt;b&gt;" in html


def test_a_group_shows_an_example_and_leads_to_its_jobs(tasked: Holdfast, looking: Looking, group: str) -> None:
    seen = looking.at(f"/errors/{group}")
    assert "15 failed" in seen.text
    assert "15 errors in the last day" in seen.text
    assert "raise ValueError(f" in seen.text
    assert '<pre class="mine">' in seen.html
    assert len(seen.rows()) == 10
    jobs = looking.at(seen.link("All of them"))
    assert len(jobs.rows()) == 15
    assert f"group:{group}" in jobs.field("filter")


def buttons(html: str) -> dict[str, dict[str, str]]:
    """The hidden fields of each form, by its button."""
    found = {}
    for form in re.findall(r'<form method="post" action="[^"]*bulk/start".*?</form>', html, re.DOTALL):
        [label] = re.findall(r"<button[^>]*>(.*?)</button>", form)
        found[label] = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    return found


def test_its_buttons_retry_ten_first_then_all_over_ten_minutes(tasked: Holdfast, looking: Looking, group: str) -> None:
    forms = buttons(looking.at(f"/errors/{group}").html)
    assert forms.keys() == {"Retry these 15", "Ten first", "Over ten minutes", "Dismiss"}
    ten = looking.send("/bulk/start", **forms["Ten first"], reason="a try")
    assert (ten.said, ten.path) == ("Retried 10 jobs.", f"/errors/{group}")
    assert "5 failed" in ten.text
    assert buttons(ten.html).keys() == {"Retry these 5", "Dismiss"}
    looking.send("/bulk/start", **forms["Over ten minutes"])
    ahead = [job.record.run_at for job in tasked.jobs("task:load state:scheduled")]
    assert len(ahead) == 4, "the first of five is due at once"
    assert timedelta(minutes=5) < max(ahead) - min(ahead) < timedelta(minutes=10)
    assert tasked.count(f"state:failed group:{group}") == 0
    spread = tasked.audit(verb="retry")[0]
    assert spread.parameters == {"spread": 600.0}
    empty = looking.at(f"/errors/{group}")
    assert "No job has this error now." in empty.text
    assert "15 such errors happened in the last day" in empty.text


def test_dismissed_jobs_leave_the_list_and_keep_their_errors(tasked: Holdfast, looking: Looking, group: str) -> None:
    forms = buttons(looking.at(f"/errors/{group}").html)
    assert looking.send("/bulk/start", **forms["Dismiss"], reason="known").said == "Cancelled 15 jobs."
    assert f"group-{group}" not in looking.at("/errors").rows()
    assert tasked.job("1").error is not None
    assert [(call.verb, call.changed, call.reason) for call in tasked.audit()] == [("cancel", 15, "known")]


def test_jobs_that_are_tried_again_have_groups_of_their_own(tasked: Holdfast, looking: Looking) -> None:
    @tasked.task(max_attempts=3, retry=[3600])
    def flaky() -> None:
        raise ConnectionError("down")

    flaky.enqueue()
    tasked.drain()
    assert "No failed jobs." in looking.at("/errors").text
    seen = looking.at("/errors", of="retrying")
    [row] = seen.rows()
    assert "ConnectionError" in seen.text
    group = looking.at(f"/errors/{row.removeprefix('group-')}")
    assert "1 tried again" in group.text
    assert buttons(group.html) == {}, "they are tried again without help"


@pytest.mark.parametrize("group", ["x", "0123456789abcdef", "ABCDEF0123", "' or 1=1", "%00", "<script>"])
def test_what_is_no_group_is_not_found(looking: Looking, group: str) -> None:
    seen = looking.at(f"/errors/{group}")
    assert seen.status == 404
    assert "<script>x" not in seen.html


def test_who_may_only_look_is_offered_no_verb(viewing: Looking, group: str) -> None:
    seen = viewing.at(f"/errors/{group}")
    assert "15 failed" in seen.text
    assert 'method="post"' not in seen.html
    assert "bulk/new" not in seen.html
