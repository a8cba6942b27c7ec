"""The two routes that front ends know, the page, and Holdfast's own routes for a cron job and for operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.claim_check import inputs
from examples.claim_check.app import analyses, hf, submit
from examples.routes import POLICY, REFUSALS, body_of
from holdfast import JobNotFound, State

STATIC = Path(__file__).with_name("static")
LARGEST_BODY = 200_000  # bytes: the longest text, with every character escaped
NO_SUCH_JOB = "there is no job with this id and token"


async def analyze_product(request: Request) -> Response:
    """Check a claim: the result of an equal one at once, or a job to poll."""
    try:
        asked = inputs.read(json.loads(await body_of(request, most=LARGEST_BODY)))
    except inputs.InputRefused as refused:
        raise HTTPException(400, str(refused)) from refused
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body must be a JSON object") from error
    job = await submit(asked, request.headers.get("x-request-id", "")[:200] or str(uuid4()))
    row = await analyses.arow(job.source_id)
    if job.state is State.SUCCEEDED:
        return JSONResponse({"status": "cached", "job_id": row["id"], **_result(row), "model_used": row["model_used"]})
    return JSONResponse({"status": "queued", "job_id": row["id"], "job_token": row["job_token"]})


async def job_status(request: Request) -> Response:
    """How a job stands, for whoever has its token."""
    query = request.query_params
    try:
        row = await analyses.arow(query.get("job_id", ""), token=query.get("job_token", ""))
    except JobNotFound:
        raise HTTPException(404, NO_SUCH_JOB) from None
    return JSONResponse(shown(row), headers={"Cache-Control": "no-store"})


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """What clients see of a row."""
    always = ("status", "job_token", "attempts", "model_used", "perplexity_latency_ms", "updated_at")
    document = {"job_id": row["id"], **{name: row[name] for name in always}}
    if row["status"] == "done":
        document |= _result(row)
    if row["status"] == "failed":
        document |= {name: row[name] for name in ("last_error_code", "last_error_message")}
    return document


def _result(row: dict[str, Any]) -> dict[str, Any]:
    score = row["bs_score"]  # none in rows of the old worker, which wrote the result only
    return {"bs_score": None if score is None else float(score), "result_json": row["result_json"]}


async def page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html", headers={"Content-Security-Policy": POLICY})


async def health(request: Request) -> Response:
    """For whatever restarts containers: the database answers."""
    await hf.apauses()  # a cheap read
    return JSONResponse({"status": "healthy"})


web = Starlette(
    routes=[
        Route("/functions/v1/analyze_product", analyze_product, methods=["POST"]),
        Route("/functions/v1/job_status", job_status),
        Route("/health", health),
        Route("/", page),
        Mount("/static", StaticFiles(directory=STATIC)),
        # With an API key: POST /jobs/v1/drain for a cron job, and all that operators do.
        Mount("/jobs", hf.asgi()),
    ],
    exception_handlers=REFUSALS,
)
