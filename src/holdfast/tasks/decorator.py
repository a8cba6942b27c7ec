"""What `@hf.task(…)` returns."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from holdfast.tasks.context import JobContext
from holdfast.tasks.options import TaskOptions
from holdfast.tasks.task import AsyncTask, SyncTask, Task

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator:
    """What `@hf.task(…)` returns: turns a function into a task with the same signature, less its context."""

    def __init__(
        self, declare: Callable[[Callable[..., Any], TaskOptions], Task[..., Any]], options: TaskOptions
    ) -> None:  # fmt: skip
        self._declare = declare
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._declare(function, self._options)
