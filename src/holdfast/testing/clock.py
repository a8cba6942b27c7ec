"""The clock of a throw-away store: stands still until it is moved."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from holdfast.errors import BadArguments

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")

Duration = str | float | timedelta


class Clock:
    """What the database takes for the time. Frozen, so that nothing falls due by itself."""

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
    match duration:
        case timedelta():
            found = duration.total_seconds()
        case bool():
            found = -1.0
        case int() | float():
            found = float(duration)
        case str():
            parts = list(_PART.finditer(duration))
            whole = "".join(part[0] for part in parts) == duration
            found = sum(float(part[1]) * UNITS[part[2]] for part in parts) if parts and whole else -1.0
        case _:
            found = -1.0
    if not 0 <= found < 1e10:
        raise BadArguments(f'how far? "90s", "1h 30m", "2d", seconds or a timedelta, 0 or more; not {duration!r}')
    return found
