"""Runs each attempt in a process of its own: started for it, held to its limits, ended with everything it started."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

from holdfast import events
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.base import Unstarted, WorkerLink
from holdfast.runners.isolated_process import IsolatedProcess
from holdfast.runners.messages import Ask, Began, Ended, Progressed, Run, Stack, StartFailed, ToWorker
from holdfast.runners.process_watcher import ProcessWatcher
from holdfast.runners.store_requests import StoreRequests
from holdfast.runners.wire import Garbled
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored
from holdfast.tasks.manifest import Manifest, TaskInfo

NOT_STARTED = 5.0  # seconds until a job is tried again for which the system had no process
HELPERS = 4  # threads that use the database for isolated processes, and remove their directories


class IsolatedRunner:
    """It is offered jobs of `tasks`, and can run an attempt of any of `others`, too."""

    may_wait = False  # each attempt needs a process, which takes a while to start
    many = False

    def __init__(
        self, app: str, tasks: Iterable[TaskInfo], others: Iterable[TaskInfo], store: Store, settings: Settings,
    ) -> None:  # fmt: skip
        mine = tuple(tasks)
        self.slots = settings.isolated
        self.busy = 0
        self.manifest = Manifest(mine)
        self._app = app
        self._infos = {name: task for task in (*others, *mine) for name in task.names}
        self._settings = settings
        self._unstarted = Unstarted()
        self._watcher: ProcessWatcher[IsolatedProcess] = ProcessWatcher("holdfast-isolated", self)
        self._arrivals = Arrivals(max_result=settings.max_result, url=settings.url)
        self._helpers = ThreadPoolExecutor(HELPERS, "holdfast-helper")
        self._requests = StoreRequests(store, self._arrivals, self._helpers)
        self._removals: set[Future[None]] = set()  # of directories, under way
        self._closing = False  # no process is started any more
        self._doomed = False  # all are killed

    # -- as the desk and the group see it ------------------------------------------------------------------------------

    def open(self, link: WorkerLink) -> None:
        self._link = link
        self._watcher.start()

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._unstarted.extend(attempts)
        self._watcher.wake()

    def waiting_since(self) -> float | None:
        return self._unstarted.since()

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        return self._unstarted.withdraw(most)

    def request_stack(self, attempt: Attempt) -> bool:
        """Ask where its handler is: `stack_taken` is called. False: it does not run here."""
        process = next((one for one in list(self._watcher.processes) if one.attempt is attempt), None)
        if process is not None:
            process.request_stack()
        return process is not None

    def abandon(self, seconds: float) -> None:
        """Kill all processes now."""
        self._doomed = True
        self._watcher.wake()
        self._watcher.await_none(seconds)

    def close(self, timeout: float = 2.0) -> None:
        """No attempt may run any more."""
        self._closing = self._doomed = True
        self._watcher.close(timeout)
        self._helpers.shutdown(wait=False)

    def await_clean_up(self, seconds: float) -> None:
        """Wait so long until the directories of all attempts are removed. Nothing removes them after this process."""
        wait(list(self._removals), seconds)

    # -- on the watcher's thread ---------------------------------------------------------------------------------------

    def look(self) -> None:
        for process in list(self._watcher.processes):
            try:
                if self._doomed:
                    process.kill()
                process.stops.step()
            except Exception as error:  # noqa: BLE001 - one process must not keep the others from being looked after
                self._watcher.drop(process, error)
        while len(self._watcher.processes) < self.slots and not self._closing:
            try:
                attempt = self._unstarted.popleft()
            except IndexError:  # none is left
                return
            if attempt.not_to_begin:
                self._link.outcomes.finished(attempt, None)  # given back
            else:
                self._start(attempt)

    def next_look_at(self) -> float | None:
        times = [at for process in self._watcher.processes if (at := process.stops.next_step_at()) is not None]
        return min(times, default=None)

    def _start(self, attempt: Attempt) -> None:
        try:
            process = IsolatedProcess(attempt, self._infos[attempt.held.task], self._settings, self._watcher.wake)
        except OSError as error:  # no more processes, memory or descriptors: that is not the job's fault
            why = f"no process could be started for job {attempt.held.id}: {error}"
            events.emit("unavailable", error=why, wait=NOT_STARTED)
            self._link.outcomes.finished(attempt, given_back(attempt.held, started=False, delay=NOT_STARTED))
            return
        self._watcher.add(process)
        attempt.remote = process
        attempt.hide = self._arrivals.hiding(attempt.held)
        try:
            process.send(self._run(process))
        except Exception:
            process.kill()  # it ends without having begun, which is its outcome
            raise

    def _run(self, process: IsolatedProcess) -> Run:
        settings: dict[str, Any] = asdict(self._settings)
        if not process.database:
            del settings["url"]
        attempt = process.attempt
        path = [str(entry) for entry in sys.path]
        return Run(
            self._app, path, settings, attempt.held, attempt.timeout, process.info.progress_timeout, self._link.worker,
            process.database, attempt.begin_by,
        )  # fmt: skip

    def received(self, process: IsolatedProcess, message: ToWorker) -> None:
        held = process.attempt.held
        match message:
            case Began():
                process.began()
            case Progressed(progress):
                for _, done, total, note in progress:
                    process.progressed((done, total, note))
            case Ask():
                self._requests.received(process, message)
            case Stack(_, stack):
                if process.stack_received():
                    self._link.stack_taken(process.attempt, self._arrivals.stack(held, stack))
            case Ended(outcome):
                process.ended(self._arrivals.outcome(held, outcome))
            case StartFailed():
                process.start_error = self._arrivals.start_failed(message, held.args)
            case _:
                raise Garbled("sent what only a pooled process sends")

    def disconnected(self, process: IsolatedProcess) -> None:
        if process.channel.broken:
            process.garbled()

    def ended(self, process: IsolatedProcess) -> None:
        end = process.child.reap()
        assert end is not None
        outcome = process.outcome(end, self._settings.url)
        if process.directory is not None:
            self._remove(process.directory)
        if isinstance(outcome, Outcome):
            reported = process.reported_error
            worker = None if reported else self._link.worker
            emit_errored(process.attempt.held, outcome, worker=worker, log_only=reported)
        self._finish(process, outcome)

    def lost(self, process: IsolatedProcess, error: Exception) -> None:
        if process.attempt.remote is not None:
            cause = f"its process could not be looked after: {type(error).__name__}"
            self._finish(process, Crash(cause, company=False))

    def _finish(self, process: IsolatedProcess, outcome: Outcome | Crash | None) -> None:
        attempt = process.attempt
        attempt.remote = None
        if attempt.started:
            attempt.end()
        self._link.outcomes.finished(attempt, outcome)

    def _remove(self, directory: str) -> None:
        try:
            removal = self._helpers.submit(shutil.rmtree, directory, ignore_errors=True)
        except RuntimeError:  # we were closed before its process had ended
            shutil.rmtree(directory, ignore_errors=True)
            return
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
