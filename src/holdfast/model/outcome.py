"""Turns whatever a handler did into one outcome, which the desk then records. Pure: it decides, others act."""

from __future__ import annotations

import traceback as tb
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from holdfast.errors import Cancel, Fail, Retry, Snooze, Steer
from holdfast.model.fingerprint import PLACE_LIMIT, fingerprint, from_users_code, place_of
from holdfast.model.job import ClaimedJob
from holdfast.model.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.redact import Hide, scrub

Verb = Literal["succeed", "fail", "reschedule", "release", "park", "stop"]

CODE_LIMIT = 200  # characters kept of an error code
MESSAGE_LIMIT = 4_000  # of an error message
TRACEBACK_LIMIT = 16_000
HEAD = 4_000  # of these, from its beginning: its end may be only a long message
CUT = "\n[…]\n"
LOOKED_AT = 4 * TRACEBACK_LIMIT  # characters searched for secrets, before they are cut to what is kept
LONGEST_DELAY = 1e9  # seconds, some thirty years
NOT_COMMITTED = "NOT_COMMITTED"  # the handler recorded its success, and its transaction was rolled back

MAX_COUNT = 10**15  # of done, total and pending: a petabyte in bytes; sums of thousands of them still fit

Progress = tuple[int | None, int | None, str | None]  # done, total, note: None is not reported


