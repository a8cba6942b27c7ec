"""What operators see of jobs, and do to one of them. What its token allows as well (cancel, pause, resume) is in
`status`; what is done to many at once in `bulk`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.http.call import Call, answer
from holdfast.http.documents import JobStatus, etag
from holdfast.http.operator_documents import (
    AttemptDocument,
    Change,
    Deleted,
    ErrorGroups,
    JobCount,
    JobHistory,
    JobList,
    JobSummary,
    MadeJob,
    Reasons,
    Replay,
)
from holdfast.job import Job
from holdfast.redact import hide_secrets

CALLS = 100  # of operators that a history shows


async def list_jobs(call: Call) -> Response:
    """The jobs that match a filter, newest first."""
    query = call.query
    page = await call.app.ajobs(query.filter, before=query.before, limit=query.limit)
    return answer(JobList([JobSummary.of(job.record) for job in page], page.next, page.cut))


async def count(call: Call) -> Response:
    """How many jobs match a filter, exactly. It looks at every job once: a million take seconds."""
    return answer(JobCount(await call.in_long_thread(call.app.count, call.query.filter)))


async def error_groups(call: Call) -> Response:
    """Failed jobs by the kind of their error; with `state:retrying`, those that are tried again."""
    return answer(ErrorGroups(await call.app.aerror_groups(call.query.filter, limit=call.query.limit)))


async def history(call: Call) -> Response:
    """The job with its arguments, its attempts, its steps and what operators did to it."""
    return answer(await call.in_thread(_history, call, await call.job()))


def _history(call: Call, job: Job[Any]) -> JobHistory:
    record, secrets = job.record, call.app._secrets(job.task)
    steps = [msgspec.structs.replace(step, result=hide_secrets(step.result, secrets)) for step in job.steps()]
    stored = {name: JobHistory.stored(getattr(record, name), secrets) for name in ("args", "result", "checkpoint")}
    attempts = [
        AttemptDocument(*(getattr(attempt, name) for name in AttemptDocument.__struct_fields__))
        for attempt in job.attempts()
    ]
    calls = call.app.audit(job=job.id, limit=CALLS)
    return JobHistory.of(record, **stored, attempts=attempts, steps=steps, audit=calls)


async def why(call: Call) -> Response:
    """Why the job does not run, or what became of it."""
    return answer(Reasons(await (await call.job()).awhy()))


async def retry(call: Call) -> Response:
    """Queue a failed or cancelled job again, with its attempts counted from 0."""
    job = await call.job()
    await job.aretry(call.body.reason, by=call.by)
    return await _changed(job)


async def replay(call: Call) -> Response:
    """Enqueue a new job like this one, with some of its arguments changed. `Location` leads to the new one."""
    given: Replay = call.body
    job = await call.job()
    made = await call.app.areplay(job.id, given.args, reason=given.reason, by=call.by)
    return answer(MadeJob(made.id), 202, {"Location": f"../{made.id}"})  # relative: it holds under any prefix


async def change(call: Call) -> Response:
    """Change queue, priority, due time or tags of a job that is queued or paused."""
    given: Change = call.body
    job = await call.job()
    await job.achange(**msgspec.structs.asdict(given), by=call.by)
    return await _changed(job)


async def delete(call: Call) -> Response:
    """Delete a finished job and its history."""
    job = await call.job()
    return answer(Deleted(job.id, await job.adelete(call.body.reason, by=call.by)))


async def _changed(job: Job[Any]) -> Response:
    await job.arefresh()
    return answer(JobStatus.of(job.record), headers={"ETag": etag(job.record)})
