"""Checks what comes from a handler's process where it arrives in the worker: cleans it, removes secrets, cuts it to
what is stored. The process has done the same before it sent it, with the same functions. But a handler can write to the
connection itself: what it sends must neither make a write to the database fail nor reveal secrets."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Error, Outcome, Verb, bounded, kept, returned
from holdfast.model.payload import Unfit, checked
from holdfast.model.stack import Taken, shown, taken
from holdfast.redact import Hide, Hiding
from holdfast.runners.execution import unfit_result
from holdfast.runners.wire import Garbled, StartFailed
from holdfast.tasks.attempt import Attempt

# How the history may describe an attempt that ended with this verb. (None: it succeeded, or never began.)
WORDS: dict[Verb, tuple[str | None, ...]] = {
    "succeed": (None,),
    "fail": ("errored", "timed_out"),
    "reschedule": ("errored", "timed_out"),
    "release": (None, "released", "snoozed"),
    "park": ("parked",),
    "stop": ("cancelled",),
}


class Arrivals:
    def __init__(self, *, max_result: int, url: str) -> None:
        self._max_result = max_result
        self._url = url

    def hiding(self, held: ClaimedJob) -> Hide:
        """Removes secrets from texts of this job. (Which arguments are marked as secret is stored with them.)"""
        return Hiding(held.args, (), self._url)

    def returned(self, held: ClaimedJob, result: bytes | None) -> Outcome:
        """A handler returned this. If it can't be kept, the job fails, as if its own process had found that out."""
        if result is None:
            return returned(held, None)
        try:
            return returned(held, checked(result, limit=self._max_result))
        except Unfit as unfit:
            return unfit_result(held, unfit)

    def kept(self, value: bytes) -> bytes:
        """A checkpoint, or what a step returned."""
        try:
            return checked(value, limit=self._max_result)
        except Unfit as unfit:
            raise HoldfastError(f"this can't be kept: {unfit}", number="HF1308") from None

    def outcome(self, held: ClaimedJob, said: Outcome | None) -> Outcome | None:
        """What follows this attempt. Only what fits its verb is taken over."""
        if said is None:
            return None
        if (said.id, said.fence) != (held.id, held.fence):
            raise Garbled("spoke for another attempt")
        if said.attempt not in WORDS[said.verb] or (said.verb in ("fail", "reschedule") and said.error is None):
            raise Garbled("sent an outcome that makes no sense")
        if said.verb == "succeed":
            decided = self.returned(held, said.result)
        else:
            error = None if said.error is None else kept(said.error, self.hiding(held)).at(held.task)
            delay = bounded(said.delay)
            decided = Outcome(said.verb, held.id, held.fence, said.attempt, delay=delay, error=error)
        return replace(decided, recorded=True) if said.recorded else decided

    def stack(self, held: ClaimedJob, said: str, output: str | None = None) -> str:
        """`output`: what its process has written, as the worker has read it."""
        try:
            found = taken(said)
        except (ValueError, RecursionError):
            raise Garbled("sent a stack that can't be read") from None
        hide = self.hiding(held)
        return Taken(found.pid, shown(found.thread, hide), shown(found.text, hide), output).encoded()

    def start_failed(self, said: StartFailed, args: bytes = b"null") -> HoldfastError:
        """The error that kept a process from starting."""
        error = kept(Error(said.number, said.message), Hiding(args, (), self._url))
        kind = getattr(errors, said.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, HoldfastError) and kind.__init__ is HoldfastError.__init__):
            kind = HoldfastError
        return kind(error.message, number=error.code)


def span(attempt: Attempt, started: float, ended: float, now: float) -> tuple[float, float]:
    """When it started and ended (monotonic; 0: it did not). Nothing ran before it was claimed, or runs in the
    future."""
    if not started > 0:
        return 0.0, 0.0
    started = min(started, now) if started >= attempt.taken else attempt.taken
    return started, min(ended, now) if ended >= started else started
