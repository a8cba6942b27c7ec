"""How the system is doing: health, metrics and alerts. Those that users call are methods of `Holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadArguments, BadSettings
from holdfast.model.alerts import Alert
from holdfast.model.health import Health, health_of
from holdfast.model.metrics import Metrics, metrics_of
from holdfast.model.series import GRAINS, MOST_QUEUES, SPANS, SPLITS, Series, Span, Split, began
from holdfast.model.series import series as series_of
from holdfast.store.metrics import measure
from holdfast.store.overview import Overview
from holdfast.store.overview import overview as read_overview
from holdfast.tasks.options import limit_of, no_such

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def health(app: Holdfast) -> Health:
    """Does any worker of this database look for jobs, with success? And how workers polled in the last minute."""
    return health_of(app.store.workers.all(), app.store.reads.now())


def metrics(app: Holdfast) -> Metrics:
    """Depths, rates, durations, failures and polls, as of now."""
    return metrics_of(measure(app.store))


def alerts(app: Holdfast, *, limit: int = 100) -> list[Alert]:
    """The alerts that stand, then the newest that have ended."""
    return app.store.alerts.all(limit_of("alerts: limit", limit))


def overview(app: Holdfast) -> Overview:
    """All that a screen shows of the database at once: depths, running jobs, failures, workers, pauses, alerts."""
    return read_overview(app.store)


def series(app: Holdfast, span: Span = "hour", *, by: Split = "outcome", most: int = MOST_QUEUES) -> Series:
    """What charts show of the last hour, day, week or month: jobs a minute, by outcome or by queue, and how long jobs
    waited and ran. `most`: queues that have a line of their own, those in which most jobs ended. It is read from
    counts, not from jobs: a month costs hardly more than an hour."""
    for name, value, known in (("span", span, SPANS), ("by", by, SPLITS)):
        if value not in known:
            raise BadArguments(f"series: {no_such(name, [str(value)], known)}")
    now = app.store.reads.now()
    grain, seconds, _ = GRAINS[span]
    rows = app.store.rollups.series(grain, seconds, began(span, now)[0], by_queue=by == "queue")
    return series_of(span, by, rows, now, most)


def exposition(app: Holdfast) -> bytes:
    """The metrics as Prometheus reads them; needs the extra `prometheus`."""
    try:
        from holdfast.prometheus import exposition as text_of
    except ImportError as missing:
        raise BadSettings(
            f"this needs a package that is missing ({missing.name}): pip install 'holdfast[prometheus]'",
            number="HF1105",
        ) from None
    return text_of(measure(app.store))
