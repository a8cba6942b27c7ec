"""The table of all routes: who may use each, what it takes and what it answers. The server, the test of roles and the
API's description are made from it. Handlers are in `submit` and `status` (for clients), `jobs`, `bulk`, `fleet` and
`drain` (for operators), and `probes` (for supervisors and monitors)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from holdfast.http import bulk, drain, fleet, jobs, probes, status, submit
from holdfast.http.call import Call, answer
from holdfast.http.documents import (
    BulkSubmitted,
    EventsQuery,
    JobStatus,
    NoQuery,
    Output,
    Remark,
    StatusQuery,
    Submission,
    SubmitQuery,
    Submitted,
)
from holdfast.http.openapi import Description, described
from holdfast.http.operator_documents import (
    AuditList,
    AuditQuery,
    Budget,
    Bulk,
    BulkChange,
    BulkRetry,
    Change,
    CronDocument,
    CronName,
    Crons,
    Deleted,
    Drained,
    Ended,
    ErrorGroups,
    FilterQuery,
    GroupsQuery,
    JobCount,
    JobHistory,
    JobList,
    JobsQuery,
    MadeJob,
    PauseRequest,
    Pauses,
    Preview,
    Previewed,
    Queues,
    Reasons,
    Replay,
    ResumeRequest,
    ScheduleRequest,
    Stopping,
    StopRequest,
    Tasks,
    Workers,
)
from holdfast.http.probes import Alerts, AlertsQuery, Alive
from holdfast.model.access import Role, Scope
from holdfast.model.health import Health
from holdfast.model.job import Changed, Pause
from holdfast.model.metrics import Metrics


@dataclass(frozen=True)
class Route:
    """`role`: who may use it; None: everyone. `scope`: a token of the job in the path may, too, if it has this scope.
    `takes`: what the body is read as before the handler is called; None: it has none. `lines`: body and answer are many
    of these, as JSON lines; the handler reads them. `statuses`: of answers with a document; `empty`: of others that are
    no errors."""

    method: str
    path: str
    role: Role | None
    handler: Callable[[Call], Awaitable[Response]]
    takes: type[msgspec.Struct] | None
    answers: type[msgspec.Struct] | None  # None: plain text
    query: type[msgspec.Struct] = NoQuery
    scope: Scope | None = None
    token_in_query: bool = False  # browsers can't send headers with it
    lines: bool = False
    statuses: tuple[int, ...] = (200,)
    empty: tuple[int, ...] = ()
    events: tuple[tuple[str, type[msgspec.Struct]], ...] = ()  # the answer is many of these, as server-sent events
    headers: tuple[str, ...] = ()  # that it looks at, beside those of every request


async def openapi(call: Call) -> Response:
    """This description of the API."""
    return answer(described(ROUTES))


ROUTES = (
    Route(
        "POST", "/v1/tasks/{task}/jobs", "submitter", submit.submit, Submission, Submitted, SubmitQuery,
        statuses=(200, 202), headers=("Idempotency-Key",),
    ),
    Route(
        "POST", "/v1/tasks/{task}/jobs/bulk", "submitter", submit.submit_many, Submission, BulkSubmitted, lines=True,
        statuses=(202,),
    ),
    Route("GET", "/v1/jobs", "viewer", jobs.list_jobs, None, JobList, JobsQuery),
    Route("GET", "/v1/jobs/count", "viewer", jobs.count, None, JobCount, FilterQuery),
    Route(
        "GET", "/v1/jobs/{id}", "viewer", status.show, None, JobStatus, StatusQuery, scope="read", empty=(304,),
        headers=("If-None-Match",),
    ),
    Route(
        "GET", "/v1/jobs/{id}/events", "viewer", status.events, None, JobStatus, EventsQuery, scope="read",
        token_in_query=True, empty=(204,), events=(("status", JobStatus), ("output", Output)),
        headers=("Last-Event-ID",),
    ),
    Route("GET", "/v1/jobs/{id}/history", "viewer", jobs.history, None, JobHistory),
    Route("GET", "/v1/jobs/{id}/why", "viewer", jobs.why, None, Reasons),
    Route("POST", "/v1/jobs/{id}/cancel", "operator", status.cancel, Remark, JobStatus, scope="control"),
    Route("POST", "/v1/jobs/{id}/pause", "operator", status.pause, Remark, JobStatus, scope="control"),
    Route("POST", "/v1/jobs/{id}/resume", "operator", status.resume, Remark, JobStatus, scope="control"),
    Route("POST", "/v1/jobs/{id}/retry", "operator", jobs.retry, Remark, JobStatus),
    Route("POST", "/v1/jobs/{id}/replay", "operator", jobs.replay, Replay, MadeJob, statuses=(202,)),
    Route("POST", "/v1/jobs/{id}/change", "operator", jobs.change, Change, JobStatus),
    Route("POST", "/v1/jobs/{id}/delete", "operator", jobs.delete, Remark, Deleted),
    Route("GET", "/v1/error-groups", "viewer", jobs.error_groups, None, ErrorGroups, GroupsQuery),
    Route("POST", "/v1/bulk/preview", "viewer", bulk.preview, Preview, Previewed),
    Route("POST", "/v1/bulk/retry", "operator", bulk.retry, BulkRetry, Changed),
    Route("POST", "/v1/bulk/cancel", "operator", bulk.cancel, Bulk, Changed),
    Route("POST", "/v1/bulk/pause", "operator", bulk.pause, Bulk, Changed),
    Route("POST", "/v1/bulk/resume", "operator", bulk.resume, Bulk, Changed),
    Route("POST", "/v1/bulk/change", "operator", bulk.change, BulkChange, Changed),
    Route("POST", "/v1/bulk/delete", "operator", bulk.delete, Bulk, Changed),
    Route("GET", "/v1/queues", "viewer", fleet.queues, None, Queues),
    Route("GET", "/v1/tasks", "viewer", fleet.tasks, None, Tasks),
    Route("GET", "/v1/pauses", "viewer", fleet.pauses, None, Pauses),
    Route("POST", "/v1/pauses", "operator", fleet.add_pause, PauseRequest, Pause),
    Route("POST", "/v1/pauses/end", "operator", fleet.end_pause, ResumeRequest, Ended),
    Route("GET", "/v1/workers", "viewer", fleet.workers, None, Workers),
    Route("POST", "/v1/workers/stop", "admin", fleet.stop_worker, StopRequest, Stopping),
    Route("GET", "/v1/crons", "viewer", fleet.crons, None, Crons),
    Route("POST", "/v1/crons/schedule", "admin", fleet.schedule, ScheduleRequest, CronDocument),
    Route("POST", "/v1/crons/unschedule", "admin", fleet.unschedule, CronName, Ended),
    Route("POST", "/v1/crons/run", "operator", fleet.run_cron, CronName, MadeJob, statuses=(202,)),
    Route("GET", "/v1/audit", "viewer", fleet.audit, None, AuditList, AuditQuery),
    Route("POST", "/v1/drain", "operator", drain.drain, Budget, Drained),
    Route("GET", "/v1/metrics", "viewer", probes.metrics, None, Metrics),
    Route("GET", "/v1/alerts", "viewer", probes.alerts, None, Alerts, AlertsQuery),
    Route("GET", "/metrics", "viewer", probes.prometheus, None, None),
    Route("GET", "/health", None, probes.health, None, Health, statuses=(200, 503)),
    Route("GET", "/livez", None, probes.live, None, Alive),
    Route("GET", "/readyz", None, probes.ready, None, Alive),
    Route("GET", "/v1/openapi.json", None, openapi, None, Description),
)  # fmt: skip
