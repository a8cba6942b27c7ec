"""How pooled processes are started: the first one before the worker knows its tasks, others in place of those that
ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast import events
from holdfast.errors import BadSettings
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.messages import Configure, Hello, StartFailed
from holdfast.runners.pooled_process import PooledProcess
from holdfast.signals import Stopped

AGAIN = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before the next try, after so many processes that could not start
PARTING = 2.0  # seconds for a process that sends nothing more to end by itself
TICK = 0.1  # seconds between two looks whether the worker should stop


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
                time.sleep(TICK)
    raise Stopped
