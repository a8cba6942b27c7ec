"""The page, what it asks for, and Holdfast's own routes for operators."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.crawl import urls
from examples.crawl.app import crawls, hf, submit
from examples.crawl.database import Database, connect
from examples.crawl.exports import EXPORTS, lines
from examples.crawl.reports import all_crawls, known, one_crawl, total_pending
from examples.routes import POLICY, REFUSALS, body_of
from holdfast import JobNotFound, Refused

STATIC = Path(__file__).with_name("static")
LARGEST_BODY = 10_000  # bytes
VERBS = ("pause", "resume", "cancel", "retry")


async def page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY})


async def index(request: Request) -> Response:
    """All crawls, and how much those that run have before them."""
    return await _read(lambda db: {"crawls": all_crawls(db), "total_pending": total_pending(db)})


async def show(request: Request) -> Response:
    return await _read(lambda db: one_crawl(db, request.path_params["id"]))


async def begin(request: Request) -> Response:
    """Start a crawl: a body like `{"start_url": "https://a.example/", "max_depth": 3, "delay": 1}`."""
    asked = await _body(request)
    try:
        start, options = _checked(asked)
        job = await run_in_threadpool(submit, start, **options)
    except urls.NotForUs as refused:
        raise HTTPException(400, str(refused)) from None
    return JSONResponse({"id": job.source_id}, 201)


def steer_by(verb: str) -> Callable[[Request], Awaitable[Response]]:
    async def steer(request: Request) -> Response:
        await _body(request)
        job = await crawls.ajob(request.path_params["id"])
        state = await getattr(job, f"a{verb}")(by="the page")
        return JSONResponse({"state": state.value})

    return steer


async def export(request: Request) -> Response:
    id, what = request.path_params["id"], EXPORTS.get(request.path_params["what"])
    if what is None or not await run_in_threadpool(_ask, lambda db: known(db, id)):
        raise HTTPException(404, "there is no such crawl, or no such list of it")

    def stream() -> Iterator[str]:
        with connect(hf.settings.url) as db:
            yield from lines(db, what, id)

    name = f"{request.path_params['what']}-{id[:8]}.csv"
    return StreamingResponse(
        stream(), media_type="text/csv", headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def _checked(asked: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The arguments of `submit`; or a refusal that names what is wrong."""
    start, scope = asked.get("start_url"), asked.get("scope", "host")
    depth, pages, delay = asked.get("max_depth"), asked.get("max_pages", 100_000), asked.get("delay", 1.0)
    if not isinstance(start, str) or not start.strip():
        raise HTTPException(400, "start_url must be the address of a page")
    if scope not in get_args(urls.ScopeKind):
        raise HTTPException(400, f"scope must be one of {', '.join(get_args(urls.ScopeKind))}")
    if depth is not None and (type(depth) is not int or not 0 <= depth <= 1_000_000):
        raise HTTPException(400, "max_depth must be a whole number, or left out")
    if type(pages) is not int or not 1 <= pages <= 1_000_000_000:
        raise HTTPException(400, "max_pages must be a whole number above 0")
    if type(delay) not in (int, float) or not math.isfinite(delay) or not 0 <= delay <= 86_400:
        raise HTTPException(400, "delay must be a number of seconds")
    return start.strip(), {"scope": scope, "max_depth": depth, "max_pages": pages, "delay": float(delay)}


async def _body(request: Request) -> dict[str, Any]:
    """JSON, and said to be: a form on a page of somebody else's can't say so."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send JSON, as application/json")
    body = await body_of(request, most=LARGEST_BODY)
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return document


async def _read(ask: Callable[[Database], Any]) -> Response:
    found = await run_in_threadpool(_ask, ask)
    if found is None:
        raise HTTPException(404, "there is no such crawl")
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


def _ask(ask: Callable[[Database], Any]) -> Any:
    with connect(hf.settings.url) as db:
        return ask(db)


async def unknown(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "there is no such crawl"}, 404)


async def conflict(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"error": error.message}, 409)


web = Starlette(
    routes=[
        Route("/", page),
        Route("/crawls", index),
        Route("/crawls", begin, methods=["POST"]),
        Route("/crawls/{id}", show),
        *(Route(f"/crawls/{{id}}/{verb}", steer_by(verb), methods=["POST"]) for verb in VERBS),
        Route("/crawls/{id}/{what}.csv", export),
        Mount("/static", StaticFiles(directory=STATIC)),
        # With an API key: all that operators do.
        Mount("/jobs", hf.asgi()),
    ],
    exception_handlers=REFUSALS | {JobNotFound: unknown, Refused: conflict},
)
