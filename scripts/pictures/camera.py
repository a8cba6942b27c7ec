"""Takes a picture of every page, in light and dark and as a telephone shows it; the best go into the documentation.

`python -m scripts.pictures.camera [FOLDER]`"""

from __future__ import annotations

import base64
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from holdfast.http.server import Server
from scripts.pictures.scene import scene

ALL = Path("build/pictures")
BEST = Path("docs/pictures")
SIZES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
SHOWN = {"overview-light": "overview", "job-running-dark": "job", "group-light": "errors"}
QUALITY = 70
# Whichever fonts this machine prefers, pictures have these, if they are there.
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
{}</fontconfig>"""
FONT = """<match target="pattern"><test name="family"><string>{}</string></test>
<edit name="family" mode="prepend" binding="strong"><string>{}</string></edit></match>"""
FAMILIES = {"system-ui": "Inter", "sans-serif": "Inter", "sans": "Inter", "ui-monospace": "JetBrains Mono"}


@contextmanager
def chromium(home: Path) -> Iterator[Browser]:
    fonts = home / "fonts.conf"
    fonts.write_text(FONTS.format("".join(FONT.format(*pair) for pair in FAMILIES.items())))
    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-quic", "--font-render-hinting=none"],
            env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
        )  # fmt: skip
        yield browser
        browser.close()


def places(names: dict[str, str]) -> dict[str, str]:
    """By the names of the pictures."""
    failed, running = f"jobs/{names['id']}", f"jobs/{names['running']}"
    return {
        "overview": "", "overview-day": "?range=day&by=queue", "jobs": "jobs",
        "jobs-failed": "jobs?filter=state:failed", "errors-retrying": "errors?of=retrying",
        "job": failed, "job-running": running, "replay": f"{failed}/replay", "errors": "errors",
        "group": f"errors/{names['group']}", "queues": "queues", "workers": "workers", "schedules": "schedules",
        "bulk": "bulk", "bulk-new": "bulk/new?verb=retry&filter=state:failed", "audit": "audit",
        "wrong-filter": "jobs?filter=colour:red", "not-found": "jobs/999999999",
    }  # fmt: skip


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, scene(Path(directory)) as (app, names):
        server = Server(app, "127.0.0.1", 0, runs_jobs=False)
        serving = threading.Thread(target=server.run_until_stopped)
        serving.start()
        with chromium(Path(directory)) as browser:
            for size, options in SIZES.items():
                page = browser.new_context(reduced_motion="reduce", **options).new_page()
                camera = page.context.new_cdp_session(page)
                for name, path in places(names).items():
                    page.goto(f"{server.url}/{path}")
                    page.wait_for_timeout(300)
                    page.screenshot(path=folder / f"{name}-{size}.png", full_page=True)
                    if kept := SHOWN.get(f"{name}-{size}"):
                        taken = camera.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
                        (BEST / f"{kept}.webp").write_bytes(base64.b64decode(taken["data"]))
        server.stop()
        serving.join()


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if sys.argv[1:] else ALL)
