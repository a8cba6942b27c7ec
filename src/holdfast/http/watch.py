"""Lets any number of clients wait for jobs at the price of one read of the database per tick."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.errors import JobNotFound, StoreError
from holdfast.model.job import JobRecord, Mark
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

TICK = 0.2  # seconds between two reads
AWAY = 2.0  # the same while the database is away
MOST = 10_000  # jobs that one read looks at
FULL = 500  # jobs that have changed and are read in full at once

Future = asyncio.Future[JobRecord]


class Watch:
    """The clients of one event loop that wait. A task ticks as long as there are any; it only reads."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._waiting: dict[str, dict[Future, Mark]] = {}  # by job: who waits, and how it looked to them
        self._ticking: asyncio.Task[None] | None = None
        self.trouble: StoreError | None = None  # why the last read failed

    async def changed(self, known: JobRecord, seconds: float) -> JobRecord | None:
        """The job as soon as it looks different from this; None: it did not, in this time. Raises JobNotFound when it
        is deleted, and StoreError if the database was away at the end."""
        future: Future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(known.id, {})[future] = Mark.of(known)
        if self._ticking is None:
            self._ticking = asyncio.create_task(self._tick(), name="holdfast-watch")
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            if self.trouble is not None:
                raise self.trouble from None
            return None
        finally:
            del self._waiting[known.id][future]
            if not self._waiting[known.id]:
                del self._waiting[known.id]

    async def _tick(self) -> None:
        self.trouble = None  # of those who waited before
        try:
            while self._waiting:
                await asyncio.sleep(TICK if self.trouble is None else AWAY)
                try:
                    for ids in _parts(list(self._waiting), MOST):
                        await self._look(ids)
                    self.trouble = None
                except StoreError as error:
                    self.trouble = error
        finally:
            self._ticking = None

    async def _look(self, ids: list[str]) -> None:
        reads = self._app._get_store().reads
        marks = await in_thread(self._app, reads.marks, ids)
        for id in ids:
            if id not in marks:
                self._tell(id, None)
        moved = [id for id in ids if any(mark != marks.get(id) for mark in self._waiting.get(id, {}).values())]
        for some in _parts(moved, FULL):
            for job in await in_thread(self._app, reads.records, [int(id) for id in some]):
                self._tell(job.id, job)

    def _tell(self, id: str, job: JobRecord | None) -> None:
        for future, mark in self._waiting.get(id, {}).items():
            if future.done():
                continue
            if job is None:
                future.set_exception(JobNotFound("the job was deleted"))
            elif Mark.of(job) != mark:
                future.set_result(job)


def _parts(ids: list[str], size: int) -> Iterator[list[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
