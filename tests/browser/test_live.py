"""Pages that are live: they follow what happens and leave alone what somebody does with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.http.dashboard import site, views
from holdfast.http.dashboard.pages import page_at
from tests.browser.conftest import Open
from tests.browser.shop import gates
from tests.http.test_browser import served
from tests.running import working
from tests.waiting import wait_until


def unmoved(page: Page) -> None:
    """Remember that this page is still the one that was opened: it was never loaded again."""
    page.evaluate("window.unmoved = true")


def test_a_job_s_whole_life_is_seen_without_a_reload(shop: Holdfast, site: str, opened: Open) -> None:
    job = shop.tasks["render"].enqueue("film", 3)
    page = opened(f"{site}/jobs/{job.id}")
    unmoved(page)
    state = page.locator(".facts-line .state").first
    expect(state).to_have_text("queued")
    with working(shop):
        expect(state).to_have_text("running")
        expect(page.locator("progress")).to_be_visible()
        for scene in range(3):
            expect(page.get_by_text(f"scene {scene + 1}").first).to_be_visible()
            gates[f"film {scene}"].set()
        expect(state).to_have_text("succeeded")
    expect(page.locator("#result")).to_have_text('"film.mp4"')
    assert page.evaluate("window.unmoved")


def test_a_running_job_is_paused_and_resumed(shop: Holdfast, site: str, opened: Open) -> None:
    job = shop.tasks["render"].enqueue("film", 2)
    with working(shop):
        page = opened(f"{site}/jobs/{job.id}")
        state = page.locator(".facts-line .state").first
        expect(state).to_have_text("running")
        gates["film 0"].set()
        expect(page.get_by_text("scene 2").first).to_be_visible()
        page.locator("#do-pause > summary").click()
        page.locator("#do-pause input[name=reason]").fill("the disk is full")
        page.locator("#do-pause form button").click()
        expect(state).to_have_text("paused")
        assert job.refresh().record.state == "paused"
        gates["film 1"].set()
        page.locator("#do-resume > summary").click()
        page.locator("#do-resume form button").click()
        expect(state).to_have_text("succeeded")
    reasons = {(call.verb, call.reason) for call in shop.audit()}
    assert {("pause", "the disk is full"), ("resume", None)} <= reasons


def test_a_job_is_replayed_with_other_arguments(shop: Holdfast, site: str, opened: Open) -> None:
    big = 2**70
    job = shop.tasks["load"].enqueue(big)
    page = opened(f"{site}/jobs/{job.id}")
    expect(page.locator("#arguments")).to_contain_text(str(big))  # not rounded by a browser's numbers
    page.get_by_role("link", name="Replay…").click()
    args = page.locator("textarea#args")
    args.fill('{"row": "many"}')
    page.get_by_role("button", name="Enqueue it").click()
    expect(page.get_by_role("alert")).to_contain_text("row")
    args.fill('{"row": 8}')
    page.get_by_role("button", name="Enqueue it").click()
    expect(page.locator("#arguments")).to_contain_text('"row": 8')
    [replayed, original] = shop.jobs()
    assert (replayed.record.args, original.id) == (b'{"row":8}', job.id)


def test_a_group_of_errors_is_found_and_retried(shop: Holdfast, site: str, opened: Open) -> None:
    gates["outage"].set()
    shop.enqueue_many(shop.tasks["send"].bind(f"{n}@example.org") for n in range(25))
    shop.enqueue_many(shop.tasks["load"].bind(row) for row in range(3))
    shop.drain()
    page = opened(f"{site}/errors")
    page.get_by_role("link", name="ConnectionError").click()
    expect(page.get_by_text("the mail server refused").first).to_be_visible()
    gates["outage"].clear()
    page.locator("#retry-all > summary").click()
    page.locator("#retry-all form button").click()
    expect(page.get_by_role("status").filter(has_text="25")).to_be_visible()
    shop.drain()
    assert (shop.count("state:succeeded task:send"), shop.count("state:failed")) == (25, 3)
    expect(page.get_by_text("No job has this error now.")).to_be_visible()


def test_jobs_are_filtered_chosen_and_cancelled_together(shop: Holdfast, site: str, opened: Open) -> None:
    shop.enqueue_many(shop.tasks["greet"].bind(f"visitor {n}") for n in range(70))
    shop.enqueue_many(shop.tasks["load"].bind(n) for n in range(3))
    page = opened(f"{site}/jobs")
    page.locator("#filter").fill("task:gre")
    page.get_by_role("option", name="task:greet").click()
    page.locator("#filter").press("Enter")
    page.wait_for_url(re.compile("filter=task%3Agreet"))
    page.locator("tbody input[type=checkbox]").first.check()
    page.locator("#selection input[name=all]").check()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Cancel 70 jobs?")
    page.get_by_role("button", name="Cancel 70 jobs").click()
    expect(page.get_by_role("status").filter(has_text="70")).to_be_visible()
    assert shop.count("state:cancelled") == 70
    assert shop.count("state:queued") == 3


SAID = """(seconds) => {
  const time = document.createElement("time");
  time.dateTime = new Date(Date.now() + ahead + 1000 * seconds).toISOString();
  document.body.append(time);
  tellTimes();
  return time.textContent;
}"""


def test_what_happens_at_this_moment_is_not_in_the_future(site: str, opened: Open) -> None:
    """The clocks of a page and of its database are compared to about a second."""
    page = opened(f"{site}/queues")
    said = {seconds: page.evaluate(SAID, seconds) for seconds in (0.3, -0.3, 5.3, -5.3, 7200)}
    assert said == {0.3: "0s ago", -0.3: "0s ago", 5.3: "in 5s", -5.3: "5s ago", 7200: "in 2h"}
    assert abs(page.evaluate("ahead")) < 5000


# -- what somebody does with a page stays as it is ---------------------------------------------------------------------


def changes(page: Page, shop: Holdfast, times: int) -> None:
    """The page is shown anew so often, each time with something new in it."""
    page.evaluate(
        "window.shown = 0; document.getElementById('live').addEventListener('holdfast:shown', () => window.shown++)"
    )
    for n in range(times):
        shop.tasks["greet"].enqueue(f"visitor {n}")
        wait_until(lambda: page.evaluate("window.shown") > n)  # noqa: B023 - at once


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are read often, so that ten changes take no twenty seconds."""

    def found(path: str) -> Any:
        there = page_at(path)
        return there and (replace(there[0], tick=0.1), there[1])

    monkeypatch.setattr(site, "page_at", found)
    monkeypatch.setattr(views, "FRESH", 0.05)


