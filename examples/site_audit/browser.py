"""What only a browser sees: accessibility by axe-core, and how soon the page is there for its reader.

The browser works in a process of its own that has an end, for a page may keep it busy for ever:
`python -m examples.site_audit.browser URL` writes what it measured as JSON. Where there is no browser, the checks say
so and count neither for nor against."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, NamedTuple

from examples.site_audit.check import Check, Finding, Found, Outcome, Severity, cut, declare, outcome
from examples.site_audit.proxy import proxy
from examples.site_audit.tier import Tier

LONGEST_LOAD = 30.0  # seconds until the page has loaded
LONGEST = 90.0  # seconds for all of it
INSTALL = "pip install playwright axe-playwright-python, and Chromium (on Debian: apt install chromium)"
SEVERITIES: tuple[Severity, ...] = ("critical", "serious", "moderate", "minor")  # as axe has them

AXE = declare(
    "axe", "accessibility", 14, "Assistive technology can use the page",
    "axe-core tries about a hundred rules of WCAG on the page as it is shown.",
)  # fmt: skip
PAINT = declare(
    "largest-paint", "performance", 10, "The main part is there soon",
    "Readers wait for the largest picture or text (LCP); 2.5 s is good, 4 s is bad.",
)  # fmt: skip
SHIFT = declare(
    "layout-shift", "performance", 5, "Nothing jumps",
    "What moves while it is read is lost, or clicked by mistake (CLS).",
)  # fmt: skip
BLOCKED = declare(
    "blocked-time", "performance", 5, "The page answers while it loads",
    "While a script runs for long, taps and clicks wait (total blocking time).",
)  # fmt: skip
BY_BROWSER = (AXE, PAINT, SHIFT, BLOCKED)
START_TAG = re.compile(r"<[^>]*+>")


class Limit(NamedTuple):
    """What is good and what is bad of a figure that the browser measures."""

    check: Check
    figure: str
    good: float
    bad: float
    text: str


LIMITS = (
    Limit(PAINT, "largest_paint", 2.5, 4.0, "The largest part was painted after {:.1f} s."),
    Limit(SHIFT, "layout_shift", 0.1, 0.25, "What is shown moves by {:.2f} while it loads; 0.1 is good."),
    Limit(BLOCKED, "blocked", 0.2, 0.6, "Scripts keep the page busy for {:.1f} s while it loads."),
)
MEASURE = """() => new Promise((done) => {
  const found = { largest_paint: 0, layout_shift: 0, blocked: 0 };
  const watch = (type, take) => {
    new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true });
  };
  watch("largest-contentful-paint", (one) => { found.largest_paint = one.startTime / 1000; });
  watch("layout-shift", (one) => { if (!one.hadRecentInput) found.layout_shift += one.value; });
  watch("longtask", (one) => { found.blocked += (one.duration - 50) / 1000; });
  setTimeout(() => done(found), 500);
})"""


def missing() -> str | None:
    """Why there is no browser; None: there is one."""
    if chromium() is None:
        return "there is no Chromium on the worker's machine"
    if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
        return "the worker has neither Playwright nor axe-core"
    return None


def chromium() -> str | None:
    named = os.environ.get("SITE_AUDIT_BROWSER")
    return shutil.which(named or "chromium") or (None if named else shutil.which("google-chrome"))


def browser_tier(url: str, *, allow_private: bool, longest: float = LONGEST) -> Tier:
    """Checks what only a browser sees, or says why not."""
    if (why := missing()) is not None:
        return not_tested(f"{why}: {INSTALL}")
    command = [sys.executable, "-m", "examples.site_audit.browser", url, str(longest)]
    private = {"SITE_AUDIT_ALLOW_PRIVATE": "1" if allow_private else "0"}
    process = subprocess.Popen(  # noqa: S603 - our own
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, **private},
    )  # fmt: skip
    try:
        written, said = process.communicate(timeout=longest)
    except subprocess.TimeoutExpired:
        return not_tested(f"the page kept the browser busy for more than {longest:g} s")
    finally:
        with suppress(ProcessLookupError):  # it ended, and all that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode != 0:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        return not_tested(f"the browser could not show the page: {last}")
    return answered(written)


def answered(written: bytes) -> Tier:
    """What the browser says. The scripts of the page are in it, too, and may change what that is."""
    try:
        return measured(json.loads(written))
    except (ValueError, LookupError, TypeError, AttributeError):
        return not_tested("the page changes what the browser says of it")


def not_tested(why: str) -> Tier:
    text = f"Accessibility and speed were not tested in a browser: {cut(why, 200)}."
    said = Finding(AXE.name, AXE.category, "info", text, None)
    return Tier([Outcome(check.name, False, [said] if check is AXE else []) for check in BY_BROWSER])


def measured(found: dict[str, Any]) -> Tier:
    speed = {limit.figure: max(0.0, float(found[limit.figure])) for limit in LIMITS}
    if not all(map(math.isfinite, speed.values())):
        raise ValueError(speed)
    outcomes = [outcome(AXE, _violations(found["violations"]))]
    outcomes += [outcome(limit.check, _judged(speed[limit.figure], limit)) for limit in LIMITS]
    return Tier(outcomes, {**speed, "browser": cut(str(found["browser"]), 40), "axe": cut(str(found["axe"]), 20)})


def _violations(violations: list[dict[str, Any]]) -> Iterator[Found]:
    for violation in sorted(violations, key=lambda one: SEVERITIES.index(_severity(one))):
        for node in violation["nodes"]:
            tag = START_TAG.match(str(node["html"]))
            yield Found(_severity(violation), f"{violation['help']} ({violation['id']})", tag[0] if tag else None)


def _severity(violation: dict[str, Any]) -> Severity:
    return next((one for one in SEVERITIES if one == violation.get("impact")), "minor")


def _judged(value: float, limit: Limit) -> Iterator[Found]:
    if value > limit.good:
        yield Found("serious" if value > limit.bad else "moderate", limit.text.format(value))


def look(url: str, longest: float, allow_private: bool) -> dict[str, Any]:
    """In the process of its own."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with proxy(allow_private=allow_private, seconds=longest) as web, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            # Root has no sandbox: run workers as an ordinary user.
            chromium_sandbox=os.geteuid() != 0,
            proxy={"server": web.address, "bypass": "<-loopback>"},
            args=["--disable-quic", "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-sync",
                  "--disable-background-networking", "--disable-component-update"],
        )  # fmt: skip
        context = browser.new_context(accept_downloads=False, service_workers="block")
        page = context.new_page()
        page.goto(url, wait_until="load", timeout=LONGEST_LOAD * 1000)
        speed = page.evaluate(MEASURE)
        axe = Axe().run(page).response
        return {
            **speed, "violations": axe["violations"], "axe": axe["testEngine"]["version"],
            "browser": f"Chromium {browser.version}",
        }  # fmt: skip


if __name__ == "__main__":
    given = sys.argv[2]
    signal.alarm(int(float(given)) + 5)  # whoever started it may be gone
    json.dump(look(sys.argv[1], float(given), os.environ.get("SITE_AUDIT_ALLOW_PRIVATE") == "1"), sys.stdout)
