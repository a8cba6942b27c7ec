"""When a cron falls due, and what to do about missed ticks: plain values, without a clock of their own.

A tick is an instant that a cron expression names in its time zone. Changes to and from daylight saving time are handled
as in Debian's cron: a fixed time that the spring skips runs when the skipped hour ends, and one that the autumn repeats
runs only the first time. If minute or hour begin with a star, or seconds are given, the wall clock counts as it is: a
time that does not exist is not run, and one that comes twice runs twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from itertools import islice
from typing import Any, Literal, get_args

import msgspec

from holdfast.errors import BadSettings
from holdfast.model.record import Record, arguments
from holdfast.model.text import nearest

CatchUp = Literal["none", "latest", "all"]
CATCH_UP: tuple[CatchUp, ...] = get_args(CatchUp)

MOST_MISSED = 100  # missed ticks that "all" makes up for; older ones are skipped
ON_TIME = timedelta(seconds=60)  # a tick found later than that counts as missed; a quick restart is no downtime

_INSTANT = timedelta(microseconds=1)
SHORTHANDS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}  # fmt: skip


@cache
def _zones() -> frozenset[str]:
    """The names that this system knows. It looks through hundreds of files for them."""
    from zoneinfo import available_timezones

    return frozenset(available_timezones())


@dataclass(frozen=True)
class Schedule:
    """A cron expression in its time zone; BadSettings if it is not one."""

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
        return SHORTHANDS.get(self.expression.strip().lower(), self.expression)

    @cached_property
    def zone(self) -> Any:
        name = self.timezone
        if not isinstance(name, str) or not name:
            raise BadSettings(f"timezone must be a name like 'Europe/Berlin', not {name!r:.80}")
        if name == "UTC":
            return UTC
        from zoneinfo import ZoneInfo

        try:
            return ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            pass  # no such zone, not a file, or not a name: reported below
        known = _zones()
        near = nearest(name, known)
        hint = f"did you mean {near[0]!r}?" if near else "names are like 'Europe/Berlin'"
        if not known:
            hint = "this system has no time zones at all: pip install tzdata"
        raise BadSettings(f"timezone={name!r:.80} is not known here; {hint}")

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Every later tick, in UTC."""
        from cronsim import CronSim  # only users of crons pay for this import

        newest = after.astimezone(UTC)
        for local in CronSim(self._fields, after.astimezone(self.zone)):
            tick = local.astimezone(UTC)
            # When an hour repeats, wall-clock times come again, but instants never do.
            if tick > newest:
                newest = tick
                yield tick

    def after(self, moment: datetime) -> datetime:
        """The first later tick."""
        return next(self.ticks(moment))

    def first(self, count: int, after: datetime) -> list[datetime]:
        return list(islice(self.ticks(after), count))

    def newest(self, most: int, start: datetime, until: datetime) -> list[datetime]:
        """The newest ticks from `start` to `until`, both included, in order. It searches backwards in growing spans, so
        a cron that ticks every second costs no more after a year's downtime than after a minute's."""
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


class CronRecord(Record, frozen=True, kw_only=True, dict=True):
    """A stored cron: what to enqueue and when, its newest and its next tick, who paused it, and how many workers fire
    it: those that declare it or, if `hf.schedule` made it, those that have its task."""

    name: str
    task: str
    stored_args: bytes | None = None  # JSON; None: its task declares it
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
    def declared(self) -> bool:
        """By its task, `@hf.task(cron=…)`; otherwise `hf.schedule` made it."""
        return self.stored_args is None

    @property
    def args(self) -> Any:
        """The arguments of its jobs by name, as JSON has them; None: its task declares it, and has none."""
        return None if self.stored_args is None else arguments(self.stored_args)

    @property
    def paused(self) -> bool:
        return self.paused_at is not None and (self.paused_until is None or self.paused_until > self.now)

    def as_dict(self) -> dict[str, Any]:
        """Its fields as JSON has them, with secrets hidden among the arguments."""
        data = super().as_dict()
        return data | {"args": data.pop("stored_args"), "declared": self.declared, "paused": self.paused}

    def upcoming(self, count: int = 5) -> list[datetime]:
        """The next ticks, as if it were not paused."""
        return self.schedule.first(count, max(self.now, self.last_at or self.now))


class Step(msgspec.Struct, frozen=True):
    """What a cron does next: enqueue a job for `tick` (None: nothing), then wait for `next_at`."""

    tick: datetime | None
    next_at: datetime
    skipped_from: datetime | None = None  # the first tick that was missed and is not made up for


def next_step(cron: CronRecord) -> Step | None:
    """What to do now. None: nothing is due."""
    now, due = cron.now, cron.next_at
    if due > now:
        return None
    schedule = cron.schedule
    newest = max(now, cron.last_at or now)  # the database's clock may have been set back, but ticks never repeat
    if cron.paused:
        return Step(None, schedule.after(newest))
    if cron.paused_until is not None and due < cron.paused_until:
        due = schedule.after(cron.paused_until - _INSTANT)  # its pause has ended: ticks during the pause are skipped
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
    """The next tick of a cron that is resumed now. Ticks during its pause are skipped, ticks after it are not."""
    if cron.paused_until is None or cron.paused_until > cron.now:
        return cron.schedule.after(cron.now)
    return max(cron.next_at, cron.schedule.after(cron.paused_until - _INSTANT))


def cron_tag(name: str) -> str:
    return f"cron:{name}"


def correlation_of(name: str, task: str, tick: datetime | None) -> str:
    """The correlation id of a job that was enqueued for a tick, or out of turn. It begins with the task's name: a job
    that another task enqueues under the same id does not take the tick for its own."""
    cron = cron_tag(task) if name == task else f"{cron_tag(task)}:{name}"
    return cron if tick is None else f"{cron}@{tick.astimezone(UTC).isoformat()}"


def tick_of(task: str, correlation_id: str | None) -> datetime | None:
    """The tick that a job of this task was enqueued for; None: it was enqueued in another way."""
    prefix = cron_tag(task)
    if correlation_id is None or not correlation_id.startswith((f"{prefix}@", f"{prefix}:")):
        return None
    try:
        tick = datetime.fromisoformat(correlation_id.rpartition("@")[2])
    except ValueError:
        return None
    return None if tick.tzinfo is None else tick
