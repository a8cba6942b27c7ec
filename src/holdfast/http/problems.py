"""Errors as HTTP answers: problem JSON (RFC 9457) with the number of the error as `code`."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.responses import Response

from holdfast.errors import (
    BadArguments,
    HoldfastError,
    JobNotFound,
    OutcomeUnknown,
    Refused,
    RequestRefused,
    SchemaOutdated,
    StoreUnavailable,
    UnknownTask,
    ValueRefused,
    WorkerNotFound,
)
from holdfast.redact import scrub

STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (BadArguments, 422),
    (ValueRefused, 422),
    (UnknownTask, 404),
    (JobNotFound, 404),
    (WorkerNotFound, 404),
    (Refused, 409),
    (StoreUnavailable, 503),
    (SchemaOutdated, 503),
    (HoldfastError, 500),
)
# What clients are told instead of texts that say where the database is: while it is away, nobody knows who asks.
AWAY: tuple[tuple[type[HoldfastError], str], ...] = (
    (OutcomeUnknown, "the connection to the database broke; whether this took effect is not known"),
    (StoreUnavailable, "the database is away or too busy; try again"),
    (SchemaOutdated, "the database does not fit this version of the server; its log says what to do"),
)
RETRY_AFTER = 2  # seconds, while the database is away
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}  # of every answer


class Problem(msgspec.Struct, frozen=True):
    """What went wrong: `code` is the number of the error, which the documentation explains."""

    title: str
    status: int
    detail: str
    code: str


def status_of(error: HoldfastError) -> int:
    if isinstance(error, RequestRefused):
        return error.status
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def detail_of(error: HoldfastError) -> str:
    """What a client is told. What the server itself got wrong is told in its log; the client can't mend it, and must
    not learn from it."""
    return scrub(error.message) if status_of(error) != 500 else "the server could not answer this; its log says why"


def answer_to(error: HoldfastError) -> Response:
    status = status_of(error)
    headers = dict(HEADERS)
    if status == 503:
        headers["Retry-After"] = str(RETRY_AFTER)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    detail = next((text for kind, text in AWAY if isinstance(error, kind)), None) or detail_of(error)
    problem = Problem(HTTPStatus(status).phrase, status, detail, error.number)
    return Response(msgspec.json.encode(problem), status, headers, media_type="application/problem+json")
