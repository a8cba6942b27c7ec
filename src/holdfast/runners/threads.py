"""Runs synchronous handlers on threads. A thread can't be stopped from outside: its handler sees a stop request through
its context, and keeps its slot and its lease until it returns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from contextvars import copy_context

from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import of_thread
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import current_worker
from holdfast.tasks.hooks import ErrorHook
from holdfast.tasks.task import Task


class ThreadRunner(InProcessRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, on_error: Sequence[ErrorHook] = (),
    ) -> None:  # fmt: skip
        super().__init__(slots, tasks, store, settings, on_error=on_error)
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()  # one item for each attempt that was added
        self._threads: list[threading.Thread] = []
        self._running: dict[int, Attempt] = {}  # by thread: what it runs, or ran last
        self._closing = False

    def start(self, attempts: Sequence[Attempt]) -> None:
        for _ in range(min(len(attempts), self.slots - len(self._threads))):
            name = f"holdfast-thread-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads; the existing ones do the work
                break
            self._threads.append(thread)
        if self._threads:
            self._unstarted.extend(attempts)
            for _ in attempts:
                self._calls.put(None)
        else:
            for attempt in attempts:
                self._execution.give_back(attempt)

    def close(self, timeout: float) -> None:
        """End the idle threads; the others end with their handler, or with the process."""
        self._closing = True
        for _ in self._threads:
            self._calls.put(None)

    def stack(self, attempt: Attempt) -> str | None:
        thread = next((one for one in self._threads if self._running.get(one.ident or 0) is attempt), None)
        text = None if thread is None or thread.ident is None else of_thread(thread.ident)
        if thread is None or text is None or attempt.ended:
            return None
        return self._execution.encoded_stack(attempt, thread.name, text)

    def _serve(self) -> None:
        current_worker.set(self._worker)
        me = threading.get_ident()
        while True:
            self._calls.get()
            if self._closing:
                return
            try:
                attempt = self._unstarted.popleft()
            except IndexError:  # it was withdrawn
                continue
            self._running[me] = attempt
            copy_context().run(self._execution.run, attempt)
