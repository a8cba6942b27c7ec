"""Runs synchronous handlers on threads. A thread can't be stopped from outside: a handler is told through its context,
and its slot and lease are kept until it returns."""

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
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_context, current_worker
from holdfast.tasks.hooks import ErrorHook
from holdfast.tasks.task import Task


class ThreadRunner(InProcessRunner):
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings,
        *, on_error: Sequence[ErrorHook] = (),
    ) -> None:  # fmt: skip
        super().__init__(slots, tasks, store, settings, on_error=on_error)
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()  # one for each attempt that came to wait
        self._threads: list[threading.Thread] = []
        self._at: dict[int, Attempt] = {}  # what each thread runs, or ran last
        self._closing = False

    def start(self, attempts: Sequence[Attempt]) -> None:
        for _ in range(min(len(attempts), self.slots - len(self._threads))):
            name = f"holdfast-thread-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more; those that run do the work
                break
            self._threads.append(thread)
        if self._threads:
            self._waiting.extend(attempts)
            for _ in attempts:
                self._calls.put(None)
        else:
            for attempt in attempts:
                self.finished(attempt, None)  # given back

    def close(self, timeout: float) -> None:
        """End the threads that are free; the others end with their handler, or with the process."""
        self._closing = True
        for _ in self._threads:
            self._calls.put(None)

    def stack(self, attempt: Attempt) -> str | None:
        thread = next((one for one in self._threads if self._at.get(one.ident or 0) is attempt), None)
        text = None if thread is None or thread.ident is None else of_thread(thread.ident)
        if thread is None or text is None or attempt.ended:
            return None
        return self._taken(attempt, thread.name, text)

    def _serve(self) -> None:
        current_worker.set(self.worker)
        me = threading.get_ident()
        while True:
            self._calls.get()
            if self._closing:
                return
            try:
                attempt = self._waiting.popleft()
            except IndexError:  # withdrawn
                continue
            self._at[me] = attempt
            copy_context().run(self._run, attempt)

    def _run(self, attempt: Attempt) -> None:
        if attempt.not_to_begin:
            self.finished(attempt, None)  # given back
            return
        attempt.begin()
        task = self._handlers[attempt.held.task]
        context = JobContext(attempt, self._store, self._settings, task.secrets)
        current_context.set(context)
        try:
            value = task.run(context, attempt.held.args)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = self._on_raise(attempt, error)
        else:
            outcome = self._on_return(attempt, value)
        attempt.end()
        self.finished(attempt, outcome)
