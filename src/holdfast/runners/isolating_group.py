"""A crew with, beside it, processes for one attempt each: for tasks that ask for that (`isolation="process"`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import BadSettings, HoldfastError
from holdfast.runners.base import Ends, Runner
from holdfast.runners.group import RunnerGroup
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt


def isolating(
    crew: RunnerGroup, app: Callable[[], str], store: Store, settings: Settings, *, suspects: bool = False
) -> RunnerGroup:
    """This crew, with what its tasks need. `app`: where a process of its own finds the application. `suspects`: jobs
    that were there at a crash run in such a process, too, whatever their task asks for."""
    if suspects or any(task.isolation is not None for task in crew.tasks):
        return IsolatingGroup(crew, app(), store, settings)
    return crew


class IsolatingGroup:
    def __init__(self, crew: RunnerGroup, app: str, store: Store, settings: Settings) -> None:
        from holdfast.runners.isolated import IsolatedRunner  # such a process itself does not need these
        from holdfast.runners.reaper_watch import Reaper

        self.tasks = crew.tasks
        self._crew = crew
        mine = [task for task in crew.tasks if task.isolation is not None]
        self.isolated = IsolatedRunner(app, mine, crew.tasks, store, settings)
        # Suspects have slots of their own: tasks that ask for a process never wait behind them, nor they behind those.
        self.solo = IsolatedRunner(app, (), crew.tasks, store, settings)
        self._reaper = Reaper()

    @property
    def misfit(self) -> Callable[[HoldfastError], None]:
        return self._crew.misfit

    @misfit.setter
    def misfit(self, called: Callable[[HoldfastError], None]) -> None:
        self._crew.misfit = called

    @property
    def stopping(self) -> bool:
        return self._crew.stopping

    @stopping.setter
    def stopping(self, value: bool) -> None:
        self._crew.stopping = value

    @property
    def answer(self) -> Callable[[Attempt, str], None]:
        return self._crew.answer

    @answer.setter
    def answer(self, called: Callable[[Attempt, str], None]) -> None:
        self._crew.answer = self.isolated.answer = self.solo.answer = called

    def stack(self, attempt: Attempt) -> None:
        if not self.isolated.ask_where(attempt) and not self.solo.ask_where(attempt):
            self._crew.stack(attempt)

    @property
    def runners(self) -> Sequence[Runner]:
        return [*self._crew.runners, *([self.isolated] if self.isolated.manifest.tasks else [])]

    def open(self, worker: str, ends: Ends, lock: int | None, slots_changed: Callable[[], None]) -> None:
        self._reaper.start(lock)
        self._crew.open(worker, ends, lock, slots_changed)
        self.isolated.open(worker, ends)
        self.solo.open(worker, ends)
        self._reaper.await_adopting(lambda: self.stopping)

    def abandon(self, seconds: float) -> None:
        for crew in (self._crew, self.isolated, self.solo):
            crew.abandon(seconds / 3)

    def close(self, end_by: float) -> None:
        for runner in (self.isolated, self.solo):
            runner.close(max(0.0, end_by - time.monotonic()) / 3)
        self._crew.close(end_by)
        for runner in (self.isolated, self.solo):
            runner.clear_away(max(0.0, end_by - time.monotonic()))
        self._reaper.stop()


def reference_of(app: object) -> str:
    """Where another process finds this application: `module:name`, or `file.py:name` of the program that runs."""
    found = [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    for module, name in sorted(found, key=lambda place: place[0].__name__ == "__main__"):
        place = module.__name__
        if place == "__main__":
            spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
            place = spec.name if spec is not None else str(Path(file).absolute()) if file else ""
        if place:
            return f"{place}:{name}"
    raise BadSettings(
        'tasks with isolation="process" run in processes that import this application, and it is not to be found: '
        "give it a name at the top of a module or of the program's file, as in `hf = Holdfast()`",
        number="HF1114",
    )
