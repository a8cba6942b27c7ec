"""Tasks: a name, the handler behind it, and its defaults. Arguments are checked when enqueued, by the handler's own
signature, and converted by its type hints when run."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import BadArguments, BadSettings, HoldfastError
from holdfast.model.cron import CATCH_UP, CatchUp, Schedule
from holdfast.model.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_QUEUE, FOREVER, MAX_PRIORITY, MIN_PRIORITY, NewJob
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.payload import Unfit, encode
from holdfast.model.retry import DEFAULT_RETRY, RetryPolicy
from holdfast.redact import MARKS, SECRET, hiding, is_secret_name
from holdfast.work.context import JobContext
from holdfast.work.resources import Use, uses_of
from holdfast.work.runners.surroundings import of_database

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.handle import Job

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_NAME = 200  # characters of a task, queue, key or tag
MAX_REASON = 4000

Seconds = float | timedelta
Isolation = Literal["process"]


class Options(TypedDict, total=False):
    """How one enqueue differs from the task's defaults."""

    queue: str
    priority: int
    delay: Seconds
    run_at: datetime
    expires: Seconds
    key: str
    reuse: Seconds | Literal["forever"] | None
    max_attempts: int
    tags: typing.Sequence[str]
    correlation_id: str
    conn: Any


class UnfitArguments(Exception):
    """Stored arguments don't fit the handler: it changed since they were enqueued, or someone else wrote them."""


class Bound(Generic[R_co]):  # no struct: that would print its arguments, which may be secret
    """A task with its arguments, checked and ready to be enqueued."""

    __slots__ = ("conn", "new", "task")

    def __init__(self, task: Task[Any, R_co], new: NewJob, conn: Any = None) -> None:
        self.task = task
        self.new = new
        self.conn = conn


