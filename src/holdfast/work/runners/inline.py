"""What the runners inside the worker's own process share: the handlers by name, and the decision what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.model.outcome import Error, Outcome, clean
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.work.attempt import Attempt
from holdfast.work.context import JobContext
from holdfast.work.manifest import manifest_of
from holdfast.work.runners.decide import on_raise, on_return
from holdfast.work.tasks import Task

Finished = Callable[[Attempt, Outcome | None], None]


class InlineRunner:
    def __init__(
        self, slots: int, tasks: Iterable[Task[..., object]], store: Store, settings: Settings, finished: Finished
    ) -> None:
        tasks = list(tasks)
        self.slots = slots
        self.busy = 0
        self.manifest = manifest_of(settings.url, tasks)
        self._handlers = {name: task for task in tasks for name in (task.name, *task.defaults.aliases)}
        self._store = store
        self._settings = settings
        self._finished = finished

    def _handler(self, attempt: Attempt) -> Task[..., object]:
        return self._handlers[attempt.held.task]

    def _context(self, attempt: Attempt) -> JobContext:
        return JobContext.of(attempt, self._store, self._settings)

    def _on_return(self, attempt: Attempt, value: object) -> Outcome | None:
        policy = self._handler(attempt).defaults.retry
        return _surely(attempt, lambda: on_return(attempt, value, policy, max_result=self._settings.max_result))

    def _on_raise(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        return _surely(attempt, lambda: on_raise(attempt, error, self._handler(attempt).defaults.retry))


def _surely(attempt: Attempt, decide: Callable[[], Outcome | None]) -> Outcome | None:
    """An attempt without an outcome would be held for ever: if even deciding fails, that is the outcome."""
    try:
        return decide()
    except Exception as broken:  # noqa: BLE001 - values and errors of users may raise anything when looked at
        told = Error("UNDECIDED", clean(f"what it left can't be made sense of: {type(broken).__name__}"))
        return Outcome("fail", attempt.held.id, attempt.held.fence, "errored", error=told)
