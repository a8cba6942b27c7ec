"""Settings: one frozen value, checked when it is made. Arguments win over HOLDFAST_* variables, these over
holdfast.toml or [tool.holdfast] in pyproject.toml, and that over these defaults. The URL is stricter: if the code and
something outside of it name different databases, neither wins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

from holdfast.errors import BadSettings
from holdfast.model.durations import DAY
from holdfast.model.job import DEFAULT_GRACE, DEFAULT_LEASE
from holdfast.model.retry import PollBackoff
from holdfast.model.text import checked_name, nearest
from holdfast.redact import scrub

DEFAULT_URL = "sqlite:///holdfast.db"
LONGEST = 30 * DAY  # seconds
MOST_AT_ONCE = 100_000
MINIMUM_BEATS = 3  # one may be a slow commit; three missed is a dead worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str = field(default=DEFAULT_URL, repr=False)  # it may contain a password
    """Where jobs are kept: sqlite:///file.db or postgresql://user@host/database."""
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
    host: str = ""
    """Which host this is; workers on the same host notice each other's death at once. Empty: the host's name."""
    log_format: str = "text"
    """How the command line writes its log: text, or json (one object a line)."""

    def __post_init__(self) -> None:
        for known in fields(self):
            value = getattr(self, known.name)
            kind = type(known.default)
            fits = isinstance(value, float | int) if kind is float else isinstance(value, kind)
            if not fits or (isinstance(value, bool) and kind is not bool):
                raise BadSettings(f"{known.name} must be of type {kind.__name__}, and is {value!r}")
            if isinstance(value, float | int) and not isinstance(value, bool) and (value < 0 or value != value):
                raise BadSettings(f"{known.name} must not be negative, and is {value!r}")
            if kind is float and value > LONGEST and known.name not in ("keep_finished", "keep_failed"):
                raise BadSettings(f"{known.name} must be at most {LONGEST:g} seconds (30 days), and is {value!r}")
        if not self.lease:
            raise BadSettings("lease must be more than 0 seconds")
        if not self.heartbeat:
            object.__setattr__(self, "heartbeat", self.lease / 4)
        if self.lease < MINIMUM_BEATS * self.heartbeat:
            raise BadSettings(
                f"lease is {self.lease:g} s and heartbeat {self.heartbeat:g} s: a lease needs at least "
                f"{MINIMUM_BEATS} heartbeats, so set heartbeat to {self.lease / 4:g} or less"
            )
        for name in ("concurrency", "threads", "processes", "handler_connections", "isolated"):
            if getattr(self, name) > MOST_AT_ONCE:
                raise BadSettings(f"{name} must be at most {MOST_AT_ONCE:,}, and is {getattr(self, name):,}")
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


class SettingsArguments(TypedDict, total=False):
    """The settings as arguments of `Holdfast(url, …)`, for editors and type checkers. None counts as not given."""

    app: str | None
    schema: str | None
    prefix: str | None
    lease: float | None
    heartbeat: float | None
    concurrency: int | None
    threads: int | None
    processes: int | None
    handler_connections: int | None
    isolated: int | None
    poll_base: float | None
    poll_max: float | None
    poll_multiplier: float | None
    poll_grace: int | None
    after_job_delay: float | None
    listen: bool | None
    prepare: bool | None
    enqueue_timeout: float | None
    grace: float | None
    quarantine_after: int | None
    max_args: int | None
    max_result: int | None
    keep_finished: float | None
    keep_failed: float | None
    synchronous: str | None
    sync_in_loop: str | None
    worker_name: str | None
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
    return Settings(**{name: value for name, (value, _) in _gathered(directory, environment, arguments).items()})


def sources(
    *, directory: Path | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, str]:
    """Where each setting's value comes from: argument, HOLDFAST_…, the file's name, or default."""
    given = _gathered(directory, environment, arguments)
    return {field.name: given[field.name][1] if field.name in given else "default" for field in fields(Settings)}


def url_outside(*, directory: Path | None = None, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The URL that the environment or a settings file names, and its place: HOLDFAST_URL or the file's name. ("", ""):
    neither does."""
    return _gathered(directory, environment, {}).get("url", ("", ""))


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
) -> dict[str, tuple[Any, str]]:
    """What is set and where; later sources override earlier ones."""
    known = get_type_hints(Settings)
    values: dict[str, tuple[Any, str]] = {}
    found, file = _from_file(directory or Path.cwd())
    for name, value in found.items():
        if name not in known:
            raise BadSettings(f"{_no_setting(name, known)} (in {file})", number="HF1102")
        values[name] = _converted(name, value, known[name], file), file
    for name, text in (os.environ if environment is None else environment).items():
        setting = name.removeprefix("HOLDFAST_").lower()
        if name.startswith("HOLDFAST_") and setting in known:
            values[setting] = _converted(setting, text, known[setting], name), name
    for name, value in arguments.items():
        if name not in known:
            raise BadSettings(_no_setting(name, known), number="HF1102")
        if value is not None:
            values[name] = value, "argument"
    return values


def _no_setting(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    hint = f"; did you mean {near[0]}?" if near else "; `holdfast config` lists all"
    return f"there is no setting {name!r}{hint}"


def _from_file(directory: Path) -> tuple[dict[str, Any], str]:
    for path, table in ((directory / "holdfast.toml", ()), (directory / "pyproject.toml", ("tool", "holdfast"))):
        if not path.is_file():
            continue
        import tomllib  # most users have no such file

        try:
            found: Any = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise BadSettings(f"{path.name} can't be read: {error}", number="HF1103") from None
        for key in table:
            found = found.get(key, {})
        if found:
            return dict(found), path.name
    return {}, ""


def _converted(name: str, value: Any, kind: type, place: str) -> Any:
    try:
        if kind is bool:
            words = {"1": True, "true": True, "0": False, "false": False}
            return value if isinstance(value, bool) else words[value.lower()]
        if isinstance(value, bool):
            raise ValueError(name)
        return kind(value)
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BadSettings(f"the setting {name} is {value!r} in {place}; it must be of type {kind.__name__}") from None