class Enqueuer(Generic[P, R]):
    """A task with options: `.using(…)` gives another, `.enqueue(…)` takes the handler's own arguments."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._template: NewJob | None = None  # what its jobs have in common

    @property
    def task(self) -> Task[P, R]:
        raise NotImplementedError

    def using(self, **options: Unpack[Options]) -> Enqueuer[P, R]:
        """The same task with other options: queue, priority, delay or run_at, expires, key, reuse, max_attempts,
        tags, correlation_id, conn."""
        return _Using(self.task, {**self._options, **options})

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The task with these arguments, for `enqueue_many`."""
        task = self.task
        payload = task.signature.encode(args, kwargs, limit=task.app.settings.max_args)
        if self._template is None:
            self._template = NewJob(task=task.name, args=b"", **_checked_options(task, self._options))
        return Bound(task, msgspec.structs.replace(self._template, args=payload), self._options.get("conn"))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Keep a job; it is durable when this returns (or with the transaction given as `conn`)."""
        return self.task.app.submit(self.bind(*args, **kwargs))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await self.task.app.asubmit(self.bind(*args, **kwargs))


class _Using(Enqueuer[P, R]):
    def __init__(self, task: Task[P, R], options: Options) -> None:
        super().__init__(options)
        self._task = task
        _checked_options(task, options)  # bad options are refused here, where they are written

    @property
    def task(self) -> Task[P, R]:
        return self._task


class Task(Enqueuer[P, R]):
    """A declared task. Calling it runs the handler here and now."""

    def __init__(self, app: Holdfast, function: Callable[..., Any], defaults: TaskDefaults) -> None:
        super().__init__({})
        self.app = app
        self.function = function
        self.name = defaults.name
        self.defaults = defaults
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = Signature(self.name, function)
        self.secrets = self.signature.secrets
        self.schedule = defaults.schedule
        if self.schedule is not None and self.signature.required:
            raise BadSettings(
                f"task {self.name}: nobody passes arguments to a cron's job; give {', '.join(self.signature.required)} "
                "a default, or put the cron on a task of its own that enqueues this one"
            )
        self.__doc__ = function.__doc__
        self.__name__ = self.name

    @property
    def task(self) -> Task[P, R]:
        return self

    def run(self, context: JobContext, args: bytes) -> Any:
        """Call the handler with stored arguments. One that asks for resources is run `equipped`."""
        return self.signature.call(self._unequipped if self.signature.uses else self.function, context, args)

    def _unequipped(self, *args: Any, **kwargs: Any) -> Any:
        raise HoldfastError(f"{self.name} asks for resources ({', '.join(self.signature.uses)}): a worker opens them")

    def equipped(self, values: dict[str, Any]) -> Equipped:
        """The task with its resources."""
        return Equipped(self, values)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        missing = self.signature.uses.keys() - kwargs.keys()
        if missing:
            name = sorted(missing)[0]
            raise BadArguments(f"{self.name}: a direct call opens no resources; pass it by name, as in {name}=…")
        if self.signature.takes_context:
            return self.function(JobContext.detached(self.name), *args, **kwargs)
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}: queue {self.defaults.queue}, {self.defaults.max_attempts} attempts>"


class Equipped:
    """A task with the resources its handler asks for."""

    __slots__ = ("_function", "_signature", "defaults", "is_async", "secrets")

    def __init__(self, task: Task[..., Any], values: dict[str, Any]) -> None:
        self.defaults = task.defaults
        self.is_async = task.is_async
        self.secrets = task.secrets
        self._signature = task.signature
        self._function = partial(task.function, **values)

    def run(self, context: JobContext, args: bytes) -> Any:
        return self._signature.call(self._function, context, args)


class SyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return typing.cast(R, self._call(*args, **kwargs))


class AsyncTask(Task[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return typing.cast("Coroutine[Any, Any, R]", self._call(*args, **kwargs))


class TaskDefaults(msgspec.Struct, frozen=True):
    name: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry: RetryPolicy = DEFAULT_RETRY
    timeout: float | None = None
    reuse: float | None = None
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    schedule: Schedule | None = None
    catch_up: CatchUp = "latest"
    progress_timeout: float | None = None
    isolation: Isolation | None = None
    limits: Limits = NO_LIMITS
    env: tuple[str, ...] = ()
    database: bool = False


class Signature:
    """The arguments of a handler, as a type that JSON is checked against."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task = task
        signature = inspect.signature(function)
        hints = _hints(task, function)
        parameters = list(signature.parameters.values())
        self.takes_context = bool(parameters) and _is_context(parameters[0], hints)
        if self.takes_context:
            parameters = parameters[1:]
        self.uses = uses_of(f"task {task}", function)
        parameters = [parameter for parameter in parameters if not isinstance(parameter.default, Use)]
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise BadSettings(
                    f"task {task}: {parameter} takes any arguments, so they can't be checked; name them one by one",
                    number="HF1111",
                )
        self._signature = signature.replace(parameters=parameters)
        self._names = [parameter.name for parameter in parameters]
        self.required = [p.name for p in parameters if p.default is p.empty]
        self.hints = {name: hints.get(name, Any) for name in self._names}
        self._marks = [name for name in self._names if _is_secret(hints.get(name))]
        self.secrets = frozenset(self._marks) | {name for name in self._names if is_secret_name(name)}
        self._positional_only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        self._most_positional = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
        self._keywords = [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]
        # Nothing to leave to a default, nothing to pass by name: the short way.
        self._all_given = not self._marks and all(
            p.default is p.empty and p.kind is not p.KEYWORD_ONLY for p in parameters
        )
        self.returns = hints.get("return", Any)
        try:
            fields = [_field(p, hints) for p in parameters]
            if self._marks:
                fields.append(("holdfast_marks", list[str] | UnsetType, UNSET))
            named = {"holdfast_marks": MARKS} if self._marks else None
            self._arguments = msgspec.defstruct(
                "Arguments", fields, forbid_unknown_fields=True, kw_only=not self._all_given, rename=named
            )
            self._decoder = msgspec.json.Decoder(self._arguments)
            # A handler that returns nothing may still record a result on its own transaction.
            anything = self.returns in (NoneType, typing.NoReturn, typing.Never)
            self._result = msgspec.json.Decoder(Any if anything else self.returns)
        except TypeError as error:
            raise BadSettings(f"task {task}: its type hints can't be kept as JSON: {error}", number="HF1111") from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int) -> bytes:
        """The arguments as JSON, or BadArguments naming the one that is wrong."""
        if self._all_given and not kwargs and len(args) == len(self._names):
            given: Any = self._arguments(*args)
        else:
            given = self._by_name(args, kwargs)
            if self._marks:
                given[MARKS] = self._marks
        try:
            data = encode(given, limit=limit)
        except Unfit as unfit:
            raise BadArguments(self._blame(given, limit) or f"{self._task}: the arguments: {unfit}") from None
        try:
            self._decoder.decode(data)
        except (msgspec.DecodeError, NotImplementedError) as error:
            hide = hiding(data, self.secrets, "")
            raise BadArguments(f"{self._task}: {hide(_told(error))}") from None
        return data

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the order of the signature."""
        given = dict(zip(self._names[: self._most_positional], args, strict=False))
        given.update((name, kwargs[name]) for name in self._keywords if name in kwargs)
        if len(given) == len(args) + len(kwargs) and all(name in given for name in self.required):
            return given
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(f"{self._task}: {error} (it takes {self._signature})") from None

    def partial(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Some of the arguments, by name."""
        try:
            return self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise BadArguments(f"{self._task}: {error} (it takes {self._signature})") from None

    @property
    def defaults(self) -> dict[str, Any]:
        return {p.name: p.default for p in self._signature.parameters.values() if p.default is not p.empty}

    def _blame(self, given: Any, limit: int) -> str | None:
        for name, value in (given if isinstance(given, dict) else msgspec.structs.asdict(given)).items():
            try:
                encode(value, limit=limit)
            except Unfit as unfit:
                return f"{self._task}: argument `{name}`: {unfit}"
        return None

    def call(self, function: Callable[..., Any], context: JobContext, args: bytes) -> Any:
        try:
            decoded = self._decoder.decode(args)
        except (msgspec.DecodeError, NotImplementedError) as error:
            raise UnfitArguments(f"{self._task}: {_told(error)}") from None
        if self._all_given:
            given = msgspec.structs.astuple(decoded)
            return function(context, *given) if self.takes_context else function(*given)
        values = {name: value for name in self._names if (value := getattr(decoded, name)) is not UNSET}
        first = [values.pop(name) for name in self._positional_only if name in values]
        if self.takes_context:
            return function(context, *first, **values)
        return function(*first, **values)

    def result(self, data: bytes | None) -> Any:
        """A stored result as the handler's return hint says."""
        try:
            return None if data is None else self._result.decode(data)
        except (msgspec.DecodeError, NotImplementedError) as error:
            raise HoldfastError(
                f"the result of {self._task} is not what its return hint says: {error}", number="HF1309"
            ) from None


