"""Runs coroutines on an event loop in its own thread. A fixed number of slots take attempts from a queue, so that a
short job does not cost an asyncio task of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from weakref import ref

from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import of_coroutine
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import current_context, current_worker
from holdfast.tasks.hooks import Hooks
from holdfast.tasks.task import Task

BATCH = 32  # attempts a slot runs before it yields to the loop


class Slot:
    """Where attempts run one after the other: an asyncio task, and the attempt it runs now."""

    __slots__ = ("__weakref__", "_loop", "attempt", "interrupt", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.attempt: Attempt | None = None
        self.interrupt = _interrupter(ref(self), loop)  # made once, not for every attempt
        self._loop = loop

    async def limited(self, attempt: Attempt, running: Awaitable[object]) -> object:
        """Await this within the attempt's timeout."""
        timer = self._loop.call_later(attempt.timeout or 0.0, attempt.ask, "timeout")
        try:
            return await running
        finally:
            timer.cancel()

    def stop(self, attempt: Attempt) -> None:
        if self.attempt is attempt:
            attempt.stop_seen = True
            self.task.cancel()

    def uncancel(self) -> None:
        """What was requested of an attempt that ended does not carry over to the next one."""
        while self.task.cancelling():
            self.task.uncancel()


def _interrupter(slot: ref[Slot], loop: asyncio.AbstractEventLoop) -> Callable[[Attempt], None]:
    """Stops what runs in a slot. It refers to the slot weakly: the slot has the attempt, which has this function."""

    def interrupt(attempt: Attempt) -> None:
        if (there := slot()) is not None:
            with suppress(RuntimeError):  # the loop is closed: the attempt has ended meanwhile
                loop.call_soon_threadsafe(there.stop, attempt)

    return interrupt


class LoopRunner(InProcessRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, hooks: Hooks | None = None,
    ) -> None:  # fmt: skip
        super().__init__(slots, tasks, store, settings, hooks=hooks)
        self._idle: dict[asyncio.Future[None], None] = {}  # slots that wait: ordered, and quick to remove one from
        self._open_slots: dict[asyncio.Task[None], Slot | None] = {}
        self._closing = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._unstarted.extend(attempts)
        self.loop.call_soon_threadsafe(self._wake_slots, len(attempts))

    def close(self, timeout: float) -> None:
        """End the loop; what still runs is abandoned."""
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)

    def stack(self, attempt: Attempt) -> str | None:
        slots = [slot for slot in list(self._open_slots.values()) if slot is not None]
        slot = next((one for one in slots if one.attempt is attempt), None)
        if slot is None or self._thread.ident is None:
            return None
        # Not by way of the loop: a handler that blocks it is what people look for.
        text = of_coroutine(slot.task, self.loop, self._thread.ident, attempt)
        return self._execution.encoded_stack(attempt, self._thread.name, text)

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self._run_until_closed()
            slots = [*self._open_slots]
            for task in slots:
                task.cancel()
            if slots:
                self.loop.run_until_complete(asyncio.wait(slots, timeout=1))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()

    def _run_until_closed(self) -> None:
        """SystemExit or KeyboardInterrupt in a task that a handler started ends `run_forever`. Whoever awaits that task
        gets the exception too, so it is the handler's affair, and the loop goes on."""
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    def _wake_slots(self, count: int) -> None:
        for _ in range(min(count, self.slots)):
            if self._idle:
                future, _ = self._idle.popitem()
                if not future.done():
                    future.set_result(None)
            elif len(self._open_slots) < self.slots:
                self._open_slot()

    def _open_slot(self) -> None:
        task = self.loop.create_task(self._slot())
        self._open_slots[task] = None  # until it runs
        task.add_done_callback(self._slot_ended)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._open_slots.pop(task, None)
        if self._unstarted and not self._closing:
            self._open_slot()

    async def _slot(self) -> None:
        current_context.set(None)
        current_worker.set(self._worker)
        clean = copy_context()
        slot = Slot(self.loop)
        self._open_slots[slot.task] = slot
        run, unstarted, ran = self._execution.run_async, self._unstarted, 0
        while not self._closing:
            try:
                attempt = unstarted.popleft()
            except IndexError:
                await self._until_woken()
                continue
            await run(attempt, slot)
            if copy_context() != clean:
                return  # the handler left something in its context variables: the next one starts in a fresh slot
            ran += 1
            if ran == BATCH:
                ran = 0
                await asyncio.sleep(0)

    async def _until_woken(self) -> None:
        future = self.loop.create_future()
        self._idle[future] = None
        try:
            await future
        finally:
            # A handler may have cancelled its own task and returned. That surfaces here and ends the slot, which must
            # not be woken any more.
            self._idle.pop(future, None)
