"""The live page, in a real browser: a crawl is started, watched, paused, resumed, exported and cancelled by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from examples.crawl.web import web
from holdfast import Holdfast
from tests.examples.crawl.application import Start
from tests.examples.crawl.site import Page, Reply, Site, page
from tests.http.test_browser import browsing, needs_browser, served
from tests.waiting import wait_until

STAGE = """<!doctype html><meta charset="utf-8"><title>Stage</title>
<style>iframe { width: 1000px; height: 1400px }</style>
<iframe id="frame" src="/"></iframe><script type="module" src="/stage/play.js"></script>"""

SCRIPT = """
const frame = document.getElementById("frame");
const page = () => frame.contentDocument;
const $ = (id) => page().getElementById(id);
const until = async (condition) => { while (!condition()) await new Promise((go) => setTimeout(go, 20)); };
const figure = (name) =>
  [...$("figures").children].find((one) => one.children[0].textContent === name)?.children[1].textContent;
const verbs = () =>
  [...$("crawl").querySelectorAll("[data-verb]")].filter((one) => !one.hidden).map((one) => one.dataset.verb);
const click = (verb) => $("crawl").querySelector(`[data-verb=${verb}]`).click();
const status = () => $("status").textContent;
const report = { violations: [] };
try {
  const { site } = await (await fetch("/stage/site")).json();
  await until(() => page()?.readyState === "complete" && $("form"));
  page().documentElement.dataset.look = "100";
  page().addEventListener("securitypolicyviolation", (event) => report.violations.push(event.violatedDirective));
  report.empty = [$("crawl").hidden, $("list").hidden];

  $("start_url").value = "javascript:alert(1)";
  page().querySelector("form button").click();
  await until(() => !$("error").hidden);
  report.refused = $("error").textContent;

  $("start_url").value = `${site}/`;
  $("delay").value = "0.03";
  page().querySelector("form button").click();
  await until(() => status() === "Crawling" && Number(figure("Pages")) >= 5);
  const chart = $("chart").querySelector("polyline").getAttribute("points");
  report.running = { verbs: verbs(), speed: Number(figure("Pages/s")), chart };
  click("pause");
  await until(() => status() === "Paused");
  report.paused = { verbs: verbs(), pages: Number(figure("Pages")), pending: Number(figure("Pending")) };
  click("resume");
  await until(() => status() === "Done");
  report.done = {
    verbs: verbs(), pages: Number(figure("Pages")), pending: Number(figure("Pending")), dead: Number(figure("Dead")),
    errors: $("errors").textContent, hosts: $("hosts").textContent, bar: $("bar").value,
    bold: $("pages").querySelector("b") !== null,
  };
  report.exports = {};
  for (const link of $("exports").querySelectorAll("a")) {
    const answer = await fetch(link.href);
    const lines = (await answer.text()).split("\\r\\n").length - 2;
    report.exports[link.textContent] = [answer.headers.get("content-type"), lines];
  }

  $("delay").value = "5";
  page().querySelector("form button").click();
  await until(() => status() === "Crawling");
  click("cancel");
  await until(() => status() === "Cancelled");
  report.cancelled = { verbs: verbs(), list: $("crawls").children.length };
  $("crawls").querySelector("li:last-child button").click();
  await until(() => status() === "Done");
  frame.contentWindow.location.reload();
  await until(() => page()?.readyState === "complete" && $("status")?.textContent === "Done");
  report.reloaded = $("url").textContent;
} catch (error) {
  report.error = String(error.stack ?? error);
}
await fetch("/stage/report", { method: "POST", body: JSON.stringify(report) });
"""

PAGES = 40


@needs_browser
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_person_starts_watches_and_steers_a_crawl(hf: Holdfast, start: Start, tmp_path: Path) -> None:
    reports: list[dict[str, Any]] = []
    pages: dict[str, Page] = {
        "/": page("/1", "/gone"), **{f"/{n}": page(f"/{n + 1}", title=f"Page <b>{n}</b>") for n in range(1, PAGES - 1)},
        f"/{PAGES - 1}": page(), "/robots.txt": Reply("User-agent: *\nDisallow: /x", type="text/plain"),
    }  # fmt: skip

    async def stage(request: Request) -> Response:
        return HTMLResponse(STAGE)

    async def play(request: Request) -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    async def where(request: Request) -> Response:
        return JSONResponse({"site": site.url})

    async def report(request: Request) -> Response:
        reports.append(await request.json())
        return Response()

    play_house = Starlette(routes=[
        Route("/stage/", stage), Route("/stage/play.js", play), Route("/stage/site", where),
        Route("/stage/report", report, methods=["POST"]), Mount("/", web),
    ])  # fmt: skip
    with Site(pages) as site, served([Mount("/", play_house)]) as url:
        start("worker")
        with browsing(f"{url}/stage/", tmp_path) as browser:
            wait_until(lambda: reports or browser.poll() is not None, "the page to report", timeout=120.0)
    assert reports, (tmp_path / "browser.log").read_text()
    [told] = reports
    assert told.get("error") is None
    assert told["violations"] == []
    assert told["empty"] == [True, True]
    assert "no http or https address" in told["refused"]
    assert told["running"]["verbs"] == ["pause", "cancel"]
    assert told["running"]["speed"] > 0
    assert told["running"]["chart"].count(",") >= 2
    assert told["paused"]["verbs"] == ["resume", "cancel"]
    assert 5 <= told["paused"]["pages"] < PAGES
    assert told["paused"]["pending"] > 0
    done = told["done"]
    assert (done["verbs"], done["pages"], done["pending"], done["dead"], done["bar"]) == ([], PAGES, 0, 1, 1)
    assert "HTTP_404" in done["errors"]
    assert site.url in done["hosts"]
    assert not done["bold"], "what a site writes is text"
    csv = "text/csv; charset=utf-8"
    assert told["exports"] == {
        "Pages (CSV)": [csv, PAGES], "Links (CSV)": [csv, PAGES], "Dead links (CSV)": [csv, 1],
        "Errors (CSV)": [csv, 1], "Skipped (CSV)": [csv, 1],
    }  # fmt: skip
    assert told["cancelled"] == {"verbs": ["retry"], "list": 2}
    assert told["reloaded"] == f"{site.url}/"
