"""The options of a task and of an enqueue, checked when they are given."""

from __future__ import annotations

import inspect
from collections import abc
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, get_args

import msgspec

from holdfast.durations import FORMS, Duration, to_seconds
from holdfast.errors import BadArguments, BadSettings
from holdfast.model.cron import CATCH_UP, CatchUp, Schedule
from holdfast.model.isolation import NO_LIMITS, Limits, of_database
from holdfast.model.job import (
    AFTER_FAILURE,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_QUEUE,
    FOREVER,
    MAX_PRIORITY,
    MIN_PRIORITY,
    AfterFailure,
)
from holdfast.model.mapping import Mapping
from holdfast.model.retry import DEFAULT_RETRY, RetryLike, RetryPolicy, retry_policy
from holdfast.model.text import checked_name, fits_in_a_list, nearest

MAX_NAME = 200  # characters of a task, queue or tag
MAX_KEY = 1000  # bytes
MAX_REASON = 4000
MOST = 1_000_000  # jobs, or calls, in one list
NOW_QUEUE = "now"  # of jobs that somebody waits for

Isolation = Literal["process"]
HttpVerb = Literal["cancel", "pause", "resume", "output"]
HTTP_VERBS: tuple[HttpVerb, ...] = get_args(HttpVerb)


class SharedOptions(TypedDict, total=False):
    """What a task declares as a default, and an enqueue may give otherwise."""

    queue: str
    priority: int
    max_attempts: int
    reuse: Duration | Literal["forever"] | None
    after_failure: AfterFailure
    tags: Sequence[str]


class Options(SharedOptions, total=False):
    """The options of one enqueue: `task.using(…)`."""

    delay: Duration
    run_at: datetime
    expires: Duration
    key: str
    correlation_id: str
    conn: Any


class TaskOptions(SharedOptions, total=False):
    """The options of a task: `@hf.task(…)`."""

    name: str | None
    retry: RetryLike
    timeout: Duration | None
    progress_timeout: Duration | None
    isolation: Isolation | None
    limits: Limits | None
    env: Sequence[str]
    database: bool
    aliases: Sequence[str]
    cron: str | None
    timezone: str | None
    catch_up: CatchUp | None
    http: bool | Collection[HttpVerb]


OPTIONS = frozenset(Options.__required_keys__ | Options.__optional_keys__)
TASK_OPTIONS = frozenset(TaskOptions.__required_keys__ | TaskOptions.__optional_keys__)
ELSEWHERE = {  # what other job systems call an option of ours
    "countdown": "delay", "schedule_in": "delay", "eta": "run_at", "schedule_at": "run_at", "at": "run_at",
    "retries": "max_attempts", "max_retries": "max_attempts", "queue_name": "queue", "task_id": "key",
    "job_id": "key", "lock": "key", "queueing_lock": "key",
}  # fmt: skip


def no_such_options(unknown: Iterable[str], known: Iterable[str]) -> str:
    """`there is no option countdown (did you mean delay?); there are delay, key, …`"""
    return no_such("option", unknown, known)


def no_such(kind: str, unknown: Iterable[str], known: Iterable[str]) -> str:
    known = sorted(known)
    words = []
    for name in sorted(unknown):
        near = [ELSEWHERE[name]] if ELSEWHERE.get(name) in known else nearest(name, known)
        words.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return f"there is no {kind} {', '.join(words)}; there are {', '.join(known)}"


class TaskDefaults(msgspec.Struct, frozen=True):
    name: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry: RetryPolicy = DEFAULT_RETRY
    timeout: float | None = None
    reuse: float | None = None
    after_failure: AfterFailure = "new"
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    schedule: Schedule | None = None
    catch_up: CatchUp = "latest"
    progress_timeout: float | None = None
    isolation: Isolation | None = None
    limits: Limits = NO_LIMITS
    env: tuple[str, ...] = ()
    database: bool = False
    http: frozenset[str] | None = None  # what the holder of a job's token may do to it; None: not reachable over HTTP
    mapping: Mapping | None = None  # of the adopted table whose rows are its jobs


