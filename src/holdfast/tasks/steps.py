"""Durable steps: what one returned is kept under its job, and it is not run again, whichever attempt comes to it.

What a handler gets back is always what was kept, read as the function's return hint says, also when the step was run
just now: so a handler that works once works the same after a crash."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.job import STEP_NAME_LIMIT
from holdfast.model.payload import Unfit, encode
from holdfast.tasks.offload import through

if TYPE_CHECKING:
    from holdfast.tasks.context import JobContext

NUMBER = "HF1315"


class Step:
    """One step of an attempt, from the look whether it was done before to keeping what it returned."""

    def __init__(self, context: JobContext, name: str, function: Callable[..., Any]) -> None:
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
        self._context = context
        self._name = name
        self._function = function
        self._kept: bytes | None = None

    def begin(self) -> None:
        """The name is taken, until the step fails."""
        names = self._context._step_names()
        if self._name in names:
            raise HoldfastError(
                f"step {self._name!r} of job {self._context.job.id} was used before in this attempt: its result would "
                f"be handed out for both; give each step a name of its own, in a loop f'{self._name} {{n}}'",
                number=NUMBER,
            )
        names.add(self._name)

    def failed(self) -> None:
        """It may be tried again under the same name."""
        self._context._step_names().discard(self._name)

    # Each of the two asks the database in two colours. What is found is kept however long the database is away: it was
    # done, and should not be done again. A pause or cancel takes effect before a step is run, and after it was kept.

    def found(self) -> bytes | None:
        """What it returned in an earlier attempt."""
        if self._context._store is not None:
            self._context._under_lease(self._look, "a step")
            self._context._stop_if_asked(also_at_shutdown=self._kept is None)
        return self._kept

    async def afound(self) -> bytes | None:
        if self._context._store is not None:
            await self._context._aunder_lease(self._look, "a step")
            self._context._stop_if_asked(also_at_shutdown=self._kept is None)
        return self._kept

    def _look(self) -> tuple[bool, bool]:
        store = self._context._store
        assert store is not None
        self._kept, cancel, pause = store.step(self._context._ref(), self._name)
        return cancel, pause

    def keep(self, value: Any) -> bytes:
        """Keep what it returned."""
        data = self._encoded(value)
        if self._context._store is not None:
            self._context._under_lease(partial(self._keep, data), "a step")
            self._context._stop_if_asked(also_at_shutdown=True)
        return data

    async def akeep(self, value: Any) -> bytes:
        data = self._encoded(value)
        if self._context._store is not None:
            await self._context._aunder_lease(partial(self._keep, data), "a step")
            self._context._stop_if_asked(also_at_shutdown=True)
        return data

    def _encoded(self, value: Any) -> bytes:
        context = self._context
        limit = sys.maxsize if context._settings is None else context._settings.max_result
        try:
            return encode(value, limit=limit)
        except Unfit as unfit:
            raise HoldfastError(
                f"what step {self._name!r} of job {context.job.id} returned can't be kept: {unfit}", number="HF1308"
            ) from None

    def _keep(self, data: bytes) -> tuple[bool, bool]:
        store = self._context._store
        assert store is not None
        asked = store.keep_step(self._context._ref(), self._name, data)
        events.emit("stepped", job=self._context.job.id, step=self._name)
        return asked

    def value(self, data: bytes) -> Any:
        """What was kept, as the function's return hint says."""
        hint = _return_hint(self._function)
        try:
            return msgspec.json.decode(data, type=hint)
        except msgspec.DecodeError as error:
            raise HoldfastError(
                f"what is kept of step {self._name!r} of job {self._context.job.id} is not what the return hint of "
                f"{_named(self._function)} says: {error}",
                number="HF1309",
            ) from None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(_beneath(self._function))

    def refuse_coroutine(self) -> None:
        if self.is_async:
            raise HoldfastError(
                f"{_named(self._function)} is asynchronous: await ctx.astep({self._name!r}, …) instead of ctx.step",
                number=NUMBER,
            )


def run(step: Step, call: Callable[[], Any]) -> Any:
    step.refuse_coroutine()
    step.begin()
    try:
        data = step.found()
        return step.value(step.keep(call()) if data is None else data)
    except Exception:
        step.failed()
        raise


async def arun(step: Step, call: Callable[[], Any]) -> Any:
    import asyncio

    step.begin()
    try:
        data = await step.afound()
        if data is None:
            value = call() if step.is_async else await asyncio.to_thread(call)
            if inspect.isawaitable(value):
                value = await value
            # It was done: whatever is asked of the job in this very moment, that is kept first.
            data = await through(step.akeep(value))
        return step.value(data)
    except Exception:
        step.failed()
        raise


def _return_hint(function: Callable[..., Any]) -> Any:
    """Any: it has none, or one that JSON can't be read as."""
    try:
        hint = typing.get_type_hints(_beneath(function), include_extras=True).get("return", Any)
        msgspec.json.Decoder(hint)
    except (NameError, TypeError, AttributeError):
        return Any
    return hint


def _beneath(function: Any) -> Any:
    """What was written: beneath partials, decorators, tasks."""
    while isinstance(function, partial):
        function = function.func
    return inspect.unwrap(function)


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)[:80]
