"""How durations are read, in Python and on the command line: seconds, a timedelta, or text (`90s`, `1h 30m`)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

Duration = float | timedelta | str  # what Python takes wherever it asks for one

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}  # in seconds
LONGEST = 36500 * 86400.0  # a hundred years
FORMS = 'seconds, a timedelta, or text such as "90s", "5m" or "1h 30m"'  # for messages

_PART = r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)"
_WHOLE = rf"(?:{_PART})+\s*"


def parse_duration(text: str) -> timedelta:
    """The duration that `90` (seconds), `30s`, `15m`, `1h 30m`, `7d` or `2w` means; ValueError if it means none."""
    if re.fullmatch(_WHOLE, text):
        seconds = sum(float(number) * UNITS[unit] for number, unit in re.findall(_PART, text))
    else:
        seconds = float(text)
    if not 0 <= seconds < LONGEST:
        raise ValueError(f"{text} is not between 0 seconds and 100 years")
    return timedelta(seconds=seconds)


def to_seconds(value: Any) -> float:
    """The seconds of a Duration; ValueError if it is none, or negative. In Python, text needs a unit: digits alone are
    more likely a number that somebody forgot to convert."""
    match value:
        case timedelta():
            seconds = value.total_seconds()
        case str() if value.strip()[-1:].isalpha():
            seconds = parse_duration(value).total_seconds()
        case int() | float() if not isinstance(value, bool):
            seconds = float(value)
        case _:
            raise ValueError(f"{value!r:.80} is not a duration")
    if not 0 <= seconds < LONGEST:
        raise ValueError(f"{value!r:.80} is not between 0 seconds and 100 years")
    return seconds
