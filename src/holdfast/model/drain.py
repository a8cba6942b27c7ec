"""When a queue will be empty, if it goes on as it does."""

from __future__ import annotations

from holdfast.model.durations import DAY, HOUR, MINUTE
from holdfast.model.record import Record


class Drain(Record, frozen=True):
    """When the due jobs of a queue will be done, if it goes on as in the last three minutes (ten if fewer than ten jobs
    finished in three), in seconds and in words. None: never, at this rate. If more jobs are due than are counted, it
    takes longer, and the words say so. `came`, `ended`: jobs a minute that were enqueued, and that workers finished."""

    seconds: float | None
    text: str
    came: float = 0.0
    ended: float = 0.0


EMPTY = Drain(0.0, "empty")


def drain(due: int, came: float, ended: float, *, more: bool = False) -> Drain:
    """`came`, `ended`: jobs a minute. `more`: jobs are due than these."""
    seconds, text = _estimate(due, came, ended, "more than" if more else "about")
    return Drain(seconds, text, round(came, 3), round(ended, 3))


def _estimate(due: int, came: float, ended: float, how: str) -> tuple[float | None, str]:
    if not due:
        return EMPTY.seconds, EMPTY.text
    if not ended:
        return None, "growing: never at this rate" if came else "nothing finishes: never at this rate"
    if came >= ended:
        return None, "growing: never at this rate" if came > ended else "steady: never at this rate"
    seconds = due / (ended - came) * 60
    return round(seconds, 1), f"empty in {how} {_in_words(max(1.0, seconds))}"


def _in_words(seconds: float) -> str:
    """To about two digits: `45 s`, `4 min`, `3 h`, `12 days`."""
    for unit, length in (("days", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 1.99 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
