"""Crons: one job for each tick. Every worker may fire them and none is the leader: firing advances a row, and only one
worker can do that.

The row decides what is fired, not the code of the worker that fires it. The code only counts when a worker starts and
declares its crons. So in a rolling deploy the worker that started last decides, and old and new workers follow it.
Crons that people made are fired by every worker that has their task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import BadSettings
from holdfast.model.cron import CronRecord, next_step
from holdfast.store.base import Store
from holdfast.tasks.manifest import TaskInfo, cron_of

MARGIN = 0.005  # seconds after a tick to look: the clocks of hosts differ
AT_ONCE = 200  # crons fired in one transaction, about: thousands may be due at the same time


class Crons:
    def __init__(self, store: Store, tasks: Iterable[TaskInfo], due_in: Callable[[float], None]) -> None:
        self._store = store
        self._due_in = due_in
        known = list(tasks)
        self._task_names = tuple(sorted(name for task in known for name in task.names))
        self._declaring = [task for task in known if task.cron is not None]
        self.names = tuple(sorted(task.name for task in self._declaring))
        self.declared = not self._declaring  # the database knows our crons
        self._unreadable: set[str] = set()  # those that this worker has complained about

    def step(self) -> float | None:
        """Fire what is due. Returns in how many seconds the next tick falls due, or None if no tick is planned."""
        if not self.declared:
            for task in self._declaring:
                if task.aliases:
                    self._store.crons.rename(task.name, task.aliases)
            self._fire_due()  # ticks of the schedule as it was before
            now = self._store.reads.now()
            for task in self._declaring:
                if not self._store.crons.declare(cron_of(task, now)):
                    why = "people made a cron of this name; remove it or rename the task"
                    events.emit("cron_unknown", cron=task.name, error=why)
            self.declared = True
        return self._fire_due()

    def _fire_due(self) -> float | None:
        while (wait := self._store.crons.next_tick(self._task_names, self.names)) is not None and wait <= 0:
            found = self._store.crons.due(self._task_names, self.names, AT_ONCE)
            due = [cron for cron in found if self._readable(cron)]
            if not due:
                return self._next_readable()
            if not self._fire(due):
                return MARGIN  # another worker was quicker: see what is left
        return None if wait is None else wait + MARGIN

    def _next_readable(self) -> float | None:
        """What is due can't be read here, and others fire it: in how many seconds the first of the rest falls due."""
        ours = [
            cron
            for cron in self._store.crons.all()
            if (cron.name in self.names if cron.declared else cron.task in self._task_names) and self._readable(cron)
        ]
        return min(((cron.next_at - cron.now).total_seconds() + MARGIN for cron in ours), default=None)

    def _fire(self, crons: Sequence[CronRecord]) -> bool:
        """Fire every tick of these crons that is due. Returns whether there are jobs of them."""
        fired = False
        while steps := [(cron, step) for cron in crons if (step := next_step(cron))]:
            jobs = self._store.crons.fire(steps)
            fired = fired or bool(jobs)
            crons = []
            for cron, step in steps:
                job = jobs.get(cron.name)
                if job is None and step.tick is not None:
                    continue  # another worker was quicker
                if step.skipped_from is not None:
                    since = step.skipped_from.isoformat()
                    events.emit("ticks_missed", cron=cron.name, since=since, catch_up=cron.catch_up)
                if job is not None and step.tick is not None:
                    events.emit("fired", cron=cron.name, job=job, tick=step.tick.isoformat())
                crons.append(replace(cron, next_at=step.next_at, last_at=step.tick or cron.last_at))
        if fired:
            self._due_in(0.0)
        return fired

    def _readable(self, cron: CronRecord) -> bool:
        """Can this host read its schedule? One of a newer worker may be in a zone that is unknown here."""
        try:
            return bool(cron.schedule)
        except BadSettings as error:
            if cron.name not in self._unreadable:
                self._unreadable.add(cron.name)
                events.emit("cron_unknown", cron=cron.name, error=str(error))
            return False