@pytest.mark.usefixtures("lively")
def test_ten_refreshes_leave_a_selection_and_a_half_typed_filter_alone(shop: Holdfast, site: str, opened: Open) -> None:
    shop.enqueue_many(shop.tasks["greet"].bind(f"early {n}") for n in range(60))
    page = opened(f"{site}/jobs")
    row = page.locator("#job-40")
    row.locator("input[type=checkbox]").check()
    page.locator("#filter").fill("state:que")
    page.evaluate("document.getElementById('filter').setSelectionRange(6, 8)")
    page.evaluate("scrollTo(0, 300)")
    first = "[...document.querySelectorAll('tbody tr')].find((row) => row.getBoundingClientRect().top >= 0)"
    id, top = page.evaluate(f"[{first}.id, {first}.getBoundingClientRect().top]")
    changes(page, shop, 10)
    expect(page.locator("#filter")).to_have_value("state:que")
    expect(page.locator("#filter")).to_be_focused()
    assert page.evaluate("[filter.selectionStart, filter.selectionEnd]") == [6, 8]
    expect(row.locator("input[type=checkbox]")).to_be_checked()
    there = page.evaluate(f"document.getElementById('{id}').getBoundingClientRect().top")
    assert abs(there - top) < 10, "what somebody reads stays where it is, though ten rows came above it"
    assert page.locator("tbody tr").first.get_attribute("id") == "job-70"


