"""Runs coroutines on an event loop in a thread of its own: a fixed number of slots that take attempts from a queue, so
that a short job costs no task of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from weakref import ref

from holdfast.model.outcome import returned
from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import of_coroutine
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_context, current_worker
from holdfast.tasks.hooks import ErrorHook
from holdfast.tasks.task import Task

BREATH = 32  # attempts a slot runs without a pause before it lets the loop do other things


class Slot:
    """A place where attempts run one after the other: the task behind it, and what runs there now."""

    __slots__ = ("__weakref__", "attempt", "interrupt", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        self.attempt: Attempt | None = None
        self.interrupt = _interrupting(ref(self), loop)  # made once, not for every attempt

    def stop(self, attempt: Attempt) -> None:
        if self.attempt is attempt:
            attempt.stop_seen = True
            self.task.cancel()

    def start_afresh(self) -> None:
        """Whatever was asked of the attempt that ended, is not asked of the next one."""
        while self.task.cancelling():
            self.task.uncancel()


def _interrupting(slot: ref[Slot], loop: asyncio.AbstractEventLoop) -> Callable[[Attempt], None]:
    """How to stop what runs in a slot. It does not keep the slot, which has the attempt that has this."""

    def interrupt(attempt: Attempt) -> None:
        if (there := slot()) is not None:
            with suppress(RuntimeError):  # the loop is closed: the attempt has ended meanwhile
                loop.call_soon_threadsafe(there.stop, attempt)

    return interrupt


class LoopRunner(InProcessRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, on_error: Sequence[ErrorHook] = (),
    ) -> None:  # fmt: skip
        super().__init__(slots, tasks, store, settings, on_error=on_error)
        self._idle: dict[asyncio.Future[None], None] = {}  # slots that wait; in order, and quick to find one in
        self._tasks: set[asyncio.Task[None]] = set()
        self._places: dict[asyncio.Task[Any], Slot] = {}
        self._closing = False
        self.succeeded = self._succeeded
        self.loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-loop", daemon=True)
        self._thread.start()

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        self._loop.call_soon_threadsafe(self._wake_slots, len(attempts))

    def close(self, timeout: float) -> None:
        """End the loop; what still runs is abandoned."""
        self._closing = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    def stack(self, attempt: Attempt) -> str | None:
        slot = next((one for one in list(self._places.values()) if one.attempt is attempt), None)
        if slot is None or self._thread.ident is None:
            return None
        # Not by way of the loop: a handler that blocks it is what people look for.
        return self._taken(attempt, self._thread.name, of_coroutine(slot.task, self._loop, self._thread.ident, attempt))

    # -- on the loop's thread ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._turn()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                self._loop.run_until_complete(asyncio.wait([*self._tasks], timeout=1))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _turn(self) -> None:
        """Run the loop until we are closed. SystemExit or KeyboardInterrupt in a task that a handler started ends
        `run_forever`; whoever awaits that task gets it too, so it is the handler's affair, and the loop goes on."""
        while not self._closing:
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()

    def _wake_slots(self, count: int) -> None:
        for _ in range(min(count, self.slots)):
            if self._idle:
                future, _ = self._idle.popitem()
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
        self._places.pop(task, None)
        if self._waiting and not self._closing:
            self._open_slot()

    async def _slot(self) -> None:
        current_context.set(None)
        current_worker.set(self.worker)
        clean = copy_context()
        slot = Slot(self._loop)
        self._places[slot.task] = slot
        breath = 0
        while not self._closing:
            try:
                attempt = self._waiting.popleft()
            except IndexError:
                await self._until_woken()
                continue
            await self._run(attempt, slot)
            if copy_context() != clean:
                return  # the handler left something in its context variables: the next one starts with a fresh slot
            breath += 1
            if breath == BREATH:
                breath = 0
                await asyncio.sleep(0)

    async def _until_woken(self) -> None:
        future = self._loop.create_future()
        self._idle[future] = None
        try:
            await future
        finally:
            # A handler may have cancelled its own task and returned: that comes out here and ends the slot, which
            # must not be woken any more.
            self._idle.pop(future, None)

    async def _run(self, attempt: Attempt, slot: Slot) -> None:
        if attempt.not_to_begin:
            self.finished(attempt, None)  # given back
            return
        held = attempt.held
        slot.attempt = attempt
        attempt.begin()
        attempt.interrupt = slot.interrupt
        if attempt.reason is not None:
            attempt.stop_now()  # asked in the very moment it began
        task = self._handlers[held.task]
        plain = False
        context = JobContext(attempt, self._store, self._settings, task.secrets)
        current_context.set(context)
        try:
            running = task.run(context, held.args)
            value = await (running if attempt.timeout is None else self._limited(attempt, running))
        except GeneratorExit as error:
            self.finished(attempt, self._on_raise(attempt, error))
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = self._on_raise(attempt, error)
        else:
            plain = value is None and attempt.reason is None and not attempt.recorded
            outcome = None if plain else self._on_return(attempt, value)
        finally:
            slot.attempt = None
            if slot.task.cancelling():
                slot.start_afresh()
            attempt.end()
            current_context.set(None)
        if plain:
            self.succeeded(attempt)
        else:
            self.finished(attempt, outcome)

    def _succeeded(self, attempt: Attempt) -> None:
        """Without a result. (Whoever needs no outcome to know that puts something else in place of this.)"""
        self.finished(attempt, returned(attempt.held, None))

    async def _limited(self, attempt: Attempt, running: Awaitable[object]) -> object:
        timer = self._loop.call_later(attempt.timeout or 0.0, attempt.ask, "timeout")
        try:
            return await running
        finally:
            timer.cancel()
