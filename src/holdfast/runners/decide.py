"""Decides the outcome of an attempt from what its handler did. None: the lease was lost, so nothing is recorded."""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace

from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import (
    NOT_COMMITTED,
    Error,
    Outcome,
    describe,
    errored,
    given_back,
    kept,
    parked,
    raised,
    returned,
    stopped,
)
from holdfast.model.payload import Unfit, encode
from holdfast.model.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.redact import Hide, scrub
from holdfast.store.user_connections import is_cut_off
from holdfast.tasks.attempt import Attempt, StopAttempt
from holdfast.tasks.manifest import TaskInfo
from holdfast.tasks.signature import UnfitArguments

OUTAGE_DELAY = 5.0  # seconds until a job is tried again whose handler ran into an outage of the database


def on_return(attempt: Attempt, value: Any, policy: RetryPolicy, *, max_result: int) -> Outcome | None:
    held = attempt.held
    if attempt.recorded:
        error = Error(NOT_COMMITTED, "ctx.succeed() was called, but its transaction was not committed")
        return replace(errored(held, RuntimeError(error.message), policy, error, "errored"), recorded=True)
    if attempt.reason == "lost":
        return None
    if attempt.stop_seen and value is None:
        return obeyed(attempt, policy)
    if value is None:
        return returned(held, None)
    try:
        return returned(held, encode(value, limit=max_result))
    except Unfit as unfit:
        return unfit_result(held, unfit)


def unfit_result(held: ClaimedJob, unfit: Unfit) -> Outcome:
    # The result would be the same next time, so the job fails at once.
    error = kept(Error("RESULT_UNFIT", f"its result can't be kept: {unfit}"))
    return Outcome("fail", held.id, held.fence, "errored", error=error)


def on_raise(attempt: Attempt, error: BaseException, policy: RetryPolicy, hide: Hide = scrub) -> Outcome | None:
    if attempt.reason == "lost":
        return None
    outcome = obeyed(attempt, policy) if _stopped(attempt, error) else _raised(attempt, error, policy, hide)
    if attempt.recorded and outcome is not None:
        return replace(outcome, recorded=True)  # the desk finds out whether that was committed
    return outcome


def _stopped(attempt: Attempt, error: BaseException) -> bool:
    """Did it end because it was asked to? A task group wraps what its tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        return all(_stopped(attempt, one) for one in error.exceptions)
    return isinstance(error, StopAttempt) or (attempt.must_stop and _is_cancelled(error))


def _is_outage(error: BaseException) -> bool:
    """Was our database away? A task group wraps what its tasks raise."""
    if isinstance(error, BaseExceptionGroup):
        outages = [one for one in error.exceptions if _is_outage(one)]
        return bool(outages) and all(one in outages or _is_cancelled(one) for one in error.exceptions)
    return isinstance(error, StoreUnavailable)


def _is_cancelled(error: BaseException) -> bool:
    """(Code that raises it has imported asyncio. We don't: that takes as long as all of Holdfast.)"""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def obeyed(attempt: Attempt, policy: RetryPolicy) -> Outcome | None:
    """The attempt ended because it was asked to."""
    held = attempt.held
    match attempt.reason:
        case "cancel":
            return stopped(held)
        case "pause":
            return parked(held)
        case "timeout":
            late = Error("TIMED_OUT", f"it ran longer than its timeout of {attempt.timeout:g} s")
            return errored(held, TimeoutError(late.message), policy, late, "timed_out")
        case "stalled":
            late = Error(
                "STALLED", "it made no progress" + (f" for {attempt.patience:g} s" if attempt.patience else "")
            )
            return errored(held, TimeoutError(late.message), policy, late, "timed_out")
        case "shutdown":
            return given_back(held, started=True)
        case _:
            return None


def forced(attempt: Attempt, info: TaskInfo) -> Outcome | None:
    """The attempt did not end by itself, so its process was ended: the outcome is decided without the application."""
    outcome = obeyed(attempt, info)
    if outcome is None or outcome.error is None or outcome.verb != "reschedule" or not info.own_policy:
        return outcome
    why = "its process had to be ended, so the default wait stands in for its retry policy"
    return replace(outcome, error=replace(outcome.error, message=f"{outcome.error.message}; {why}"))


def _raised(attempt: Attempt, error: BaseException, policy: RetryPolicy, hide: Hide) -> Outcome:
    held = attempt.held
    if _is_outage(error) or isinstance(error, LeaseLost) or (attempt.recorded and is_cut_off(error)):
        # Our own database was away when the handler used it, or when it committed the success that it had recorded on a
        # connection of its own: no job is charged for an outage. Nor for a lost lease: if our store still holds the
        # lease, another server said so; if not, the store refuses this outcome.
        return given_back(held, started=True, delay=OUTAGE_DELAY)
    if isinstance(error, UnfitArguments):
        described = describe(error, "BAD_ARGUMENTS", hide)
        return errored(held, error, DEFAULT_RETRY, described, "errored")
    try:
        return raised(held, error, policy, hide=hide)
    except BaseException as broken:  # noqa: BLE001 - users' classes may raise anything; the job must not be lost for it
        broken.add_note(f"raised when it was asked what follows {type(error).__name__} in task {held.task}")
        return raised(held, broken, DEFAULT_RETRY, hide=hide)