class Error(msgspec.Struct, frozen=True, array_like=True, gc=False):
    code: str
    message: str
    traceback: str | None = None
    place: str | None = None  # where in the user's code it happened, or the task

    @property
    def fingerprint(self) -> str:
        """Equal for errors of one kind. To be asked of an error without secrets, as it is stored."""
        return fingerprint(self.code, self.message, self.place)

    def at(self, task: str) -> Error:
        """The same error. One that happened at no place in the user's code (a timeout, a crash) is one of its task."""
        return self if self.place else replace(self, place=task)


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What follows an attempt: the verb and its values. `attempt` is the word that the history keeps; with None it
    keeps no row (the attempt succeeded, or never started)."""

    verb: Verb
    id: int | str
    fence: str
    attempt: str | None = None
    result: bytes | None = None
    delay: float = 0.0
    error: Error | None = None
    output: str | None = None  # what it wrote, if it had a process of its own
    recorded: bool = False  # the handler says that it recorded its success; this outcome applies if it did not
    progress: Progress | None = None  # how far it came, if its handler reported that
    held_by: str | None = None  # of a release: what keeps the job from being claimed again


class Crash(msgspec.Struct, frozen=True):
    """An attempt whose runner process died. `cause`: how the process ended, in words. `company`: other attempts ran
    there, so it is not known which one caused it."""

    cause: str
    company: bool
    output: str | None = None  # what it wrote, if it had a process of its own


def returned(held: ClaimedJob, result: bytes | None) -> Outcome:
    return Outcome("succeed", held.id, held.fence, None, result)


def raised(
    held: ClaimedJob, error: BaseException, policy: RetryPolicy, *, attempt: str = "errored", hide: Hide = scrub
) -> Outcome:
    """The outcome of a handler that raised. `hide` removes secrets from the parts of the error that are stored."""
    match _steering(error):
        case Snooze() as error:
            return Outcome("release", held.id, held.fence, "snoozed", delay=bounded(error.after))
        case Cancel() as error:
            return Outcome("stop", held.id, held.fence, "cancelled", error=Error("CANCELLED", _message(error, hide)))
        case Fail() as error:
            return Outcome(
                "fail", held.id, held.fence, "errored", error=describe(error, error.code, hide).at(held.task)
            )
        case Retry() as error:
            return errored(held, error, policy, describe(error, error.code, hide), attempt, hide)
        case _:
            code = _name(error)
            return errored(held, error, policy, describe(error, code, hide), attempt, hide)


def _steering(error: BaseException) -> BaseException:
    """The only exception of a group counts as if it had been raised by itself."""
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, Steer) else error


def errored(
    held: ClaimedJob, error: BaseException, policy: RetryPolicy, told: Error, attempt: str, hide: Hide = scrub
) -> Outcome:
    """A failed attempt counts: the job is tried again if attempts are left, else it fails."""
    told = told.at(held.task)
    if held.attempt >= held.max_attempts:
        return Outcome("fail", held.id, held.fence, attempt, error=told)
    delay = error.after if isinstance(error, Retry) else None
    if delay is None:
        try:
            delay = policy.delay(held.attempt, error)
        except BaseException as broken:  # noqa: BLE001 - a user's policy may raise anything; that must not cost the job
            delay = DEFAULT_RETRY.delay(held.attempt, error)
            note = f"{told.message} (and its retry policy raised {in_words(broken, hide)})"
            told = replace(told, message=note[:MESSAGE_LIMIT])
    if delay is None:
        return Outcome("fail", held.id, held.fence, attempt, error=told)
    return Outcome("reschedule", held.id, held.fence, attempt, delay=bounded(delay), error=told)


def bounded(seconds: Any) -> float:
    """A delay between 0 and what a database can compute with; NaN counts as 0. (A user's own class may return
    anything.)"""
    return min(max(0.0, float(seconds)), LONGEST_DELAY)


def given_back(held: ClaimedJob, *, started: bool, delay: float = 0.0, recorded: bool = False) -> Outcome:
    """Given back without counting the attempt: at shutdown, or because it could not start soon."""
    attempt = "released" if started else None
    return Outcome("release", held.id, held.fence, attempt, delay=delay, recorded=recorded)


def parked(held: ClaimedJob) -> Outcome:
    return Outcome("park", held.id, held.fence, "parked")


def stopped(held: ClaimedJob) -> Outcome:
    """It obeys a cancel request; the store knows who asked, and why."""
    return Outcome("stop", held.id, held.fence, "cancelled")


def describe(error: BaseException, code: str, hide: Hide = scrub) -> Error:
    # Without local variables: they may contain what must not be stored (secrets, large objects).
    traceback = "".join(tb.format_exception(type(error), error, from_users_code(error.__traceback__)))
    return kept(Error(code, _text(error), traceback, place_of(error.__traceback__)), hide)


def kept(error: Error, hide: Hide = scrub) -> Error:
    """The error as it may be stored and shown. Secrets are removed before texts are cut: half a secret would not be
    recognised."""
    traceback = error.traceback
    if traceback is not None:
        traceback = _shortened(hide(clean(_shortened(traceback, LOOKED_AT))), TRACEBACK_LIMIT)
    code = hide(clean(error.code[: 2 * CODE_LIMIT]))[:CODE_LIMIT]
    place = None if error.place is None else hide(clean(error.place[:PLACE_LIMIT]))[:PLACE_LIMIT]
    return Error(code, hide(clean(error.message[:LOOKED_AT]))[:MESSAGE_LIMIT], traceback, place)


def _shortened(traceback: str, limit: int) -> str:
    if len(traceback) <= limit:
        return traceback
    head = limit * HEAD // TRACEBACK_LIMIT
    return traceback[:head] + CUT + traceback[head + len(CUT) - limit :]


def in_words(error: BaseException, hide: Hide = scrub) -> str:
    """Its type and message, even if its own methods raise."""
    return f"{_name(error)}: {_message(error, hide)}"


def _name(error: BaseException) -> str:
    return type(error).__name__


def _message(error: BaseException, hide: Hide) -> str:
    return hide(clean(_text(error)[:LOOKED_AT]))[:MESSAGE_LIMIT]


def _text(error: BaseException) -> str:
    try:
        return str(error) or _name(error)
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may raise anything; that must not cost the job
        return f"(its message can't be shown: {type(broken).__name__})"


def clean(text: str) -> str:
    """Text that a database accepts: without NUL and lone surrogates."""
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
