"""What every page owes everybody: in light and in dark, on a telephone and on a wide screen, with a keyboard alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.http.dashboard.pages import PAGES
from tests.browser.conftest import NARROW, Open
from tests.browser.shop import fill
from tests.http.test_browser import served

SERIOUS = ("serious", "critical")
HUGE = {"width": 2000, "height": 1100}
# What sticks out of the window, so that the whole page would have to be scrolled sideways.
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"


def every(shop: Holdfast) -> list[str]:
    names = fill(shop)
    [waits, *_], [scheduled, *_] = shop.jobs("state:queued"), shop.jobs("state:scheduled")
    return [
        *(page.path.format_map(names) for page in PAGES),
        f"/jobs/{waits.id}", f"/jobs/{scheduled.id}", "/jobs/999999999", "/jobs?filter=state:failed",
        "/jobs?filter=colour:red", "/jobs?filter=queue:none", "/errors?of=retrying", "/?range=month&by=queue",
        "/audit?verb=retry",
    ]  # fmt: skip


def faults(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {json.dumps([node['html'][:160] for node in one['nodes'][:3]])}"
        for one in found
        if one["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_assistive_technology_can_use_every_page(shop: Holdfast, opened: Open, scheme: str) -> None:
    """Also with all opened that opens. (And no script fails, and nothing breaks the policy: `opened` sees to that.)"""
    with served([Mount("/", shop.asgi(open="admin"))]) as url:
        page = opened("about:blank", ready=False, color_scheme=scheme)
        for path in every(shop):
            page.goto(f"{url}{path}")
            assert (path, faults(page)) == (path, [])
            if scheme == "light":
                page.evaluate(UNFOLD)
                assert (path, "unfolded", faults(page)) == (path, "unfolded", [])


@pytest.mark.parametrize("window", [NARROW, HUGE], ids=["narrow", "wide"])
def test_no_page_sticks_out_of_its_window(shop: Holdfast, opened: Open, window: Any) -> None:
    with served([Mount("/", shop.asgi(open="admin"))]) as url:
        page = opened("about:blank", ready=False, viewport=window)
        for path in every(shop):
            page.goto(f"{url}{path}")
            assert (path, page.evaluate(TOO_WIDE)) == (path, 0)
            page.evaluate(UNFOLD)
            assert (path, "unfolded", page.evaluate(TOO_WIDE)) == (path, "unfolded", 0)


def test_a_long_name_leaves_room_for_the_other_columns(shop: Holdfast, site: str, opened: Open) -> None:
    shop.tasks["greet"].using(queue="q" * 100).enqueue("n" * 500)
    page = opened(f"{site}/jobs")
    hidden = page.evaluate(
        "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.scroll'))"
    )
    assert hidden == 0


def ground(page: Page) -> int:
    """How bright the page is behind its text: 0 to 255."""
    found = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return sum(map(int, re.findall(r"\d+", found)[:3])) // 3


def test_colours_are_the_system_s_until_somebody_chooses_and_stay_so(shop: Holdfast, site: str, opened: Open) -> None:
    page = opened(f"{site}/", color_scheme="dark")
    assert ground(page) < 50
    page.emulate_media(color_scheme="light")
    assert ground(page) > 200, "it follows the system at once"
    page.get_by_role("button", name="Change between light, dark").click()
    assert ground(page) < 50
    page.goto(f"{site}/jobs")
    assert ground(page) < 50, "a choice holds on every page"
    for bright in (True, True):  # light, then whatever the system has
        page.get_by_role("button", name="Change between light, dark").click()
        assert (ground(page) > 200) is bright
    page.emulate_media(color_scheme="dark")
    assert ground(page) < 50


def test_whoever_wants_no_motion_sees_none(shop: Holdfast, site: str, opened: Open) -> None:
    moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
    assert opened(f"{site}/").evaluate(moving) == 0
    assert opened(f"{site}/", reduced_motion="no-preference").evaluate(moving) > 0  # a light that beats


def test_on_a_telephone_jobs_are_found_and_cancelled(shop: Holdfast, site: str, opened: Open) -> None:
    jobs = [shop.tasks["greet"].enqueue(f"visitor {n}") for n in range(3)]
    page = opened(f"{site}/", viewport=NARROW, has_touch=True, is_mobile=True)
    page.get_by_role("link", name="Jobs", exact=True).tap()
    for label in ("Overview", "Errors", "Queues", "Workers", "Schedules", "Bulk", "Audit"):
        expect(page.get_by_role("link", name=label, exact=True)).to_be_in_viewport(ratio=1)
    row = page.locator(f"#job-{jobs[1].id}")
    expect(row.get_by_text("greet")).to_be_visible()
    row.locator("a").first.tap()
    page.locator("#do-cancel > summary").tap()
    button = page.locator("#do-cancel form button")
    expect(button).to_be_in_viewport(ratio=1)
    button.tap()
    expect(page.locator(".facts-line .state").first).to_have_text("cancelled")


# -- with a keyboard alone ---------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))


def test_with_a_keyboard_alone_a_job_is_found_and_cancelled(shop: Holdfast, site: str, opened: Open) -> None:
    shop.enqueue_many(shop.tasks["greet"].bind(f"visitor {n}") for n in range(5))
    other = shop.tasks["load"].enqueue(2)
    page = opened(f"{site}/")
    keys = page.keyboard
    keys.press("g")
    keys.press("j")
    page.wait_for_url(f"{site}/jobs")
    keys.press("/")
    expect(page.locator("#filter")).to_be_focused()
    keys.type("task:gr")
    expect(page.get_by_role("option", name="task:greet")).to_be_visible()
    keys.press("ArrowDown")
    keys.press("Enter")
    expect(page.locator("#filter")).to_have_value("task:greet ")
    keys.press("Enter")
    page.wait_for_url(re.compile("filter=task%3Agreet"))
    keys.press("j")
    keys.press("x")
    keys.press("j")
    keys.press("j")
    keys.press("k")
    keys.press("x")
    expect(page.locator("#selected")).to_have_text("2 selected")
    keys.press("Enter")  # the row before us, whatever is selected
    page.wait_for_url(re.compile(r"/jobs/4$"))
    expect(page.locator("#pulse")).to_have_text("Live")
    keys.press(".")  # what can be done: the first verb is Change, Cancel comes after Pause
    assert "Change" in focused(page)
    keys.press("Escape")
    for _ in range(2):
        keys.press("Tab")
    assert "Cancel" in focused(page)
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid", "it is seen what has the focus"
    keys.press("Enter")
    keys.press("Tab")
    keys.type("by keys")
    keys.press("Enter")
    expect(page.locator(".facts-line .state").first).to_have_text("cancelled")
    [call] = shop.audit(verb="cancel")
    assert (call.reason, other.refresh().state) == ("by keys", "queued")


def test_a_list_of_the_keys_opens_and_closes(shop: Holdfast, site: str, opened: Open) -> None:
    page = opened(f"{site}/queues")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("j")  # keys of the page mean nothing meanwhile
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    for key, path in (("e", "errors"), ("w", "workers"), ("s", "schedules"), ("b", "bulk"), ("a", "audit"), ("o", "")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"{site}/{path}")


def test_the_first_tab_leads_past_the_navigation(shop: Holdfast, site: str, opened: Open) -> None:
    page = opened(f"{site}/queues")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
