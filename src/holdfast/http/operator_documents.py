"""What operators send and are answered: the JSON documents of their routes, and the parameters of their queries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec
from msgspec import Meta

from holdfast.http.documents import ErrorDocument, ProgressDocument, Remark
from holdfast.model.audit import AuditRecord
from holdfast.model.cron import CatchUp, CronRecord
from holdfast.model.job import (
    ErrorGroup,
    JobRecord,
    Pause,
    QueueSummary,
    StepRecord,
    TaskSummary,
    WorkerStatus,
)
from holdfast.model.lifecycle import State
from holdfast.model.record import shown
from holdfast.model.why import Reason

Text = Annotated[str, Meta(min_length=1)]
Instant = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Before = Annotated[str, Meta(pattern="^[0-9]{1,18}$", description="`next` of the page before")]

# -- queries -----------------------------------------------------------------------------------------------------------


class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: Annotated[str, Meta(description="as in `state:failed queue:mail since:1h`")] = ""
    before: Before | None = None
    limit: Limit = 50


class FilterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: Annotated[str, Meta(description="as in `state:failed queue:mail since:1h`")] = ""


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    filter: str = "state:failed"
    limit: Limit = 100


class AuditQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by: Text | None = None
    verb: Text | None = None
    what: Text | None = None
    job: Text | None = None
    since: Annotated[str, Meta(description="how long ago: `90s`, `1h`, `7d`")] | None = None
    before: Before | None = None
    limit: Limit = 50


# -- jobs --------------------------------------------------------------------------------------------------------------


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list, without its arguments and its result."""

    id: str
    task: str
    queue: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    pause_requested: bool
    worker: str | None
    key: str | None
    correlation_id: str | None
    tags: tuple[str, ...]
    held_by: str | None
    error_group: str | None
    progress: ProgressDocument | None
    error: ErrorDocument | None

    @classmethod
    def of(cls, job: JobRecord, **more: Any) -> Self:
        same = {name: getattr(job, name) for name in cls.__struct_fields__ if name in job.__struct_fields__}
        return cls(
            **{
                **same,
                "error_group": job.error_fingerprint,
                "progress": ProgressDocument.of(job.progress),
                "error": ErrorDocument.of(job),
                **more,
            }
        )


class AttemptDocument(msgspec.Struct, frozen=True):
    """An attempt that did not succeed or left output. `number` counts from 1 in each `life` of the job."""

    life: int
    number: int
    worker: str | None
    outcome: str
    started_at: datetime | None
    ended_at: datetime
    error_code: str | None
    error_message: str | None
    traceback: str | None
    output: str | None


class JobHistory(JobSummary, frozen=True, kw_only=True):
    """A job with its arguments and its history, secrets hidden. `life` counts how often it was begun anew by a retry;
    `pending` is what its last checkpoint counts as still to be done."""

    args: Any
    result: Any
    checkpoint: Any
    pending: int | None
    life: int
    crashes: int
    failed_at: datetime | None
    expires_at: datetime | None
    asked_at: datetime | None
    asked_by: str | None
    asked_why: str | None
    source: str | None
    source_id: str | None
    attempts: list[AttemptDocument]
    steps: list[StepRecord]
    audit: list[AuditRecord]

    @staticmethod
    def stored(value: bytes | None, secrets: frozenset[str]) -> Any:
        return None if value is None else shown(value, secrets)


class JobList(msgspec.Struct, frozen=True):
    """Jobs, newest first. `next`: pass it as `before` for the next page; null: this is the last one. `cut`: the page
    ends because enough jobs were searched, not because it is full."""

    jobs: list[JobSummary]
    next: str | None
    cut: bool


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs match the filter."""

    jobs: int


class ErrorGroups(msgspec.Struct, frozen=True):
    """Jobs by the kind of their error, the largest groups first. `group:ID` selects one in a filter."""

    groups: list[ErrorGroup]


class Reasons(msgspec.Struct, frozen=True):
    """Why a job does not run, or what became of it: every reason that applies, in order."""

    reasons: list[Reason]


class Replay(Remark, frozen=True, forbid_unknown_fields=True):
    """A new job like this one: the arguments to change, by name."""

    args: dict[str, Any] = msgspec.field(default_factory=dict)


class MadeJob(msgspec.Struct, frozen=True):
    """The job that was enqueued."""

    id: str


class Change(Remark, frozen=True, forbid_unknown_fields=True):
    """What to change of a job that waits. `delay` (seconds from now) and `run_at` exclude each other."""

    queue: str | None = None
    priority: int | None = None
    delay: Seconds | None = None
    run_at: Instant | None = None
    tags: list[str] | None = None


class Deleted(msgspec.Struct, frozen=True):
    """The job is gone; it was in this state."""

    id: str
    state: State


# -- many jobs ---------------------------------------------------------------------------------------------------------

BulkVerb = Literal["retry", "cancel", "pause", "resume", "change", "delete"]
Expected = Annotated[int, Meta(ge=0, description="`jobs` of the preview: refused if there are more by now")]


class Preview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which jobs a verb would change."""

    verb: BulkVerb
    filter: str


