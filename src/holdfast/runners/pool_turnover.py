"""How the processes of a pool come and go: when one is started, and how one is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import BadSettings
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.base import WorkerLink
from holdfast.runners.decide import forced
from holdfast.runners.messages import Configure, Hello, StartFailed
from holdfast.runners.pooled_process import PooledProcess
from holdfast.signals import Stopped
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored
from holdfast.tasks.manifest import TaskInfo

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
