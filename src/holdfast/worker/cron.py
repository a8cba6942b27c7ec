"""Crons: one job for each tick. Every worker may fire them and none is the leader: firing advances a row, and only one
worker can do that.

The row decides what is fired, not the code of the worker that fires it. The code only counts when a worker starts and
declares its crons. So in a rolling deploy the worker that started last decides, and old and new workers follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import BadSettings
from holdfast.model.cron import CronRecord, next_step
from holdfast.store.base import Store
from holdfast.tasks.manifest import TaskInfo, cron_of

MARGIN = 0.005  # seconds after a tick to look: the clocks of hosts differ


class Crons:
    def __init__(self, store: Store, tasks: Iterable[TaskInfo], due_in: Callable[[float], None]) -> None:
        self._store = store
        self._due_in = due_in
        self._tasks = [task for task in tasks if task.cron is not None]
        self.names = tuple(sorted(task.name for task in self._tasks))
        self.declared = not self._tasks  # the database knows our crons

    def step(self) -> float | None:
        """Fire what is due. Returns in how many seconds the next tick falls due, or None if no tick is planned."""
        if not self._tasks:
            return None
        if not self.declared:
            for task in self._tasks:
                if task.aliases:
                    self._store.crons.rename(task.name, task.aliases)
            self._fire_due()  # ticks of the schedule as it was before
            now = self._store.reads.now()
            for task in self._tasks:
                self._store.crons.declare(cron_of(task, now))
            self.declared = True
        return self._fire_due()

    def _fire_due(self) -> float | None:
        waits = [self._fire(cron) for cron in self._store.crons.all() if cron.name in self.names]
        return min((wait for wait in waits if wait is not None), default=None)

    def _fire(self, cron: CronRecord) -> float | None:
        try:
            while step := next_step(cron):
                job = self._store.crons.fire(cron, step)
                if job is None and step.tick is not None:
                    return MARGIN  # another worker was quicker: see what is left
                if step.skipped_from is not None:
                    since = step.skipped_from.isoformat()
                    events.emit("ticks_missed", cron=cron.name, since=since, catch_up=cron.catch_up)
                if job is not None and step.tick is not None:
                    events.emit("fired", cron=cron.name, job=job, tick=step.tick.isoformat())
                    self._due_in(0.0)
                cron = replace(cron, next_at=step.next_at, last_at=step.tick or cron.last_at)
        except BadSettings as error:  # a newer worker's schedule, in a zone unknown on this host: others fire it
            events.emit("cron_unknown", cron=cron.name, error=str(error))
            return None
        return (cron.next_at - cron.now).total_seconds() + MARGIN
