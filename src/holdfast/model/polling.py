"""How a worker polls: what it did in the last minute, and whether that is healthy. Values and counting alone: whoever
counts says when, by a clock that never goes back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from holdfast.model.record import Record

WINDOW = 60  # seconds that the figures are about
MOST_ERRORS = 5  # failed polls in a row at which a worker is unhealthy


class Polling(Record, frozen=True):
    """What a worker's polls did in the last 60 seconds. A figure that needs a poll, or a claim, is None without one.

    A poll looks in the database for jobs to run. It tries to claim if it finds any that are due, and wins if it gets at
    least one: else other workers had them locked. `avg_claim_latency` is in milliseconds, from the beginning of a poll
    to its jobs, and counts the polls that got some. `consecutive_errors`: polls that failed, since the last that did
    not. `idle_seconds`: since the last poll that did not fail."""

    polls_per_minute: int = 0
    jobs_found_per_poll: float | None = None
    claims_tried: int = 0
    claims_won: int = 0
    claim_success_rate: float | None = None
    avg_claim_latency: float | None = None
    consecutive_errors: int = 0
    idle_seconds: float = 0.0

    def healthy(self, age: float = 0.0) -> bool:
        """`age`: seconds since these figures were written."""
        return self.consecutive_errors < MOST_ERRORS and self.idle_seconds + age <= WINDOW


NO_POLLS = Polling()


def polling_of_all(polls: Iterable[Polling]) -> Polling:
    """The figures of several workers as one: counts are added, means weighted, and of the errors in a row the worst
    counts."""
    every = list(polls)
    tried, won = sum(one.claims_tried for one in every), sum(one.claims_won for one in every)
    count = sum(one.polls_per_minute for one in every)
    found = sum((one.jobs_found_per_poll or 0.0) * one.polls_per_minute for one in every)
    latency = sum((one.avg_claim_latency or 0.0) * one.claims_won for one in every)
    return _figures(
        count, found, tried, won, latency, max((one.consecutive_errors for one in every), default=0),
        min((one.idle_seconds for one in every), default=0.0),
    )  # fmt: skip


def _figures(
    polls: int, found: float, tried: int, won: int, latency: float, consecutive_errors: int, idle: float
) -> Polling:
    return Polling(
        polls_per_minute=polls,
        jobs_found_per_poll=round(found / polls, 3) if polls else None,
        claims_tried=tried,
        claims_won=won,
        claim_success_rate=round(won / tried, 3) if tried else None,
        avg_claim_latency=round(latency / won, 3) if won else None,
        consecutive_errors=consecutive_errors,
        idle_seconds=round(idle, 3),
    )


@dataclass(slots=True)
class _Second:
    """What the polls of one second did."""

    at: int
    polls: int = 0
    found: int = 0
    tried: int = 0
    won: int = 0
    latency: float = 0.0  # milliseconds, of all that won


class PollMeter:
    """Counts polls as they happen, by the second. From any thread."""

    def __init__(self, now: float) -> None:
        self._seconds: deque[_Second] = deque()
        self._lock = Lock()
        self.last = now  # when a poll last succeeded
        self.lost_claims = 0  # tried and not won, ever

    def began(self, now: float) -> None:
        with self._lock:
            self._second(now).polls += 1

    def succeeded(self, now: float, *, found: int = 0, tried: bool = False, seconds: float = 0.0) -> None:
        """A poll has its answer, after so many seconds: so many jobs, or none although some were due (`tried`)."""
        with self._lock:
            self.last = max(self.last, now)
            if tried:
                second = self._second(now)
                second.tried += 1
                second.won += found > 0
                second.found += found
                second.latency += seconds * 1000 if found else 0.0
                self.lost_claims += not found

    def window(self, now: float, consecutive_errors: int, *, looking: bool = False) -> Polling:
        """`looking`: count a poll that is about to be made."""
        with self._lock:
            self._forget(now)
            polls, found, tried, won = (
                sum(getattr(one, name) for one in self._seconds) for name in ("polls", "found", "tried", "won")
            )
            latency = sum(one.latency for one in self._seconds)
            idle = 0.0 if looking else max(0.0, now - self.last)
            return _figures(polls + looking, found, tried, won, latency, consecutive_errors, idle)

    def _second(self, now: float) -> _Second:
        self._forget(now)
        if not self._seconds or self._seconds[-1].at < int(now):
            self._seconds.append(_Second(int(now)))
        return self._seconds[-1]

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0].at <= now - WINDOW:
            self._seconds.popleft()
