"""What a runner announces: the tasks it has handlers for, and what a worker must know of each. A worker holds leases
by this alone; handlers, argument types and retry policies stay with the runner."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.work.tasks import Task


class TaskInfo(msgspec.Struct, frozen=True):
    name: str
    aliases: tuple[str, ...]
    queue: str
    max_attempts: int
    timeout: float | None


class Manifest(msgspec.Struct, frozen=True):
    url: str
    tasks: tuple[TaskInfo, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a job of these tasks may carry."""
        return tuple(sorted(name for task in self.tasks for name in (task.name, *task.aliases)))


def manifest_of(url: str, tasks: Iterable[Task[..., object]]) -> Manifest:
    return Manifest(
        url,
        tuple(
            TaskInfo(t.name, t.defaults.aliases, t.defaults.queue, t.defaults.max_attempts, t.defaults.timeout)
            for t in tasks
        ),
    )
