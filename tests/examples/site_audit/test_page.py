"""The page, in a real browser: from the click to the result, live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect, sync_playwright
from starlette.routing import Mount

from examples.site_audit import database
from examples.site_audit.web import web
from holdfast import Holdfast
from tests.examples.site_audit.sites import Sites
from tests.http.test_browser import BROWSER, needs_browser, served
from tests.running import working

PICTURES = [("light", 760), ("dark", 760), ("light", 390), ("dark", 390)]

CUT = """() => {
  const box = document.querySelector(".chart").getBoundingClientRect();
  return [...document.querySelectorAll(".chart text")].filter((text) => {
    const at = text.getBoundingClientRect();
    return at.left < box.left || at.right > box.right || at.top < box.top || at.bottom > box.bottom;
  }).map((text) => text.textContent);
}"""


@needs_browser
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_person_sees_how_it_goes_what_is_wrong_and_what_got_better(
    hf: Holdfast, sites: Sites, tmp_path: Path
) -> None:
    hf.reconfigure(heartbeat=0.2)
    violations: list[str] = []
    with working(hf), served([Mount("/", web)]) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 760, "height": 900})
        page.on("console", lambda said: violations.append(said.text) if said.type == "error" else None)
        page.add_init_script("document.documentElement && (document.documentElement.dataset.interval = 50)")
        page.goto(url)
        expect(page.locator("#home")).to_contain_text("There is none yet.")

        # One that takes its time, so that its progress is seen.
        sites.hold("/slow")
        sites.bad("/", '<a href="/slow">x</a><b title="</b><script>alert(1)</script>">' + "<select></select>" * 9)
        analyze(page, f"{sites.url}/")
        expect(page.locator("#state")).to_have_text("Following links…")
        expect(page.locator("#detail")).to_contain_text("links")

        # Whoever goes back is not led to it again, and a server that is away for a moment is waited for.
        page.go_back()
        for _ in range(2):
            with page.expect_response("**/api/audits"):
                pass
        expect(page.locator("#home")).to_contain_text("processing")
        expect(page.locator("#progress")).to_be_hidden()
        page.go_forward()
        expect(page.locator("#state")).to_have_text("Following links…")
        page.route("**/api/audits/*", lambda route: route.fulfill(status=503, body="away"))
        expect(page.locator("#state")).to_contain_text("Trying again…")
        page.unroute("**/api/audits/*")
        expect(page.locator("#state")).to_have_text("Following links…")
        sites.held.set()
        result = page.locator("#result")
        expect(result).to_be_visible()
        expect(result).to_contain_text("The first audit of this site")
        expect(result).to_contain_text("This field has no label.")
        expect(result.locator("code", has_text='<input name="mail">')).to_be_visible()
        expect(result.locator(".chip.critical")).to_have_text("critical")
        alike = result.locator(".findings li", has_text="This field has no label.")
        expect(alike).to_have_count(1)
        expect(alike.locator("code:visible")).to_have_count(3)
        alike.get_by_text("7 more").click()
        expect(alike.locator("code:visible")).to_have_count(10)
        before = int(result.locator(".ring text").text_content() or "")

        # The site is mended, and asked for again.
        sites.good("/", "<img src=/new.png>")
        analyze(page, f"{sites.url}/")
        expect(result).to_contain_text("since the last audit")
        assert int(result.locator(".ring text").text_content() or "") > before
        expect(result.locator(".changes")).to_contain_text("fixed")
        expect(result.locator(".changes")).to_contain_text("3 new")
        expect(result.locator(".chart .point")).to_have_count(2)
        for scheme, width in PICTURES:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.set_viewport_size({"width": width, "height": 900})
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider == 0, f"it scrolls sideways at {width} px"
            assert page.evaluate(CUT) == [], f"the chart's words are cut at {width} px"
            page.screenshot(path=tmp_path / f"result-{scheme}-{width}.png", full_page=True)

        # The audit before is one click away; so is all of it as JSON.
        result.locator(".chart a").first.click()
        expect(page.locator("#result .ring text")).to_have_text(str(before))
        document: dict[str, Any] = page.request.get(page.url.replace("/audits/", "/api/audits/")).json()
        assert (document["score"], document["status"]) == (before, "completed")
        assert "every broken link" in page.locator(".links").inner_text().lower()

        # What can't be had is said, and shown by its cause.
        analyze(page, f"{sites.redirect('/ring', '/ring')}")
        expect(page.locator("#error")).to_contain_text("redirects more than")
        expect(page.locator("#error code")).to_have_text("REDIRECTS")
        with database.connect(hf.settings.url) as db:
            db.execute("insert into sites (url) values (?)", [f"{sites.url}/"])
        page.goto(url)
        expect(page.locator("#home")).to_contain_text("REDIRECTS")
        night = page.locator(".card", has_text="Every night (1)")
        expect(night.get_by_role("link")).to_have_text(f"{sites.url}/")
        expect(night).to_contain_text("▲")
        expect(page.locator(".audits li")).to_have_count(4)
        page.screenshot(path=tmp_path / "home.png", full_page=True)
        page.goto(f"{url}/audits/none")
        expect(page.locator("#error")).to_contain_text("there is no such audit")
        browser.close()
    assert [one for one in violations if "404" not in one and "503" not in one] == []


@needs_browser
@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_page_passes_the_audits_of_its_own(hf: Holdfast, sites: Sites) -> None:
    """axe finds nothing on it, light or dark."""
    from axe_playwright_python.sync_playwright import Axe

    with working(hf), served([Mount("/", web)]) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(url)
        analyze(page, sites.bad("/"))
        expect(page.locator("#result")).to_be_visible()
        analyze(page, sites.good("/"))
        expect(page.locator("#result .changes")).to_be_visible()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found = Axe().run(page).response["violations"]
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
        browser.close()


def analyze(page: Page, address: str) -> None:
    page.get_by_label("Address of the site").fill(address)
    page.get_by_role("button", name="Analyze").click()
