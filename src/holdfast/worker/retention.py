"""Deletes old finished jobs and the audit of old calls, in bounded batches along the primary key, and takes finished
jobs off the list of those with pending work. Any worker may do it."""

from __future__ import annotations

import time

from holdfast import events
from holdfast.model.outcome import LONGEST_DELAY
from holdfast.store.base import Store

EVERY = 3600.0  # seconds between two walks through the table
STEPS = 20  # batches in a row before the watchdog does something else
FORGET_WORKERS = 3600.0  # seconds after which the row of a worker that is gone is deleted
PENDING_EVERY = 300.0  # seconds between two looks at the list of jobs with pending work
PENDING_BATCH = 1000
AUDIT_BATCH = 1000
ROLLUPS_BATCH = 5000


class Retention:
    def __init__(self, store: Store, *, finished: float, failed: float) -> None:
        self._store = store
        self._finished = min(finished, LONGEST_DELAY)  # a database can't compute with infinity
        self._failed = min(failed, LONGEST_DELAY)
        self._after_id = 0
        self._next = time.monotonic() + EVERY / 60
        self._pending_next = self._next
        self._rollups_next = self._next

    def step(self) -> None:
        if time.monotonic() >= self._pending_next:
            self.drop_pending()
        if time.monotonic() >= self._rollups_next:
            self.forget_rollups()
        if time.monotonic() >= self._next:
            self.walk()

    def drop_pending(self) -> None:
        full = all(self._store.retention.drop_pending(PENDING_BATCH) == PENDING_BATCH for _ in range(STEPS))
        self._pending_next = time.monotonic() + (0.0 if full else PENDING_EVERY)

    def forget_rollups(self) -> None:
        full = all(self._store.rollups.forget(ROLLUPS_BATCH) for _ in range(STEPS))
        self._rollups_next = time.monotonic() + (0.0 if full else EVERY)

    def walk(self) -> bool:
        """Go on with the walk; returns whether it is at its end."""
        deleted = 0
        for _ in range(STEPS):
            count, reached = self._store.retention.purge(self._after_id, finished=self._finished, failed=self._failed)
            deleted += count
            self._after_id = reached or 0
            if reached is None:
                self._next = time.monotonic() + EVERY
                self._store.workers.forget(FORGET_WORKERS)
                self._store.alerts.forget(self._failed)
                self._forget_calls()
                break
        if deleted:
            events.emit("purged", count=deleted)
        return reached is None

    def _forget_calls(self) -> None:
        """What operators did is kept as long as failed jobs."""
        for _ in range(STEPS):
            if self._store.audit.purge(kept=self._failed, limit=AUDIT_BATCH) < AUDIT_BATCH:
                break


def tidy(store: Store, *, finished: float, failed: float, until: float) -> None:
    """For workers that live for a moment, as drains do: if for an hour none lived for long enough, do it all at once,
    until then (monotonic)."""
    if store.rollups.overdue(EVERY):
        retention = Retention(store, finished=finished, failed=failed)
        while not retention.walk() and time.monotonic() < until:
            pass
        retention.drop_pending()
        retention.forget_rollups()  # last: that these are there says that it is due