def checked_options(defaults: TaskDefaults, options: Options) -> dict[str, Any]:
    """The options of an enqueue, over the task's defaults, as a NewJob takes them."""
    where = f"{defaults.name}.using"
    if defaults.mapping is not None:
        raise BadArguments(
            f"the jobs of {defaults.name} are the rows of an adopted table: insert a row, or call submit(…) of what "
            "hf.adopt(…) returned (for a row at every tick, schedule a task that does so)"
        )
    if unknown := options.keys() - OPTIONS:
        raise BadArguments(f"{where}: {no_such_options(unknown, OPTIONS)}")
    if "delay" in options and "run_at" in options:
        raise BadArguments(f"{where}: delay and run_at exclude each other")
    checked: dict[str, Any] = {
        "queue": queue_of(f"{where}: queue", options.get("queue", defaults.queue)),
        "priority": priority_of(where, options.get("priority", defaults.priority)),
        "max_attempts": _whole(where, "max_attempts", options.get("max_attempts", defaults.max_attempts), 1, 10_000),
        "delay": seconds(f"{where}: delay", options.get("delay", 0.0)),
        "run_at": aware(f"{where}: run_at", options.get("run_at")),
        "tags": names_of(f"{where}: tags", options.get("tags", defaults.tags)),
    }
    if "expires" in options:
        checked["expires_in"] = seconds(f"{where}: expires", options["expires"])
        if 0 < checked["delay"] >= checked["expires_in"]:
            raise BadArguments(
                f"{where}: expires={options['expires']!r} is over when delay={options['delay']!r} is, so the job could "
                "never start: both count from now"
            )
    if options.get("key") is not None:
        checked["key"] = key_of(f"{where}: key", options["key"])
        checked["reuse"] = reuse_of(where, options["reuse"]) if "reuse" in options else defaults.reuse
        checked["after_failure"] = after_failure_of(where, options.get("after_failure", defaults.after_failure))
    elif "reuse" in options:
        raise BadArguments(f"{where}: reuse says how long the result of a key is handed out again, so it needs a key")
    elif "after_failure" in options:
        raise BadArguments(f"{where}: after_failure is about a failed job with an equal key, so it needs a key")
    if options.get("correlation_id") is not None:
        checked["correlation_id"] = name_of(f"{where}: correlation_id", options["correlation_id"])
    return checked


def urgent(where: str, options: Options) -> Options:
    """The options of a job that somebody waits for: it starts at once, before all others."""
    if given := options.keys() & {"queue", "priority", "delay", "run_at", "conn"}:
        raise BadArguments(
            f"{where}: a job to run now starts at once, with the highest priority; "
            f"leave out {', '.join(sorted(given))}, or enqueue it"
        )
    return {**options, "queue": NOW_QUEUE, "priority": MAX_PRIORITY}


def seconds(what: str, value: Any) -> float:
    try:
        return to_seconds(value)
    except ValueError:
        raise BadArguments(f"{what} must be 0 or more {FORMS}, not {value!r:.80}") from None


def reuse_of(where: str, value: Any) -> float | None:
    if value is None:
        return None
    return FOREVER if value == "forever" else seconds(f"{where}: reuse", value)


def after_failure_of(where: str, value: Any) -> AfterFailure:
    if not isinstance(value, str) or value not in AFTER_FAILURE:
        raise BadArguments(f'{where}: after_failure is "new", "retry" or "return", not {value!r:.80}')
    return value


def name_of(what: str, value: Any, *, limit: int = MAX_NAME) -> str:
    """A name to keep."""
    return checked_name(what, looked_for(what, value, limit=limit))


def queue_of(what: str, value: Any) -> str:
    """A queue to put jobs into: one that a worker can be told to serve."""
    queue = name_of(what, value)
    if not fits_in_a_list(queue):
        raise BadArguments(
            f"{what} must have no comma, and no space at its ends, not {queue!r:.80}: `holdfast worker -q mail,news` "
            "could not name it"
        )
    return queue


def looked_for(what: str, value: Any, *, limit: int = MAX_NAME) -> str:
    """The name of something that may exist: plain SQL may have written any name."""
    if not isinstance(value, str) or not value or len(value) > limit or "\x00" in value or not _encodable(value):
        raise BadArguments(f"{what} must be a text of 1 to {limit} characters without NUL, not {value!r:.80}")
    return str.__str__(value)  # a StrEnum, say, which drivers may write in another way


def key_of(what: str, value: Any) -> str:
    key = name_of(what, value, limit=MAX_KEY)
    if len(key.encode()) > MAX_KEY:  # it goes into an index
        raise BadArguments(f"{what} must take at most {MAX_KEY} bytes as UTF-8, not {len(key.encode()):,}")
    return key


def reason_of(verb: str, value: Any) -> str | None:
    return None if value is None else name_of(f"{verb}: reason", value, limit=MAX_REASON)


def by_of(verb: str, value: Any) -> str:
    """Who asks: the user that this process runs as, unless it is said."""
    return name_of(f"{verb}: by", _user() if value is None else value)


def _user() -> str:
    import getpass  # only operators need it
    import os

    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


def names_of(what: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str):  # its characters would be taken for names
        raise BadArguments(f"{what} must be a list of texts, not one text: [{values!r:.80}]")
    if not isinstance(values, Iterable) or isinstance(values, abc.Mapping):  # whose values would be lost
        raise BadArguments(f"{what} must be a list of texts, not {values!r:.80}")
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
    return int.__int__(value)


