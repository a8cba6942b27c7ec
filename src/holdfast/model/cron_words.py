"""Cron expressions in words: `30 6 * * MON-FRI` is "at 06:30, Monday to Friday". What has no plain words is shown as it
is written. A pure function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from holdfast.model.cron import SHORTHANDS

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
ORDINALS = ("", "first", "second", "third", "fourth", "fifth")
MOST_TIMES = 6  # times of day that are listed


def in_words(expression: str) -> str:
    """`*/5 * * * *` is "every 5 minutes"."""
    fields = SHORTHANDS.get(expression.strip().lower(), expression).upper().split()
    if len(fields) not in (5, 6):
        return expression
    second, minute, hour, day, month, weekday = fields if len(fields) == 6 else ("0", *fields)
    parts = [_time(second, minute, hour), _days(day, weekday), _months(month)]
    return ", ".join(part for part in parts if part)


def _time(second: str, minute: str, hour: str) -> str:
    if second == "0":
        return _of_day(minute, hour)
    if minute == hour == "*" and (every := _every(second, "second")):
        return every
    when = _every(second, "second") or f"at second {_listed(second)}"
    return f"{when}, {_of_day(minute, hour)}"


def _of_day(minute: str, hour: str) -> str:
    minutes, hours = _numbers(minute), _numbers(hour)
    if minutes and hours and len(minutes) * len(hours) <= MOST_TIMES:
        return f"at {_and([f'{h:02}:{m:02}' for h, m in product(hours, minutes)])}"
    span = re.fullmatch(r"(\d+)-(\d+)", hour)
    if minutes and len(minutes) == 1:
        at = minutes[0]
        if every := _every(hour, "hour"):
            return every if not at else f"{every} at {at} {'minute' if at == 1 else 'minutes'} past"
        if span:
            return f"every hour from {int(span[1]):02}:{at:02} to {int(span[2]):02}:{at:02}"
    if every := _every(minute, "minute"):
        if hour == "*":
            return every
        if span or (hours and len(hours) == 1):
            first, last = (int(span[1]), int(span[2])) if span else (hours[0], hours[0])
            return f"{every} from {first:02}:00 to {last:02}:59"
        return f"{every}, in hours {_listed(hour)}"
    if hour == "*":
        return f"every hour at minutes {_listed(minute)}"
    return f"at minutes {_listed(minute)} of hours {_listed(hour)}"


def _days(day: str, weekday: str) -> str:
    of_month = "" if day in ("*", "?") else _of_month(day)
    of_week = "" if weekday in ("*", "?") else _of_week(weekday)
    if not of_month or not of_week:
        return of_month or of_week
    # Cron takes either of them, unless one begins with a star.
    both = day.startswith("*") or weekday.startswith("*")
    return f"{of_month} if it is {of_week}" if both else f"{of_month} or {of_week}"


def _of_month(day: str) -> str:
    if day == "L":
        return "on the last day of the month"
    if step := re.fullmatch(r"\*/(\d+)", day):
        return f"on every {_ordinal(int(step[1]))} day of the month"
    days = _numbers(day)
    if days:
        return f"on the {_and([_ordinal(n) for n in days])} of the month"
    return f"on days {_listed(day)} of the month"


def _of_week(weekday: str) -> str:
    words = []
    for part in weekday.split(","):
        found = re.fullmatch(r"(\w+?)(?:-(\w+)|#(\d)|(L))?", part)
        first = _named(found[1], DAYS) if found else None
        last = _named(found[2], DAYS) if found and found[2] else None
        if found is None or first is None or (found[2] and last is None):
            return f"on weekdays {weekday}"
        if last:
            words.append(f"{first} to {last}")
        elif found[3] and int(found[3]) < len(ORDINALS):
            words.append(f"the {ORDINALS[int(found[3])]} {first} of the month")
        else:
            words.append(f"the last {first} of the month" if found[4] else first)
    return _and(words)


def _months(month: str) -> str:
    if month == "*":
        return ""
    words = []
    for part in month.split(","):
        ends = [_named(name, MONTHS) for name in part.split("-")]
        if len(ends) > 2 or None in ends:
            return f"in months {month}"
        words.append(" to ".join(name for name in ends if name))
    return f"in {_and(words)}"


def _every(field: str, unit: str) -> str:
    """`*` and `*/5`; anything else has no such words."""
    step = re.fullmatch(r"\*(?:/(\d+))?", field)
    if step is None:
        return ""
    return f"every {unit}" if step[1] in (None, "1") else f"every {int(step[1])} {unit}s"


def _numbers(field: str) -> list[int]:
    """Those of a list of plain numbers; empty: it is something else."""
    parts = field.split(",")
    return sorted({int(part) for part in parts}) if all(part.isdecimal() for part in parts) else []


def _listed(field: str) -> str:
    return _and(field.replace("-", " to ").split(","))


def _named(text: str, names: Sequence[str]) -> str | None:
    if text.isdecimal():
        return names[int(text)] or None if int(text) < len(names) else None
    return next((name for name in names if name and name[:3].upper() == text[:3] and len(text) >= 3), None)


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
