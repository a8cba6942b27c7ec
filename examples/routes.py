"""What the applications' web servers have in common."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast import HoldfastError, StoreUnavailable

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'self'; base-uri 'none'"
)


async def body_of(request: Request, *, most: int) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise HTTPException(413, f"the body has more than {most:,} bytes")
    return body


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def failed(request: Request, error: Exception) -> Response:
    away = isinstance(error, StoreUnavailable)
    text = "the database is away: try again soon" if away else "the table can't be used now; the log says why"
    return JSONResponse({"error": text}, 503 if away else 500, {"Retry-After": "2"} if away else None)


REFUSALS = {HTTPException: refused, HoldfastError: failed}
