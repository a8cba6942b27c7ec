"""The page and its JSON, and Holdfast's own routes for operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.routes import POLICY, REFUSALS, body_of
from examples.safe_http import Refused, web_address
from examples.site_audit import database
from examples.site_audit.app import audits, hf
from examples.site_audit.compare import compared
from holdfast import JobNotFound

STATIC = Path(__file__).with_name("static")
LARGEST_BODY = 8_000  # bytes
NO_CACHE = {"Cache-Control": "no-store"}


async def analyze(request: Request) -> Response:
    """The button: it inserts a row that waits, and nothing else."""
    try:
        asked = json.loads(await body_of(request, most=LARGEST_BODY))
        address = str(web_address(asked["url"].strip()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise HTTPException(400, 'the body must be {"url": "https://…"}') from None
    except Refused as refused:
        raise HTTPException(400, refused.reason) from None
    id = await run_in_threadpool(database.analyze, hf.settings.url, address)
    return JSONResponse({"id": id}, 201)


async def recent(request: Request) -> Response:
    url = hf.settings.url
    rows = await run_in_threadpool(database.rows, url, database.RECENT)
    counts = await run_in_threadpool(database.counted, url)
    groups = await hf.aerror_groups("source:audits")
    metrics = await hf.ametrics()
    took = metrics.processing_duration_ms.get("audits")
    return JSONResponse(
        {
            "audits": rows,
            "nightly": await run_in_threadpool(database.rows, url, database.NIGHTLY),
            "queue": {
                **{status: counts.get(status, 0) for status in ("pending", "processing", "completed", "failed")},
                "stale": len(await run_in_threadpool(database.stale, url)),
                "p95_seconds": took and took.p95 and round(took.p95 / 1000, 1),
            },
            "errors": [{"code": one.error_code, "message": one.error_message, "audits": one.jobs} for one in groups],
        },
        headers=NO_CACHE,
    )


async def one(request: Request) -> Response:
    return JSONResponse(await run_in_threadpool(document, request.path_params["id"]), headers=NO_CACHE)


async def broken_links(request: Request) -> Response:
    row = await _row(request.path_params["id"])
    found = await run_in_threadpool(database.rows, hf.settings.url, database.BROKEN, row["id"])
    return JSONResponse({"broken_links": found}, headers=NO_CACHE)


async def _row(id: str) -> dict[str, Any]:
    try:
        return await audits.arow(id)
    except JobNotFound:
        raise HTTPException(404, "there is no such audit") from None


def document(id: str) -> dict[str, Any]:
    """Everything about one audit: its row, how far it is, and how it compares with the audits before."""
    row = audits.row(id)
    if row["status"] in ("pending", "processing"):
        return {**row, "job": _job(id)}
    if row["status"] == "failed":
        return row
    history = database.rows(hf.settings.url, database.HISTORY, row["id"])
    previous = next(iter(database.rows(hf.settings.url, database.PREVIOUS, row["id"])), None)
    return {
        **row,
        "history": history[::-1],
        "previous": previous and {name: previous[name] for name in ("id", "completed_at", "score", "scores")},
        "compared": previous and compared(row["findings"], previous["findings"]),
    }


def _job(id: str) -> dict[str, Any]:
    job = audits.job(id)
    progress, record = job.progress, job.record
    return {
        "id": job.id, "state": job.state.value, "attempt": record.attempt, "max_attempts": record.max_attempts,
        "due_at": record.run_at.isoformat() if record.run_at else None,
        "done": progress and progress.done, "total": progress and progress.total, "note": progress and progress.note,
        "error": job.error and job.error.message,
    }  # fmt: skip


async def page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY})


async def health(request: Request) -> Response:
    """For whatever restarts containers: the database answers."""
    await hf.apauses()  # a cheap read
    return JSONResponse({"status": "healthy"})


async def unknown(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "there is no such audit"}, 404)


web = Starlette(
    routes=[
        Route("/api/audits", analyze, methods=["POST"]),
        Route("/api/audits", recent),
        Route("/api/audits/{id}", one),
        Route("/api/audits/{id}/broken-links", broken_links),
        Route("/health", health),
        Route("/", page),
        Route("/audits/{id}", page),
        Mount("/static", StaticFiles(directory=STATIC)),
        # With an API key: all that operators do, and the metrics.
        Mount("/jobs", hf.asgi()),
    ],
    exception_handlers=REFUSALS | {JobNotFound: unknown},
)
