"""Around an attempt: what an application sets up before a handler is called, and takes down after it.

A wrapper is a generator with one `yield`, as for `contextlib.contextmanager`. The handler runs there; what it raises
is raised there, too. By then it is decided what becomes of the job: a wrapper sees the outcome and can't change it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal, cast

import msgspec

from holdfast import events
from holdfast.errors import BadSettings
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome, in_words
from holdfast.redact import MARKS
from holdfast.tasks.current import JobInfo, info_of

AttemptOutcome = Literal[
    "succeeded", "failed", "rescheduled", "released", "snoozed", "parked", "cancelled", "lost"
]  # fmt: skip


class AttemptInfo:
    """What a wrapper is given: the job, and after the `yield` what became of the attempt."""

    __slots__ = ("_args", "error", "job", "outcome")

    def __init__(self, held: ClaimedJob) -> None:
        self.job: JobInfo = info_of(held)
        self.outcome: AttemptOutcome | None = None  # None: it has not ended
        self.error: BaseException | None = None  # what the handler raised
        self._args = held.args

    @property
    def args(self) -> dict[str, Any]:
        """The arguments by name, as they are stored: JSON values."""
        return {name: value for name, value in msgspec.json.decode(self._args).items() if name != MARKS}

    def __repr__(self) -> str:
        return f"<Attempt {self.job.attempt} of job {self.job.id}: {self.outcome or 'runs'}>"


Wrapper = Callable[[AttemptInfo], Iterator[None] | AsyncIterator[None]]


def checked_wrapper(wrapper: Wrapper) -> Wrapper:
    if not inspect.isgeneratorfunction(wrapper) and not inspect.isasyncgenfunction(wrapper):
        managed = inspect.unwrap(wrapper) is not wrapper
        raise BadSettings(
            f"around_attempt: {_name(wrapper)} must be a function that takes the attempt and has one `yield`"
            + (", without @contextmanager or another decorator around it" if managed else "")
        )
    return wrapper


class Around:
    """The wrappers around one attempt, from the first declared to the last. Around a synchronous handler there are only
    synchronous ones: no loop runs on its thread."""

    def __init__(self, wrappers: Sequence[Wrapper], held: ClaimedJob) -> None:
        self._wrappers = wrappers
        self._attempt = AttemptInfo(held)
        self._entered: list[tuple[str, AbstractContextManager[None] | AbstractAsyncContextManager[None]]] = []

    def enter(self) -> None:
        for wrapper in self._wrappers:
            if not inspect.isasyncgenfunction(wrapper):
                self._enter(wrapper)

    async def aenter(self) -> None:
        for wrapper in self._wrappers:
            if not inspect.isasyncgenfunction(wrapper):
                self._enter(wrapper)
                continue
            context = asynccontextmanager(wrapper)(self._attempt)
            await context.__aenter__()
            self._entered.append((_name(wrapper), context))

    def _enter(self, wrapper: Wrapper) -> None:
        context = contextmanager(cast("Callable[[AttemptInfo], Iterator[None]]", wrapper))(self._attempt)
        context.__enter__()
        self._entered.append((_name(wrapper), context))

    def leave(self, outcome: Outcome | None, error: BaseException | None) -> None:
        """What a wrapper raises now is reported, and changes nothing."""
        self._ended(outcome, error)
        while self._entered:
            name, context = self._entered.pop()
            try:
                if isinstance(context, AbstractContextManager):  # else its loop is closed
                    context.__exit__(*_raised(error))
            except BaseException as broken:  # noqa: BLE001 - a user's code may raise anything
                _report(name, broken, error)

    async def aleave(self, outcome: Outcome | None, error: BaseException | None) -> None:
        if isinstance(error, GeneratorExit):  # nothing can be awaited any more
            return self.leave(outcome, error)
        self._ended(outcome, error)
        while self._entered:
            name, context = self._entered.pop()
            try:
                if isinstance(context, AbstractContextManager):
                    context.__exit__(*_raised(error))
                else:
                    await context.__aexit__(*_raised(error))
            except BaseException as broken:  # noqa: BLE001 - as above
                _report(name, broken, error)

    def _ended(self, outcome: Outcome | None, error: BaseException | None) -> None:
        self._attempt.outcome = _in_a_word(outcome, error)
        self._attempt.error = error


def _in_a_word(outcome: Outcome | None, error: BaseException | None) -> AttemptOutcome:
    if outcome is None:
        return "lost"
    if outcome.recorded and error is None:
        return "succeeded"  # the handler recorded that in its own transaction
    match outcome.verb:
        case "succeed":
            return "succeeded"
        case "fail":
            return "failed"
        case "reschedule":
            return "rescheduled"
        case "release":
            return "snoozed" if outcome.attempt == "snoozed" else "released"
        case "park":
            return "parked"
        case "stop":
            return "cancelled"


def _raised(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _report(name: str, broken: BaseException, error: BaseException | None) -> None:
    if broken is not error:
        events.emit("hook_failed", hook=name, error=in_words(broken))


def _name(wrapper: Callable[..., Any]) -> str:
    return getattr(wrapper, "__qualname__", None) or repr(wrapper)
