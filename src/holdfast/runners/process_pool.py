"""Runs handlers in a pool of processes. The worker imports no user code, so no handler can keep it from renewing its
leases, and a process that dies takes only what it ran with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.base import Runner, WorkerLink
from holdfast.runners.event_forwarding import Forwarder
from holdfast.runners.execution import forced
from holdfast.runners.pooled_process import PooledMessages, PooledProcess
from holdfast.runners.process_watcher import ProcessWatcher
from holdfast.runners.stacks import not_running
from holdfast.runners.wire import Configure, Garbled, Hello, Ready, StartFailed, ToWorker
from holdfast.settings import Settings
from holdfast.signals import Stopped
from holdfast.tasks.attempt import Attempt, emit_errored
from holdfast.tasks.manifest import Manifest, TaskInfo

# How the processes of a pool come and go: when one is started, and how one is stopped.

AGAIN = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before the next try, after so many processes that could not start
PARTING = 2.0  # seconds for a process that sends nothing more to end by itself
START_TICK = 0.1  # seconds between two looks whether the worker should stop


class StartSchedule:
    """When to start a process: at once in place of one that ran; later and later if none can start."""

    def __init__(self) -> None:
        self.failures = 0
        self.at: float | None = None  # monotonic; None: none is missing
        self.why = ""  # what the last process that could not start said about it

    def now(self) -> None:
        self.at = time.monotonic()

    def is_due(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def failed(self, how: str) -> float:
        """A process could not start. Returns when the next one is tried (monotonic)."""
        self.failures += 1
        wait = AGAIN[min(self.failures, len(AGAIN) - 1)]
        events.emit("runner_unfit", error=self.why or how, wait=wait)
        self.why = ""
        self.at = time.monotonic() + wait
        return self.at


def start_first(
    configure: Configure, wake: Callable[[], None], stopping: Callable[[], bool]
) -> tuple[PooledProcess, Hello]:
    """Start a process and wait until it has said what it can run. One that can't be started, or is killed while it
    imports the application, says nothing about that: another is tried, a little later each time."""
    schedule = StartSchedule()
    while not stopping():
        try:
            process = PooledProcess(configure, wake)
        except OSError as error:  # no more processes, memory or descriptors
            how = f"it could not be started: {error}"
        else:
            message = process.first_message(stopping)
            if isinstance(message, Hello):
                return process, message
            how = process.reap(0.0 if stopping() else PARTING)
            if isinstance(message, StartFailed):
                raise Arrivals(max_result=0, url=str(configure.settings.get("url", ""))).start_failed(message)
            if not process.was_killed:
                raise BadSettings(f"the application can't be run: its runner process {how} while it was imported")
            how = f"it {how} while it imported the application"
        if not stopping():
            again_at = schedule.failed(how)
            while time.monotonic() < again_at and not stopping():
                time.sleep(START_TICK)
    raise Stopped


MUTE = 5.0  # seconds an answer may be due before a process counts as stuck


def late_attempts(process: PooledProcess, grace: float) -> list[Attempt]:
    """Those that were asked to stop and have not, within the grace: their process takes no others, and is ended."""
    process.stops_pending = False  # before we look: whoever requests a stop from here on sets it again
    now = time.monotonic()
    asked = [attempt for attempt in process.table.all() if attempt.reason not in (None, "shutdown")]
    if asked:
        process.stops_pending = True
    return [attempt for attempt in asked if now - attempt.asked_at > grace]


def end_with(process: PooledProcess, late: list[Attempt], grace: float) -> None:
    """End a process because of attempts that don't stop. The others that run there are asked to stop and have as much
    time to finish as at a shutdown; then they are given back."""
    now, table = time.monotonic(), process.table
    beside = [attempt for attempt in table.all() if attempt not in late and table.marks.runs(attempt)]
    over = min(attempt.asked_at for attempt in late) + 2 * grace
    if not beside or process.withdrawals.silent_for() > MUTE or now > over + PARTING:
        if beside:
            events.emit("neighbours_released", pid=process.child.pid, count=len(beside))
        process.kill()
        return
    for attempt in beside:
        attempt.ask("shutdown")
        if now > over and not attempt.forced:
            attempt.force()


class Settlement:
    """Decides what becomes of the attempts of a process that is gone."""

    def __init__(self, link: WorkerLink, tasks: Mapping[str, TaskInfo]) -> None:
        self._link = link
        self._tasks = tasks

    def settle(self, process: PooledProcess, left: list[Attempt], cause: str) -> None:
        """Those that ran are suspects, unless we ended the process. If none ran, those are that had ended and did not
        get to report it. All others are given back."""
        marks = process.table.marks
        running = {attempt for attempt in left if marks.runs(attempt)}
        ended = {attempt for attempt in left if marks.has_ended(attempt)}
        suspects = set() if process.doomed else running or ended
        for attempt in left:
            begun = attempt in running or attempt in ended
            if begun:
                attempt.started, attempt.ended = attempt.started or attempt.taken, time.monotonic()
            outcome: Outcome | Crash | None
            if process.doomed and begun and attempt.must_stop:
                outcome = self._forced(process, attempt)
            elif attempt in suspects:
                text = f"its runner process {cause}{process.table.how_far(attempt)}"
                outcome = Crash(text, company=len(suspects) > 1)
            else:
                outcome = given_back(attempt.held, started=begun, recorded=marks.has_recorded(attempt))
            self._link.outcomes.finished(attempt, outcome)

    def _forced(self, process: PooledProcess, attempt: Attempt) -> Outcome | None:
        """It did not stop by itself when it was asked to."""
        outcome = forced(attempt, self._tasks[attempt.held.task])
        if outcome is None:
            return None
        outcome = replace(outcome, recorded=process.has_recorded(attempt))
        emit_errored(attempt.held, outcome, worker=self._link.worker)
        return outcome


# A pool of processes as the desk sees it: slots to fill.

SILENT = 1.0  # seconds an answer may be due before a process is given no more attempts, if there are other processes


class PooledRunner:
    """The slots for coroutines, or those for synchronous handlers, of all processes."""

    may_wait = True
    many = True

    def __init__(
        self, tasks: Sequence[TaskInfo], slots: int, *, is_async: bool, ready: Callable[[], tuple[PooledProcess, ...]],
        give_back: Callable[[Attempt], None],
    ) -> None:  # fmt: skip
        """`ready`: the processes that take attempts. `give_back` is called for what none of them takes."""
        self.manifest = Manifest(tuple(tasks))
        self.busy = 0
        self._ready = ready
        self._give_back = give_back
        self._slots = slots  # of one process
        self._is_async = is_async

    @property
    def slots(self) -> int:
        return self._slots * len(self._ready())

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Level the loads of the processes."""
        ready = self._ready()
        if len(ready) == 1 and ready[0].give(attempts, is_async=self._is_async):
            return
        left = list(attempts)
        able = [process for process in ready if process.withdrawals.silent_for() < SILENT]
        loads = {process: process.table.load(is_async=self._is_async) for process in able or ready}
        level = -(-(len(left) + sum(loads.values())) // max(1, len(loads)))
        for process in sorted(loads, key=lambda one: loads[one]):
            some = left[: max(0, level - loads[process])]
            if some and process.give(some, is_async=self._is_async):
                del left[: len(some)]
        for attempt in left:
            self._give_back(attempt)

    def waiting_since(self) -> float | None:
        """Without those that were already asked back."""
        is_async = self._is_async
        asked = [process for process in self._ready() if not process.withdrawals.is_pending(is_async=is_async)]
        since = [process.table.waiting_since(is_async=is_async) for process in asked]
        return min((at for at in since if at is not None), default=None)

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        """They come back later, as finished without an outcome."""
        processes = self._ready()
        share = None if most is None else -(-most // max(1, len(processes)))
        for process in processes:
            process.withdrawals.request(share, is_async=self._is_async)
        return []

    def close(self, timeout: float) -> None: ...


TICK = 0.2  # seconds between looks at attempts that were asked to stop
KILLING = 0.4  # seconds of a shutdown that are kept to kill processes which don't end by themselves
LISTENING = 0.5  # seconds for the application's listeners to hear the last events


class ProcessPool:
    suspect_runner: Runner | None = None

    def __init__(
        self, app: str, *, verbose: int = 0, stopping: Callable[[], bool] = lambda: False, **settings: Any
    ) -> None:
        """Starts the first process, and waits until it has said what it can run, and how many others there should
        be."""
        given = {name: value for name, value in settings.items() if value is not None}
        self._configure = Configure(app, verbose, given)
        self._watcher: ProcessWatcher[PooledProcess] = ProcessWatcher("holdfast-runners", self)
        self._first: PooledProcess | None
        self._first, hello = start_first(self._configure, self._watcher.wake, stopping)
        self.settings = Settings(**hello.settings)  # type: ignore[arg-type]
        self.tasks = hello.tasks
        self.runners = [
            PooledRunner(mine, slots, is_async=is_async, ready=self.ready, give_back=self._give_back)
            for is_async, slots in ((True, self.settings.concurrency), (False, self.settings.threads))
            if (mine := [task for task in self.tasks if task.is_async is is_async and task.isolation is None])
        ]
        self._arrivals = Arrivals(max_result=self.settings.max_result, url=self.settings.url)
        self._forwarder = Forwarder(self._watcher.wake)
        self._starts = StartSchedule()
        self._ready: tuple[PooledProcess, ...] = ()
        self._ever_ready = False  # some process was
        self._closing = False  # no process is started any more
        self._trouble: HoldfastError | None = None  # why it can't be opened

    # -- as the worker sees it -----------------------------------------------------------------------------------------

    def open(self, link: WorkerLink) -> None:
        self._link = link
        self._messages = PooledMessages(link, self._arrivals, self._forwarder)
        self._settlement = Settlement(link, {name: task for task in self.tasks for name in task.names})
        self._starts.now()
        self._watcher.start()
        changed = self._watcher.changed
        with changed:
            while self._trouble is None and not self._enough_ready() and not link.stopping():
                changed.wait(TICK)
        if self._trouble is not None:
            raise self._trouble

    def _enough_ready(self) -> bool:
        """All are ready; or some are, and another can't be started."""
        return len(self._ready) >= (1 if self._starts.failures else self.settings.processes)

    def ready(self) -> tuple[PooledProcess, ...]:
        return self._ready

    def _give_back(self, attempt: Attempt) -> None:
        """No process takes it."""
        self._link.outcomes.finished(attempt, None)

    def stack(self, attempt: Attempt) -> None:
        processes = list(self._watcher.processes)
        process = next((one for one in processes if one.table.get(attempt.number) is attempt), None)
        if process is None:
            self._link.stack_taken(attempt, not_running(attempt))
        else:
            process.request_stack(attempt)

    def abandon(self, seconds: float) -> None:
        self._closing = True
        for process in list(self._watcher.processes):
            process.kill()
        self._watcher.await_none(seconds)

    def close(self, end_by: float) -> None:
        self._forwarder.close(max(0.0, min(LISTENING, end_by - KILLING - time.monotonic())))
        self._closing = True
        if not self._watcher.started and self._first is not None:
            self._first.reap()
        for process in list(self._watcher.processes):
            if process.ready or process.retired:
                process.ask_to_end(max(0.0, end_by - KILLING - time.monotonic()))
            else:
                process.kill()  # it still imports or opens: there is nothing to end gracefully
        self._watcher.end_when_empty()
        if not self._watcher.await_none(end_by - KILLING - time.monotonic()):
            for process in list(self._watcher.processes):
                events.emit("runner_stuck", pid=process.child.pid)
                process.kill()
            self._watcher.await_none(end_by - time.monotonic())
        self._watcher.close(end_by - time.monotonic())

    # -- on the watcher's thread: starting and stopping processes ------------------------------------------------------

    def look(self) -> None:
        for process in self._watcher.processes:
            process.table.note_starts()
            if process.stops_pending and not process.doomed:
                self._stop_late(process)
        if self._starts.is_due() and not self._closing:
            self._starts.at = None
            try:
                for _ in range(self._missing()):
                    self._start_one()
            except OSError as error:  # no more processes, memory or descriptors
                self._starts.failed(f"it could not be started: {error}")
        self._forwarder.send(self._ready)

    def next_look_at(self) -> float | None:
        times = [] if self._starts.at is None or self._closing else [self._starts.at]
        if any(process.stops_pending or process.table.awaits_starts for process in self._watcher.processes):
            times.append(time.monotonic() + TICK)
        return min(times, default=None)

    def _missing(self) -> int:
        return self.settings.processes - sum(1 for process in self._watcher.processes if not process.retired)

    def _start_one(self) -> None:
        first, self._first = self._first, None
        process = first or PooledProcess(self._configure, self._watcher.wake)
        self._watcher.add(process)
        if first is not None:
            self._begin(process)
        if self._closing:  # since we decided to start it
            process.kill()

    def _begin(self, process: PooledProcess) -> None:
        timed = frozenset(name for task in self.tasks if task.timeout or task.progress_timeout for name in task.names)
        process.begin(self._link.worker, self.settings.max_result, timed)

    def _stop_late(self, process: PooledProcess) -> None:
        grace = self.settings.grace
        late = late_attempts(process, grace)
        if not late:
            return
        if process.ready:
            process.ready = False
            self._count_ready()
            for is_async in (True, False):
                process.withdrawals.request(None, is_async=is_async)
            events.emit("runner_retired", pid=process.child.pid, job=str(late[0].held.id), grace=grace)
            process.retired = True
            self._starts.now()  # another takes its place meanwhile
        end_with(process, late, grace)

    def _count_ready(self) -> None:
        with self._watcher.changed:
            self._ready = tuple(process for process in self._watcher.processes if process.ready)
            self._watcher.changed.notify_all()
        self._link.slots_changed()

    # -- on the watcher's thread: what processes send, and how they end ------------------------------------------------

    def received(self, process: PooledProcess, message: ToWorker) -> None:
        if process.opened:
            self._messages.received(process, message)
            return
        match message:
            case Hello(_, tasks) if not process.greeted:
                self._greeted(process, Manifest(tasks))
            case StartFailed():
                self._start_failed(self._arrivals.start_failed(message))
            case Ready(listens_to) if process.greeted:
                self._opened(process, listens_to)
            case _:
                raise Garbled("spoke out of turn")

    def _greeted(self, process: PooledProcess, manifest: Manifest) -> None:
        if manifest.names == Manifest(self.tasks).names:
            self._begin(process)
            return
        process.kill()
        self._closing = True
        self._link.give_up(BadSettings("the application has other tasks than when this worker started: start it anew"))

    def _start_failed(self, error: HoldfastError) -> None:
        """For the first processes this ends the worker. Later it is reported when the process has ended, together with
        when another is started."""
        if self._ever_ready:
            self._starts.why = str(error)
            return
        with self._watcher.changed:
            self._trouble = error
            self._watcher.changed.notify_all()

    def _opened(self, process: PooledProcess, listens_to: list[str] | None) -> None:
        try:
            self._forwarder.announced(listens_to)
        except BadSettings:
            raise Garbled("listens to events that there are not") from None
        self._starts.failures = 0
        self._ever_ready = True
        process.ready = process.opened = True
        self._count_ready()

    def disconnected(self, process: PooledProcess) -> None:
        process.disconnect()

    def ended(self, process: PooledProcess) -> None:
        left = process.take_all()
        was_ready = process in self._ready
        how = process.reap()
        self._forwarder.lost(process)
        self._settlement.settle(process, left, how)
        if not process.doomed:
            events.emit("runner_ended", pid=process.child.pid, how=how, held=len(left))
        process.retired = True  # it does not count any more
        self._count_ready()
        if not self._closing and self._trouble is None and self._missing():
            if not was_ready and not process.doomed:
                self._starts.failed(f"it {how} before it was ready")
            else:
                self._starts.now()

    def lost(self, process: PooledProcess, error: Exception) -> None:
        left = process.take_all()
        process.reap()  # nothing of it may run on when its jobs start again
        self._forwarder.lost(process)
        self._settlement.settle(process, left, f"could not be looked after: {type(error).__name__}")
        process.retired = True
        self._count_ready()
        self._starts.now()
