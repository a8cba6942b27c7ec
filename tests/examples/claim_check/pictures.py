"""Takes pictures of the page: `python -m tests.examples.claim_check.pictures docs/examples` takes that of the README;
with --all, also those of every state, light and dark, wide and narrow."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from tests.examples.claim_check.standin import StandIn
from tests.http.test_browser import BROWSER, QUIETLY, served

PLAY = """
document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/stage/curtain.css" }));
const play = new URL(import.meta.url).searchParams.get("play");
await loaded();
hurry(2000, 20);
const advert = "Miracle drops. Work overnight. Made in the EU. Only 3 left!";
const end = () => until(() => shown() && shown() !== "progress");
const acts = {
  empty: () => {},
  waiting: async () => {
    await fetch("/stage/tell/pause", { method: "POST" });
    submit("text", `An advert of ${Date.now()}`); await until(() => $("state").textContent.startsWith("Waiting"));
  },
  processing: async () => {
    submit("text", "An advert. [[slow 600]]"); await until(() => $("state").textContent.startsWith("Processing"));
  },
  error: async () => { submit("text", "An advert. [[invalid-always]]"); await end(); },
  result: async () => { submit("text", advert); await end(); },
  cached: async () => { submit("text", advert.toUpperCase()); await end(); },  // once there is a result
};
await acts[play]();
page().activeElement.blur();
await fetch("/stage/tell/ready", { method: "POST" });
"""


class Picture(NamedTuple):
    name: str
    play: str
    width: int
    height: int
    dark: bool = False


README = Picture("claim-check", "result", 760, 1290)
HEIGHTS = {"empty": 640, "waiting": 640, "processing": 640, "error": 640, "result": 1400, "cached": 1400}
EACH = [
    Picture(f"{play}-{'dark' if dark else 'light'}-{width}", play, width, height, dark)
    for play, height in HEIGHTS.items()
    for width, dark in ((760, False), (760, True), (390, False), (390, True))
]


def take(pictures: list[Picture], folder: Path) -> None:
    with tempfile.TemporaryDirectory() as home, StandIn() as standin:
        os.environ["HOLDFAST_URL"] = f"sqlite:///{home}/pictures.db"
        os.environ["CLAIM_CHECK_MODEL_URL"] = standin.url
        from examples.claim_check import app
        from tests.examples.claim_check.stage import stage
        from tests.running import working

        app.hf.reconfigure(poll_base=0.1, poll_max=0.1, after_job_delay=0.0, concurrency=8, threads=8, grace=0.1)
        app.set_up()
        ready = threading.Event()

        async def curtain(request: Request) -> Response:
            """Part of the stage: it is not loaded, so no picture is taken, before the play is over."""
            await run_in_threadpool(ready.wait, 30)
            return Response(media_type="text/css")

        def told(name: str, what: object) -> None:
            ready.set() if name == "ready" else app.hf.pause_task("analysis_jobs")

        routes = [Mount("/", stage(PLAY, told, [Route("/stage/curtain.css", curtain)]))]
        with working(app.hf), served(routes) as url:
            for picture in pictures:
                ready.clear()
                photograph(url, picture, Path(home), folder / f"{picture.name}.png")
                app.hf.resume_task("analysis_jobs")


def photograph(url: str, picture: Picture, home: Path, path: Path) -> None:
    assert BROWSER is not None
    query = f"play={picture.play}&width={picture.width}&height={picture.height}"
    scheme = f"--blink-settings=preferredColorScheme={0 if picture.dark else 1}"
    width = max(picture.width, 500)  # the least that a window has
    subprocess.run(
        [BROWSER, *QUIETLY, scheme, "--hide-scrollbars", f"--user-data-dir={home}/profile-{picture.name}",
         f"--window-size={width},{picture.height}", f"--screenshot={path}", f"{url}/stage/?{query}"],
        check=True, capture_output=True, timeout=90,
    )  # fmt: skip
    print(path, f"{path.stat().st_size:,} bytes")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    take([README, *(EACH if "--all" in sys.argv else [])], folder)
