"""Looking at one job, waiting for it, and steering it: by its token, or by a role."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response

from holdfast.errors import JobNotFound, RequestRefused, StoreError, UnknownTask
from holdfast.http.call import Call, answer
from holdfast.http.documents import LONGEST_WAIT, JobStatus, Output, etag, unchanged
from holdfast.http.problems import HEADERS
from holdfast.http.watch import stopping
from holdfast.model.job import JobRecord

PING = 15  # seconds between two comments on an event stream, by which dead connections are noticed
UNREAD = 30.0  # seconds after which a client that does not read its events is cut off


async def show(call: Call) -> Response:
    """The job's status. With `?wait=25`, and an ETag in `If-None-Match`, as soon as it looks different from that; with
    `?wait=25` alone, as soon as it has finished."""
    known = call.request.headers.get("if-none-match")
    until = time.monotonic() + call.query.wait
    job = await call.awaited_job() if call.query.wait else (await call.job()).record
    while (
        (left := until - time.monotonic()) > 0
        and (unchanged(job, known) if known else not job.finished)
        and not stopping()
    ):
        job = await call.changed(job, left) or job
    if known and unchanged(job, known):
        return Response(status_code=304, headers={**HEADERS, "ETag": etag(job)})
    return answer(JobStatus.of(job), headers={"ETag": etag(job)})


async def events(call: Call) -> Response:
    """The job's status as server-sent events: at once, and whenever it changes, until it has finished or the token has
    expired; for roles 15 minutes long. What an attempt in a process of its own has written comes when it has ended, for
    roles, and for tokens if the task says so."""
    job = await call.awaited_job()
    seen = call.request.headers.get("last-event-id")
    if job.finished and seen == etag(job).strip('"'):
        return Response(status_code=204, headers=HEADERS)  # tells an EventSource not to come back
    outputs = _Outputs(call, job.task)
    first = await outputs.of(job)
    if seen != etag(job).strip('"'):
        first.append(_status(job))
    else:
        first.clear()
    return EventSourceResponse(_changes(call, job, outputs, first), ping=PING, send_timeout=UNREAD, headers=HEADERS)


async def _changes(
    call: Call, job: JobRecord, outputs: _Outputs, first: list[ServerSentEvent]
) -> AsyncIterator[ServerSentEvent]:
    until = time.monotonic() + call.lasts
    for event in first:
        yield event
    while not job.finished and not stopping() and (left := until - time.monotonic()) > 0:
        try:
            found = await call.watch.changed(job, min(left, LONGEST_WAIT))
            events = [] if found is None else await outputs.of(found)
        except JobNotFound:
            return
        except StoreError:
            continue  # it comes back, and so does the stream
        for event in events:
            yield event
        if found is not None:
            job = found
            yield _status(job)


class _Outputs:
    """What the attempts of a job have written, told when each has ended, before the status that says so. A client that
    comes late gets that of the last one."""

    def __init__(self, call: Call, task: str) -> None:
        self._call = call
        self._shown = _kept(call, task) and (call.claims is None or "output" in _allowed(call, task))
        self._told: tuple[int, int] | None = None

    async def of(self, job: JobRecord) -> list[ServerSentEvent]:
        if not self._shown or job.attempt + job.life == 1:  # its first attempt has not begun
            return []
        ended = await self._call.in_thread(self._call.app.store.reads.attempts, job.id)
        told, self._told = self._told, max([(one.life, one.number) for one in ended], default=self._told)
        new = [one for one in ended if told is None or (one.life, one.number) > told]
        return [
            _event("output", Output(one.number, one.output))
            for one in (new if told is not None else new[-1:])
            if one.output
        ]


def _status(job: JobRecord) -> ServerSentEvent:
    return _event("status", JobStatus.of(job), etag(job).strip('"'))


def _event(name: str, document: msgspec.Struct, id: str | None = None) -> ServerSentEvent:
    return ServerSentEvent(msgspec.json.encode(document).decode(), event=name, id=id, sep="\n")


async def cancel(call: Call) -> Response:
    """Cancel the job. A running one is asked to stop; a failed one is dismissed and keeps its error."""
    return await _steer(call, "cancel")


async def pause(call: Call) -> Response:
    """Pause the job until it is resumed. A running one is asked to park."""
    return await _steer(call, "pause")


async def resume(call: Call) -> Response:
    """Let a paused job run."""
    return await _steer(call, "resume")


async def _steer(call: Call, verb: str) -> Response:
    job = await call.job()
    if call.claims is not None and verb not in _allowed(call, job.task):
        raise RequestRefused(
            f"the task {job.task} does not let the holder of a token {verb} its jobs", status=403, number="HF1502"
        )
    await call.in_thread(getattr(job, verb), call.body.reason, by=call.by)
    await job.arefresh()
    return answer(JobStatus.of(job.record), headers={"ETag": etag(job.record)})


def _kept(call: Call, task: str) -> bool:
    """May there be output of its attempts?"""
    try:
        return call.app.find_task(task)._defaults.isolation is not None
    except UnknownTask:
        return True


def _allowed(call: Call, task: str) -> frozenset[str]:
    try:
        return call.app.find_task(task)._defaults.http or frozenset()
    except UnknownTask:  # another application's
        return frozenset()
