"""What operators see and steer beside jobs: queues, tasks, pauses, workers, crons, and the audit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from holdfast.errors import BadArguments, BadSettings
from holdfast.http.call import Call, answer
from holdfast.http.operator_documents import (
    AuditList,
    AuditQuery,
    CronDocument,
    Crons,
    Ended,
    MadeJob,
    PauseRequest,
    Pauses,
    Queues,
    ResumeRequest,
    ScheduleRequest,
    Stopping,
    StopRequest,
    Tasks,
    Workers,
)
from holdfast.model.job import Pause


async def queues(call: Call) -> Response:
    """How many jobs of each queue wait, run and failed; no more than 10,000 of a kind are counted."""
    return answer(Queues(await call.app.aqueues()))


async def tasks(call: Call) -> Response:
    """The same for each task: those that this application declares, and those that have jobs."""
    return answer(Tasks(await call.app.atask_summaries()))


async def pauses(call: Call) -> Response:
    """The pauses in force."""
    return answer(Pauses(await call.app.apauses()))


async def add_pause(call: Call) -> Response:
    """Start no more jobs of a queue, a task or a filter, or skip the ticks of a cron. Running jobs go on."""
    given: PauseRequest = call.body
    if given.until is not None and given.seconds is not None:
        raise BadArguments("pause: until and seconds exclude each other")
    app = call.app
    ways: dict[str, Callable[..., Awaitable[Pause]]] = {
        "queue": app.apause_queue, "task": app.apause_task, "cron": app.apause_cron, "filter": app.apause_matching
    }  # fmt: skip
    try:
        until = given.until if given.seconds is None else timedelta(seconds=given.seconds)
    except OverflowError:
        raise BadArguments(f"pause: seconds is {given.seconds:g}, which is too long; leave it out") from None
    return answer(await ways[given.kind](given.name, reason=given.reason, until=until, by=call.by))


async def end_pause(call: Call) -> Response:
    """End a pause."""
    given: ResumeRequest = call.body
    app = call.app
    ways: dict[str, Callable[..., Awaitable[bool]]] = {
        "queue": app.aresume_queue, "task": app.aresume_task, "cron": app.aresume_cron, "filter": app.aresume_matching
    }  # fmt: skip
    return answer(Ended(await ways[given.kind](given.name, reason=given.reason, by=call.by)))


async def workers(call: Call) -> Response:
    """The workers of this database, the oldest first."""
    return answer(Workers(await call.app.aworkers()))


async def stop_worker(call: Call) -> Response:
    """Ask a worker to stop in good order, as SIGTERM does, wherever it runs."""
    given: StopRequest = call.body
    return answer(Stopping(await call.app.astop_worker(given.worker, reason=given.reason, by=call.by)))


async def crons(call: Call) -> Response:
    """The crons that tasks declare and the schedules that were added, by name."""
    found = await call.app.acrons()
    return answer(Crons([CronDocument.of(cron, call.app._secrets(cron.task)) for cron in found]))


async def schedule(call: Call) -> Response:
    """Add a schedule, or change the one of this name."""
    given: ScheduleRequest = call.body
    options: dict[str, Any] = {"queue": given.queue, "priority": given.priority}
    task = call.app.find_task(given.task)
    bound = task.using(**{name: value for name, value in options.items() if value is not None}).bind(**given.args)
    try:
        made = await call.app.aschedule(
            given.name, bound, cron=given.cron, timezone=given.timezone, catch_up=given.catch_up,
            reason=given.reason, by=call.by,
        )  # fmt: skip
    except BadSettings as error:  # in code it would be a setting of the application
        raise BadArguments(error.message) from None
    return answer(CronDocument.of(made, call.app._secrets(made.task)))


async def unschedule(call: Call) -> Response:
    """Remove a schedule that was added. Jobs it has enqueued stay."""
    return answer(Ended(await call.app.aunschedule(call.body.name, reason=call.body.reason, by=call.by)))


async def run_cron(call: Call) -> Response:
    """Enqueue a job of a cron now. Its schedule stays as it is."""
    made = await call.app.arun_cron(call.body.name, reason=call.body.reason, by=call.by)
    return answer(MadeJob(made.id), 202, {"Location": f"../jobs/{made.id}"})


async def audit(call: Call) -> Response:
    """What operators did, newest first."""
    query: AuditQuery = call.query
    calls = await call.app.aaudit(
        by=query.by, verb=query.verb, what=query.what, job=query.job, since=query.since, before=query.before,
        limit=query.limit,
    )  # fmt: skip
    return answer(AuditList(calls, calls[-1].id if len(calls) == query.limit else None))