class Previewed(msgspec.Struct, frozen=True):
    """How many jobs the verb would change or ask, how many are in a state that does not allow it, and the newest few.
    `capped`: there are more than were counted. Send `filter` and, as `expected`, `jobs` to go ahead."""

    verb: BulkVerb
    filter: str
    jobs: int
    refused: int
    capped: bool
    examples: list[JobSummary]


class Bulk(Remark, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The jobs of a previewed filter."""

    filter: str
    expected: Expected


class BulkRetry(Bulk, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The jobs of a previewed filter. `limit`: only so many, the oldest. `spread`: due evenly over so many seconds."""

    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    spread: Seconds | None = None


class BulkChange(Change, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The jobs of a previewed filter, and what to change of them."""

    filter: str
    expected: Expected


# -- queues, tasks, pauses, workers, crons -----------------------------------------------------------------------------


class Queues(msgspec.Struct, frozen=True):
    queues: list[QueueSummary]


class Tasks(msgspec.Struct, frozen=True):
    tasks: list[TaskSummary]


class Pauses(msgspec.Struct, frozen=True):
    pauses: list[Pause]


PauseKind = Literal["queue", "task", "cron", "filter"]


class ResumeRequest(Remark, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The pause of a queue, a task or a cron of this name, or of the jobs that match a filter (`args.customer:42`)."""

    kind: PauseKind
    name: Text


class PauseRequest(ResumeRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What to pause: a queue, a task or a cron of this name, or the jobs that match a filter (`args.customer:42`).
    Until it is ended, until an instant, or for so many seconds."""

    until: Instant | None = None
    seconds: Seconds | None = None


class Ended(msgspec.Struct, frozen=True):
    """False: there was nothing to end."""

    ended: bool


class Workers(msgspec.Struct, frozen=True):
    workers: list[WorkerStatus]


class StopRequest(Remark, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A worker by its id, or all workers of a name."""

    worker: Text


class Stopping(msgspec.Struct, frozen=True):
    """The ids of the workers that were asked to stop."""

    workers: list[str]


class CronDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A cron, secrets hidden among its arguments. `declared`: by its task; otherwise a schedule that was added."""

    name: str
    task: str
    declared: bool
    args: Any
    expression: str
    timezone: str
    catch_up: str
    queue: str
    priority: int
    max_attempts: int
    tags: tuple[str, ...]
    next_at: datetime
    last_at: datetime | None
    paused: bool
    paused_at: datetime | None
    paused_until: datetime | None
    paused_by: str | None
    paused_reason: str | None
    workers: int

    @classmethod
    def of(cls, cron: CronRecord, secrets: frozenset[str]) -> Self:
        same = {name: getattr(cron, name) for name in cls.__struct_fields__}
        return cls(**{**same, "args": None if cron.stored_args is None else shown(cron.stored_args, secrets)})


class Crons(msgspec.Struct, frozen=True):
    crons: list[CronDocument]


class ScheduleRequest(Remark, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Enqueue a task with these arguments at every tick. The same name again changes the schedule."""

    name: Text
    task: Text
    cron: Annotated[str, Meta(description="as in `30 6 * * MON-FRI`")]
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    timezone: str = "UTC"
    catch_up: CatchUp = "latest"
    queue: str | None = None
    priority: int | None = None


class CronName(Remark, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cron by its name."""

    name: Text


class AuditList(msgspec.Struct, frozen=True):
    """What operators did, newest first. `next`: pass it as `before` for the next page."""

    calls: list[AuditRecord]
    next: str | None


# -- drain -------------------------------------------------------------------------------------------------------------


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to run jobs, in seconds, how many to claim at most, and from which queues (null: all)."""

    seconds: Annotated[float, Meta(ge=0, le=3600)] = 50.0
    jobs: Annotated[int, Meta(ge=1)] | None = None
    queues: list[Text] | None = None


class Drained(msgspec.Struct, frozen=True):
    """How many jobs finished, how many of them failed for good, and how many attempts ended, including those after
    which a job is tried again."""

    jobs: int
    failed: int
    attempts: int
