"""How durations are written: `90s`, `2h`, `in 3d`."""

from __future__ import annotations

from datetime import datetime

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0  # seconds


def short_duration(seconds: float) -> str:
    """One number and a unit, to about two digits: `350ms`, `45s`, `90s`, `1h`, `12d`."""
    for unit, length in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        if seconds >= 1.99 * length or seconds == length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 1 or not seconds else f"{seconds * 1000:.0f}ms"


def running_duration(seconds: float) -> str:
    """For a screen that is drawn again and again: a few characters that keep their width while the duration grows."""
    whole = int(seconds)
    if seconds < 10:
        return f"{seconds:.1f}s"
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // 60}:{whole % 60:02}"
    if whole < DAY:
        return f"{whole // 3600}h {whole // 60 % 60:02}m"
    return f"{whole // 86400}d {whole // 3600 % 24}h"


def relative_to(now: datetime, moment: datetime) -> str:
    """How far a moment lies ahead or back: `in 5m`, `3s ago`."""
    seconds = (moment - now).total_seconds()
    return f"in {short_duration(seconds)}" if seconds > 0 else f"{short_duration(abs(seconds))} ago"


def dated(moment: datetime, now: datetime) -> str:
    """The moment itself, and how far it lies ahead or back."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({relative_to(now, moment)})"
