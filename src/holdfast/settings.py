"""Settings: one frozen value, checked when it is made. Arguments win over HOLDFAST_* variables, these over
holdfast.toml or [tool.holdfast] in pyproject.toml, and that over these defaults. The URL is stricter: if the code and
something outside of it name different databases, neither wins."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

from holdfast.durations import FORMS, Duration, parse_duration, to_seconds
from holdfast.errors import BadSettings
from holdfast.model.alerts import Thresholds
from holdfast.model.durations import DAY
from holdfast.model.job import DEFAULT_GRACE, DEFAULT_LEASE
from holdfast.model.presets import PRESETS
from holdfast.model.retry import PollBackoff
from holdfast.model.text import checked_name, fits_in_a_list, nearest
from holdfast.redact import scrub

DEFAULT_URL = "sqlite:///holdfast.db"
ARGUMENT = "argument"  # the place of what the code sets
LONGEST = 30 * DAY  # seconds
MOST_AT_ONCE = 100_000
ADOPT = "adopt"  # the part of a settings file that maps tables, which is not a setting
MINIMUM_BEATS = 3  # one may be a slow commit; three missed is a dead worker


class QueueSettings(TypedDict, total=False):
    """What a queue may set for itself: `Holdfast(queues={"mail": {"poll_max": 5.0}})`."""

    poll_base: Duration
    poll_max: Duration
    poll_multiplier: float
    poll_grace: int
    after_job_delay: Duration
    claim_size: int


# The same settings, each with how to choose the most eager of several values.
MOST_EAGER: dict[str, Callable[[list[Any]], Any]] = {
    "poll_base": min,
    "poll_max": min,
    "poll_multiplier": min,
    "poll_grace": max,
    "after_job_delay": min,
    "claim_size": lambda sizes: 0 if 0 in sizes else max(sizes),  # 0 is no limit
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str = field(default=DEFAULT_URL, repr=False)  # it may contain a password
    """Where jobs are kept: sqlite:///file.db or postgresql://user@host/database."""
    preset: str = ""
    """The preset that what follows comes from, where nothing else sets it: `holdfast config --presets` lists them."""
    app: str = ""
    """Where the command line finds the application: module:name or file.py:name."""
    schema: str = "holdfast"
    """PostgreSQL: the schema our tables live in."""
    prefix: str = "holdfast_"
    """SQLite: what the names of our tables begin with."""
    lease: float = DEFAULT_LEASE
    """Seconds after which others may take a job whose worker went silent."""
    heartbeat: float = 0.0
    """Seconds between renewals of a lease; 0: a quarter of it."""
    concurrency: int = 100
    """Coroutines run at once in each process."""
    threads: int = 0
    """Synchronous handlers run at once in each process; 0: cpus + 4, at most 32."""
    processes: int = 1
    """Processes that `holdfast worker` runs handlers in, each with so many coroutines and threads; 0: in its own."""
    handler_connections: int = 10
    """PostgreSQL: connections that each process opens at most for ctx.transaction(); a handler waits for a free one."""
    isolated: int = 0
    """Attempts with a process of their own run at once by one worker; 0: as many as there are cpus."""
    poll_base: float = 1.0
    """Seconds between polls at first, where no notification can be had."""
    poll_max: float = 15.0
    """Seconds between polls at most, where no notification can be had."""
    poll_multiplier: float = 1.5
    """What each empty poll multiplies the wait by."""
    poll_grace: int = 2
    """Empty polls before the wait grows."""
    after_job_delay: float = 0.0
    """Seconds to wait after a job before looking for the next."""
    claim_size: int = 0
    """Jobs that one claim takes at most; 0: as many as can start at once or in a moment."""
    queues: Mapping[str, QueueSettings] = field(default_factory=dict, hash=False)
    """Polling settings of single queues: {"mail": {"poll_max": 5.0}}; in a file, a table [queues.mail]."""
    listen: bool = True
    """Be woken by notifications; off: poll only."""
    prepare: bool = True
    """PostgreSQL: prepare statements and set session options; off behind PgBouncer in transaction mode."""
    enqueue_timeout: float = 30.0
    """PostgreSQL: seconds an enqueue waits for the answer before it ends in OutcomeUnknown; 0: as long as it takes."""
    grace: float = DEFAULT_GRACE
    """Seconds running handlers get to finish at shutdown, or to stop when asked to, before they are ended."""
    quarantine_after: int = 3
    """Crashes in a row after which a job fails as QUARANTINED; 0: never."""
    max_args: int = 256 * 1024
    """Bytes of JSON a job's arguments may take."""
    max_result: int = 1024 * 1024
    """Bytes of JSON a job's result may take."""
    keep_finished: float = 7 * DAY
    """Seconds succeeded and cancelled jobs are kept."""
    keep_failed: float = 90 * DAY
    """Seconds failed jobs are kept."""
    synchronous: str = "full"
    """SQLite: full, or normal (faster; a power cut may forget the last commits), or off (tests)."""
    sync_in_loop: str = "warn"
    """What a synchronous verb does in a running event loop, which it blocks: warn, error or allow."""
    worker_name: str = ""
    """What people see a worker called; else WORKER_ID, else host-pid."""
    alert_depth: int = 1000
    """Due jobs in a queue beyond which an alert begins; 0: never."""
    alert_depth_for: float = 600.0
    """Seconds for which there have to be as many."""
    alert_failures: int = 5
    """Jobs that fail for good within ten minutes, beyond which an alert may begin; 0: never."""
    alert_failure_ratio: float = 3.0
    """How many times the mean of the hour before they have to be."""
    alert_p95: float = 30.0
    """Seconds in which 95 of 100 attempts of a task should end; else an alert begins; 0: never."""
    alert_age: float = 3600.0
    """Seconds that a due job may wait before an alert begins; 0: never."""
    host: str = ""
    """Which host this is; workers on the same host notice each other's death at once. Empty: the host's name."""
    log_format: str = "text"
    """How the command line writes its log: text, or json (one object a line)."""

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), kind))
        queues: dict[str, dict[str, Any]] = {}
        for queue, name, value in _of_queues(self.queues):
            queues.setdefault(queue, {})[name] = _checked(dotted(queue, name), value, KINDS[name])
        object.__setattr__(self, "queues", queues)
        if not self.lease:
            raise BadSettings("lease must be more than 0 seconds")
        if not self.heartbeat:
            object.__setattr__(self, "heartbeat", self.lease / 4)
        if self.lease < MINIMUM_BEATS * self.heartbeat:
            raise BadSettings(
                f"lease is {self.lease:g} s and heartbeat {self.heartbeat:g} s: a lease needs at least "
                f"{MINIMUM_BEATS} heartbeats, so set heartbeat to {self.lease / 4:g} or less"
            )
        for name in ("concurrency", "handler_connections"):
            if getattr(self, name) < 1:
                raise BadSettings(f"{name} must be 1 or more")
        if not self.threads:
            object.__setattr__(self, "threads", min(32, (os.cpu_count() or 1) + 4))
        if not self.isolated:
            object.__setattr__(self, "isolated", os.cpu_count() or 1)
        for name in ("worker_name", "host", "app"):
            checked_name(name, getattr(self, name))
        if self.synchronous not in ("full", "normal", "off"):
            raise BadSettings(f"synchronous is {self.synchronous!r}; it can be full, normal or off")
        if self.sync_in_loop not in ("warn", "error", "allow"):
            raise BadSettings(f"sync_in_loop is {self.sync_in_loop!r}; it can be warn, error or allow")
        if self.log_format not in ("text", "json"):
            raise BadSettings(f"log_format is {self.log_format!r}; it can be text or json")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}", self.schema):
            raise BadSettings(f"schema {self.schema!r} must be a plain name: letters, digits and _, at most 41 long")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}", self.prefix):
            raise BadSettings(f"prefix {self.prefix!r} must be a plain name: letters, digits and _, at most 41 long")

    @property
    def shown_url(self) -> str:
        return redact(self.url)

    @property
    def backoff(self) -> PollBackoff:
        return PollBackoff(self.poll_base, self.poll_max, self.poll_multiplier, self.poll_grace)

    @property
    def alert_thresholds(self) -> Thresholds:
        return Thresholds(
            self.alert_depth, self.alert_depth_for, self.alert_failures, self.alert_failure_ratio, self.alert_p95,
            self.alert_age,
        )  # fmt: skip

    def serving(self, queues: Iterable[str]) -> Settings:
        """The settings of a worker that serves these queues. It looks into all of them at once, so of each setting the
        most eager value of any of them counts: no queue waits for longer than its own settings allow."""
        served = [self.queues.get(queue, {}) for queue in queues]
        if not any(served):
            return self
        return replace(
            self,
            **{
                name: most_eager([own.get(name, getattr(self, name)) for own in served])
                for name, most_eager in MOST_EAGER.items()
            },
        )

    def overruled(self, queues: Iterable[str]) -> Iterator[str]:
        """The limits that a worker of all these queues does not keep, one sentence for each."""
        served = set(queues)
        worker = self.serving(served)
        for queue in sorted(served & self.queues.keys()):
            for name in ("after_job_delay", "claim_size"):
                own, used = self.queues[queue].get(name), getattr(worker, name)
                if own is not None and own != used:
                    yield (
                        f"{dotted(queue, name)} = {own:g} has no effect in a worker that also serves other queues "
                        f"(there it is {used:g}): give queue {queue!r} a worker of its own"
                    )


