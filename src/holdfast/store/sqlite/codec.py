"""How SQLite stores values: instants as text that sorts, lists and JSON as text."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, cast

from holdfast.errors import ValueRefused
from holdfast.model.job import NewJob
from holdfast.store.columns import DUE, ENQUEUED, EXPIRY, GIVEN, NOW, Column, JobId, kind_of


def stored(moment: datetime) -> str:
    """An instant as text that sorts: UTC, always with microseconds."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(" ", "microseconds")[:26]


def later(now: datetime, seconds: float | None) -> str | None:
    """So many seconds from now, as it is stored."""
    try:
        return None if seconds is None else stored(now + timedelta(seconds=seconds))
    except (OverflowError, ValueError) as error:
        raise ValueRefused(f"{seconds!r} seconds from now is no date: {error}") from None


def seconds_until(stored_moment: str, now: datetime) -> float:
    return (datetime.fromisoformat(stored_moment).replace(tzinfo=UTC) - now).total_seconds()


class SqliteCodec:
    def moment(self, stored: Any) -> datetime | None:
        return None if stored is None else datetime.fromisoformat(stored).replace(tzinfo=UTC)

    def instant(self, moment: datetime | None) -> Any:
        return None if moment is None else stored(moment)

    def words(self, stored: Any) -> tuple[str, ...]:
        return tuple(json.loads(stored)) if stored else ()

    def json(self, stored: Any) -> bytes | None:
        return None if stored is None else str(stored).encode()

    def ids(self, stored: Any) -> list[JobId]:
        return cast(list[JobId], json.loads(stored))


class Stamp:
    """The current time as it is stored. The text of each second is made only once: it takes longer than everything else
    in a row."""

    def __init__(self) -> None:
        self._second: tuple[int | None, str] = (None, "")

    def __call__(self) -> str:
        seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
        known, text = self._second
        if seconds != known:
            text = stored(datetime.fromtimestamp(seconds, UTC))[:20]
            self._second = (seconds, text)
        return f"{text}{microseconds:06d}"


# Jobs as rows to insert. The arguments come first, then what is stored as it is given, read from a job all at once.
_STRAIGHT = [column for column in ENQUEUED if column.enqueued is GIVEN and column.type not in ("json", "text[]")]
_MADE = [column for column in ENQUEUED if column.name != "args" and column not in _STRAIGHT]
ROW = ", ".join(["args", *(column.name for column in (*_STRAIGHT, *_MADE))])
PLACES = ", ".join("?" * len(ENQUEUED))
_straight = attrgetter(*(column.name for column in _STRAIGHT))


def row_of(job: NewJob, now: str) -> tuple[Any, ...]:
    return job.args.decode(), *_rest_of(job, now)


def rows_of(jobs: Iterable[NewJob], now: str, counts: Counter[tuple[str, str]]) -> Iterator[tuple[Any, ...]]:
    """As `row_of`, for many: what equal jobs share is made once. In the end they are added to the `counts` by queue and
    task."""
    made: dict[tuple[object, ...], list[Any]] = {}
    for job in jobs:
        kind = kind_of(job)
        alike = made.get(kind)
        if alike is None:
            alike = made[kind] = [0, job, _rest_of(job, now)]
        alike[0] += 1
        yield job.args.decode(), *alike[2]
    for n, job, _ in made.values():
        counts[job.queue, job.task] += n


def _rest_of(job: NewJob, now: str) -> tuple[Any, ...]:
    return *_straight(job), *[make(job, now) for make in _makers]


def _due(job: NewJob, now: str) -> str | None:
    if job.run_at is not None:
        return stored(job.run_at)
    return _after(now, job.delay) if job.delay else now


def _expiry(job: NewJob, now: str) -> str | None:
    return None if job.expires_in is None else _after(now, job.expires_in)


def _maker(column: Column) -> Callable[[NewJob, str], str | None]:
    if column.enqueued is NOW:
        return lambda job, now: now
    if column.enqueued in (DUE, EXPIRY):
        return _due if column.enqueued is DUE else _expiry
    get = attrgetter(column.name)
    return lambda job, now: json.dumps(value) if (value := get(job)) else None


def _after(now: str, seconds: float) -> str | None:
    return later(datetime.fromisoformat(now).replace(tzinfo=UTC), seconds)


_makers = [_maker(column) for column in _MADE]
