"""Submitting jobs: one, or many as JSON lines."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import IO, Any, cast

import msgspec
from starlette.responses import Response, StreamingResponse

from holdfast.errors import BadArguments, HoldfastError, RequestRefused, StoreError, UnknownTask
from holdfast.http.bodies import BODY_TIMEOUT, MAX_BODY, document, expect, too_large, too_slow
from holdfast.http.call import Call, answer
from holdfast.http.documents import BulkSubmitted, Submission, Submitted, etag
from holdfast.http.problems import HEADERS
from holdfast.http.watch import stopping
from holdfast.job import Job, handle
from holdfast.run_now import finish_soon
from holdfast.tasks.options import Options, urgent
from holdfast.tasks.task import Bound, Task

SOON = 1.0  # seconds in which a job that runs now is told of at once; later, with the next look at all that are awaited
RETRY_AFTER = 1  # seconds after which to look at a job for the first time
LINES = "application/jsonl"
MAX_BULK = 64_000_000  # bytes of a bulk submission
MAX_JOBS = 100_000  # jobs in it
IN_MEMORY = 1_000_000  # bytes of it; the rest goes to a temporary file
ANSWERED = 500  # jobs whose tokens are made at once

AnyTask = Task[..., Any]


async def submit(call: Call) -> Response:
    """Enqueue a job. 202: it waits or runs. 200: it has finished, or a job with the same key had before, and this is
    its outcome. With `?wait=2` it runs before all others, and the answer waits for it for as long as that."""
    task = _reachable(call)
    given: Submission = call.body
    idempotent = call.request.headers.get("idempotency-key")
    options = given.options
    wait: float | None = call.query.wait
    if wait is not None:
        options = dict(urgent(f"{task.name}?wait", cast(Options, options)))
    if idempotent is not None:
        if given.key not in (None, idempotent):
            raise BadArguments("the header Idempotency-Key and `key` in the body differ; send one of them")
        # Whoever repeats a request wants to know what became of the first one, whatever that is.
        options |= {"key": idempotent, "reuse": "forever", "after_failure": "return"}
    bound = _bound(task, given, options)
    job, token = await call.in_thread(_enqueued, call, bound)
    if idempotent is not None and not job.created and job.record.args != bound.new.args:
        raise RequestRefused(
            "this Idempotency-Key was used with other arguments; choose another one", status=422, number="HF1509"
        )
    if wait is not None:
        job = await _finished(call, job, wait)
    headers = {"Location": f"../../jobs/{job.id}", "ETag": etag(job.record)}  # relative: it holds under any prefix
    if not job.finished:
        headers["Retry-After"] = str(RETRY_AFTER)
    made = Submitted.of(job.record, token=token, created=job.created)
    return answer(made, 200 if job.finished else 202, headers)


def _enqueued(call: Call, bound: Bound[Any]) -> tuple[Job[Any], str]:
    job = call.app._submit(bound).refresh()
    return job, job.token("control" if job.created else "read")  # whoever joined a job did not make it


async def _finished(call: Call, job: Job[Any], wait: float) -> Job[Any]:
    """The job when it has finished, or as it is after so many seconds: then its client has the token, whatever happens
    to the database meanwhile."""
    until = time.monotonic() + wait
    job = await finish_soon(call.app, job, min(wait, SOON), here=call.runs_jobs)
    while not (job.finished or call.app._in_kit or stopping()) and (left := until - time.monotonic()) > 0:
        with suppress(StoreError):
            if found := await call.changed(job.record, left):
                job = handle(call.app, found)
    return job


async def submit_many(call: Call) -> Response:
    """Enqueue many jobs, all or none: one document per line. The answer has one line for each."""
    task = _reachable(call)
    expect(call.request, LINES)
    if "idempotency-key" in call.request.headers:
        raise BadArguments("Idempotency-Key is for one job; give each line a `key` of its own")
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as spool:
        # All of it first: a slow client must not keep a transaction open.
        await _spool(call, spool)
        jobs = await call.in_long_thread(call.app.enqueue_many, _lines(task, spool))
    return StreamingResponse(_answers(call, jobs), 202, HEADERS, media_type=LINES)


def _reachable(call: Call) -> AnyTask:
    name = call.request.path_params["task"]
    try:
        task = call.app.find_task(name)
    except UnknownTask:
        task = None
    if task is None or task._defaults.http is None:
        raise UnknownTask(f"there is no task {name!r:.80} here that is declared with http=True")
    return task


def _bound(task: AnyTask, given: Submission, options: dict[str, Any]) -> Bound[Any]:
    return task.using(**options).bind(**given.args)


async def _spool(call: Call, spool: IO[bytes]) -> None:
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT) as patience:
            async for chunk in call.request.stream():
                size += len(chunk)
                if size > MAX_BULK:
                    raise too_large(MAX_BULK)
                await asyncio.to_thread(spool.write, chunk)
                # A long body may take long, as long as it arrives at a megabyte in that time.
                patience.reschedule(patience.when() + BODY_TIMEOUT * len(chunk) / MAX_BODY)  # type: ignore[operator]
    except TimeoutError:
        raise too_slow() from None
    spool.seek(0)


def _lines(task: AnyTask, spool: IO[bytes]) -> Iterator[Bound[Any]]:
    number = jobs = 0
    while line := spool.readline(MAX_BODY + 1):
        number += 1
        if len(line) > MAX_BODY:
            raise too_large(MAX_BODY)
        if not line.strip():
            continue
        jobs += 1
        if jobs > MAX_JOBS:
            raise RequestRefused(f"these are more than {MAX_JOBS:,} jobs; send fewer", status=413, number="HF1505")
        try:
            given = document(line, Submission)
            yield _bound(task, given, given.options)
        except RequestRefused as error:
            raise RequestRefused(_at(number, error), status=error.status, number=error.number) from None
        except BadArguments as error:
            raise BadArguments(_at(number, error)) from None


def _at(number: int, error: HoldfastError) -> str:
    return f"line {number}: {error.message}; nothing was enqueued"


async def _answers(call: Call, jobs: list[Job[Any]]) -> AsyncIterator[bytes]:
    for start in range(0, len(jobs), ANSWERED):
        yield await call.in_thread(_tokens, call, jobs[start : start + ANSWERED])


def _tokens(call: Call, jobs: list[Job[Any]]) -> bytes:
    records = {job.id: job for job in call.app.store.reads.records([int(job.id) for job in jobs])}
    lines = []
    for job in jobs:
        known: Job[Any] = Job(call.app, job.id, job.task, record=records.get(job.id))
        lines.append(BulkSubmitted(job.id, known.token("control" if job.created else "read"), job.created))
    return msgspec.json.Encoder().encode_lines(lines)
