"""Where the dashboard may stand, and who comes in: under a prefix, behind a proxy, by key, by token."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from playwright.sync_api import Page, expect
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from holdfast import Holdfast
from holdfast.http.dashboard.pages import PAGES
from tests.browser.conftest import Open
from tests.browser.demo import demonstrating
from tests.browser.shop import fill, gates
from tests.http.test_browser import served
from tests.running import working


def stripping(asgi: Any, prefix: str) -> Any:
    """What a proxy does that passes requests on without the prefix, and tells nobody."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        if not scope["path"].startswith(prefix):
            await Response("not here", 404)(scope, receive, send)
            return
        path = scope["path"].removeprefix(prefix)
        await asgi({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return proxy


@pytest.mark.parametrize("how", ["mounted", "behind a proxy"])
def test_it_works_under_any_prefix(shop: Holdfast, opened: Open, how: str) -> None:
    job = shop.tasks["greet"].enqueue()
    asgi = shop.asgi(open="admin")
    route = Mount("/a/b", asgi) if how == "mounted" else Mount("/", stripping(asgi, "/a/b"))
    with served([route]) as url:
        page = opened(f"{url}/a/b/")
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.locator(f"#job-{job.id} a").first.click()
        page.wait_for_url(f"{url}/a/b/jobs/{job.id}")
        page.locator("#do-pause > summary").click()
        page.locator("#do-pause form button").click()
        expect(page.locator(".facts-line .state").first).to_have_text("paused")
        assert page.url == f"{url}/a/b/jobs/{job.id}"
        expect(page.locator("#pulse")).to_have_text("Live")
        job.resume()
        expect(page.locator(".facts-line .state").first).to_have_text("queued")
        page.locator(".brand").click()
        page.wait_for_url(f"{url}/a/b/")


def test_somebody_signs_in_with_a_key_and_out_again(shop: Holdfast, opened: Open) -> None:
    shop.tasks["greet"].enqueue()
    key = shop.create_api_key("ann", "viewer")
    with served([Mount("/", shop.asgi())]) as url:
        page = opened(f"{url}/queues", ready=False)
        page.get_by_label("API key").fill("hfk_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("this API key is wrong")).to_be_visible()
        page.goto(f"{url}/queues")
        page.get_by_label("API key").fill(key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}/queues")
        expect(page.locator("#queue-default")).to_be_visible()
        [cookie] = [cookie for cookie in page.context.cookies() if cookie["name"] == "holdfast_key"]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("document.cookie") == ""
        assert page.locator("main form").count() == 0
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        assert [cookie["name"] for cookie in page.context.cookies()] == []


STATUS = """<!doctype html><meta charset="utf-8"><title>Your film</title><h1>Your film</h1>
<holdfast-job job-id="{id}" token="{token}" api="/jobs/v1"></holdfast-job>
<script type="module" src="/jobs/v1/holdfast.js"></script>"""
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"


def test_an_anonymous_user_follows_one_job_by_its_token(shop: Holdfast, opened: Open) -> None:
    job, other = shop.tasks["render"].enqueue("film", 2), shop.tasks["render"].enqueue("another", 1)
    status = STATUS.format(id=job.id, token=job.token())

    def film(request: Request) -> Response:
        return Response(status, media_type="text/html", headers={"Content-Security-Policy": POLICY})

    with served([Route("/film", film), Mount("/jobs", shop.asgi())]) as url, working(shop):
        page = opened(f"{url}/film", ready=False)
        shown = page.locator("holdfast-job")
        expect(shown.get_by_role("progressbar")).to_be_visible()
        gates["film 0"].set()
        expect(shown.get_by_text("scene 2")).to_be_visible()
        gates["film 1"].set()
        expect(shown.get_by_text("Done")).to_be_visible()
        # The token opens nothing else.
        statuses = page.evaluate(
            """async ([mine, other, token]) => {
              const headers = { Authorization: `Bearer ${token}` };
              const asked = [`/jobs/v1/jobs/${mine}`, `/jobs/v1/jobs/${other}`, `/jobs/jobs/${mine}`, "/jobs/"];
              return Promise.all(asked.map(async (path) => (await fetch(path, { headers })).status));
            }""",
            [job.id, other.id, job.token()],
        )
        assert statuses == [200, 404, 403, 403]
        gates["another 0"].set()


def buttons(page: Page) -> list[str]:
    """Forms that would change something."""
    return [str(form.get_attribute("action")) for form in page.locator("form[method=post]").all()]


def test_a_viewer_is_shown_no_button(shop: Holdfast, opened: Open) -> None:
    names = fill(shop)
    shown = []
    with served([Mount("/viewer", shop.asgi(open="viewer")), Mount("/admin", shop.asgi(open="admin"))]) as url:
        viewer, admin = opened("about:blank", ready=False), opened("about:blank", ready=False)
        for page in PAGES:
            path = page.path.format_map(names)
            admin.goto(f"{url}/admin{path}")
            shown += buttons(admin)
            answer = viewer.goto(f"{url}/viewer{path}")
            assert answer is not None
            if page.role == "viewer":
                assert (answer.status, buttons(viewer)) == (200, []), path
            else:
                assert answer.status == 403
    assert len(shown) > 10


def test_the_demonstration_kills_a_worker_and_its_jobs_come_back(tmp_path: Path, opened: Open) -> None:
    with demonstrating(tmp_path) as url:
        page = opened(url, ready=False)
        assert page.get_by_text("No worker serves").count() == 0, "a newcomer's first look"
        page.goto(f"{url}jobs?filter=state:running%20task:render_film")
        expect(page.locator("tbody tr").nth(4)).to_be_visible(timeout=40_000)
        page.get_by_role("button", name="Kill a worker").click()
        said = page.get_by_role("status").filter(has_text="with SIGKILL")
        expect(said).to_be_visible()
        ids = re.findall(r"\d+", unquote(page.url.partition("filter=")[2]))
        assert ids
        # They are seen back: at work in another worker or done, each with what became of the attempt that was killed.
        for id in ids[:3]:
            page.goto(f"{url}jobs/{id}")
            page.locator("#attempts-title").wait_for(timeout=40_000)
            expect(page.locator(".attempt").last).to_contain_text(re.compile("crashed|lost"))
            state = page.locator(".facts-line .state").first
            expect(state).to_have_text(re.compile("running|succeeded"), timeout=40_000)
