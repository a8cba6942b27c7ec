"""Keeps a reaper running beside a worker whose handlers run in processes: see reaper.py for what it does."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast import events
from holdfast.runners import reaper
from holdfast.runners.linux import adopt_orphans, process_of
from holdfast.runners.spawn import all_reaped, family, reap_adopted

NEEDED = ("LD_LIBRARY_PATH", "PYTHONHOME")  # all of the environment that a Python may need to start
AGAIN = (0.0, 1.0, 5.0, 30.0)  # seconds before another one is started, after so many have ended
TICK = 5.0  # seconds between two looks for adopted orphans that have ended
ADOPTING = 5.0  # seconds at most until this process adopts orphans: a small Python has to start first


class Reaper:
    """Starts a reaper, and another one if it ends before the worker does. Only on Linux: elsewhere there is no
    /proc."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None  # it detaches itself from this one
        self._pipe: int | None = None
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._adopting = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="holdfast-reaper", daemon=True)

    def start(self, lock: int | None) -> None:
        """Once this has returned, the worker may be killed: a reaper that is still starting will notice. `lock`: the
        descriptor that says the worker lives."""
        if sys.platform.startswith("linux"):
            self._lock = lock
            self._start_one()
            self._thread.start()
        else:
            self._adopting.set()

    def await_adopting(self, stopping: Callable[[], bool]) -> None:
        """Handlers may start programs once this has returned. Before that, an orphan of theirs would become a child of
        init, where nobody looks for it."""
        deadline = time.monotonic() + ADOPTING
        while not self._adopting.wait(0.05) and time.monotonic() < deadline and not stopping():
            pass

    def stop(self) -> None:
        """The worker ends gracefully. If a child process of this program is left, the reaper stays until the program
        itself has ended."""
        with self._starting:
            self._stopping.set()
            if self._pipe is not None and all_reaped():
                with suppress(OSError):  # it has ended meanwhile
                    os.write(self._pipe, b"!")
                os.close(self._pipe)
                self._pipe = None

    def _watch(self) -> None:
        ends = 0
        while not self._stopping.is_set():
            pid = b"" if self._process is None else self._process.communicate()[0]
            # Not before the reaper has detached itself: we would adopt it.
            adopt_orphans(os.getpid())
            self._adopting.set()
            if pid:
                _wait_for_the_end_of(int(pid))
                if self._stopping.is_set():
                    return
                events.emit("reaper_ended")
            if not self._stopping.wait(AGAIN[min(ends, len(AGAIN) - 1)]):
                ends += 1
                self._start_one()

    def _start_one(self) -> None:
        with self._starting:
            if self._stopping.is_set():
                return
            try:
                self._process = self._started()
            except OSError as error:  # no more processes, memory or descriptors
                self._process = None
                events.emit("reaper_missing", error=str(error))

    def _started(self) -> subprocess.Popen[bytes]:
        if self._pipe is not None:
            os.close(self._pipe)
        theirs, self._pipe = os.pipe()
        passed = [theirs]
        try:
            if self._lock is not None:
                passed.append(self._lock)
            ourselves = -1
            if hasattr(os, "pidfd_open"):
                with suppress(OSError):
                    ourselves = os.pidfd_open(os.getpid())
                    passed.append(ourselves)
            # It reads its program from stdin, so that `pkill -9 -f holdfast` does not find our name in its command
            # line.
            worker = process_of(os.getpid())
            since = 0 if worker is None else worker.started
            values = map(str, ("reaper", os.getpid(), family(os.getpid()), theirs, ourselves, since))
            with Path(reaper.__file__).open("rb") as program:
                return subprocess.Popen(  # noqa: S603 - our own command
                    [sys.executable, "-S", "-P", "-", *values],
                    env={name: os.environ[name] for name in NEEDED if name in os.environ}, cwd="/", stdin=program,
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=passed, start_new_session=True,
                )  # fmt: skip
        finally:
            for descriptor in passed:
                if descriptor != self._lock:
                    os.close(descriptor)


def _wait_for_the_end_of(pid: int) -> None:
    """Reaps adopted orphans while it waits."""
    with suppress(AttributeError, OSError):  # it has ended, or the kernel has no pidfds
        ended = select.poll()
        descriptor = os.pidfd_open(pid)
        ended.register(descriptor, select.POLLIN)
        while not ended.poll(TICK * 1000):
            reap_adopted()
        os.close(descriptor)
    while (process := process_of(pid)) is not None and not process.ended:
        time.sleep(0.1)
    with suppress(ChildProcessError):  # only a reaper that replaced another is our child
        os.waitpid(pid, os.WNOHANG)
