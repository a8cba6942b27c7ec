"""A pool of processes as the desk sees it: slots to fill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.runners.pooled_process import PooledProcess
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest, TaskInfo

SILENT = 1.0  # seconds an answer may be due before a process is given no more attempts, if there are other processes


class PooledRunner:
    """The slots for coroutines, or those for synchronous handlers, of all processes."""

    may_wait = True
    many = True

    def __init__(
        self, tasks: Sequence[TaskInfo], slots: int, *, is_async: bool, ready: Callable[[], tuple[PooledProcess, ...]],
        give_back: Callable[[Attempt], None],
    ) -> None:  # fmt: skip
        """`ready`: the processes that take attempts. `give_back` is called for what none of them takes."""
        self.manifest = Manifest(tuple(tasks))
        self.busy = 0
        self._ready = ready
        self._give_back = give_back
        self._slots = slots  # of one process
        self._is_async = is_async

    @property
    def slots(self) -> int:
        return self._slots * len(self._ready())

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Level the loads of the processes."""
        ready = self._ready()
        if len(ready) == 1 and ready[0].give(attempts, is_async=self._is_async):
            return
        left = list(attempts)
        able = [process for process in ready if process.withdrawals.silent_for() < SILENT]
        loads = {process: process.table.load(is_async=self._is_async) for process in able or ready}
        level = -(-(len(left) + sum(loads.values())) // max(1, len(loads)))
        for process in sorted(loads, key=lambda one: loads[one]):
            some = left[: max(0, level - loads[process])]
            if some and process.give(some, is_async=self._is_async):
                del left[: len(some)]
        for attempt in left:
            self._give_back(attempt)

    def waiting_since(self) -> float | None:
        """Without those that were already asked back."""
        is_async = self._is_async
        asked = [process for process in self._ready() if not process.withdrawals.is_pending(is_async=is_async)]
        since = [process.table.waiting_since(is_async=is_async) for process in asked]
        return min((at for at in since if at is not None), default=None)

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """They come back later, as finished without an outcome."""
        processes = self._ready()
        share = None if most is None else -(-most // max(1, len(processes)))
        for process in processes:
            process.withdrawals.request(share, is_async=self._is_async)
        return []

    def close(self, timeout: float) -> None: ...
