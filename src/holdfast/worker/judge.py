"""Judges, about once a minute, whether something should make people look, and says when that begins and ends. Any
number of watchdogs may judge: each alert begins and ends once (store/alerts.py)."""

from __future__ import annotations

import time
from datetime import timedelta

from holdfast import events
from holdfast.model.alerts import BEFORE, SPIKE, Alert, Thresholds, changes, judged
from holdfast.model.rollups import BOUNDS, LABELS
from holdfast.store.base import Store

EVERY = 55.0  # seconds; looks come every 20 s
MINUTE = timedelta(minutes=1)


class Judge:
    def __init__(self, store: Store, thresholds: Thresholds, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._thresholds = thresholds
        # A run time is too long if its bucket reaches beyond the threshold.
        self._slow = [
            label
            for label, bound in zip(LABELS, (*BOUNDS, float("inf")), strict=True)
            if thresholds.p95 and bound > thresholds.p95 * 1000
        ]
        self._next = 0.0  # monotonic

    def step(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY
            self.judge()

    def judge(self) -> None:
        """Two short statements where all is quiet."""
        store, thresholds = self._store, self._thresholds
        waiting = store.reads.waiting(most=thresholds.depth + 1)
        unquiet = store.alerts.unquiet(self._slow)
        workers = store.workers.all() if unquiet.sick else []
        recent = []
        if unquiet.failing:
            since = unquiet.now - SPIKE - BEFORE - MINUTE
            recent = store.rollups.counts(since, unquiet.now + MINUTE, grain="minute")
        found = list(judged(waiting, workers, recent, unquiet.now, thresholds))
        if not found and not unquiet.standing:
            return
        standing = {(one.name, one.subject): one for one in store.alerts.standing()}
        begins, ends = changes(found, standing)
        for one in begins:
            self._say("alert_began", store.alerts.begin(one))
        for one in found:
            watched = standing.get((one.name, one.subject))
            if watched is not None and not watched.fired:
                self._say("alert_began", store.alerts.fire(watched.id, one))
        for key in ends:
            self._say("alert_ended", store.alerts.end(standing[key]))

    def _say(self, event: str, alert: Alert | None) -> None:
        if alert is not None:
            events.emit(event, text=alert.text, advice=alert.advice, alert=alert.as_dict(), worker=self._worker)
