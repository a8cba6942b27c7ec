"""Retry policies: from the attempt and its error to the seconds until the next attempt, or None to give up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from holdfast.durations import FORMS, Duration, to_seconds
from holdfast.errors import BadSettings

# How long to wait before the next poll, and how often to retry a failed one.


class PollBackoff(msgspec.Struct, frozen=True):
    """The wait after the n-th consecutive empty poll: the base for `grace` polls, then growing to the maximum."""

    base: float = 1.0
    maximum: float = 15.0
    multiplier: float = 1.5
    grace: int = 2

    def wait(self, empty_polls: int) -> float:
        try:
            grown = self.base * float(self.multiplier) ** max(0, empty_polls - self.grace)
        except OverflowError:  # past some hundred polls; by then the maximum has long been reached
            return float(self.maximum)
        return float(min(self.maximum, grown))


POLL_TRIES = 3


def error_delay(attempt: int) -> float:
    """Seconds to wait after the `attempt`-th failed try (from 1) of one poll: 2, 4, … at most 10."""
    return float(min(2 ** min(attempt, 10), 10))


def outcome_delay(attempt: int) -> float:
    """Seconds before an outcome that could not be written is tried again: 2, 4, then 4 for as long as it takes."""
    return error_delay(min(attempt, POLL_TRIES - 1))


class RetryPolicy(Protocol):
    def delay(self, attempt: int, error: BaseException) -> float | None:
        """Seconds to wait after the `attempt`-th run (from 1) ended in `error`; None fails the job at once."""
        ...


class NoDelay(msgspec.Struct, frozen=True):
    """Try again at once."""

    def delay(self, attempt: int, error: BaseException) -> float | None:
        return 0.0


class Fixed(msgspec.Struct, frozen=True):
    """A list of delays, one per attempt; the last one repeats."""

    delays: tuple[float, ...]

    def delay(self, attempt: int, error: BaseException) -> float | None:
        return self.delays[min(attempt, len(self.delays)) - 1]


class Exponential(msgspec.Struct, frozen=True):
    """base, base*factor, … up to cap. With jitter, a random part of that, so that jobs which failed together are not
    retried together."""

    base: float = 5.0
    factor: float = 2.0
    cap: float = 300.0
    jitter: bool = True

    def delay(self, attempt: int, error: BaseException) -> float | None:
        # The exponent is bounded so that a large attempt number can't overflow a float.
        ceiling = min(self.cap, self.base * self.factor ** min(attempt - 1, 64))
        if not self.jitter:
            return ceiling
        import random

        return random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing


class Custom(msgspec.Struct, frozen=True):
    """A function (attempt, error) -> how long to wait, or None to give up."""

    function: Callable[[int, BaseException], Duration | None]

    def delay(self, attempt: int, error: BaseException) -> float | None:
        answer = self.function(attempt, error)
        if isinstance(answer, timedelta | str):
            return to_seconds(answer)
        return None if answer is None else max(0.0, float(answer))


DEFAULT_RETRY = Exponential()

RetryLike = RetryPolicy | Duration | Sequence[Duration] | Callable[[int, BaseException], Duration | None] | None


def retry_policy(value: RetryLike) -> RetryPolicy:
    """Turn what a user writes for `retry=` into a policy."""
    match value:
        case None:
            return NoDelay()
        case NoDelay() | Fixed() | Exponential() | Custom():
            return value
        case bool():
            pass
        case timedelta() | str() | int() | float():
            return Fixed((_checked(value),))
        case list() | tuple() if value:
            return Fixed(tuple(_checked(v) for v in value))
        case _ if isinstance(getattr(value, "delay", None), Callable):  # type: ignore[arg-type]
            return value  # type: ignore[return-value]
        case _ if callable(value):
            return Custom(value)
        case _:
            pass
    raise BadSettings(f"retry={value!r}: expected a duration ({FORMS}), a list of them, a policy, a function or None")


def _checked(delay: Duration) -> float:
    try:
        return to_seconds(delay)
    except ValueError:
        raise BadSettings(f"retry: a delay must be 0 or more {FORMS}, not {delay!r:.80}") from None
