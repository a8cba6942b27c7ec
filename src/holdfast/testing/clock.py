"""The clock of a temporary store: it stands still until it is moved."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from holdfast.errors import BadArguments
from holdfast.model.durations import LONGEST, parse_duration

Duration = str | float | timedelta


class Clock:
    """What the database uses as the time. It is frozen, so that nothing falls due by itself."""

    def __init__(self, now: datetime | None = None) -> None:
        if now is not None and now.tzinfo is None:
            raise BadArguments(f"now must be a datetime with a time zone, not {now!r}")
        self.now = datetime.now(UTC) if now is None else now.astimezone(UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, by: Duration) -> datetime:
        self.now += timedelta(seconds=seconds_of(by))
        return self.now


def seconds_of(duration: Duration) -> float:
    """Seconds of "90s", "1h 30m", "2d", of a number of seconds, or of a timedelta. Time does not go back."""
    found = -1.0
    match duration:
        case timedelta():
            found = duration.total_seconds()
        case bool():
            pass
        case int() | float():
            found = float(duration)
        case str() if duration.strip()[-1:].isalpha():  # a unit is required
            with suppress(ValueError):
                found = parse_duration(duration).total_seconds()
        case _:
            pass
    if not 0 <= found < LONGEST:
        raise BadArguments(f'how far? "90s", "1h 30m", "2d", seconds or a timedelta, 0 or more; not {duration!r}')
    return found
