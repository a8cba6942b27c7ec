"""What a client asks, what the answers mean, and how it waits for a job. No I/O: the clients send the requests."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from holdfast.durations import Duration
from holdfast.errors import (
    BadArguments,
    BadSettings,
    HoldfastError,
    JobFailed,
    JobNotFound,
    Refused,
    RequestRefused,
    ServerUnavailable,
    StoreUnavailable,
    UnknownTask,
    ValueRefused,
    WaitTimeout,
)
from holdfast.http.documents import JobStatus, Submitted
from holdfast.model.lifecycle import FINISHED, State
from holdfast.tasks.options import seconds

T = TypeVar("T")

SHORTEST_WAIT, LONGEST_WAIT = 0.1, 60.0  # seconds that one request waits for a change; the server allows no more
AGAIN = 1.0  # seconds until the next try, if the server does not say
OWN = {kind.number: kind for kind in (BadArguments, JobNotFound, Refused, UnknownTask, ValueRefused)}
PASSING = frozenset([429, 502, 503, 504])  # statuses after which the same request may succeed


@dataclass(frozen=True)
class Request:
    """`waits`: seconds after which the server answers at the latest, on purpose."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    waits: float = 0.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def checked_url(url: str) -> str:
    """Where the API is served, or mounted."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadSettings(f"the URL of the API looks like https://example.org/jobs, not {url!r:.80}")
    return url.rstrip("/").removesuffix("/v1")


def submission(
    task: str, args: Mapping[str, Any] | None, options: Mapping[str, Any], idempotency_key: str | None,
    wait: Duration | None,
) -> Request:  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    if "delay" in given:
        given["delay"] = seconds("submit: delay", given["delay"])
    longest = None if wait is None else min(seconds("submit: wait", wait), LONGEST_WAIT)
    return Request(
        "POST", f"/v1/tasks/{quote(task, safe='')}/jobs", {"args": dict(args or {}), **given},
        query={} if longest is None else {"wait": f"{longest:g}"},
        headers={} if idempotency_key is None else {"Idempotency-Key": idempotency_key},
        waits=longest or 0.0,
    )  # fmt: skip


def encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArguments(f"the request can't be sent as JSON: {error}") from None


def status(job: str | Submitted, token: str | None) -> Request:
    id, headers = _of(job, token)
    return Request("GET", f"/v1/jobs/{id}", headers=headers)


def verb(name: str, job: str | Submitted, token: str | None, reason: str | None) -> Request:
    id, headers = _of(job, token)
    return Request("POST", f"/v1/jobs/{id}/{name}", {} if reason is None else {"reason": reason}, headers=headers)


def _of(job: str | Submitted, token: str | None) -> tuple[str, dict[str, str]]:
    """Its id, and the header that opens it. Without a token, the client's own key has to."""
    if isinstance(job, Submitted):
        token, job = token or job.token, job.id
    return quote(job, safe=""), {"Authorization": f"Bearer {token}"} if token else {}


# -- answers -----------------------------------------------------------------------------------------------------------


def read(answer: Answer, kind: type[T]) -> T:
    """The document that was answered. A problem is raised as the error that Python would have raised."""
    if answer.status not in (200, 202):
        raise error_of(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeError):
        raise foreign(answer.status) from None


def error_of(answer: Answer) -> HoldfastError:
    try:
        problem = msgspec.json.decode(answer.body)
        number, detail = problem["code"], problem["detail"]
    except (msgspec.DecodeError, UnicodeError, TypeError, KeyError):
        return ServerUnavailable(f"the server answered {answer.status}") if answer.status in PASSING else foreign(
            answer.status
        )  # fmt: skip
    if answer.status == 503:
        return StoreUnavailable(detail, number=number)
    if number in OWN:
        return OWN[number](detail)
    return RequestRefused(detail, status=answer.status, number=number)


def foreign(status: int) -> RequestRefused:
    return RequestRefused(
        f"the server answered {status}, and not as Holdfast's API does: is the URL right?",
        status=status, number="HF1511",
    )  # fmt: skip


# -- waiting -----------------------------------------------------------------------------------------------------------


def following(
    job: str | Submitted, token: str | None, interval: Duration, timeout: Duration | None
) -> Generator[Request | JobStatus | float, Answer | HoldfastError | None, Any]:
    """The steps of waiting for a job; returns its result. Each is a request to send, whose answer or failure is sent
    back; an update, to be passed on; or seconds to sleep."""
    pause = min(max(SHORTEST_WAIT, seconds("wait: interval", interval)), LONGEST_WAIT)
    patience = None if timeout is None else seconds("wait: timeout", timeout)
    until = math.inf if patience is None else time.monotonic() + patience
    id, opening = _of(job, token)
    state, tag = "not known", ""
    last: JobStatus | None = None
    while True:
        waits = min(pause, max(0.0, until - time.monotonic())) if tag else 0.0
        asked = time.monotonic()
        answer = yield Request(
            "GET", f"/v1/jobs/{id}", query={"wait": f"{waits:g}"}, waits=waits,
            headers={**opening, "If-None-Match": tag} if tag else opening,
        )  # fmt: skip
        assert answer is not None
        sleep = 0.0
        if isinstance(answer, HoldfastError):
            sleep = AGAIN
        elif answer.status in PASSING:
            sleep = retry_after(answer)
        elif answer.status == 304:  # at once, if the server stops, or a proxy answers for it
            sleep = AGAIN if time.monotonic() - asked < min(waits, AGAIN) else 0.0
        else:
            known = read(answer, JobStatus)
            if known != last:
                yield known
            if known.state in FINISHED:
                return outcome(known)
            state, tag = known.state.value, answer.headers.get("etag", "")
            # A proxy may have removed the ETag, or changed it into one that the server does not know.
            sleep = pause if not tag else AGAIN if known == last else 0.0
            last = known
        left = until - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"job {id} is {state} after {patience:g} s; it goes on")
        if sleep:
            yield min(sleep, left)


def retry_after(answer: Answer) -> float:
    """Seconds. (A date is allowed, too, and no server of ours sends one.)"""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 6 else AGAIN


def outcome(job: JobStatus) -> Any:
    if job.state is State.SUCCEEDED:
        return job.result
    code, why = (job.error.code, job.error.message) if job.error else (None, "no reason was kept")
    raise JobFailed(f"job {job.id} {job.state.value}: {why}", code=code, job_id=job.id)
