"""Run now: a job that somebody waits for is an ordinary job of the highest priority, in a queue of its own. This
process has a worker for that queue alone, so its slots are free. Workers that serve all queues take such jobs as well,
so a job goes on elsewhere if this process dies."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.job import Job
from holdfast.tasks.current import in_handler
from holdfast.tasks.offload import in_thread
from holdfast.tasks.task import Bound

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.worker.worker import Worker

R = TypeVar("R")


def run_now(app: Holdfast, bound: Bound[R], deadline: float) -> Job[R]:
    """Enqueue it, and wait until it has finished or the deadline is over: the handle tells which."""
    _refuse_in_handler(bound)
    job = app._submit(bound)
    if not _serve(app, job):
        return job.refresh()
    for _ in job._ending(deadline, quiet=True):
        pass
    return job


async def arun_now(app: Holdfast, bound: Bound[R], deadline: float) -> Job[R]:
    _refuse_in_handler(bound)
    job = await app._asubmit(bound)
    return await finish_soon(app, job, deadline)


async def finish_soon(app: Holdfast, job: Job[R], deadline: float, *, here: bool = True) -> Job[R]:
    """Wait for a job that was enqueued to run now. `here`: this process may run it."""
    if here and not await in_thread(app, _serve, app, job):
        return await job.arefresh()
    async for _ in job._ending(deadline, quiet=True):
        pass
    return job


def _serve(app: Holdfast, job: Job[Any]) -> bool:
    """Have this process look for it. False: there is nothing to wait for. It has finished before, or only the test kit
    runs jobs."""
    if job.finished or app._in_kit:
        return False
    app._free_slots.look()
    return True


def _refuse_in_handler(bound: Bound[Any]) -> None:
    if in_handler():
        raise HoldfastError(
            f"a handler can't wait for a job of {bound.task.name}: it would occupy a slot that this job may need; "
            "enqueue a follow-up job instead",
            number="HF1306",
        )


class FreeSlots:
    """A worker on a thread of this process, started with the first job that somebody waits for."""

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Look for a job at once, without waiting for a notification."""
        if os.getpid() != self._pid:  # forked: the thread, and whoever held the lock, are the parent's
            self.__init__(self._make)  # type: ignore[misc]
        with self._lock:
            if self._worker is None or self._thread is None or not self._thread.is_alive():
                self._worker = self._make()
                self._thread = threading.Thread(
                    target=self._run, args=(self._worker,), name="holdfast-now", daemon=True
                )  # fmt: skip
                self._thread.start()
                atexit.register(self.close)
            self._worker.desk.wakeups.wake()

    def _run(self, worker: Worker) -> None:
        try:
            worker.run()
        except HoldfastError as error:  # the next job that somebody waits for starts another worker
            events.emit("stumbled", part="holdfast-now", error=str(error))

    def close(self) -> None:
        """Let what runs finish, within the grace of a worker."""
        atexit.unregister(self.close)
        if self._worker is None or self._thread is None or os.getpid() != self._pid:
            return
        with self._lock:
            worker, self._worker = self._worker, None
        worker.stop()
        self._thread.join()