KINDS: dict[str, type] = {known.name: type(known.default) for known in fields(Settings) if known.name != "queues"}
NO_LIMIT = ("keep_finished", "keep_failed")  # in seconds
COUNTS = ("concurrency", "threads", "processes", "handler_connections", "isolated", "claim_size")


DURATIONS = {name for name, kind in KINDS.items() if kind is float} - {"poll_multiplier", "alert_failure_ratio"}


def _no_duration(name: str, value: Any, where: str) -> str:
    return f"{name} must be 0 or more {FORMS}, and is {value!r:.80}{where}"


def _in(place: str) -> str:
    return f" (in {place})" if place else ""


def _checked(name: str, value: Any, kind: type, place: str = "") -> Any:
    """The value, a duration in seconds. `name` may be a queue's, as in queues.mail.poll_max. `place`: where it was set,
    if that should be told."""
    setting, where = name.rpartition(".")[2], _in(place)
    if setting in DURATIONS and isinstance(value, str | timedelta):
        try:
            value = to_seconds(value)
        except ValueError:
            raise BadSettings(_no_duration(name, value, where)) from None
    fits = isinstance(value, float | int) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise BadSettings(f"{name} must be of type {kind.__name__}, and is {value!r}{where}")
    if isinstance(value, float | int) and not isinstance(value, bool) and (value < 0 or value != value):
        raise BadSettings(f"{name} must not be negative, and is {value!r}{where}")
    if kind is float and value > LONGEST and setting not in NO_LIMIT:
        raise BadSettings(f"{name} must be at most {LONGEST:g} seconds (30 days), and is {value!r}{where}")
    if setting in COUNTS and value > MOST_AT_ONCE:
        raise BadSettings(f"{name} must be at most {MOST_AT_ONCE:,}, and is {value:,}{where}")
    return value


