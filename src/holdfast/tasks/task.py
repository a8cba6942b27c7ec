"""Tasks: a name, the handler behind it, and its defaults."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec

from holdfast.durations import Duration
from holdfast.errors import BadArguments, BadSettings, HoldfastError
from holdfast.model.job import NewJob
from holdfast.tasks.context import JobContext
from holdfast.tasks.options import Options, TaskDefaults, checked_options, seconds, urgent
from holdfast.tasks.signature import Signature

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.job import Job

# What other job systems call `enqueue`.
FOREIGN_VERBS = {"delay", "apply_async", "send", "send_with_options", "defer", "defer_async", "schedule", "push", "kiq"}

DEADLINE = 1.0  # seconds that run_now waits, unless it is told otherwise

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Bound(Generic[R_co]):  # not a struct, whose repr would show the arguments, which may be secret
    """A task with its arguments, checked and ready to be enqueued."""

    __slots__ = ("conn", "new", "task")

    def __init__(self, task: Task[Any, R_co], new: NewJob, conn: Any = None) -> None:
        self.task = task
        self.new = new
        self.conn = conn

    def __repr__(self) -> str:
        return f"<Bound {self.task.name}(…)>"


class Enqueuer(Generic[P, R]):
    """A task with options: `.using(…)` returns one with other options, `.enqueue(…)` takes the handler's own
    arguments."""

    task: Task[P, R]

    def __init__(self, options: Options) -> None:
        self._options = options
        self._template: NewJob | None = None  # what its jobs have in common

    def using(self, **options: Unpack[Options]) -> Enqueuer[P, R]:
        """The same task with other options: queue, priority, delay or run_at, expires, key, reuse, after_failure,
        max_attempts, tags, correlation_id, conn."""
        return _Using(self.task, {**self._options, **options})

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The task with these arguments, for `enqueue_many`."""
        task = self.task
        payload = task._signature.encode(args, kwargs, limit=task.app.settings.max_args)
        if self._template is None:
            self._template = NewJob(task=task.name, args=b"", **checked_options(task._defaults, self._options))
        return Bound(task, msgspec.structs.replace(self._template, args=payload), self._options.get("conn"))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job. It is durable when this returns (or when the transaction given as `conn` commits)."""
        return self.task.app._submit(self.bind(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue` without blocking the event loop."""
        return await self.task.app._asubmit(self.bind(*args, **kwargs))

    # (No type can say "the handler's arguments, and a deadline": with one, arguments are checked when it is called.)
    @overload
    def run_now(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    def run_now(self, *args: Any, deadline: Duration, **kwargs: Any) -> Job[R]: ...

    def run_now(self, *args: Any, **kwargs: Any) -> Job[R]:
        """Store a job of the highest priority, run it in a slot that this process keeps free, and wait for it. Returns
        its handle: `job.finished` says whether it was done by the deadline. If not, it goes on."""
        return self.task.app._run_now(*self._urgent(args, kwargs))

    @overload
    async def arun_now(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]: ...
    @overload
    async def arun_now(self, *args: Any, deadline: Duration, **kwargs: Any) -> Job[R]: ...

    async def arun_now(self, *args: Any, **kwargs: Any) -> Job[R]:
        """`run_now` without blocking the event loop."""
        return await self.task.app._arun_now(*self._urgent(args, kwargs))

    def _urgent(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Bound[R], float]:
        """A job to run now, and for how many seconds to wait for it."""
        where = f"{self.task.name}.run_now"
        if "deadline" in self.task._signature.hints:
            raise BadArguments(f"{where}: deadline is how long to wait, so the handler needs another name for its own")
        patience = seconds(f"{where}: deadline", kwargs.pop("deadline", DEADLINE))
        return self.using(**urgent(where, self._options)).bind(*args, **kwargs), patience

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            hint = ""
            if name in FOREIGN_VERBS:
                hint = "; a job is enqueued with .enqueue(…), and with options with .using(delay=5).enqueue(…)"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")


class _Using(Enqueuer[P, R]):
    def __init__(self, task: Task[P, R], options: Options) -> None:
        super().__init__(options)
        self.task = task
        checked_options(task._defaults, options)  # refuse bad options here, where they are written

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r:.80}" for name, value in self._options.items())
        return f"<Task {self.task.name} using {options}>"


class Task(Enqueuer[P, R]):
    """A declared task. Calling it runs the handler here and now."""

    def __init__(self, app: Holdfast, function: Callable[..., Any], defaults: TaskDefaults) -> None:
        super().__init__({})
        self.task = self
        self.app = app
        self.name = defaults.name
        self._defaults = defaults
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = Signature(self.name, function)
        self.function = function
        self.secrets = self._signature.secrets
        self._schedule = defaults.schedule
        if self._schedule is not None and self._signature.required:
            required = ", ".join(self._signature.required)
            raise BadSettings(
                f"task {self.name}: nobody passes arguments to a cron's job; give {required} a default, or put "
                "the cron on a task of its own that enqueues this one"
            )
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    @property
    def function(self) -> Callable[..., Any]:
        """The handler as it was declared. Tests may replace it."""
        return self._function

    @function.setter
    def function(self, function: Callable[..., Any]) -> None:
        self._function = self.__wrapped__ = function
        # Calls it with stored arguments. A handler that needs resources is run `_equipped`.
        self._run = self._signature.caller(self._unequipped if self._signature.uses else function)

    def _unequipped(self, *args: Any, **kwargs: Any) -> Any:
        raise HoldfastError(f"{self.name} asks for resources ({', '.join(self._signature.uses)}): a worker opens them")

    def _equipped(self, values: dict[str, Any]) -> Equipped:
        """The task with its resources."""
        return Equipped(self, values)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        missing = self._signature.uses.keys() - kwargs.keys()
        if missing:
            name = sorted(missing)[0]
            raise BadArguments(f"{self.name}: a direct call opens no resources; pass it by name, as in {name}=…")
        if self._signature.takes_context:
            return self.function(JobContext.detached(self.name), *args, **kwargs)
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}: queue {self._defaults.queue}, {self._defaults.max_attempts} attempts>"


class Equipped:
    """A task with the resources its handler asks for."""

    __slots__ = ("_defaults", "_run", "_signature", "is_async", "secrets")

    def __init__(self, task: Task[..., Any], values: dict[str, Any]) -> None:
        self._defaults = task._defaults
        self.is_async = task.is_async
        self.secrets = task.secrets
        self._signature = task._signature
        self._run = task._signature.caller(partial(task.function, **values))


class SyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return typing.cast(R, self._call(*args, **kwargs))


class AsyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return typing.cast("Coroutine[Any, Any, R]", self._call(*args, **kwargs))
