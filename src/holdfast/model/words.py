"""Times, numbers and names as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta


def in_words(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 1.99 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds >= 1 or not seconds else f"{seconds * 1000:.0f}ms"


def moment_in_words(moment: datetime, now: datetime) -> str:
    away = in_words(abs(moment - now) / timedelta(seconds=1))
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC ({f'in {away}' if moment > now else f'{away} ago'})"


def plural(word: str, n: int) -> str:
    return word if n == 1 else word + "s"


def quoted(text: str) -> str:
    """As a shell takes it: one word."""
    import shlex

    return shlex.quote(text)


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The names most like this one."""
    from difflib import get_close_matches

    return get_close_matches(name, sorted(known), n=3)