Key = tuple[str, str]  # a queue and what it sets for itself; or "" and a setting


def dotted(queue: str, name: str) -> str:
    """What people see a setting called: lease, or queues.mail.poll_max."""
    return f"queues.{queue}.{name}" if queue else name


def _of_queues(queues: Any, place: str = "") -> Iterator[tuple[str, str, Any]]:
    """Queue, setting and value of each setting that a queue has of its own."""
    where = _in(place)
    if not isinstance(queues, Mapping) or not all(isinstance(own, Mapping) for own in queues.values()):
        raise BadSettings(
            f"queues must be settings by queue, and is {queues!r:.80}{where}: write "
            'queues={"mail": {"poll_max": 5.0}}, or [queues.mail] and poll_max = 5.0 in a file'
        )
    for queue, own in queues.items():
        if not isinstance(queue, str) or not queue or not fits_in_a_list(queue):
            raise BadSettings(
                f"queues: {queue!r:.80} can't be the name of a queue{where}; name one queue, without commas or "
                "control characters"
            )
        for name, value in own.items():
            if name not in MOST_EAGER:
                raise BadSettings(
                    f"there is no setting {dotted(queue, name)!r}{where}: of its own a queue can have "
                    f"{', '.join(MOST_EAGER)}",
                    number="HF1102",
                )
            yield queue, name, value


