"""Signals that ask a worker to stop, received from the first moment of its program to the last.

Python writes every signal to a pipe when it arrives, and a thread here reads it. So a signal is received whatever the
main thread does, be it importing an application or waiting for a database; and the process ends in time, whatever
hangs."""

from __future__ import annotations

import atexit
import math
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Protocol

COMMANDS = frozenset(["worker", "drain"])
AFTER_GRACE = 1.4  # seconds after the grace when the process ends at the latest; two are promised


class Stopped(Exception):
    """Asked to stop before anything had begun."""


class Stoppable(Protocol):
    grace: float

    def stop(self) -> int:
        """Called from a thread of its own. Returns how often it was called."""


class StopRequests:
    """Tells one request from the next: several signals may mean only one."""

    def __init__(self) -> None:
        self._asked = self._hung_up = False

    def is_new(self, number: int) -> bool:
        hang_up = number == signal.SIGHUP
        if self._asked and (self._hung_up or hang_up):
            # A service manager may send a hang-up with the other signal, in any order: that is one request.
            self._hung_up = self._hung_up and hang_up
            return False
        self._asked, self._hung_up = True, hang_up
        return True


class Signals:
    """From here on, no stop signal kills this process. Until `begin` it ends at once, with status 0: nothing was
    started yet."""

    def __init__(self) -> None:
        self.asked = 0
        self._requests = StopRequests()
        self._lock = threading.Lock()
        self._begun = False
        self._worker: Stoppable | None = None
        self._end_by = math.inf  # monotonic
        self._inside, outside = os.pipe()
        os.set_blocking(outside, False)
        self._numbers = stop_signals()
        for number in self._numbers:
            signal.signal(number, _leave_to_thread)
        signal.set_wakeup_fd(outside, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forked)
        threading.Thread(target=self._listen, name="holdfast-signals", daemon=True).start()

    def begin(self) -> None:
        """From here on there is something to end gracefully: whoever waits has to look at `asked`."""
        with self._lock:
            self._begun = True

    def serve(self, worker: Stoppable) -> None:
        """This worker is stopped by signals from now on."""
        with self._lock:
            self._worker = worker
            for _ in range(self.asked):
                worker.stop()

    def over(self) -> None:
        """It has stopped, so further requests change nothing. (Python removes its own handlers before it ends; an
        ignored signal stays ignored.)"""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def _listen(self) -> None:
        readable = select.poll()
        readable.register(self._inside, select.POLLIN)
        while True:
            left = self._end_by - time.monotonic()
            if readable.poll(None if left == math.inf else max(0.0, left) * 1000):
                for number in os.read(self._inside, 4096):
                    if number in self._numbers and self._requests.is_new(number):
                        self._ask()
            elif time.monotonic() >= self._end_by:
                # Something hangs. The processes it started end with it; other workers rescue its jobs.
                with suppress(OSError):
                    os.write(2, b"stopped: something did not end in time\n")
                os._exit(0)

    def _ask(self) -> None:
        with self._lock:
            self.asked += 1
            if not self._begun:
                os._exit(0)
            worker = self._worker
            times = 1 if worker is None else worker.stop()
        grace = 0.0 if worker is None or times > 1 else worker.grace
        self._end_by = min(self._end_by, time.monotonic() + grace + AFTER_GRACE)
        if worker is not None and times == 1:
            text = f"stopping: running jobs get up to {grace:g} s; once more, and they are given back\n"
            # Not through a stream: another thread may be in the middle of a write to it, and wait there.
            with suppress(OSError):  # the terminal is gone
                os.write(2, text.encode())

    def _forked(self) -> None:
        """What an application forks is an ordinary program: signals end it, and stop nothing else."""
        signal.set_wakeup_fd(-1)
        for number in self._numbers:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_to_thread(number: int, frame: object) -> None:
    """Python writes a signal to the pipe only if it has a handler."""


_signals: Signals | None = None


def signals() -> Signals:
    """The one object of this process."""
    global _signals
    _signals = _signals or Signals()
    return _signals


def heed_early() -> None:
    """If this program is a worker: call this before it imports anything that takes long."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if command in COMMANDS:
        signals()


def leave_if_heeded(code: object) -> None:
    """End a worker's program without the time that Python takes to shut down and to wait for threads. Functions
    registered with `atexit` are called."""
    if _signals is not None and isinstance(code, int):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


def stop_signals() -> list[signal.Signals]:
    """Those that ask a process to stop. Closing its terminal does, unless the process should outlive it (nohup)."""
    asked = [signal.SIGTERM, signal.SIGINT]
    return asked if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*asked, signal.SIGHUP]
