"""One attempt in flight: the job it runs, how far it is, and why it should stop. Shared between the desk, the heartbeat
and the runner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from holdfast import events
from holdfast.errors import Retry
from holdfast.model.job import ClaimedJob, Rescued
from holdfast.model.lifecycle import State
from holdfast.model.outcome import LOOKED_AT, Error, Outcome, Progress, clean

# How quickly a count grows at present.

WINDOW = 30.0  # seconds; nothing older than two windows is used


class Speed:
    """Given a count from time to time, works out items a second over the last 30 to 60 seconds."""

    def __init__(self, at: float, count: int) -> None:
        self._from = self._next = (at, count)

    def now(self, at: float, count: int) -> float | None:
        """None: too early to tell, or the count started again from a smaller number."""
        began, first = self._from
        if count < first:
            self._from = self._next = (at, count)
            return None
        if at - self._next[0] >= WINDOW:
            self._from, self._next = self._next, (at, count)
        return (count - first) / (at - began) if at > began else None


NOTE_LIMIT = 1_000  # characters kept of a progress note

StopReason = Literal["lost", "cancel", "pause", "timeout", "stalled", "shutdown"]

# The first reason stays unless a stronger one follows. A lost lease is the strongest: nothing more may be recorded.
STRENGTH: dict[StopReason | None, int] = {
    None: 0,
    "shutdown": 1,
    "pause": 2,
    "timeout": 3,
    "stalled": 3,
    "cancel": 4,
    "lost": 5,
}


class StopAttempt(BaseException):
    """Unwinds a handler that was asked to stop. Not an Exception, so that a handler's `except Exception` does not catch
    it."""


class Remote(Protocol):
    """The other process that an attempt was given to."""

    def stop_requested(self, attempt: Attempt) -> None:
        """The attempt should stop, or must stop now: pass that on."""

    def has_begun(self, attempt: Attempt) -> bool:
        """Has its handler been called?"""

    def has_recorded(self, attempt: Attempt) -> bool:
        """Has its handler recorded success itself, or is it about to?"""


class Attempt(msgspec.Struct, eq=False, gc=False):
    """Created and dropped for every job, so it must be cheap: a struct that the garbage collector does not track.
    Therefore nothing that an attempt refers to may lead back to it, except `remote` while it is set."""

    held: ClaimedJob
    timeout: float | None = None  # seconds it may run
    taken: float = 0.0  # monotonic: when it was claimed
    runner: int = 0  # the runner whose slot it takes, as the desk numbers runners
    number: int = 0  # its number in the process it was given to
    remote: Remote | None = None  # that process; None: it runs in this one
    is_async: bool = False  # which slots of that process it takes
    reason: StopReason | None = None  # why it should stop
    asked_at: float = 0.0  # monotonic: when it was asked to stop
    stop_seen: bool = False  # its handler knows that it should stop
    forced: bool = False  # its grace is over: it stops at the next opportunity
    started: float = 0.0  # monotonic; 0: not yet
    ended: float = 0.0
    moved: float = 0.0  # monotonic: when it last reported or saved progress, as far as we noticed
    told: float = 0.0  # monotonic: when its progress was last written
    patience: float | None = None  # seconds without progress after which it counts as stalled
    recorded: bool = False  # the handler recorded its success itself
    done: int | None = None  # items, as the handler reports them; None: it reported nothing
    fresh: bool = False  # progress was reported and not passed on yet; set after the values
    total: int | None = None
    note: str | None = None
    hide: Callable[[str], str] | None = None  # removes secrets from the note
    speed: Speed | None = None  # of the progress written so far
    interrupt: Callable[[Attempt], None] | None = None  # stops the handler, where the runner can do that
    leased: float = 0.0  # monotonic: its lease is no older than this
    begin_by: float | None = None  # monotonic: after this it has expired and is given back instead

    def ask(self, reason: StopReason) -> bool:
        """Ask it to stop. False: it was already asked for an equally strong reason."""
        if STRENGTH[reason] <= STRENGTH[self.reason]:
            return False
        self.reason = reason
        self.asked_at = time.monotonic()
        if self.remote is not None:
            self.remote.stop_requested(self)
        if reason != "shutdown" or self.forced:
            self.stop_now()
        return True

    def lose(self) -> bool:
        """Its lease is gone: ask it to stop for that. True: this process has to report the loss."""
        return self.ask("lost")

    def force(self) -> None:
        """Its grace is over."""
        self.forced = True
        if self.remote is not None:
            self.remote.stop_requested(self)
        self.stop_now()

    def stop_now(self) -> None:
        if self.interrupt is not None:
            self.interrupt(self)

    @property
    def not_to_begin(self) -> bool:
        """Was it asked to stop, or did it expire, before it began? Then it is given back."""
        return self.reason is not None or (self.begin_by is not None and self.has_expired)

    @property
    def has_expired(self) -> bool:
        return self.begin_by is not None and time.monotonic() >= self.begin_by

    @property
    def must_stop(self) -> bool:
        return self.reason is not None and (self.reason != "shutdown" or self.forced)

    def raise_if_stopping(self, *, at_shutdown: bool = False) -> None:
        """Raise StopAttempt in a handler that must stop. `at_shutdown`: also during the grace of a shutdown."""
        if self.must_stop or (at_shutdown and self.reason is not None):
            self.stop_seen = True
            raise StopAttempt(self.reason)

    @property
    def progress(self) -> Progress | None:
        """How far the work is, as it is stored; None: the handler has not said. Secrets are removed here and not where
        progress is reported: a handler may report a million times a second, this is read once."""
        note = self.note
        if self.done is None and note is None and self.total is None:
            return None
        if note is not None and self.hide is not None:
            note = self.hide(clean(note[:LOOKED_AT]))[:NOTE_LIMIT]
        return self.done, self.total, note

    def new_progress(self) -> Progress | None:
        """What was reported since the last call. The flag is cleared before the values are read and set after they are
        written, so a report made meanwhile is passed on now or by the next call."""
        if not self.fresh:
            return None
        self.fresh = False
        return self.progress

    def set_progress(self, progress: Progress) -> None:
        """Take over what another process reports."""
        self.done, self.total, self.note = progress
        self.fresh = True

    def record(self, value: bool) -> None:
        """The handler records its success itself. False: that was not committed."""
        self.recorded = value

    @property
    def has_begun(self) -> bool:
        return self.started > 0 or (self.remote is not None and self.remote.has_begun(self))

    @property
    def has_recorded(self) -> bool:
        return self.recorded or (self.remote is not None and self.remote.has_recorded(self))

    def begin(self) -> None:
        self.started = time.monotonic()

    def end(self) -> None:
        self.ended = time.monotonic()

    def __repr__(self) -> str:
        """Without the arguments: they may be secret."""
        state = "ended" if self.ended else "runs" if self.started else "waits"
        asked = "" if self.reason is None else f", asked to stop: {self.reason}"
        return f"<Attempt {self.held.attempt} of job {self.held.id}: {state}{asked}>"


# The events about attempts: errored, rescued, or with their lease lost; and the fields that describe one.


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


def emit_errored(
    held: ClaimedJob, outcome: Outcome, *, worker: str | None = None, seconds: float | None = None,
    log_only: bool = False,
) -> None:  # fmt: skip
    """Report that an attempt errored, if it did. `worker`: the one that decided so, where the handler could not.
    `seconds`: for how long it ran. `log_only`: the listeners were called in the process where it happened."""
    if not is_error(outcome):
        return
    assert outcome.error is not None
    fields = _error(_fields(held, held.correlated), outcome.verb, outcome.error, worker)
    if outcome.verb == "reschedule":
        fields["delay"] = outcome.delay
    if seconds is not None:
        fields["seconds"] = seconds
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
    if error.traceback is not None and error.code != Retry.code:  # which the handler raised on purpose
        said["traceback"] = error.traceback
    return {**fields, **said, "raised": worker is None, **({} if worker is None else {"worker": worker})}
