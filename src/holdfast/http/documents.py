"""What is sent and answered: the JSON documents of the API."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from holdfast.model.job import JobRecord, Mark, Progress
from holdfast.model.lifecycle import State

LONGEST_WAIT = 60.0  # seconds


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route without parameters in its query."""


class StatusQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="seconds to wait for a change")] = 0.0


class SubmitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait: (
        Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="seconds to wait for its outcome; it runs at once")]
        | None
    ) = None


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[str, Meta(description="a job token, where no header can be sent")] = ""


class Submission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job to enqueue: the arguments of its task by name, and options."""

    args: dict[str, Any] = {}
    priority: int | None = None
    delay: float | None = None  # seconds
    key: str | None = None
    correlation_id: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        given = {
            "priority": self.priority, "delay": self.delay, "key": self.key, "correlation_id": self.correlation_id
        }  # fmt: skip
        return {name: value for name, value in given.items() if value is not None}


class Remark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why somebody does this, for the audit."""

    reason: str | None = None


class ProgressDocument(msgspec.Struct, frozen=True):
    done: int | None
    total: int | None
    note: str | None
    fraction: float | None
    seconds_left: float | None

    @classmethod
    def of(cls, progress: Progress | None) -> Self | None:
        if progress is None:
            return None
        return cls(progress.done, progress.total, progress.note, progress.fraction, progress.seconds_left)


class ErrorDocument(msgspec.Struct, frozen=True):
    code: str
    message: str

    @classmethod
    def of(cls, job: JobRecord) -> Self | None:
        """The last error of a job that has not succeeded."""
        if not job.error_code or job.state is State.SUCCEEDED:
            return None
        return cls(job.error_code, job.error_message or "")


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job as whoever holds its token sees it. `result` is what a succeeded job returned; `error` is the last one of
    a job that has not succeeded."""

    id: str
    task: str
    state: State
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    pause_requested: bool
    progress: ProgressDocument | None
    result: Any
    error: ErrorDocument | None

    @classmethod
    def of(cls, job: JobRecord, **more: Any) -> Self:
        succeeded = job.state is State.SUCCEEDED
        return cls(
            id=job.id, task=job.task, state=job.state, attempt=job.attempt, max_attempts=job.max_attempts,
            created_at=job.created_at, run_at=job.run_at, started_at=job.started_at, finished_at=job.finished_at,
            cancel_requested=job.cancel_requested, pause_requested=job.pause_requested,
            progress=ProgressDocument.of(job.progress),
            result=msgspec.Raw(job.result) if succeeded and job.result is not None else None,
            error=ErrorDocument.of(job),
            **more,
        )  # fmt: skip


class Output(msgspec.Struct, frozen=True):
    """What an attempt in a process of its own has written to stdout and stderr."""

    attempt: int
    output: str


class Submitted(JobStatus, frozen=True, kw_only=True):
    """A submitted job. `created` is False if a job with the same key was there already; then the token only reads."""

    token: str
    created: bool

    def __repr__(self) -> str:
        return f"<Submitted job {self.id}: {self.task} {self.state.value}>"


class BulkSubmitted(msgspec.Struct, frozen=True):
    """One line of the answer to a bulk submission, in the order of its lines."""

    id: str
    token: str
    created: bool


def etag(job: JobRecord) -> str:
    """Another one whenever the job's status looks different."""
    return '"' + hashlib.sha256(repr(Mark.of(job)).encode()).hexdigest()[:24] + '"'


def unchanged(job: JobRecord, known: str) -> bool:
    """Does this `If-None-Match` name the job as it looks now? Proxies that compress answers change our ETags: into
    `W/"…"`, or `"…-gzip"`."""
    return etag(job).strip('"') in re.findall(r'"([0-9a-f]{24})', known)
