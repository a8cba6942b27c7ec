"""Takes pictures of the page: `python -m tests.examples.crawl.pictures docs/examples` takes that of the README; with
--all, also those of other states, light and dark, wide and narrow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from starlette.routing import Mount

from holdfast import Job
from tests.examples.crawl.application import HASTE
from tests.examples.crawl.site import Page, Site, faults, page
from tests.http.test_browser import BROWSER, QUIETLY, served
from tests.running import working
from tests.waiting import wait_until

TITLES = ("Getting started", "Tutorial", "Recipes", "Reference", "Questions", "News", "Glossary", "Contributing")


class Picture(NamedTuple):
    name: str
    state: str
    width: int
    height: int
    dark: bool = False


README = Picture("crawl", "running", 940, 1330)
EACH = [
    Picture(f"{state}-{'dark' if dark else 'light'}-{width}", state, width, 2300 if width < 600 else 1400, dark)
    for state in ("running", "done", "failed")
    for width, dark in ((940, False), (940, True), (500, False))
]


def a_site() -> dict[str, Page]:
    names = [f"/{title.lower().replace(' ', '-')}/{n}.html" for n in range(60) for title in TITLES]
    pages: dict[str, Page] = {"/": page(*names[: len(TITLES)], "/gone.html", title="The start")}
    for n, name in enumerate(names):
        title = f"{TITLES[n % len(TITLES)]}, part {n // len(TITLES) + 1}"
        pages[name] = page(*names[n + 8 : n + 16], "/", title=title)
    return pages


def take(pictures: list[Picture], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ.update({**HASTE, "HOLDFAST_URL": f"sqlite:///{home}/crawl.db"})
        from examples.crawl import app
        from examples.crawl.database import connect
        from examples.crawl.web import web

        app.hf.reconfigure(poll_base=0.1, poll_max=0.1, grace=0.5)
        app.set_up()
        with (
            Site(a_site(), fault=faults(4, every=25)) as site, Site({"/": page()}) as small,
            connect(app.hf.settings.url) as db,
            working(app.hf), served([Mount("/", web)]) as url,
        ):  # fmt: skip
            jobs: dict[str, Job[None]] = {
                "done": app.submit(small.url, delay=0), "failed": app.submit(f"{small.url}/gone", delay=0),
                "running": app.submit(site.url, delay=0.15),
            }  # fmt: skip
            wait_until(
                lambda: db.value("select count(*) as n from crawl_pages") > 120, "it to be under way", timeout=120.0
            )
            for picture in pictures:
                photograph(
                    f"{url}/#{jobs[picture.state].source_id}", picture, Path(home), folder / f"{picture.name}.png"
                )


def photograph(url: str, picture: Picture, home: Path, path: Path) -> None:
    assert BROWSER is not None
    scheme = f"--blink-settings=preferredColorScheme={0 if picture.dark else 1}"
    subprocess.run(
        [BROWSER, *QUIETLY, scheme, "--hide-scrollbars", f"--user-data-dir={home}/profile-{picture.name}",
         f"--window-size={picture.width},{picture.height}", "--virtual-time-budget=20000", f"--screenshot={path}", url],
        check=True, capture_output=True, timeout=90,
    )  # fmt: skip
    print(path, f"{path.stat().st_size:,} bytes")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    take([README, *(EACH if "--all" in sys.argv else [])], folder)
