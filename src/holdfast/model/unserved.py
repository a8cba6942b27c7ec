"""Due jobs that no worker can run: none that is alive serves their queue, or none of those has their task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import Backlog, WorkerRecord
from holdfast.model.text import nearest


@dataclass(frozen=True, slots=True)
class Unserved:
    waiting: Backlog
    served: bool  # workers serve the queue, but don't have the task
    nearest: list[str]  # names like it


def unserved(waiting: Sequence[Backlog], workers: Sequence[WorkerRecord], now: datetime) -> Iterator[Unserved]:
    """Of the jobs that are due, those that no worker can run."""
    live = [worker for worker in workers if worker.alive(now)]
    known = {task for worker in live for task in worker.tasks}
    for kind in waiting:
        serving = [worker for worker in live if worker.queues is None or kind.queue in worker.queues]
        if kind.due_at <= now and not any(kind.task in worker.tasks for worker in serving):
            yield Unserved(kind, bool(serving), nearest(kind.task, known - {kind.task}))
