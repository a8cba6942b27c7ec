"""How the system is doing: health, metrics and alerts. Each function is a method of `Holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadSettings
from holdfast.model.alerts import Alert
from holdfast.model.health import Health, health_of
from holdfast.model.metrics import Metrics, metrics_of
from holdfast.store.metrics import measure
from holdfast.store.overview import Overview
from holdfast.store.overview import overview as read_overview

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
    return app.store.alerts.all(limit)


def overview(app: Holdfast) -> Overview:
    """All that a screen shows of the database at once: depths, running jobs, failures, workers, pauses, alerts."""
    return read_overview(app.store)


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
