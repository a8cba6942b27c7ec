"""Takes the picture of the README: `python -m tests.examples.site_audit.pictures docs/examples/site-audit.png`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright
from starlette.routing import Mount

from tests.examples.site_audit.sites import GOOD, GOOD_HEADERS, Sites
from tests.http.test_browser import BROWSER, served
from tests.running import working

HALF_MENDED = GOOD.format(path="/", body='<img src="/oven.png"><a href="/rye">Rye</a><a href="/gone">Wheat</a>')


def take(picture: Path) -> None:
    with tempfile.TemporaryDirectory() as home, Sites() as sites:
        os.environ["HOLDFAST_URL"] = f"sqlite:///{home}/pictures.db"
        from examples.site_audit import app
        from examples.site_audit.web import web

        app.ALLOW_PRIVATE = True
        app.hf.reconfigure(processes=0, grace=0.1)
        app.set_up()
        sites.page("/oven.png", b"\x89PNG", headers={"Content-Type": "image/png"})
        sites.good("/rye")
        with working(app.hf), served([Mount("/", web)]) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 760, "height": 1340}, color_scheme="light")
            page.goto(url)
            address = f"http://localhost:{sites.server_port}/"
            for body, headers in (("", {}), (HALF_MENDED, {}), (HALF_MENDED, GOOD_HEADERS)):
                sites.bad("/") if not body else sites.page("/", body, headers=headers)
                page.get_by_label("Address of the site").fill(address)
                page.get_by_role("button", name="Analyze").click()
                page.wait_for_url("**/audits/*")
                expect(page.locator("#result")).to_be_visible(timeout=60_000)
                page.goto(url) if headers == {} else None
            page.screenshot(path=picture)
            browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
