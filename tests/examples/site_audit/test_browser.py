"""What only a browser sees, and what happens where there is none."""

from __future__ import annotations

import json
import os
import signal
import socket
import time

import httpx2
import pytest

from examples.site_audit import browser
from examples.site_audit.browser import answered, browser_tier, measured
from examples.site_audit.proxy import proxy
from examples.site_audit.tier import Tier
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.processes import Start
from tests.examples.site_audit.application import analyze, document, inserted, row
from tests.examples.site_audit.sites import Sites
from tests.http.asking import Ask
from tests.waiting import wait_until

needs_browser = pytest.mark.skipif(browser.missing() is not None, reason=f"{browser.missing()}: make test-browser")

JUMPS = """<!doctype html><html lang=en><title>A page that jumps</title><body><main><h1>Late</h1><p>Text</p></main>
<script>
requestAnimationFrame(() => setTimeout(() => {
  const ad = document.createElement("div"); ad.style.height = "600px"; document.body.prepend(ad);
  const until = performance.now() + 900; while (performance.now() < until);
}, 100));
</script>"""


def findings(tier: Tier) -> dict[str, str]:
    return {one.check: one.severity for outcome in tier.outcomes for one in outcome.findings}


# -- without a browser -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite"])
def test_without_a_browser_the_audit_says_so_and_is_not_worse_for_it(
    hf: Holdfast, ask: Ask, sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = analyze(ask, sites.good("/"))
    hf.drain()
    found = document(ask, id)
    [said] = [one for one in found["findings"] if one["check"] == "axe"]
    assert said["severity"] == "info"
    assert "were not tested in a browser: there is no Chromium" in said["text"]
    assert "apt install chromium" in said["text"]
    by_browser = {check.name for check in browser.BY_BROWSER}
    assert {one["check"] for one in found["details"]["checks"] if not one["applies"]} >= by_browser
    assert found["scores"]["accessibility"] == 100


def test_without_playwright_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "chromium", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(browser, "find_spec", lambda name: None)
    [axe, *others] = browser_tier("https://a.example/", allow_private=False).outcomes
    assert "neither Playwright nor axe-core" in axe.findings[0].text
    assert not axe.applies
    assert not any(one.findings or one.applies for one in others)


def test_what_a_page_says_of_itself_is_taken_for_what_it_is() -> None:
    """Scripts of the page may have changed what the browser answers."""
    nodes = [{"html": "<p>" * 9_999}] * 9_999
    told = {"largest_paint": -1, "layout_shift": "0.2", "blocked": 1e9, "axe": "x" * 999, "browser": "\0"}
    violations = [{"id": "a", "help": "b" * 9_999, "impact": "deadly", "nodes": nodes}]
    tier = measured({**told, "violations": violations})
    assert findings(tier) == {"axe": "info", "layout-shift": "moderate", "blocked-time": "serious"}
    assert len(str(tier)) < 40_000


@pytest.mark.parametrize(
    "changed",
    [{"layout_shift": "much"}, {"blocked": float("inf")}, {"blocked": None}, {"violations": [{}]}, {"violations": None},
     {"violations": [{"id": "a", "help": "b", "nodes": [{}]}]}, {"violations": ["a"]}],
)  # fmt: skip
def test_an_answer_that_is_none_is_told_as_that(changed: dict[str, object]) -> None:
    told = {
        "largest_paint": 1,
        "layout_shift": 0,
        "blocked": 0,
        "axe": "4",
        "browser": "C",
        "violations": [],
        **changed,
    }
    [axe, *_] = answered(json.dumps(told).encode()).outcomes
    assert not axe.applies
    assert "the page changes what the browser says of it" in axe.findings[0].text


# -- the proxy ---------------------------------------------------------------------------------------------------------


def test_the_proxy_passes_on_to_public_addresses_only(sites: Sites) -> None:
    sites.page("/", "bread")
    with proxy(allow_private=False, seconds=5) as safe, httpx2.Client(proxy=safe.address, trust_env=False) as client:
        assert client.get(f"{sites.url}/").status_code == 502
        for host in ("localhost", "[::1]", "169.254.169.254", "0x7f.1"):
            with pytest.raises(httpx2.ProxyError):
                client.get(f"https://{host}:{sites.server_port}/")
    assert sites.requests == []
    assert len(safe.refused) == 5


def test_the_proxy_passes_on_what_it_may(sites: Sites) -> None:
    sites.page("/a?b=c", "bread")
    with proxy(allow_private=True, seconds=5) as open_, httpx2.Client(proxy=open_.address, trust_env=False) as client:
        assert client.get(f"{sites.url}/a?b=c").text == "bread"
        with socket.create_connection(("127.0.0.1", open_.server_address[1])) as tunnel:
            tunnel.sendall(f"CONNECT 127.0.0.1:{sites.server_port} HTTP/1.1\r\n\r\n".encode())
            assert tunnel.recv(100).startswith(b"HTTP/1.1 200")
            tunnel.sendall(b"GET /a?b=c HTTP/1.0\r\n\r\n")
            assert b"bread" in tunnel.recv(10_000) + tunnel.recv(10_000)


@pytest.mark.parametrize(
    "asked", [b"\r\n\r\n", b"GET\r\n\r\n", b"CONNECT a:b HTTP/1.1\r\n\r\n", b"GET file:///etc/passwd x\r\n\r\n"]
)
def test_the_proxy_refuses_what_is_no_request(asked: bytes) -> None:
    with (
        proxy(allow_private=True, seconds=5) as server,
        socket.create_connection(("127.0.0.1", server.server_address[1])) as connection,
    ):
        connection.sendall(asked)
        answer = connection.recv(1000)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 502")


def test_the_proxy_ends_with_its_time_and_its_bytes(sites: Sites) -> None:
    def endless(request: object) -> None:
        while not sites.held.is_set():
            request.wfile.write(b"x" * 65_536)  # type: ignore[attr-defined]

    sites.pages["/"] = endless
    for seconds, most in ((0.3, 10**12), (30.0, 200_000)):
        with proxy(allow_private=True, seconds=seconds) as server:
            server.bytes_left = most
            with socket.create_connection(("127.0.0.1", server.server_address[1])) as connection:
                connection.sendall(f"GET {sites.url}/ HTTP/1.1\r\n\r\n".encode())
                connection.settimeout(20)
                while connection.recv(65_536):
                    pass


# -- in a browser ------------------------------------------------------------------------------------------------------


@needs_browser
def test_axe_finds_what_assistive_technology_can_not_use(sites: Sites) -> None:
    tier = browser_tier(sites.bad("/"), allow_private=True)
    [axe] = [one for one in tier.outcomes if one.check == "axe"]
    texts = " ".join(one.text for one in axe.findings)
    assert "(html-has-lang)" in texts
    assert "(image-alt)" in texts
    assert "(label)" in texts
    [image] = [one for one in axe.findings if "(image-alt)" in one.text]
    assert (image.severity, image.element) == ("critical", '<img src="none.png">')
    assert str(tier.facts["browser"]).startswith("Chromium ")
    good = browser_tier(sites.good("/good"), allow_private=True)
    assert {one.check: one.applies for one in good.outcomes}["axe"]
    assert not {"critical", "serious"} & {one.severity for outcome in good.outcomes for one in outcome.findings}


@needs_browser
def test_a_page_that_jumps_and_keeps_the_browser_busy(sites: Sites) -> None:
    tier = browser_tier(sites.page("/", JUMPS), allow_private=True)
    assert tier.facts["layout_shift"] > 0.1
    assert tier.facts["blocked"] > 0.6
    assert findings(tier)["blocked-time"] == "serious"


@needs_browser
def test_a_page_that_changes_what_is_measured_fails_no_audit(sites: Sites) -> None:
    lie = """<script>window.PerformanceObserver = class {
      constructor(told) { this.told = told; }
      observe() { this.told({ getEntries: () => [{ value: "much", startTime: 1, duration: 1 }] }); }
    };</script>"""
    [axe, *_] = browser_tier(sites.page("/", f"<p>Bread{lie}"), allow_private=True).outcomes
    assert "the page changes what the browser says of it" in axe.findings[0].text


@needs_browser
def test_a_page_can_not_lead_the_browser_to_a_neighbour(sites: Sites) -> None:
    """Neither by itself nor by what it loads: all goes through the proxy."""
    [said, *_] = browser_tier(sites.good("/"), allow_private=False).outcomes
    assert "could not show the page" in said.findings[0].text
    assert sites.requests == []


@needs_browser
def test_a_page_that_never_ends_does_not_keep_the_worker(sites: Sites) -> None:
    url = sites.page("/", "<script>for (;;);</script>")
    began = time.monotonic()
    [said, *_] = browser_tier(url, allow_private=True, longest=8.0).outcomes
    assert "kept the browser busy for more than 8 s" in said.findings[0].text
    assert time.monotonic() - began < 30
    wait_until(lambda: not _browsers_of(url), "the browser to be gone")


@needs_browser
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_worker_that_is_killed_while_the_browser_is_at_it_repeats_that_tier_alone(
    start: Start, sql: Database, url: str, sites: Sites
) -> None:
    """And leaves no browser behind."""
    sites.hold("/slow.png")
    address = sites.good("/", '<img alt="Bread" srcset="/slow.png">')
    id = inserted(url, address)
    worker = start("worker", SITE_AUDIT_BROWSER="chromium")
    wait_until(lambda: "/slow.png" in sites.requests, "the browser to load the picture", timeout=60)
    assert _browsers_of(address)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not _browsers_of(address), "the browser to be gone")
    sites.held.set()
    start("worker", SITE_AUDIT_BROWSER="chromium")
    wait_until(lambda: row(sql, id)["status"] == "completed", "the audit to be completed", timeout=60)
    found = row(sql, id)
    assert found["retry_count"] == 1
    assert sites.requests.count("/robots.txt") == 1, "the tier of the page is not repeated"
    assert "Chromium" in str(found["details"])


def _browsers_of(url: str) -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if "site_audit.browser" in line and url in line:
            found.append(line)
    return found
