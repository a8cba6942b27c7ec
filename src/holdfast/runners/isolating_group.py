"""A group of runners, and beside it a process for each attempt of tasks that ask for that (`isolation="process"`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.errors import BadSettings
from holdfast.runners.base import Runner, RunnerGroup, WorkerLink
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt


def with_isolation(
    group: RunnerGroup, app: Callable[[], str], store: Store, settings: Settings, *, suspects: bool = False
) -> RunnerGroup:
    """This group, and isolated processes if its tasks need them. `app`: where such a process finds the application.
    `suspects`: jobs that were in flight at a crash run isolated, too, whatever their task asks for."""
    if suspects or any(task.isolation is not None for task in group.tasks):
        return IsolatingGroup(group, app(), store, settings)
    return group


class IsolatingGroup:
    def __init__(self, group: RunnerGroup, app: str, store: Store, settings: Settings) -> None:
        from holdfast.runners.isolated import IsolatedRunner  # an isolated process itself does not need these
        from holdfast.runners.reaper_watch import Reaper

        self.tasks = group.tasks
        self._group = group
        mine = [task for task in group.tasks if task.isolation is not None]
        self._isolated = IsolatedRunner(app, mine, group.tasks, store, settings)
        # Suspects have slots of their own, so neither they nor tasks that ask for isolation wait for the other.
        self.suspect_runner = IsolatedRunner(app, (), group.tasks, store, settings)
        self._reaper = Reaper()

    @property
    def runners(self) -> Sequence[Runner]:
        return [*self._group.runners, *([self._isolated] if self._isolated.manifest.tasks else [])]

    def open(self, link: WorkerLink) -> None:
        self._reaper.start(link.lock)
        self._group.open(link)
        self._isolated.open(link)
        self.suspect_runner.open(link)
        self._reaper.await_adopting(link.stopping)

    def stack(self, attempt: Attempt) -> None:
        if not self._isolated.request_stack(attempt) and not self.suspect_runner.request_stack(attempt):
            self._group.stack(attempt)

    def abandon(self, seconds: float) -> None:
        for part in (self._group, self._isolated, self.suspect_runner):
            part.abandon(seconds / 3)

    def close(self, end_by: float) -> None:
        for runner in (self._isolated, self.suspect_runner):
            runner.close(max(0.0, end_by - time.monotonic()) / 3)
        self._group.close(end_by)
        for runner in (self._isolated, self.suspect_runner):
            runner.await_clean_up(max(0.0, end_by - time.monotonic()))
        self._reaper.stop()


def reference_of(app: object) -> str:
    """Where another process finds this application: `module:name`, or `file.py:name` of the running program."""
    found = [
        (module, name)
        for module in list(sys.modules.values())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    for module, name in sorted(found, key=lambda pair: pair[0].__name__ == "__main__"):
        where = module.__name__
        if where == "__main__":
            spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
            where = spec.name if spec is not None else str(Path(file).absolute()) if file else ""
        if where:
            return f"{where}:{name}"
    raise BadSettings(
        'tasks with isolation="process" run in processes that import this application, and it is not to be found: '
        "give it a name at the top of a module or of the program's file, as in `hf = Holdfast()`",
        number="HF1114",
    )
