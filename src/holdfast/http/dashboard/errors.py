"""Failed jobs by the kind of their error: how many, since when, how often of late, and one of them in full."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import JobNotFound, RequestRefused
from holdfast.http.dashboard.page import Look
from holdfast.http.dashboard.shown import row_of
from holdfast.http.dashboard.tracebacks import parts
from holdfast.model.filter import BadFilter, parse
from holdfast.model.job import ErrorGroup

LISTED = 100
HOURS = 24  # of the sparklines
WIDTH, HEIGHT = 90, 22
TRIED = "state:retrying"


class ErrorsQuery(msgspec.Struct, frozen=True):
    of: str = ""  # "retrying": jobs that are tried again


def load(look: Look) -> dict[str, Any]:
    retrying = look.query.of == "retrying"
    groups = look.app.error_groups(TRIED if retrying else "state:failed", limit=LISTED)
    now = look.app.store.reads.now()
    hourly = _hourly(look, now)
    return {
        "groups": groups, "retrying": retrying, "more": len(groups) == LISTED,
        "sparks": {group.id: spark(hourly.get(group.id, Counter()), now) for group in groups},
        "lately": {group.id: sum(hourly.get(group.id, Counter()).values()) for group in groups},
    }  # fmt: skip


def group(look: Look) -> dict[str, Any]:
    """One group: an example in full, and the newest of its jobs."""
    id = look.path["group"]
    failed, retrying = f"state:failed group:{id}", f"{TRIED} group:{id}"
    try:
        parse(failed)
    except BadFilter as error:
        raise RequestRefused(error.message, status=404, number="HF1510") from None
    found: ErrorGroup | None = next(iter(look.app.error_groups(failed, limit=1)), None)
    tried: ErrorGroup | None = next(iter(look.app.error_groups(retrying, limit=1)), None)
    now = look.app.store.reads.now()
    shown = found or tried
    hourly = _hourly(look, now).get(id, Counter())
    return {
        "id": id, "group": found, "tried": tried, "shown": shown, "filter": failed,
        "jobs": [row_of(look.app, job.record, now) for job in look.app.jobs(failed, limit=10)],
        "traceback": None if shown is None else _traceback(look, shown.example),
        "spark": spark(hourly, now), "lately": sum(hourly.values()),
    }  # fmt: skip


def _traceback(look: Look, example: str) -> Any:
    try:
        attempts = look.app.job(example).attempts()
    except JobNotFound:  # deleted a moment ago
        return None
    last = next((attempt for attempt in reversed(attempts) if attempt.traceback), None)
    return None if last is None or last.traceback is None else parts(last.traceback)


def _hourly(look: Look, now: datetime) -> dict[str, Counter[datetime]]:
    """How often errors of each group happened, by hour, in the last day."""
    since = _hour(now) - timedelta(hours=HOURS - 1)
    found: dict[str, Counter[datetime]] = {}
    for count in look.app.store.rollups.counts(since, now + timedelta(hours=1), grain="hour"):
        if count.what == "error" and count.at is not None:
            found.setdefault(count.detail, Counter())[count.at] += count.n
    return found


def spark(hourly: Counter[datetime], now: datetime) -> str:
    """A line through the hours of the last day, as the path of an SVG; empty: nothing happened."""
    if not hourly:
        return ""
    last = _hour(now)
    values = [hourly.get(last - timedelta(hours=HOURS - 1 - n), 0) for n in range(HOURS)]
    most = max(values) or 1
    points = (
        f"{n * WIDTH / (HOURS - 1):.1f} {HEIGHT - 2 - value * (HEIGHT - 4) / most:.1f}"
        for n, value in enumerate(values)
    )
    return "M" + "L".join(points)


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