@pytest.mark.usefixtures("lively")
def test_ten_refreshes_leave_open_panels_and_focus_alone(shop: Holdfast, site: str, opened: Open) -> None:
    job = shop.tasks["render"].enqueue("film", 12)
    with working(shop):
        page = opened(f"{site}/jobs/{job.id}")
        expect(page.locator(".facts-line .state").first).to_have_text("running")
        expect(page.get_by_text("scene 1").first).to_be_visible()
        if page.locator("#checkpoint[open]").count() == 0:  # it begins open where there is no progress yet
            page.locator("#checkpoint > summary").click()
        page.locator("#checkpoint > summary").focus()
        for scene in range(10):
            gates[f"film {scene}"].set()
            expect(page.get_by_text(f"scene {scene + 2}").first).to_be_visible()
        assert page.locator("#checkpoint").get_attribute("open") is not None
        expect(page.locator("#checkpoint > summary")).to_be_focused()
        for scene in (10, 11):
            gates[f"film {scene}"].set()


@pytest.mark.usefixtures("lively")
def test_while_text_is_selected_or_a_menu_is_open_the_page_waits(shop: Holdfast, site: str, opened: Open) -> None:
    shop.tasks["greet"].enqueue()
    page = opened(f"{site}/queues")
    page.locator("#verbs-default > summary").click()
    page.locator("#verbs-default input[name=reason]").fill("half a rea")
    counts = page.locator("#queue-default td.n")  # times go on meanwhile
    before = counts.all_inner_texts()
    shop.enqueue_many(shop.tasks["greet"].bind(str(n)) for n in range(5))
    page.wait_for_timeout(500)  # several reads, none of which may be shown
    assert counts.all_inner_texts() == before
    page.keyboard.press("Escape")
    expect(page.locator("#queue-default td").first).to_have_text("6")


# -- streams -----------------------------------------------------------------------------------------------------------


class Streams:
    """How many streams of events are open, and how many were ever opened."""

    def __init__(self, asgi: Any) -> None:
        self._asgi = asgi
        self.open = self.ever = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].endswith("/live"):
            await self._asgi(scope, receive, send)
            return
        self.open += 1
        self.ever += 1
        try:
            await self._asgi(scope, receive, send)
        finally:
            self.open -= 1


@contextmanager
def counted(shop: Holdfast) -> Iterator[tuple[str, Streams]]:
    streams = Streams(shop.asgi(open="admin"))
    with served([Mount("/", streams)]) as url:
        yield url, streams


def hide(page: Page, hidden: bool) -> None:
    """What a browser does to a tab that somebody leaves or comes back to."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def test_a_hidden_tab_closes_its_stream_and_catches_up_when_it_is_seen_again(shop: Holdfast, opened: Open) -> None:
    with counted(shop) as (url, streams):
        page = opened(f"{url}/jobs")
        wait_until(lambda: streams.open == 1)
        hide(page, True)
        wait_until(lambda: streams.open == 0)
        shop.tasks["greet"].enqueue()
        hide(page, False)
        expect(page.locator("#job-1")).to_be_visible()
        wait_until(lambda: streams.open == 1)
        page.goto("about:blank")
        wait_until(lambda: streams.open == 0)


def test_where_no_events_come_through_it_polls(shop: Holdfast, site: str, opened: Open) -> None:
    page = opened("about:blank", ready=False)
    page.route(re.compile("/live"), lambda route: route.abort())
    page.goto(f"{site}/jobs")
    shop.tasks["greet"].enqueue()
    expect(page.locator("#job-1")).to_be_visible()
    expect(page.locator("#pulse")).to_have_text("Live")


def test_without_a_script_pages_read_and_forms_work(shop: Holdfast, site: str, opened: Open) -> None:
    job = shop.tasks["greet"].enqueue()
    page = opened(f"{site}/jobs/{job.id}", ready=False, java_script_enabled=False)
    expect(page.get_by_role("heading", level=1)).to_contain_text("greet")
    page.locator("#do-cancel > summary").click()
    page.locator("#do-cancel form button").click()
    expect(page.locator(".facts-line .state").first).to_have_text("cancelled")
    page.goto(f"{site}/jobs")
    page.locator("#filter").fill("state:cancelled")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.locator(f"#job-{job.id}")).to_be_visible()
