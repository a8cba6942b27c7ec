"""What events say of attempts: in flight, ended, errored, or with their lease lost."""

from __future__ import annotations

from typing import Any

from holdfast import events
from holdfast.model.job import ClaimedJob, Rescued
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome
from holdfast.tasks.attempt import Attempt


def about(held: ClaimedJob) -> dict[str, Any]:
    """What events say of a job in hand."""
    return {
        "job": str(held.id), "task": held.task, "queue": held.queue, "attempt": held.attempt,
        "max_attempts": held.max_attempts, "correlation_id": held.correlated,
    }  # fmt: skip


def ended(outcome: Outcome, attempt: Attempt | None) -> dict[str, Any]:
    """What events say of an attempt that ended."""
    told: dict[str, Any] = {"job": str(outcome.id)}
    if attempt is not None:
        told |= about(attempt.held)
        if attempt.started and attempt.ended:
            told["seconds"] = attempt.ended - attempt.started
    if outcome.error is not None:
        told |= {"error_code": outcome.error.code, "error": outcome.error.message}
    if outcome.delay:
        told["delay"] = outcome.delay
    return told


def tell_lost(held: ClaimedJob, worker: str) -> None:
    events.emit("lease_lost", **_about(held, held.correlated), worker=worker)


def is_told(outcome: Outcome) -> bool:
    """Does `tell_errored` tell of this one? Of a success that its handler may have recorded nothing is said until that
    is known."""
    return outcome.error is not None and not outcome.recorded and outcome.verb in ("fail", "reschedule")


def tell_errored(held: ClaimedJob, outcome: Outcome, *, worker: str | None = None, log_only: bool = False) -> None:
    """Tell that an attempt errored, if it did. `worker`: the one that decided so, where the handler could not.
    `log_only`: listeners heard it where it happened."""
    if not is_told(outcome):
        return
    assert outcome.error is not None
    fields = _error(_about(held, held.correlated), outcome.verb, outcome.error, worker)
    if log_only:
        events.write_log("errored", fields)
    else:
        events.emit("errored", **fields)


def tell_rescued(job: Rescued, worker: str) -> None:
    """`worker`: who took it back."""
    verb = "fail" if job.state is State.FAILED else "rescue"
    error = Error(job.error_code, job.error_message)
    events.emit("errored", **_error(_about(job, job.correlation_id), verb, error, worker))
    if job.state is State.QUEUED:
        events.emit("rescued", job=job.id, attempt=job.attempt, max_attempts=job.max_attempts, worker=job.worker)
    elif job.state is State.FAILED:
        events.emit("failed", job=job.id, count=1, worker=job.worker)
    else:
        events.emit("rescued_elsewhere", job=job.id, worker=job.worker, state=job.state.value)


def _about(job: ClaimedJob | Rescued, correlation_id: str) -> dict[str, Any]:
    return {
        "job": str(job.id), "task": job.task, "queue": job.queue, "attempt": job.attempt,
        "max_attempts": job.max_attempts, "correlation_id": correlation_id, "priority": job.priority,
    }  # fmt: skip


def _error(about: dict[str, Any], verb: str, error: Error, worker: str | None) -> dict[str, Any]:
    """What `errored` says. `raised`: by the handler; else its worker tells, who is named."""
    told = {"verb": verb, "error_code": error.code, "error": f"{error.code}: {error.message}"}
    return {**about, **told, "raised": worker is None, **({} if worker is None else {"worker": worker})}
