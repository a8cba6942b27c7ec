"""What a runner announces: the tasks it has handlers for, and what a worker must know of each. The worker needs no more
to hold leases; handlers, argument types and retry policies stay with the runner."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from holdfast.model.cron import CatchUp, CronRecord, Schedule, cron_tag
from holdfast.model.isolation import NO_LIMITS, Limits
from holdfast.model.mapping import Mapping
from holdfast.model.retry import DEFAULT_RETRY, Exponential, Fixed, NoDelay, RetryPolicy
from holdfast.tasks.options import Isolation
from holdfast.tasks.task import Task

KNOWN = (NoDelay, Fixed, Exponential)  # policies that don't need the application
DELAYS = 20  # attempts whose delays are announced; the last one repeats


class CronInfo(msgspec.Struct, frozen=True):
    expression: str
    timezone: str
    catch_up: CatchUp


class TaskInfo(msgspec.Struct, frozen=True):
    name: str
    aliases: tuple[str, ...]
    queue: str
    max_attempts: int
    timeout: float | None
    priority: int = 0
    tags: tuple[str, ...] = ()
    is_async: bool = False
    cron: CronInfo | None = None
    delays: tuple[float | None, ...] = ()  # after an attempt that was ended from outside; None: the job fails
    progress_timeout: float | None = None
    isolation: Isolation | None = None
    limits: Limits = NO_LIMITS
    env: tuple[str, ...] = ()
    database: bool = False
    own_policy: bool = False  # a function of the application decides the delay: `delays` stand in for it
    mapping: Mapping | None = None  # of the adopted table whose rows are its jobs

    def delay(self, attempt: int, error: BaseException) -> float | None:
        """The interface of a retry policy."""
        return self.delays[min(attempt, len(self.delays)) - 1] if self.delays else None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a job of this task may carry."""
        return (self.name, *self.aliases)


class Manifest(msgspec.Struct, frozen=True):
    tasks: tuple[TaskInfo, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a job of these tasks may carry."""
        return tuple(sorted(name for task in self.tasks for name in task.names))


def manifest_of(tasks: Iterable[Task[..., object]]) -> Manifest:
    return Manifest(tuple(info_of(task) for task in tasks))


def info_of(task: Task[..., object]) -> TaskInfo:
    defaults, schedule = task._defaults, task._schedule
    return TaskInfo(
        task.name, defaults.aliases, defaults.queue, defaults.max_attempts, defaults.timeout, defaults.priority,
        defaults.tags, task.is_async,
        None if schedule is None else CronInfo(schedule.expression, schedule.timezone, defaults.catch_up),
        tuple(_delay(defaults.retry, attempt) for attempt in range(1, min(defaults.max_attempts, DELAYS))),
        defaults.progress_timeout, defaults.isolation, defaults.limits, defaults.env, defaults.database,
        not isinstance(defaults.retry, KNOWN), defaults.mapping,
    )  # fmt: skip


def _delay(policy: RetryPolicy, attempt: int) -> float | None:
    """A user's own policy is a function of the error, so only a runner can call it. When the runner is gone, the
    default policy stands in."""
    known = policy if isinstance(policy, KNOWN) else DEFAULT_RETRY
    return known.delay(attempt, TimeoutError())


def cron_of(task: TaskInfo, now: datetime) -> CronRecord:
    """A task's cron as its code declares it."""
    cron = task.cron
    assert cron is not None
    return CronRecord(
        name=task.name, task=task.name, expression=cron.expression, timezone=cron.timezone, catch_up=cron.catch_up,
        queue=task.queue, priority=task.priority, max_attempts=task.max_attempts,
        tags=tuple(dict.fromkeys((*task.tags, cron_tag(task.name)))),
        next_at=Schedule(cron.expression, cron.timezone).after(now), now=now,
    )  # fmt: skip