def flattened(settings: Mapping[str, Any], place: str = "") -> dict[Key, Any]:
    """These settings one by one, those of queues too. `place`: where they were set, if that should be told."""
    flat: dict[Key, Any] = {}
    for name, value in settings.items():
        if name == "queues":
            flat |= {} if value is None else {(queue, own): set_to for queue, own, set_to in _of_queues(value, place)}
        elif name in KINDS:
            flat["", name] = value
        else:
            near = nearest(name, [*KINDS, "queues"])
            hint = f"; did you mean {near[0]}?" if near else "; `holdfast config` lists all"
            raise BadSettings(f"there is no setting {name!r}{hint}{_in(place)}", number="HF1102")
    return flat


class SettingsArguments(TypedDict, total=False):
    """The settings as arguments of `Holdfast(url, …)`, for editors and type checkers. None counts as not given."""

    preset: str | None
    app: str | None
    schema: str | None
    prefix: str | None
    lease: Duration | None
    heartbeat: Duration | None
    concurrency: int | None
    threads: int | None
    processes: int | None
    handler_connections: int | None
    isolated: int | None
    poll_base: Duration | None
    poll_max: Duration | None
    poll_multiplier: float | None
    poll_grace: int | None
    after_job_delay: Duration | None
    claim_size: int | None
    queues: Mapping[str, QueueSettings] | None
    listen: bool | None
    prepare: bool | None
    enqueue_timeout: Duration | None
    grace: Duration | None
    quarantine_after: int | None
    max_args: int | None
    max_result: int | None
    keep_finished: Duration | None
    keep_failed: Duration | None
    synchronous: str | None
    sync_in_loop: str | None
    worker_name: str | None
    alert_depth: int | None
    alert_depth_for: Duration | None
    alert_failures: int | None
    alert_failure_ratio: float | None
    alert_p95: Duration | None
    alert_age: Duration | None
    host: str | None
    log_format: str | None


_USER_INFO = r"^([^:/]+://[^:@/]*):.*@"  # up to the last @: a password may hold one, or a /


def redact(url: str) -> str:
    """A database URL as it may be shown, without passwords."""
    url = re.sub(_USER_INFO, r"\1:***@", url)
    return scrub(re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url))


def load_settings(
    *, directory: Path | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
) -> Settings:
    """Settings from all sources. An argument of None counts as not given."""
    given: dict[str, Any] = {}
    queues: dict[str, dict[str, Any]] = {}
    for (queue, name), (value, place) in _gathered(directory, environment, arguments).items():
        value = _checked(dotted(queue, name), value, KINDS[name], "" if place == ARGUMENT else place)
        (queues.setdefault(queue, {}) if queue else given)[name] = value
    return Settings(**given, queues=queues)  # type: ignore[arg-type]


def sources(
    *, directory: Path | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, str]:
    """Where each setting's value comes from: argument, HOLDFAST_…, the file's name, or default. A queue's own setting
    has a name like queues.mail.poll_max."""
    given = _gathered(directory, environment, arguments)
    return dict.fromkeys(KINDS, "default") | {dotted(*key): place for key, (_, place) in given.items()}


