"""The events about attempts: errored, rescued, or with their lease lost; and the fields that describe one."""

from __future__ import annotations

from typing import Any

from holdfast import events
from holdfast.model.job import ClaimedJob, Rescued
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome
from holdfast.tasks.attempt import Attempt


def job_fields(held: ClaimedJob) -> dict[str, Any]:
    """What events say of a job in flight."""
    return {
        "job": str(held.id), "task": held.task, "queue": held.queue, "attempt": held.attempt,
        "max_attempts": held.max_attempts, "correlation_id": held.correlated,
    }  # fmt: skip


def ended_fields(outcome: Outcome, attempt: Attempt | None) -> dict[str, Any]:
    """What events say of an attempt that ended."""
    fields: dict[str, Any] = {"job": str(outcome.id)}
    if attempt is not None:
        fields |= job_fields(attempt.held)
        if attempt.started and attempt.ended:
            fields["seconds"] = attempt.ended - attempt.started
    if outcome.error is not None:
        fields |= {"error_code": outcome.error.code, "error": outcome.error.message}
    if outcome.delay:
        fields["delay"] = outcome.delay
    return fields


def emit_lost(held: ClaimedJob, worker: str) -> None:
    events.emit("lease_lost", **_fields(held, held.correlated), worker=worker)


def is_error(outcome: Outcome) -> bool:
    """Does `emit_errored` report this one? A success that the handler may have recorded itself is not reported before
    that is known."""
    return outcome.error is not None and not outcome.recorded and outcome.verb in ("fail", "reschedule")


def emit_errored(held: ClaimedJob, outcome: Outcome, *, worker: str | None = None, log_only: bool = False) -> None:
    """Report that an attempt errored, if it did. `worker`: the one that decided so, where the handler could not.
    `log_only`: the listeners were called in the process where it happened."""
    if not is_error(outcome):
        return
    assert outcome.error is not None
    fields = _error(_fields(held, held.correlated), outcome.verb, outcome.error, worker)
    if log_only:
        events.write_log("errored", fields)
    else:
        events.emit("errored", **fields)


def emit_rescued(job: Rescued, worker: str) -> None:
    """`worker`: the one that rescued it."""
    verb = "fail" if job.state is State.FAILED else "rescue"
    error = Error(job.error_code, job.error_message)
    events.emit("errored", **_error(_fields(job, job.correlation_id), verb, error, worker))
    if job.state is State.QUEUED:
        events.emit("rescued", job=job.id, attempt=job.attempt, max_attempts=job.max_attempts, worker=job.worker)
    elif job.state is State.FAILED:
        events.emit("failed", job=job.id, count=1, worker=job.worker)
    else:
        events.emit("rescued_elsewhere", job=job.id, worker=job.worker, state=job.state.value)


def _fields(job: ClaimedJob | Rescued, correlation_id: str) -> dict[str, Any]:
    return {
        "job": str(job.id), "task": job.task, "queue": job.queue, "attempt": job.attempt,
        "max_attempts": job.max_attempts, "correlation_id": correlation_id, "priority": job.priority,
    }  # fmt: skip


def _error(fields: dict[str, Any], verb: str, error: Error, worker: str | None) -> dict[str, Any]:
    """What `errored` says. `raised`: by the handler; otherwise the worker that reports it is named."""
    said = {"verb": verb, "error_code": error.code, "error": f"{error.code}: {error.message}"}
    return {**fields, **said, "raised": worker is None, **({} if worker is None else {"worker": worker})}
