"""Reads what clients send: bounded in size, depth and time, and strict about what JSON means."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from holdfast.errors import BadArguments, RequestRefused
from holdfast.model.payload import MAX_DEPTH, depth

T = TypeVar("T")

MAX_BODY = 1_000_000  # bytes
BODY_TIMEOUT = 30.0  # seconds from the first byte of a body to its last


async def read(request: Request, kind: type[T]) -> T:
    """The body of a request as a document of this kind. No body is an empty object."""
    return document(await received(request, "application/json") or b"{}", kind)


async def received(request: Request, kind: str) -> bytes:
    """The body of a request, of this content type."""
    expect(request, kind)
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    raise too_large(MAX_BODY)
    except TimeoutError:
        raise too_slow() from None
    return bytes(data)


def query(request: Request, kind: type[T]) -> T:
    """The parameters of a request as a document of this kind."""
    given = request.query_params.multi_items()
    named = dict(given)
    if len(named) < len(given):
        raise BadArguments("a parameter of the query is given twice")
    try:
        return msgspec.convert(named, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadArguments(f"the query: {error}") from None


def expect(request: Request, kind: str) -> None:
    """Refuse a body that is too long or of another type. (A browser asks before it sends JSON to another site.)"""
    length = request.headers.get("content-length", "0")
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = length != "0" or "transfer-encoding" in request.headers
    if has_body and given != kind:
        raise RequestRefused(f"send the body as Content-Type: {kind}, not {given!r:.80}", status=415, number="HF1504")
    if length.isdigit() and len(length) < 12 and kind == "application/json" and int(length) > MAX_BODY:
        raise too_large(MAX_BODY)


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(f"the body takes more than {limit:,} bytes; send less", status=413, number="HF1505")


def too_slow() -> RequestRefused:
    return RequestRefused(
        f"the body did not arrive within {BODY_TIMEOUT:g} s; send it again", status=408, number="HF1506"
    )


def document(data: bytes, kind: type[T]) -> T:
    """JSON text as a document of this kind; unknown fields and repeated names are errors."""
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and depth(data) > MAX_DEPTH + 1:  # arguments are one level down
        raise _unreadable(f"it is nested deeper than {MAX_DEPTH} levels")
    try:
        tree = json.loads(data.decode(), object_pairs_hook=_no_repetition, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise _unreadable("it is not UTF-8") from None
    except RecursionError:
        raise _unreadable("it is nested too deeply") from None
    except ValueError as error:  # Python's text on long numbers ends in advice for programmers
        raise _unreadable(str(error).partition(";")[0]) from None
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise BadArguments(f"the request: {error}") from None
    except UnicodeEncodeError:
        raise BadArguments("the request: a name has half of a surrogate pair, which is not a character") from None


def _unreadable(why: str) -> RequestRefused:
    return RequestRefused(f"the body can't be read as JSON: {why}", number="HF1503")


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name occurs twice in one object")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
