"""Lets any number of clients wait for jobs at the price of a few reads of the database a second: one for those that
begin to wait, one for those that do."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from sse_starlette.sse import AppStatus
from starlette.requests import ClientDisconnect

from holdfast.errors import JobNotFound, StoreError
from holdfast.model.job import JobRecord, Mark
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

TICK = 0.2  # seconds between two reads
GATHER = 0.1  # the same for clients that begin to wait: a lone one is answered at once, many are gathered
AWAY = 2.0  # the same while the database is away
MOST = 10_000  # jobs that one read looks at
FULL = 500  # jobs that have changed and are read in full at once

Future = asyncio.Future[JobRecord | None]


def stopping() -> bool:
    """Does the server of this process stop? It lets requests under way end, so nobody may wait any more. uvicorn tells
    its applications nothing of it; sse-starlette hears of it, unless uvicorn had its signals before it was imported."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return AppStatus.should_exit or getattr(server, "should_exit", False) is True


class Arrivals:
    """Reads jobs for the clients of one event loop that begin to wait. Each comes back when its wait is over, so
    thousands of them are hundreds of requests a second."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._wanted: dict[str, list[asyncio.Future[JobRecord]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._next = 0.0  # by the loop's clock

    async def read(self, id: str) -> JobRecord:
        """The job as it is now, or JobNotFound."""
        if not (id.isascii() and id.isdecimal() and len(id) < 19):
            raise JobNotFound("no job has such an id")
        future: asyncio.Future[JobRecord] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(str(int(id)), []).append(future)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="holdfast-arrivals")
        return await future

    async def _read(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._wanted:
                await asyncio.sleep(max(0.0, self._next - clock()))
                self._next = clock() + GATHER
                wanted, self._wanted = self._wanted, {}
                for ids in _parts(list(wanted), FULL):
                    await self._answer({id: wanted[id] for id in ids})
        finally:
            self._reading = None

    async def _answer(self, wanted: dict[str, list[asyncio.Future[JobRecord]]]) -> None:
        found: dict[str, JobRecord] = {}
        error: Exception = JobNotFound("there is no such job")
        try:
            records = await in_thread(self._app, self._app._get_store().reads.records, [int(id) for id in wanted])
            found = {job.id: job for job in records}
        except Exception as failed:  # noqa: BLE001 - whoever waits for the answer gets it
            error = failed
        for id, futures in wanted.items():
            for future in futures:
                if future.done():  # the client went away
                    continue
                if id in found:
                    future.set_result(found[id])
                else:
                    future.set_exception(error)


class Watch:
    """The clients of one event loop that wait. A task ticks as long as there are any; it only reads."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.arrivals = Arrivals(app)
        self._waiting: dict[str, dict[Future, Mark]] = {}  # by job: who waits, and how it looked to them
        self._ticking: asyncio.Task[None] | None = None
        self.trouble: StoreError | None = None  # why the last read failed

    async def changed(
        self, known: JobRecord, seconds: float, *, leaving: Callable[[], Awaitable[None]] | None = None
    ) -> JobRecord | None:  # fmt: skip
        """The job as soon as it looks different from this; None: it did not, in this time, or the server stops. Raises
        JobNotFound when it is deleted, StoreError if the database was away at the end, and ClientDisconnect when the
        client is gone: `leaving()` ends then."""
        if stopping():
            return None
        future: Future = asyncio.get_running_loop().create_future()
        left = None if leaving is None else asyncio.ensure_future(leaving())

        def give_up(_: object) -> None:
            if not future.done():
                future.set_exception(ClientDisconnect())

        if left is not None:
            left.add_done_callback(give_up)
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
            if left is not None:
                left.cancel()
            del self._waiting[known.id][future]
            if not self._waiting[known.id]:
                del self._waiting[known.id]

    async def _tick(self) -> None:
        self.trouble = None  # of those who waited before
        try:
            while self._waiting:
                await asyncio.sleep(TICK if self.trouble is None else AWAY)
                if stopping():
                    self._let_go()
                    return
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

    def _let_go(self) -> None:
        for future in [future for waits in self._waiting.values() for future in waits]:
            if not future.done():
                future.set_result(None)

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