def _hints(task: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise BadSettings(f"task {task}: a type hint can't be resolved: {error}", number="HF1111") from None


def _is_context(parameter: inspect.Parameter, hints: dict[str, Any]) -> bool:
    hint = hints.get(parameter.name)
    return hint is JobContext or (hint is None and parameter.name == "ctx")


def _is_secret(hint: Any) -> bool:
    """Is it, or a part of it, marked as Secret?"""
    return SECRET in getattr(hint, "__metadata__", ()) or any(_is_secret(part) for part in typing.get_args(hint))


def _field(parameter: inspect.Parameter, hints: dict[str, Any]) -> Any:
    hint = hints.get(parameter.name, Any)
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    return (parameter.name, hint | UnsetType if hint is not Any else Any, UNSET)


def _told(error: Exception) -> str:
    # "Expected `int`, got `str` - at `$.n`", and for the keys of a mapping "… - at `key in $.n`"
    said, _, path = str(error).partition(" - at `")
    return f"argument `{path.rstrip('`').replace('$.', '')}`: {said}" if path else said


def _checked_options(task: Task[Any, Any], options: Options) -> dict[str, Any]:
    """The options of an enqueue, over the task's defaults, as a NewJob takes them."""
    where = f"{task.name}.using"
    unknown = set(options) - Options.__annotations__.keys()
    if unknown:
        raise BadArguments(f"{where}: there is no option {', '.join(sorted(unknown))}")
    defaults = task.defaults
    if "delay" in options and "run_at" in options:
        raise BadArguments(f"{where}: delay and run_at exclude each other")
    checked = {
        "queue": name_of(f"{where}: queue", options.get("queue", defaults.queue)),
        "priority": priority_of(where, options.get("priority", defaults.priority)),
        "max_attempts": _whole(where, "max_attempts", options.get("max_attempts", defaults.max_attempts), 1, 10_000),
        "delay": seconds(f"{where}: delay", options.get("delay", 0.0)),
        "run_at": aware(f"{where}: run_at", options.get("run_at")),
        "tags": names_of(f"{where}: tags", options.get("tags", defaults.tags)),
    }
    if "expires" in options:
        checked["expires_in"] = seconds(f"{where}: expires", options["expires"])
    if options.get("key") is not None:
        checked["key"] = name_of(f"{where}: key", options["key"], limit=1000)
        checked["reuse"] = reuse_of(where, options["reuse"]) if "reuse" in options else defaults.reuse
    elif "reuse" in options:
        raise BadArguments(f"{where}: reuse says how long the result of a key is handed out again, so it needs a key")
    if options.get("correlation_id") is not None:
        checked["correlation_id"] = name_of(f"{where}: correlation_id", options["correlation_id"])
    return checked


def seconds(what: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3e9:
        raise BadArguments(f"{what} must be 0 or more seconds (a number or a timedelta), not {value!r}")
    return float(value)


def reuse_of(where: str, value: Any) -> float | None:
    if value is None:
        return None
    return FOREVER if value == "forever" else seconds(f"{where}: reuse", value)


def name_of(what: str, value: Any, *, limit: int = MAX_NAME) -> str:
    if not isinstance(value, str) or not value or len(value) > limit or "\x00" in value or not _encodable(value):
        raise BadArguments(f"{what} must be a text of 1 to {limit} characters without NUL, not {value!r:.80}")
    return value


def reason_of(verb: str, value: Any) -> str | None:
    return None if value is None else name_of(f"{verb}: reason", value, limit=MAX_REASON)


def names_of(what: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str):  # its characters would be taken one by one
        raise BadArguments(f"{what} must be a list of texts, not one text: [{values!r:.80}]")
    return tuple(name_of(what, value) for value in values)


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(where: str, name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadArguments(f"{where}: {name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def priority_of(where: str, value: Any) -> int:
    return _whole(where, "priority", value, MIN_PRIORITY, MAX_PRIORITY)


def aware(what: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadArguments(f"{what} must be a datetime with a time zone, not {value!r}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise BadArguments(f"{what} is {value}, which is beyond the years a datetime can hold in UTC") from None


def task_defaults(function: Callable[..., Any], **given: Any) -> TaskDefaults:
    """What `@hf.task(…)` was told, checked."""
    name = name_of("a task's name", given.pop("name", None) or getattr(function, "__name__", None))
    where = f"task {name}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadSettings(
            f"{where}: a generator can't be a handler, its values would go nowhere; return them", number="HF1111"
        )
    return TaskDefaults(
        name=name,
        queue=name_of(f"{where}: queue", given["queue"]),
        priority=priority_of(where, given["priority"]),
        max_attempts=_whole(where, "max_attempts", given["max_attempts"], 1, 10_000),
        retry=given["retry"],
        reuse=reuse_of(where, given["reuse"]),
        aliases=names_of(f"{where}: aliases", given["aliases"]),
        tags=names_of(f"{where}: tags", given["tags"]),
        timeout=_time_limit(where, "timeout", given["timeout"]),
        progress_timeout=_time_limit(where, "progress_timeout", given["progress_timeout"]),
        **_cron(where, given["cron"], given["timezone"], given["catch_up"]),
        **_isolation(where, given["isolation"], given["limits"], given["env"], given["database"]),
    )


def _time_limit(where: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    limit = seconds(f"{where}: {name}", value)
    if not limit:
        raise BadArguments(f"{where}: {name} must be more than 0 seconds")
    return limit


def _isolation(where: str, isolation: Any, limits: Any, env: Any, database: Any) -> dict[str, Any]:
    def refuse(why: str) -> BadSettings:
        return BadSettings(f"{where}: {why}", number="HF1111")

    if isolation not in (None, "process"):
        raise refuse(f'isolation is "process" or left out, not {isolation!r:.80}')
    given = [name for name, value in (("limits", limits), ("env", env), ("database", database)) if value]
    if given and isolation is None:
        raise refuse(f'{" and ".join(given)} only mean something with isolation="process"')
    if limits is not None and not isinstance(limits, Limits):
        raise refuse(f"limits takes Limits(memory=…, cpu=…, files=…, file_size=…), not {limits!r:.80}")
    if not isinstance(database, bool):
        raise refuse(f"database is True or False, not {database!r:.80}")
    names = names_of(f"{where}: env", env)
    wrong = [name for name in names if "=" in name or (of_database(name) and not database)]
    if wrong:
        if "=" in wrong[0]:
            raise refuse(f"env names variables of the worker's, without values; not {wrong[0]!r:.80}")
        raise refuse(f"{wrong[0]} leads to the database: say database=True instead of naming it in env")
    return {"isolation": isolation, "limits": limits or NO_LIMITS, "env": names, "database": database}


def _cron(where: str, cron: Any, timezone: Any, catch_up: Any) -> dict[str, Any]:
    if cron is None:
        if timezone is not None or catch_up is not None:
            raise BadSettings(f"{where}: timezone and catch_up are of use with cron only, as in cron='*/5 * * * *'")
        return {}
    if catch_up is not None and catch_up not in CATCH_UP:
        raise BadSettings(f"{where}: catch_up is one of {', '.join(CATCH_UP)}, not {catch_up!r:.80}")
    try:
        schedule = Schedule(cron, "UTC" if timezone is None else timezone)
    except BadSettings as wrong:
        raise BadSettings(f"{where}: {wrong.message}") from None
    return {"schedule": schedule, "catch_up": catch_up or "latest"}
