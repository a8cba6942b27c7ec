"""Runs synchronous handlers on threads. A thread can't be stopped from outside: a handler is told through its context,
and its slot and lease are kept until it returns."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Sequence
from contextvars import copy_context

from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.work.attempt import Attempt
from holdfast.work.context import JobContext, current
from holdfast.work.manifest import manifest_of
from holdfast.work.runners.decide import on_raise, on_return
from holdfast.work.runners.loop import Finished, handlers
from holdfast.work.tasks import Task


class ThreadRunner:
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings, finished: Finished
    ) -> None:
        self.slots = slots
        self.busy = 0
        self._by_name = handlers(tasks)
        self.manifest = manifest_of(settings.url, set(self._by_name.values()))
        self._store = store
        self._settings = settings
        self._finished = finished
        self._waiting: queue.SimpleQueue[Attempt | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._waiting.put(attempt)
        for _ in range(min(len(attempts), self.slots - len(self._threads))):
            name = f"holdfast-thread-{len(self._threads) + 1}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self, timeout: float) -> None:
        """End the threads that are free; the others end with their handler, or with the process."""
        for _ in self._threads:
            self._waiting.put(None)

    def _serve(self) -> None:
        while (attempt := self._waiting.get()) is not None:
            copy_context().run(self._run, attempt)

    def _run(self, attempt: Attempt) -> None:
        if attempt.reason is not None:
            self._finished(attempt, None)  # given back before it began
            return
        attempt.begin()
        handler = self._by_name[attempt.held.task]
        context = JobContext.of(attempt, self._store, self._settings)
        current.set(context)
        try:
            value = handler.run(context, attempt.held.args)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = on_raise(attempt, error, handler.defaults.retry)
        else:
            outcome = on_return(attempt, value, handler.defaults.retry, max_result=self._settings.max_result)
        self._finished(attempt, outcome)
