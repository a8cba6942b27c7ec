"""What an application has called when a worker starts and stops, and when an attempt errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.outcome import in_words
from holdfast.work.context import JobInfo
from holdfast.work.resources import on_loop

if TYPE_CHECKING:
    import asyncio

Hook = Callable[[], Any]
ErrorHook = Callable[[JobInfo, BaseException], object]


class Hooks(msgspec.Struct, frozen=True):
    start: list[Hook] = []
    stop: list[Hook] = []
    error: list[ErrorHook] = []

    def started(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call what was asked for, in order. One that fails keeps the worker from starting."""
        for hook in self.start:
            try:
                _call(hook, loop)
            except Exception as error:
                raise HoldfastError(
                    f"the start hook {_name(hook)} failed, so this worker takes no jobs (they stay queued): "
                    f"{type(error).__name__}: {error}"
                ) from error

    def stopped(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """In reverse order; one that fails is told, and keeps nobody from stopping."""
        for hook in reversed(self.stop):
            try:
                _call(hook, loop)
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                events.emit("hook_failed", hook=_name(hook), error=f"{type(error).__name__}: {error}")


def errored(hooks: Iterable[ErrorHook], job: JobInfo, error: BaseException) -> None:
    for hook in hooks:
        try:
            hook(job, error)
        except BaseException as broken:  # noqa: BLE001 - what a hook raises, sys.exit too, costs the job nothing
            events.emit("hook_failed", hook=_name(hook), error=in_words(broken))


def checked_error_hook(hook: ErrorHook) -> ErrorHook:
    if inspect.iscoroutinefunction(hook):
        raise BadSettings(f"on_error: {_name(hook)} must be a plain function: an attempt that ends waits for nobody")
    return hook


def _call(hook: Hook, loop: asyncio.AbstractEventLoop | None) -> None:
    if not inspect.iscoroutinefunction(hook):
        hook()
    elif loop is None:
        import asyncio

        asyncio.run(hook())
    else:
        on_loop(hook(), loop).result()


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
