"""Which attempt and which worker the running code belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.cron import tick_of
from holdfast.model.job import ClaimedJob

if TYPE_CHECKING:
    from holdfast.tasks.context import JobContext


# What a handler and the error hooks know about their job.


class JobInfo(msgspec.Struct, frozen=True):
    id: str
    task: str
    queue: str
    priority: int
    max_attempts: int
    correlation_id: str
    attempt: int = 1

    @property
    def tick(self) -> datetime | None:
        """The cron instant this job was enqueued for, in UTC; None: no cron enqueued it."""
        return tick_of(self.task, self.correlation_id)


def info_of(held: ClaimedJob) -> JobInfo:
    return JobInfo(str(held.id), held.task, held.queue, held.priority, held.max_attempts, held.correlated, held.attempt)


# The context of the attempt this code runs in, if any.
current_context: ContextVar[JobContext | None] = ContextVar("holdfast_current", default=None)
# The worker it runs in: set once by each thread or slot of a runner.
current_worker: ContextVar[str] = ContextVar("holdfast_worker", default="")


def in_handler() -> bool:
    """Code that would wait for another job is refused in a handler."""
    return current_context.get() is not None