def url_outside(*, directory: Path | None = None, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The URL that the environment or a settings file names, and its place: HOLDFAST_URL or the file's name. ("", ""):
    neither does."""
    return _gathered(directory, environment, {}).get(("", "url"), ("", ""))


def misspelled(environment: Mapping[str, str]) -> dict[str, str]:
    """The HOLDFAST_ variables that are no settings but look like one, and that one. Others may be the user's own."""
    known = set(KINDS)
    given = {name: name.removeprefix("HOLDFAST_").lower() for name in environment if name.startswith("HOLDFAST_")}
    near = {name: nearest(setting, known) for name, setting in sorted(given.items()) if setting not in known}
    return {name: f"HOLDFAST_{names[0].upper()}" for name, names in near.items() if names}


def adopted_in_file(*, directory: Path | None = None) -> tuple[dict[str, dict[str, Any]], str]:
    """The mappings of tables that a settings file has, by name, and the file's name: `[adopt.audits]` in holdfast.toml,
    `[tool.holdfast.adopt.audits]` in pyproject.toml."""
    found, file = _from_file(directory or Path())
    mappings = found.get(ADOPT, {})
    if not isinstance(mappings, dict) or not all(isinstance(one, dict) for one in mappings.values()):
        raise BadSettings(
            f"adopt in {file} holds a table for each adopted table, as in [adopt.audits]", number="HF1103"
        )
    return mappings, file


def named_twice(url: str, where: str, other: str, place: str) -> BadSettings:
    """The code names one database, and a flag, a variable or a file another."""
    remedy = {
        "--url": "leave out --url", "HOLDFAST_URL": "unset HOLDFAST_URL",
    }.get(place, f"remove url from {place}")  # fmt: skip
    password = " with another password" if redact(url) == redact(other) else ""
    ignored = "" if place == "--url" else f" (Holdfast(url, pinned=True) ignores {place})"
    return BadSettings(
        f"which database? {where} names {redact(url)}, and {place} names {redact(other)}{password}: write Holdfast() "
        f"in the code, without the URL, or {remedy}{ignored}",
        number="HF1151",
    )


def _gathered(
    directory: Path | None, environment: Mapping[str, str] | None, arguments: dict[str, Any]
) -> dict[Key, tuple[Any, str]]:
    """What is set and where; later sources override earlier ones."""
    values: dict[Key, tuple[Any, str]] = {}
    found, file = _from_file(directory or Path())
    for (queue, name), value in flattened({name: found[name] for name in found if name != ADOPT}, file).items():
        values[queue, name] = _converted(dotted(queue, name), value, KINDS[name], file), file
    for name, text in (os.environ if environment is None else environment).items():
        setting = name.removeprefix("HOLDFAST_").lower()
        if name.startswith("HOLDFAST_") and setting in KINDS:
            values["", setting] = _converted(setting, text, KINDS[setting], name), name
    for key, value in flattened(arguments).items():
        if value is not None:
            values[key] = value, ARGUMENT
    preset = _of_preset(*values.get(("", "preset"), ("", "")))
    if ("", "lease") in values:
        preset.pop(("", "heartbeat"), None)  # it belongs to the preset's lease
    return preset | values


def _of_preset(name: Any, place: str) -> dict[Key, tuple[Any, str]]:
    if not name:
        return {}
    if name not in PRESETS:
        where = "" if place == ARGUMENT else _in(place)
        raise BadSettings(f"there is no preset {name!r}{where}: there are {', '.join(PRESETS)}", number="HF1102")
    return {("", setting): (value, f"preset {name}") for setting, value in PRESETS[name].settings.items()}


def _from_file(directory: Path) -> tuple[dict[str, Any], str]:
    for path, table in ((directory / "holdfast.toml", ()), (directory / "pyproject.toml", ("tool", "holdfast"))):
        try:
            if not path.is_file():
                continue
            import tomllib  # most users have no such file

            found: Any = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadSettings(f"{path.name} can't be read: {error}", number="HF1103") from None
        for key in table:
            found = found.get(key, {})
        if found:
            return dict(found), path.name
    return {}, ""


def _converted(name: str, value: Any, kind: type, place: str) -> Any:
    is_duration = name.rpartition(".")[2] in DURATIONS
    try:
        if kind is bool:
            words = {"1": True, "true": True, "0": False, "false": False}
            return value if isinstance(value, bool) else words[value.lower()]
        if isinstance(value, bool) or (kind is int and isinstance(value, float)):
            raise ValueError(name)
        if is_duration and isinstance(value, str):
            return parse_duration(value).total_seconds()
        return kind(value)
    except (ValueError, KeyError, AttributeError, TypeError):
        if is_duration:
            raise BadSettings(_no_duration(name, value, _in(place))) from None
        raise BadSettings(f"the setting {name} is {value!r} in {place}; it must be of type {kind.__name__}") from None
