"""Reads what metrics are made of: a dozen statements, however many jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.model.alerts import Alert
from holdfast.model.drain import Drain
from holdfast.model.job import Depth
from holdfast.model.metrics import WINDOW, Measured, drains
from holdfast.model.rollups import Count

if TYPE_CHECKING:
    from holdfast.store.base import Store

MINUTE = timedelta(minutes=1)


def measure(store: Store) -> Measured:
    now = store.reads.now()
    since, recent = _recent(store, now)
    return Measured(
        at=now, depths=store.reads.depths(), workers=store.workers.all(), totals=store.rollups.totals(),
        recent=recent, since=since, alerts=standing(store),
    )  # fmt: skip


def drains_of(store: Store, depths: Sequence[Depth]) -> dict[str, Drain]:
    """When each queue will be empty, if it goes on as in the last minutes."""
    now = store.reads.now()
    since, recent = _recent(store, now)
    return drains(depths, recent, since, now)


def standing(store: Store) -> list[Alert]:
    """The alerts that have begun and not ended."""
    return [alert for alert in store.alerts.all() if alert.ended_at is None]


def _recent(store: Store, now: datetime) -> tuple[datetime, list[Count]]:
    since = now.replace(second=0, microsecond=0) - WINDOW
    return since, store.rollups.counts(since, now + MINUTE, grain="minute")
