"""Is anything wrong? What needs people first, then how much there is, then how it went."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.http.dashboard.charts import SELDOM, TITLES, charts
from holdfast.http.dashboard.findings import findings
from holdfast.http.dashboard.page import Look
from holdfast.model.series import OUTCOMES, SPLITS, Series, Span, Split
from holdfast.monitoring import overview, series

RECENT = 5  # minutes that the throughput is about


class OverviewQuery(msgspec.Struct, frozen=True):
    range: Span = "hour"
    by: Split = "outcome"


def load(look: Look) -> dict[str, Any]:
    asked: OverviewQuery = look.query
    seen, queues = overview(look.app), look.app.queues()
    hour = series(look.app, "hour")
    shown = hour if (asked.range, asked.by) == ("hour", "outcome") else _series(look, asked)
    return {
        "findings": findings(
            now=seen.at, depths=seen.depths, queues=queues, workers=seen.workers, pauses=seen.pauses,
            groups=look.app.error_groups("state:failed since:1h"), alerts=seen.alerts,
        ),
        "due": sum(queue.due for queue in queues),
        "later": sum(queue.scheduled for queue in queues),
        "running": sum(queue.running for queue in queues),
        "failed": sum(queue.failed for queue in queues),
        "capped": any(queue.capped for queue in queues),
        "throughput": throughput(hour),
        "workers": sum(worker.alive(seen.at) for worker in seen.workers),
        "known": len(seen.workers),
        "waiting": sorted((queue for queue in queues if queue.due), key=lambda queue: queue.oldest_due_at or seen.at),
        "paused": {pause.name for pause in seen.pauses if pause.kind == "queue"},
        "nothing": not queues and not seen.workers,
        "charts": charts(shown),
        "ranges": TITLES,
        "splits": SPLITS,
        "range": asked.range,
        "by": asked.by,
    }  # fmt: skip


def throughput(hour: Series) -> float:
    """Jobs that ended a minute, in the last minutes and, once its rate is known, the current one."""
    lines = [line.values[-1 - RECENT :] for line in hour.jobs if line.name in OUTCOMES]
    known = [sum(rates) for rates in zip(*lines, strict=True) if None not in rates]
    return sum(known) / len(known) if known else 0.0


def _series(look: Look, asked: OverviewQuery) -> Series:
    return look.seldom(
        ("series", asked.range, asked.by), SELDOM[asked.range], lambda: series(look.app, asked.range, by=asked.by)
    )
