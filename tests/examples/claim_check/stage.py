"""Puts the application's page on a stage: into a frame, where a script uses it as a person would."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from examples.claim_check.web import web

HTML = """<!doctype html><meta charset="utf-8"><title>Stage</title>
<style>body {{ margin: 0 }} iframe {{ border: 0; display: block; width: {width}px; height: {height}px }}</style>
<iframe id="frame" src="/"></iframe><script type="module" src="/stage/play.js?{query}"></script>"""

HANDS = """
const frame = document.getElementById("frame");
const page = () => frame.contentDocument;
const $ = (id) => page().getElementById(id);
const shown = () => ["progress", "error", "result"].find((id) => !$(id).hidden) ?? null;
const until = async (condition) => { while (!condition()) await new Promise((go) => setTimeout(go, 10)); };
const loaded = () => until(() => page()?.readyState === "complete" && $("input")?.placeholder);

function hurry(attempts, interval) {
  Object.assign(page().documentElement.dataset, { attempts, interval });
}

function submit(kind, value) {
  page().querySelector(`[value=${kind}]`).click();
  $("input").value = value;
  page().querySelector("button").click();
}

/** What is read on the way to the end. */
async function read(go) {
  const states = [];
  const note = () => {
    const state = $("state").textContent;
    if (!$("progress").hidden && state && states.at(-1) !== state) states.push(state);
  };
  const observer = new MutationObserver(note);
  observer.observe($("progress"), { subtree: true, childList: true, characterData: true, attributes: true });
  go();
  await until(() => shown() === "progress");
  await until(() => shown() !== "progress");
  observer.disconnect();
  return { states, shown: shown(), text: $(shown()).innerText, kept: sessionStorage.getItem("claim-check") };
}
"""


def stage(script: str, told: Callable[[str, Any], Any], routes: list[Route] | None = None) -> Starlette:
    """`/stage/` runs this script around the page. `told` gets what the script posts to `/stage/tell/<name>`, and its
    answer goes back."""

    async def html(request: Request) -> Response:
        width, height = (int(request.query_params.get(name, 800)) for name in ("width", "height"))
        return HTMLResponse(HTML.format(width=width, height=height, query=request.url.query))

    async def play(request: Request) -> Response:
        return Response(HANDS + script, media_type="text/javascript")

    async def tell(request: Request) -> Response:
        what = json.loads(await request.body() or b"null")
        return JSONResponse(await run_in_threadpool(told, request.path_params["name"], what))

    return Starlette(
        routes=[
            Route("/stage/", html), Route("/stage/play.js", play), Route("/stage/tell/{name}", tell, methods=["POST"]),
            *(routes or []), Mount("/", web),
        ]
    )  # fmt: skip
