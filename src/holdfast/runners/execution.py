"""Runs an attempt in this process: begin, call the handler, decide what follows, report it. The same for every runner
here; a runner adds where it happens and how a handler is interrupted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import HoldfastError, LeaseLost, StoreUnavailable
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import (
    NOT_COMMITTED,
    Error,
    Outcome,
    clean,
    describe,
    errored,
    given_back,
    kept,
    parked,
    raised,
    returned,
    stopped,
)
from holdfast.model.payload import Unfit
from holdfast.model.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.model.stack import Taken, shown
from holdfast.redact import Hide, hiding, scrub
from holdfast.runners.base import Finished, Succeeded
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.engine import is_cut_off
from holdfast.tasks.around import Around
from holdfast.tasks.attempt import Attempt, StopAttempt, emit_errored, job_fields
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_context, info_of
from holdfast.tasks.hooks import Hooks, call_error_hooks
from holdfast.tasks.manifest import TaskInfo
from holdfast.tasks.options import TaskDefaults
from holdfast.tasks.signature import Signature, UnfitArguments
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    from holdfast.runners.event_loop import Slot


# Decides the outcome of an attempt from what its handler did. None: the lease was lost, so nothing is recorded.

OUTAGE_DELAY = 5.0  # seconds until a job is tried again whose handler ran into an outage of the database


def on_return(
    attempt: Attempt, value: Any, policy: RetryPolicy, encoded: Callable[[Any], bytes]
) -> Outcome | None:  # fmt: skip
    """`encoded`: the result as JSON, or Unfit."""
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
        return returned(held, encoded(value))
    except Unfit as unfit:
        return unfit_result(held, unfit)


def unfit_result(held: ClaimedJob, unfit: Unfit) -> Outcome:
    # The result would be the same next time, so the job fails at once.
    error = kept(Error("RESULT_UNFIT", f"its result can't be kept: {unfit}"))
    return Outcome("fail", held.id, held.fence, "errored", error=error.at(held.task))


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
        # They would not fit the next time either.
        return Outcome("fail", held.id, held.fence, "errored", error=describe(error, "BAD_ARGUMENTS", hide))
    try:
        return raised(held, error, policy, hide=hide)
    except BaseException as broken:  # noqa: BLE001 - users' classes may raise anything; the job must not be lost for it
        broken.add_note(f"raised when it was asked what follows {type(error).__name__} in task {held.task}")
        return raised(held, broken, DEFAULT_RETRY, hide=hide)


class Handler(Protocol):
    """A task as it is called: as declared, or with its resources."""

    @property
    def _defaults(self) -> TaskDefaults: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def secrets(self) -> frozenset[str]: ...
    @property
    def _signature(self) -> Signature: ...

    @property
    def _run(self) -> Callable[[JobContext, bytes], Any]: ...


Call = Callable[[Handler, JobContext, bytes], object]


def call_handler(handler: Handler, context: JobContext, args: bytes) -> object:
    return handler._run(context, args)


class Execution:
    """The handlers of a runner, and what surrounds a call of one."""

    def __init__(self, tasks: Iterable[Task[..., object]], store: Store, settings: Settings, hooks: Hooks) -> None:
        self._handlers: dict[str, Handler] = {
            name: task for task in tasks for name in (task.name, *task._defaults.aliases)
        }
        self._store = store
        self._settings = settings
        self._hooks = hooks
        self._finished: Finished
        self._succeeded: Succeeded

    def open(self, finished: Finished, succeeded: Succeeded | None = None) -> None:
        """`finished` is called at the end of each attempt, on the thread it ran on. `succeeded` is called instead for a
        success without result, where no outcome object is needed to report it."""
        self._finished = finished
        self._succeeded = succeeded or (lambda attempt: finished(attempt, returned(attempt.held, None)))

    def equip(self, task: Task[..., object], values: Mapping[str, Any]) -> None:
        """Pass these resources to the handler from now on."""
        equipped = task._equipped(dict(values))
        self._handlers.update(dict.fromkeys((task.name, *task._defaults.aliases), equipped))

    # -- an attempt, from beginning to end -----------------------------------------------------------------------------

    def run(
        self, attempt: Attempt, call: Call = call_handler, interrupt: Callable[[Attempt], None] | None = None
    ) -> BaseException | None:
        """Run it on this thread. Returns what its handler raised."""
        handler = self._handlers[attempt.held.task]
        context = self._begin(attempt, handler, interrupt)
        if context is None:
            return None
        around = Around(self._hooks.around, attempt.held) if self._hooks.around else None
        try:
            if around is not None:
                around.enter()
            value = call(handler, context, attempt.held.args)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = self._on_raise(attempt, handler, error)
            if around is not None:
                around.leave(outcome, error)
            self._end(attempt, outcome)
            return error
        if around is None:
            self._returned(attempt, handler, value)
        else:
            outcome = self._on_return(attempt, handler, value)
            around.leave(outcome, None)
            self._end(attempt, outcome)
        return None

    async def run_async(self, attempt: Attempt, slot: Slot) -> BaseException | None:
        """Run it in this slot of an event loop. Returns what its handler raised."""
        handler = self._handlers[attempt.held.task]
        context = self._begin(attempt, handler, slot.interrupt)
        if context is None:
            return None
        around = Around(self._hooks.around, attempt.held) if self._hooks.around else None
        slot.attempt = attempt
        try:
            if around is not None:
                await around.aenter()
            running = handler._run(context, attempt.held.args)
            value = await (running if attempt.timeout is None else slot.limited(attempt, running))
        except BaseException as error:
            outcome = self._on_raise(attempt, handler, error)
            if around is not None:
                await around.aleave(outcome, error)
            self._end(attempt, outcome)
            if isinstance(error, GeneratorExit):  # the slot itself is closed
                raise
            return error
        else:
            if around is None:
                self._returned(attempt, handler, value)
            else:
                outcome = self._on_return(attempt, handler, value)
                await around.aleave(outcome, None)
                self._end(attempt, outcome)
            return None
        finally:
            slot.attempt = None
            if slot.task.cancelling():
                slot.uncancel()
            current_context.set(None)

    def give_back(self, attempt: Attempt) -> None:
        """It is not run."""
        self._finished(attempt, None)

    def _begin(
        self, attempt: Attempt, handler: Handler, interrupt: Callable[[Attempt], None] | None
    ) -> JobContext | None:
        """None: it was given back instead."""
        if attempt.not_to_begin:
            self.give_back(attempt)
            return None
        attempt.begin()
        if interrupt is not None:
            attempt.interrupt = interrupt
            if attempt.must_stop:
                attempt.stop_now()  # requested at the very moment it began
        context = JobContext(attempt, self._store, self._settings, handler.secrets)
        current_context.set(context)
        return context

    def _returned(self, attempt: Attempt, handler: Handler, value: object) -> None:
        if value is None and attempt.reason is None and not attempt.recorded:
            attempt.end()
            self._succeeded(attempt)
        else:
            self._end(attempt, self._on_return(attempt, handler, value))

    def _on_return(self, attempt: Attempt, handler: Handler, value: object) -> Outcome | None:
        def decide() -> Outcome | None:
            encoded = partial(handler._signature.encode_result, limit=self._settings.max_result)
            return on_return(attempt, value, handler._defaults.retry, encoded)

        outcome = _decided(attempt, decide)
        self._report_error(attempt, outcome, None)
        return outcome

    def _on_raise(self, attempt: Attempt, handler: Handler, error: BaseException) -> Outcome | None:
        def decide() -> Outcome | None:
            hide = hiding(attempt.held.args, handler.secrets, self._settings.url)
            return on_raise(attempt, error, handler._defaults.retry, hide)

        outcome = _decided(attempt, decide)
        self._report_error(attempt, outcome, error)
        return outcome

    def _end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        attempt.end()
        self._finished(attempt, outcome)

    def _report_error(self, attempt: Attempt, outcome: Outcome | None, error: BaseException | None) -> None:
        """If this is an error, listeners and the application's hooks are called. Not for a lost lease: the store will
        refuse the outcome, and the desk reports that."""
        if isinstance(error, LeaseLost) and outcome is not None:
            events.emit("lease_doubted", **job_fields(attempt.held))
        if outcome is None or outcome.error is None or isinstance(error, LeaseLost):
            return
        emit_errored(attempt.held, outcome, seconds=time.monotonic() - attempt.started)
        unsure = outcome.recorded and error is None  # it may have succeeded
        if self._hooks.error and not unsure and outcome.attempt in ("errored", "timed_out"):
            if outcome.attempt == "timed_out":
                error = TimeoutError(outcome.error.message)
            error = error or HoldfastError(outcome.error.message)
            call_error_hooks(self._hooks.error, info_of(attempt.held), error)

    # ------------------------------------------------------------------------------------------------------------------

    def encoded_stack(self, attempt: Attempt, thread: str, text: str) -> str:
        """A stack of this attempt's handler, without secrets, as it travels."""
        hide = hiding(attempt.held.args, self._handlers[attempt.held.task].secrets, self._settings.url)
        return Taken(os.getpid(), thread, shown(text, hide)).encoded()


def _decided(attempt: Attempt, decide: Callable[[], Outcome | None]) -> Outcome | None:
    """An attempt without an outcome would hold its lease forever: if even deciding fails, that failure is the
    outcome."""
    try:
        return decide()
    except BaseException as broken:  # noqa: BLE001 - users' values and errors may raise anything when they are inspected
        error = Error("UNDECIDED", clean(f"what it left can't be made sense of: {type(broken).__name__}"))
        return Outcome("fail", attempt.held.id, attempt.held.fence, "errored", error=error.at(attempt.held.task))