def limit_of(what: str, value: Any, *, least: int = 1) -> int:
    """How many of something a call is to return, or to change."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise BadArguments(f"{what} must be a whole number of {least} to {MOST:,}, not {value!r}")
    return value


def priority_of(where: str, value: Any) -> int:
    return _whole(where, "priority", value, MIN_PRIORITY, MAX_PRIORITY)


def aware(what: str, value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadArguments(f"{what} must be a datetime with a time zone, not {value!r}")
    try:
        utc = value.astimezone(UTC)
        # Copied field by field: subclasses may format themselves differently, or have years beyond 9999.
        return datetime(utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, UTC)
    except (OverflowError, ValueError):
        raise BadArguments(f"{what} is {value}, which is beyond the years a datetime can hold in UTC") from None


def moment_of(what: str, value: Any) -> datetime | None:
    """An instant, where a timedelta would do as well."""
    if value is not None and not isinstance(value, datetime):
        hint = f": timedelta(seconds={value!r})" if type(value) in (int, float) else ""
        raise BadArguments(f"{what} must be a timedelta{hint}, or a datetime with a time zone, not {value!r:.80}")
    return aware(what, value)


def task_defaults(function: Callable[..., Any], given: TaskOptions, mapping: Mapping | None = None) -> TaskDefaults:
    """The options of `@hf.task(…)`, checked. `mapping`: of the adopted table whose rows are its jobs."""
    if unknown := given.keys() - TASK_OPTIONS:
        raise BadSettings(f"@task: {no_such_options(unknown, TASK_OPTIONS)}", number="HF1111")
    if inspect.isclass(function) or not hasattr(function, "__name__"):
        raise BadSettings(f"@task is for functions, not for {function!r:.80}: write one with `def`", number="HF1111")
    named = function.__name__ if given.get("name") is None else given["name"]
    if named == "<lambda>":
        raise BadSettings(
            "a lambda has no name to store its jobs under; write a function with `def`, or give it name=…",
            number="HF1111",
        )
    name = name_of("a task's name", named)
    where = f"task {name}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadSettings(
            f"{where}: a generator can't be a handler, its values would go nowhere; return them", number="HF1111"
        )
    return TaskDefaults(
        name=name,
        queue=queue_of(f"{where}: queue", given.get("queue", DEFAULT_QUEUE)),
        priority=priority_of(where, given.get("priority", 0)),
        max_attempts=_whole(where, "max_attempts", given.get("max_attempts", DEFAULT_MAX_ATTEMPTS), 1, 10_000),
        retry=retry_policy(given.get("retry", DEFAULT_RETRY)),
        reuse=reuse_of(where, given.get("reuse")),
        after_failure=after_failure_of(where, given.get("after_failure", "new")),
        aliases=tuple(alias for alias in names_of(f"{where}: aliases", given.get("aliases", ())) if alias != name),
        tags=names_of(f"{where}: tags", given.get("tags", ())),
        timeout=_time_limit(where, "timeout", given.get("timeout")),
        progress_timeout=_time_limit(where, "progress_timeout", given.get("progress_timeout")),
        mapping=mapping,
        **_cron(where, given),
        **_isolation(where, given),
        http=_http(where, name, given.get("http", False)),
    )


def _time_limit(where: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    limit = seconds(f"{where}: {name}", value)
    if not limit:
        raise BadArguments(f"{where}: {name} must be more than 0 seconds")
    return limit


def _isolation(where: str, options: TaskOptions) -> dict[str, Any]:
    isolation, limits = options.get("isolation"), options.get("limits")
    env, database = options.get("env", ()), options.get("database", False)

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


def _http(where: str, name: str, given: Any) -> frozenset[str] | None:
    if given is False:
        return None
    verbs = () if given is True else given
    if given is not True and (
        not isinstance(given, Collection) or isinstance(given, str) or not given or set(given) - set(HTTP_VERBS)
    ):
        raise BadSettings(
            f"{where}: http is True, or what the holder of a job's token may do to it, as in "
            f"http=[{', '.join(map(repr, HTTP_VERBS))}]; not {given!r:.80}",
            number="HF1111",
        )
    if "/" in name:
        raise BadSettings(
            f"{where}: a slash in its name can't be part of an HTTP path; give it name=…", number="HF1111"
        )
    return frozenset(verbs)


def _cron(where: str, options: TaskOptions) -> dict[str, Any]:
    cron, timezone, catch_up = options.get("cron"), options.get("timezone"), options.get("catch_up")
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


def changes(
    *,
    queue: str | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The changes to a job, checked."""
    if all(value is None for value in (queue, priority, delay, run_at, tags)):
        raise BadArguments("change: what is to change? Pass queue, priority, delay, run_at or tags")
    if delay is not None and run_at is not None:
        raise BadArguments("change: delay and run_at exclude each other")
    return {
        "queue": None if queue is None else queue_of("change: queue", queue),
        "priority": None if priority is None else priority_of("change", priority),
        "delay": None if delay is None else seconds("change: delay", delay),
        "run_at": aware("change: run_at", run_at),
        "tags": None if tags is None else names_of("change: tags", tags),
    }
