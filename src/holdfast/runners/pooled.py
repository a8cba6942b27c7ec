"""What the desk sees of a pool of processes: slots to fill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest, TaskInfo

if TYPE_CHECKING:
    from holdfast.runners.process_pool import Pool

SILENT = 1.0  # seconds a process may owe an answer and still be given attempts, if there are others


class PooledRunner:
    """The slots of one colour in all processes."""

    may_wait = True
    many = True

    def __init__(self, pool: Pool, tasks: Sequence[TaskInfo], slots: int, *, is_async: bool) -> None:
        self.manifest = Manifest(tuple(tasks))
        self.busy = 0
        self._pool = pool
        self._slots = slots  # of one process
        self._is_async = is_async

    @property
    def slots(self) -> int:
        return self._slots * len(self._pool.ready())

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Level their loads."""
        if len(ready := self._pool.ready()) == 1 and ready[0].give(attempts, is_async=self._is_async):
            return
        left = list(attempts)
        able = [process for process in self._pool.ready() if process.silent_for() < SILENT]
        loads = {process: process.load(is_async=self._is_async) for process in able or self._pool.ready()}
        level = -(-(len(left) + sum(loads.values())) // max(1, len(loads)))
        for process in sorted(loads, key=lambda one: loads[one]):
            some = left[: max(0, level - loads[process])]
            if some and process.give(some, is_async=self._is_async):
                del left[: len(some)]
        for attempt in left:
            self._pool.not_run(attempt)

    def waiting_since(self) -> float | None:
        since = [process.waiting_since(is_async=self._is_async) for process in self._pool.ready()]
        return min((at for at in since if at is not None), default=None)

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """They come back later, as ended without an outcome."""
        processes = self._pool.ready()
        share = None if most is None else -(-most // max(1, len(processes)))
        for process in processes:
            process.withdraw(share, is_async=self._is_async)
        return []

    def close(self, timeout: float) -> None: ...
