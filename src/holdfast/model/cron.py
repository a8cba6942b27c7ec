"""When a cron falls due, and what is to be done about ticks that were missed: plain values, no clock of their own.

A tick is an instant a cron expression names, in the time zone it is written for. Around daylight saving, as Debian's
cron has it: a fixed time that the spring skips is run when the skipped hour ends, one that the autumn repeats is run
the first time only. Where minute or hour begin with a star, or seconds are given, the clock on the wall is followed as
it is: what does not exist is not run, what comes twice is run twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Literal, get_args

import msgspec

from holdfast.errors import BadSettings
from holdfast.model.text import nearest

CatchUp = Literal["none", "latest", "all"]
CATCH_UP: tuple[CatchUp, ...] = get_args(CatchUp)

MOST_MISSED = 100  # ticks that "all" makes up for; older ones are let go
ON_TIME = timedelta(seconds=60)  # a tick found later than that was missed: a quick restart is no downtime

_INSTANT = timedelta(microseconds=1)
_SHORTHANDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """A cron expression in its time zone. BadSettings, saying what is wrong, if it is none."""

    expression: str
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        from cronsim import CronSim, CronSimError

        text = self.expression
        if not isinstance(text, str):
            raise BadSettings(f"cron must be a text like '*/5 * * * *', not {text!r:.80}")
        zone = self.zone
        try:
            CronSim(self._fields, datetime(2000, 1, 1, tzinfo=zone))
        except (CronSimError, ValueError) as error:
            raise BadSettings(
                f"cron={text!r:.80} is not a cron expression ({str(error).lower()}): write minute, hour, day of month, "
                "month and day of week, as in '*/5 * * * *' or '30 6 * * MON-FRI'"
            ) from None
        if next(self.ticks(datetime(2000, 1, 1, tzinfo=UTC)), None) is None:
            raise BadSettings(f"cron={text!r:.80} never falls due: no date fits all of its fields")

    @property
    def _fields(self) -> str:
        return _SHORTHANDS.get(self.expression.strip().lower(), self.expression)

    @cached_property
    def zone(self) -> Any:
        name = self.timezone
        if not isinstance(name, str) or not name:
            raise BadSettings(f"timezone must be a name like 'Europe/Berlin', not {name!r:.80}")
        if name == "UTC":
            return UTC
        from zoneinfo import ZoneInfo, available_timezones

        try:
            return ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            pass  # not there, not a file, not a name: told below
        known = available_timezones()
        near = nearest(name, known)
        hint = f"did you mean {near[0]!r}?" if near else "names are like 'Europe/Berlin'"
        if not known:
            hint = "this system has no time zones at all: pip install tzdata"
        raise BadSettings(f"timezone={name!r:.80} is not known here; {hint}")

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Every tick later than that, in UTC."""
        from cronsim import CronSim  # it and its time zones are for those who have crons

        newest = after.astimezone(UTC)
        for local in CronSim(self._fields, after.astimezone(self.zone)):
            tick = local.astimezone(UTC)
            # Where an hour is repeated, wall-clock times come again: an instant never does.
            if tick > newest:
                newest = tick
                yield tick

    def after(self, moment: datetime) -> datetime:
        """The first tick later than that."""
        return next(self.ticks(moment))

    def first(self, count: int, after: datetime) -> list[datetime]:
        return list(islice(self.ticks(after), count))

    def newest(self, most: int, start: datetime, until: datetime) -> list[datetime]:
        """The newest ticks of those from `start` to `until`, both included, in order. Looks back as far as it must: a
        cron of every second that stood still for a year costs no more than one that stood still for a minute."""
        span = timedelta(minutes=1)
        while True:
            begin = max(start, until - span)
            found: deque[datetime] = deque(maxlen=most)
            for tick in self.ticks(begin - _INSTANT):
                if tick > until:
                    break
                found.append(tick)
            if len(found) == most or begin == start:
                return list(found)
            span *= 4

    def __str__(self) -> str:
        return f"{self.expression} ({self.timezone})"


class CronRecord(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A cron as it is kept: what to enqueue and when, the newest tick that was, the next that will be, who has paused
    it, and how many workers declare it (none: nobody will fire it)."""

    name: str
    expression: str
    timezone: str
    catch_up: str
    queue: str
    priority: int
    max_attempts: int
    tags: tuple[str, ...]
    next_at: datetime
    last_at: datetime | None = None
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    paused_by: str | None = None
    paused_reason: str | None = None
    workers: int = 0
    now: datetime  # when this was read, by the database's clock

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(self.expression, self.timezone)

    @property
    def paused(self) -> bool:
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > self.now)

    def upcoming(self, count: int = 5) -> list[datetime]:
        """The next ticks, as if it were not paused."""
        return self.schedule.first(count, max(self.now, self.last_at or self.now))


class Step(msgspec.Struct, frozen=True):
    """What a cron does next: enqueue a job for this tick (None: for no tick), then wait for the other."""

    tick: datetime | None
    next_at: datetime
    skipped_from: datetime | None = None  # the first tick that was missed and is not made up for


def next_step(cron: CronRecord) -> Step | None:
    """What is to be done now. None: nothing is due."""
    now, due = cron.now, cron.next_at
    if due > now:
        return None
    schedule = cron.schedule
    newest = max(now, cron.last_at or now)  # the database's clock may have been set back: ticks are never repeated
    if cron.paused:
        return Step(None, schedule.after(newest))
    if cron.paused_until is not None and due < cron.paused_until:
        due = schedule.after(cron.paused_until - _INSTANT)  # its pause has ended since: what fell into it is let go
    if cron.last_at is not None and due <= cron.last_at:
        due = schedule.after(cron.last_at)
    ticks = schedule.newest(MOST_MISSED if cron.catch_up == "all" else 1, due, now)
    if not ticks:
        return Step(None, max(due, schedule.after(newest)))
    tick = ticks[0]
    if cron.catch_up == "none" and now - tick > ON_TIME:
        return Step(None, schedule.after(now), skipped_from=due)
    return Step(tick, schedule.after(tick), skipped_from=due if due < tick else None)


def goes_on_at(cron: CronRecord) -> datetime:
    """The next tick of a cron whose pause somebody ends now: what fell into it is let go, what came after it is not."""
    if cron.paused_until is None or cron.paused_until > cron.now:
        return cron.schedule.after(cron.now)
    return max(cron.next_at, cron.schedule.after(cron.paused_until - _INSTANT))


def cron_tag(name: str) -> str:
    return f"cron:{name}"


def correlation_of(name: str, tick: datetime) -> str:
    """What a job for a tick is known by."""
    return f"{cron_tag(name)}@{tick.astimezone(UTC).isoformat()}"


def tick_of(name: str, correlation_id: str | None) -> datetime | None:
    """The tick a job of this task was enqueued for; None: it came in another way."""
    prefix = f"{cron_tag(name)}@"
    if correlation_id is None or not correlation_id.startswith(prefix):
        return None
    try:
        return datetime.fromisoformat(correlation_id.removeprefix(prefix))
    except ValueError:
        return None
