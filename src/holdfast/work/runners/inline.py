"""What the runners inside the worker's own process share: the handlers by name, what waits for a slot, and the
decision what follows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from holdfast.model.outcome import Error, Outcome, clean
from holdfast.redact import hiding
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.work.attempt import Attempt
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
        self.worker = ""  # whose it is, for log lines
        self.manifest = manifest_of(settings.url, tasks)
        self._handlers = {name: task for task in tasks for name in (task.name, *task.defaults.aliases)}
        self._store = store
        self._settings = settings
        self._finished = finished
        # Filled by the desk, emptied by slots; each attempt is taken out once, by whoever comes first.
        self._waiting: deque[Attempt] = deque()

    def waiting_since(self) -> float | None:
        try:
            return self._waiting[0].taken
        except IndexError:
            return None

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        back: list[Attempt] = []
        try:
            while most is None or len(back) < most:
                back.append(self._waiting.pop())
        except IndexError:
            pass  # that was all
        return back

    def _on_return(self, attempt: Attempt, value: object) -> Outcome | None:
        policy = self._handlers[attempt.held.task].defaults.retry
        return _surely(attempt, lambda: on_return(attempt, value, policy, max_result=self._settings.max_result))

    def _on_raise(self, attempt: Attempt, error: BaseException) -> Outcome | None:
        task = self._handlers[attempt.held.task]

        def decide() -> Outcome | None:
            hide = hiding(attempt.held.args, task.secrets, self._settings.url)
            return on_raise(attempt, error, task.defaults.retry, hide)

        return _surely(attempt, decide)


def _surely(attempt: Attempt, decide: Callable[[], Outcome | None]) -> Outcome | None:
    """An attempt without an outcome would be held for ever: if even deciding fails, that is the outcome."""
    try:
        return decide()
    except Exception as broken:  # noqa: BLE001 - values and errors of users may raise anything when looked at
        told = Error("UNDECIDED", clean(f"what it left can't be made sense of: {type(broken).__name__}"))
        return Outcome("fail", attempt.held.id, attempt.held.fence, "errored", error=told)
