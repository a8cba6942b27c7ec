"""What a handler and the error hooks know about their job."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.cron import tick_of
from holdfast.model.job import ClaimedJob


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
