"""Durable steps: what a step returned is kept with its job, and no later attempt runs it again.

A handler always gets back what was kept, read by the function's return hint, even when the step ran just now. So a
handler that works once works the same after a crash."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.job import STEP_NAME_LIMIT
from holdfast.model.payload import Unfit, decoder, encode
from holdfast.tasks.hints import why_unfit
from holdfast.tasks.lease_writes import LeaseWrites
from holdfast.tasks.offload import through

NUMBER = "HF1315"


class Steps:
    """The steps of one attempt."""

    __slots__ = ("_job", "_names", "_writes")

    def __init__(self, writes: LeaseWrites | None, job: str) -> None:
        """`writes` is None for a handler that is called directly: nothing is kept then."""
        self._writes = writes
        self._job = job
        self._names: set[str] = set()  # used in this attempt

    def run(self, name: str, function: Callable[..., Any], call: Callable[[], Any]) -> Any:
        step = Step(self._writes, self._job, name, function)
        step.refuse_coroutine()
        self._take(name)
        try:
            data = step.found()
            return step.value(step.keep(call()) if data is None else data)
        except Exception:
            self._names.discard(name)
            raise

    async def arun(self, name: str, function: Callable[..., Any], call: Callable[[], Any]) -> Any:
        import asyncio

        step = Step(self._writes, self._job, name, function)
        self._take(name)
        try:
            data = await step.afound()
            if data is None:
                value = call() if step.is_async else await asyncio.to_thread(call)
                if inspect.isawaitable(value):
                    value = await value
                # The step is done: its result is kept first, whatever is requested of the job at this moment.
                data = await through(step.akeep(value))
            return step.value(data)
        except Exception:
            self._names.discard(name)
            raise

    def _take(self, name: str) -> None:
        """A name is taken until its step fails: then it may be tried again."""
        if name in self._names:
            raise HoldfastError(
                f"step {name!r} of job {self._job} was used before in this attempt: its result would "
                f"be handed out for both; give each step a name of its own, in a loop f'{name} {{n}}'",
                number=NUMBER,
            )
        self._names.add(name)


class Step:
    """One step, from the look whether it was done before to keeping what it returned. A result is looked up and kept
    however long the database is away: the work was done, and should not be done again. A pause or cancel takes effect
    before a step runs, and after its result was kept."""

    def __init__(self, writes: LeaseWrites | None, job: str, name: str, function: Callable[..., Any]) -> None:
        if not isinstance(name, str) or not name.strip() or len(name) > STEP_NAME_LIMIT or "\x00" in name:
            raise HoldfastError(
                f"a step needs a name of 1 to {STEP_NAME_LIMIT} characters, as in ctx.step('charge', charge, order), "
                f"not {name!r:.80}",
                number=NUMBER,
            )
        if not callable(function):
            raise HoldfastError(
                f"step {name!r} needs a function to call, not {function!r:.80}: ctx.step('charge', charge, order), "
                "without brackets after it",
                number=NUMBER,
            )
        self._writes = writes
        self._job = job
        self._name = name
        self._function = function
        self._kept: bytes | None = None

    def found(self) -> bytes | None:
        """What it returned in an earlier attempt."""
        if (writes := self._writes) is not None:
            writes.write(partial(self._look_up, writes), "a step")
            writes.attempt.raise_if_stopping(at_shutdown=self._kept is None)
        return self._kept

    async def afound(self) -> bytes | None:
        if (writes := self._writes) is not None:
            await writes.awrite(partial(self._look_up, writes), "a step")
            writes.attempt.raise_if_stopping(at_shutdown=self._kept is None)
        return self._kept

    def _look_up(self, writes: LeaseWrites) -> tuple[bool, bool]:
        self._kept, cancel, pause = writes.store.attempts.step(writes.ref, self._name)
        return cancel, pause

    def keep(self, value: Any) -> bytes:
        """Keep what it returned."""
        data = self._encoded(value)
        if (writes := self._writes) is not None:
            writes.write(partial(self._keep, writes, data), "a step")
            writes.attempt.raise_if_stopping(at_shutdown=True)
        return data

    async def akeep(self, value: Any) -> bytes:
        data = self._encoded(value)
        if (writes := self._writes) is not None:
            await writes.awrite(partial(self._keep, writes, data), "a step")
            writes.attempt.raise_if_stopping(at_shutdown=True)
        return data

    def _encoded(self, value: Any) -> bytes:
        limit = sys.maxsize if self._writes is None else self._writes.settings.max_result
        try:
            return encode(value, limit=limit)
        except Unfit as unfit:
            raise HoldfastError(
                f"what step {self._name!r} of job {self._job} returned can't be kept: {unfit}", number="HF1308"
            ) from None

    def _keep(self, writes: LeaseWrites, data: bytes) -> tuple[bool, bool]:
        requests = writes.store.attempts.keep_step(writes.ref, self._name, data)
        events.emit("stepped", job=self._job, step=self._name)
        return requests

    def value(self, data: bytes) -> Any:
        """What was kept, read by the function's return hint."""
        hint = _return_hint(self._function)
        try:
            return decoder(hint).decode(data)
        except msgspec.DecodeError as error:
            raise HoldfastError(
                f"what is kept of step {self._name!r} of job {self._job} is not what the return hint of "
                f"{_name_of(self._function)} says: {error}",
                number="HF1309",
            ) from None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(_unwrapped(self._function))

    def refuse_coroutine(self) -> None:
        if self.is_async:
            raise HoldfastError(
                f"{_name_of(self._function)} is asynchronous: await ctx.astep({self._name!r}, …) instead of ctx.step",
                number=NUMBER,
            )


def _return_hint(function: Callable[..., Any]) -> Any:
    """Any: there is no hint, or JSON can't be read as it."""
    try:
        hint = typing.get_type_hints(_unwrapped(function), include_extras=True).get("return", Any)
    except (NameError, TypeError, AttributeError):
        return Any
    return hint if why_unfit(hint) is None else Any


def _unwrapped(function: Any) -> Any:
    """The function as it was written, without partials, decorators and tasks around it."""
    while isinstance(function, partial):
        function = function.func
    return inspect.unwrap(function)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)[:80]
