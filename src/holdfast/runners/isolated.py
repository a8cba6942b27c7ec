"""Runs each attempt in a process of its own: started for it, held to its limits, ended with everything it started."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.base import Runner, RunnerGroup, Unstarted, WorkerLink
from holdfast.runners.isolated_process import IsolatedProcess
from holdfast.runners.process_watcher import ProcessWatcher
from holdfast.runners.wire import (
    Ask,
    Began,
    Ended,
    FindStep,
    Garbled,
    KeepStep,
    Progressed,
    RecordsSuccess,
    Reply,
    Run,
    SaveCheckpoint,
    Stack,
    StartFailed,
    StoreRequest,
    ToWorker,
)
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.tasks.attempt import Attempt, emit_errored
from holdfast.tasks.manifest import Manifest, TaskInfo

# The worker's side of the store proxy: what isolated processes want stored, each for its own attempt.


class StoreRequests:
    def __init__(self, store: Store, arrivals: Arrivals, helpers: Executor) -> None:
        """`helpers`: threads that wait for the database, so that the watcher's thread does not."""
        self._store = store
        self._arrivals = arrivals
        self._helpers = helpers

    def received(self, process: IsolatedProcess, ask: Ask) -> None:
        process.check_room()
        if isinstance(ask.request, RecordsSuccess):
            # At once: the handler has a transaction open, and on SQLite all helpers may be waiting for its end.
            process.attempt.recorded = True
            process.send(Reply(ask.number, None, None))
            return
        if not process.requests.acquire(blocking=False):
            raise Garbled("asked for more than it may at once")
        with suppress(RuntimeError):  # we are closed: nobody is left to wait for a reply
            self._helpers.submit(self._serve, process, ask)

    def _serve(self, process: IsolatedProcess, ask: Ask) -> None:
        """On a helper's thread: store it under the attempt's own lease, whatever the request says."""
        held = process.attempt.held
        try:
            value = self._perform(Ref(held.id, held.fence), ask.request)
        except HoldfastError as error:
            reply = Reply(ask.number, None, (type(error).__name__, error.message, error.number))
        except Exception as error:  # noqa: BLE001 - the process waits for a reply, whatever it is
            reply = Reply(ask.number, None, ("HoldfastError", f"{type(error).__name__}: {error}", HoldfastError.number))
        else:
            process.attempt.moved = time.monotonic()
            reply = Reply(ask.number, value, None)
        process.requests.release()  # before it gets the reply, and sends the next request
        process.send(reply)

    def _perform(self, ref: Ref, request: StoreRequest) -> Any:
        match request:
            case SaveCheckpoint(state, pending, done):
                return self._store.attempts.checkpoint(
                    ref, None if state is None else self._arrivals.kept(state), pending, done
                )
            case FindStep(name):
                return self._store.attempts.step(ref, name)
            case KeepStep(name, result):
                return self._store.attempts.keep_step(ref, name, self._arrivals.kept(result))
            case RecordsSuccess():
                return None


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
                    output = process.written(self._settings.url)
                    self._link.stack_taken(process.attempt, self._arrivals.stack(held, stack, output))
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


# A group of runners, and beside it a process for each attempt of tasks that ask for that (`isolation="process"`).


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
