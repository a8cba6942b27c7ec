"""The dashboard in a real browser. A page fails its test if a script failed or was refused by the content security
policy while it was open."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from starlette.routing import Mount

from holdfast import Holdfast
from tests.browser.shop import make_shop
from tests.http.test_browser import served

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 390, "height": 844}
PATIENCE = 15_000  # milliseconds; only a failing test waits that long
# What a page must not do: noted from its first moment on, outside of what its own policy allows. What happens on a page
# that another one follows is told on the console, as violations are.
WITNESS = """
window.seen = { violations: [], executed: [] };
document.addEventListener("securitypolicyviolation", (event) =>
  window.seen.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.pwned = (what) => { window.seen.executed.push(what); console.error(`executed: ${what}`); };
for (const name of ["alert", "confirm", "prompt"]) window[name] = () => window.pwned(name);
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(
                pytest.mark.skipif(BROWSER is None, reason="needs Chromium: `make test-browser` installs it")
            )


@pytest.fixture
def browser() -> Iterator[Browser]:
    """One for each test: as long as Playwright is there, its event loop runs in this thread, and others want theirs."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-quic"])
        yield chromium
        chromium.close()


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens an address in a browser of its own; options are those of a context, as `color_scheme`."""
    with ExitStack() as stack:

        def open(url: str, *, ready: bool = True, **options: Any) -> Page:
            options = {"viewport": WIDE, "reduced_motion": "reduce", **options}
            return stack.enter_context(a_page(browser.new_context(**options), url, ready))

        yield open


@contextmanager
def a_page(context: BrowserContext, url: str, ready: bool = True) -> Iterator[Page]:
    context.set_default_timeout(PATIENCE)
    context.add_init_script(WITNESS)
    page = context.new_page()
    wrong: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # The test asked for something that is refused, or more was typed before suggestions were there.
        expected = "Failed to load resource" in message.text or "AbortError" in message.text
        if message.type == "error" and not expected:
            wrong.append(message.text)

    page.on("console", hear)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    if ready:
        page.locator("#pulse[data-kind]").wait_for()
    yield page
    if page.evaluate("'seen' in window"):
        seen = page.evaluate("window.seen")
        assert seen == {"violations": [], "executed": []}
    assert wrong == []
    context.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Holdfast]:
    with make_shop(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


@pytest.fixture
def site(shop: Holdfast) -> Iterator[str]:
    """Its address. Whoever comes is an operator."""
    with served([Mount("/", shop.asgi(open="admin"))]) as url:
        yield url
