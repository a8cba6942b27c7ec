"""Runs coroutines on an event loop in a thread of its own: a fixed number of slots that take attempts from a queue, so
that a short job costs no task of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context

from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.work.attempt import Attempt
from holdfast.work.context import JobContext, current
from holdfast.work.runners.inline import Finished, InlineRunner
from holdfast.work.tasks import Task

BREATH = 32  # attempts a slot runs without a pause before it lets the loop do other things


class LoopRunner(InlineRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings, finished: Finished
    ) -> None:
        super().__init__(slots, tasks, store, settings, finished)
        self._waiting: deque[Attempt] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._loop.call_soon_threadsafe(self._take, attempts)

    def close(self, timeout: float) -> None:
        """End the loop; what still runs is abandoned."""
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    # -- on the loop's thread ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._turn()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                self._loop.run_until_complete(asyncio.wait(self._tasks, timeout=1))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _turn(self) -> None:
        """Run the loop until we are closed. SystemExit or KeyboardInterrupt in a task that a handler started ends
        `run_forever`; whoever awaits that task gets it too, so it is the handler's affair, and the loop goes on."""
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def _take(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        for _ in attempts:
            if self._idle:
                future = self._idle.pop()
                if not future.done():
                    future.set_result(None)
            elif len(self._tasks) < self.slots:
                self._open_slot()

    def _open_slot(self) -> None:
        task = self._loop.create_task(self._slot())
        self._tasks.add(task)
        task.add_done_callback(self._slot_ended)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting and not self._closing:
            self._open_slot()

    async def _slot(self) -> None:
        current.set(None)
        clean = copy_context()
        breath = 0
        while not self._closing:
            if not self._waiting:
                await self._until_woken()
                continue
            await self._run(self._waiting.popleft())
            if copy_context() != clean:
                return  # the handler left something in its context variables: the next one starts with a fresh slot
            breath += 1
            if breath == BREATH:
                breath = 0
                await asyncio.sleep(0)

    async def _until_woken(self) -> None:
        future = self._loop.create_future()
        self._idle.append(future)
        try:
            await future
        finally:
            # A handler may have cancelled its own task and returned: that comes out here and ends the slot, which
            # must not be woken any more.
            if future in self._idle:
                self._idle.remove(future)

    async def _run(self, attempt: Attempt) -> None:
        if attempt.must_stop or attempt.reason == "shutdown":
            self._finished(attempt, None)  # given back before it began
            return
        task = asyncio.current_task()
        assert task is not None
        attempt.begin()
        running = [True]
        attempt.interrupt = lambda: self._post(self._interrupt, attempt, task, running)
        if attempt.reason is not None:
            attempt.stop_now()  # asked in the very moment it began
        context = self._context(attempt)
        current.set(context)
        try:
            value = await self._call(attempt, context)
        except GeneratorExit as error:
            self._finished(attempt, self._on_raise(attempt, error))
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = self._on_raise(attempt, error)
        else:
            outcome = self._on_return(attempt, value)
        finally:
            running.clear()
            current.set(None)
            while task.cancelling():
                task.uncancel()
        self._finished(attempt, outcome)

    async def _call(self, attempt: Attempt, context: JobContext) -> object:
        handler = self._handler(attempt)
        if attempt.timeout is None:
            return await handler.run(context, attempt.held.args)
        timer = self._loop.call_later(attempt.timeout, attempt.ask, "timeout")
        try:
            return await handler.run(context, attempt.held.args)
        finally:
            timer.cancel()

    def _post(self, call: Callable[..., None], *args: object) -> None:
        self._loop.call_soon_threadsafe(call, *args)

    def _interrupt(self, attempt: Attempt, task: asyncio.Task[None], running: list[bool]) -> None:
        if running:
            attempt.told = True
            task.cancel()
