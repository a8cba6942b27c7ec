"""An isolated process as its worker sees it: it runs one attempt, reports what became of it, and ends."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from holdfast.errors import UNGUARDED, HoldfastError
from holdfast.model.isolation import child_environment
from holdfast.model.outcome import Crash, Error, Outcome, Progress, errored, kept
from holdfast.redact import hiding
from holdfast.runners.attempt_table import how_far
from holdfast.runners.capture import Capture
from holdfast.runners.child_setup import ChildSetup
from holdfast.runners.execution import forced
from holdfast.runners.spawn import Child, ExitStatus, spawn
from holdfast.runners.wire import REQUESTS, Channel, Garbled, Stop, TakeStack, ToRunner
from holdfast.settings import Settings
from holdfast.tasks.attempt import Attempt, is_error
from holdfast.tasks.manifest import TaskInfo

# How an attempt in a process of its own is stopped: it is asked; when its time is over, it is interrupted and its
# process group gets SIGTERM; at last SIGKILL.

TERM = 5.0  # seconds after SIGTERM until SIGKILL
AGAIN = 1.0  # seconds until a process that has not ended is killed once more
STARTING = 60.0  # seconds to import the application and open resources
CLOSING = 10.0  # seconds for the process to clean up, once its handler is done
AT_ONCE = ("timeout", "stalled", "lost")  # reasons that don't wait for the handler to reach a good place


class StopSequence:
    def __init__(self, attempt: Attempt, child: Child, channel: Channel, grace: float) -> None:
        self._attempt = attempt
        self._child = child
        self._channel = channel
        self._grace = grace
        self._sent: tuple[Any, bool] = (None, False)  # the last stop request that was sent
        self._spawned = time.monotonic()
        self._term_at: float | None = None  # when SIGTERM was sent
        self._close_by: float | None = None  # its handler is done: when the process should have ended
        self._killed_at: float | None = None

    def step(self) -> None:
        """Pass on what was requested of the attempt, and enforce it when its time is over."""
        attempt, now = self._attempt, time.monotonic()
        late = (at := self._force_at()) is not None and now >= at
        forced = attempt.forced or attempt.reason in AT_ONCE or late or self._term_at is not None
        request = (attempt.reason, forced)
        if attempt.reason is not None and request != self._sent and self._close_by is None:
            self._sent = request
            self._channel.send(Stop(0, *request))
            if forced and self._term_at is None:
                self._term_at = now
                self._child.terminate()
        at = self._kill_at()
        if at is not None and now >= at:
            self.kill()

    def next_step_at(self) -> float | None:
        times = [at for at in (self._kill_at(), self._force_at()) if at is not None]
        return min(times, default=None)

    def _kill_at(self) -> float | None:
        if self._killed_at is not None:
            return self._killed_at + AGAIN
        term = None if self._term_at is None else self._term_at + min(TERM, self._grace)
        begin_by = None if self._attempt.started else self._spawned + STARTING
        times = [at for at in (term, self._close_by, begin_by) if at is not None]
        return min(times, default=None)

    def _force_at(self) -> float | None:
        asked = self._attempt.reason in ("cancel", "pause") and self._term_at is None and self._close_by is None
        return self._attempt.asked_at + self._grace if asked else None

    def handler_done(self) -> None:
        self._close_by = time.monotonic() + CLOSING

    def kill(self) -> None:
        self._killed_at = time.monotonic()
        self._child.kill()

    @property
    def terminated(self) -> bool:
        """Was SIGTERM sent?"""
        return self._term_at is not None

    @property
    def never_began(self) -> bool:
        """Was it killed because it took too long to start?"""
        late = self._killed_at is not None and self._killed_at >= self._spawned + STARTING
        return late and not self._attempt.started


REPLY = 64 * 1024  # bytes of a reply, besides a step's result
PROGRAM = [sys.executable, "-m", "holdfast.isolated_main"]


class IsolatedProcess:
    """Starts when it is created, by a thread that outlives it. A task that asked for isolation gets little of our
    environment, and its output is kept; a suspect, which is only isolated this once, gets what it is used to."""

    def __init__(self, attempt: Attempt, info: TaskInfo, settings: Settings, wake: Callable[[], None]) -> None:
        self.attempt = attempt
        self.info = info
        asked = info.isolation is not None
        self.database = info.database or not asked
        self.start_error: HoldfastError | None = None
        self.requests = threading.BoundedSemaphore(REQUESTS)  # taken by requests that were not answered yet
        self._room = REQUESTS * (settings.max_result + REPLY)
        self._wake = wake
        self._stack_requested = False
        self._progress: Progress | None = None
        self._done = False  # its handler is
        self._outcome: Outcome | None = None
        self.directory: str | None = None
        self.output: Capture | None = None
        with ExitStack() as undo:
            if asked:
                self.directory = tempfile.mkdtemp(prefix="holdfast-")
                undo.callback(os.rmdir, self.directory)
                self.output = Capture()
                undo.callback(self.output.close)
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            try:
                self.child = spawn(
                    [*PROGRAM, str(theirs.fileno())], env=self._environment(),
                    setup=ChildSetup(parent=0, limits=info.limits, no_new_privs=asked, umask=0o077 if asked else None),
                    output=None if self.output is None else self.output.to, pass_fds=[theirs.fileno()],
                )  # fmt: skip
            finally:
                theirs.close()
                if self.output is not None:
                    self.output.started()
            undo.pop_all()  # it runs
        self.channel = Channel(ours, settings.max_result)
        self.stops = StopSequence(attempt, self.child, self.channel, settings.grace)

    def _environment(self) -> dict[str, str]:
        if self.directory is None:
            return dict(os.environ)
        kept = child_environment(os.environ, self.info.env, database=self.database)
        return {**kept, "TMPDIR": self.directory}

    # -- its attempt ---------------------------------------------------------------------------------------------------

    def stop_requested(self, attempt: Attempt) -> None:
        """The watcher's thread enforces it."""
        self._wake()

    def has_begun(self, attempt: Attempt) -> bool:
        return attempt.started > 0  # it sent that

    def has_recorded(self, attempt: Attempt) -> bool:
        return attempt.recorded  # it sent that

    def request_stack(self) -> None:
        if not self._stack_requested:
            self._stack_requested = True
            self.send(TakeStack(0))

    # -- what it sends and is sent -------------------------------------------------------------------------------------

    def send(self, message: ToRunner) -> None:
        if not self.channel.send(message):
            self._wake()

    def began(self) -> None:
        if self.attempt.started:
            raise Garbled("began twice")  # its time would start again
        self.attempt.begin()

    def progressed(self, progress: Progress) -> None:
        self._progress = progress
        self.attempt.set_progress(progress)

    def stack_received(self) -> bool:
        """False: nobody asked for it."""
        requested, self._stack_requested = self._stack_requested, False
        return requested

    def check_room(self) -> None:
        """It sent another request. Our own code waits for replies before it sends more, and reads them."""
        if self.channel.outgoing.waiting > self._room:
            raise Garbled("asked and asked, and took no answers")

    def ended(self, outcome: Outcome | None) -> None:
        """Its handler is done."""
        if self._done:
            raise Garbled("ended twice")
        self._done = True
        self._outcome = outcome
        self.stops.handler_done()

    def garbled(self) -> None:
        """A handler meddled with the connection: nothing that was said about its outcome counts."""
        self._done, self._outcome = False, None
        self.kill()

    def kill(self) -> None:
        self.stops.kill()

    # -- its end -------------------------------------------------------------------------------------------------------

    def outcome(self, end: ExitStatus, url: str) -> Outcome | Crash | None:
        """The process is gone, with everything it started. What follows?"""
        self.channel.close()
        if self.output is not None:
            self.output.close()
        output = self.written(url)
        decided = self._decided(end, output)
        if isinstance(decided, Outcome) and self.attempt.recorded:
            decided = replace(decided, recorded=True)
        return decided if output is None or decided is None else replace(decided, output=output)

    def written(self, url: str) -> str | None:
        """What it has written so far, without secrets."""
        return None if self.output is None else self.output.text(hiding(self.attempt.held.args, (), url))

    @property
    def reported_error(self) -> bool:
        """Did its process call listeners and hooks for an error, whether or not that counts in the end?"""
        return self._outcome is not None and is_error(self._outcome)

    def _decided(self, end: ExitStatus, output: str | None) -> Outcome | Crash | None:
        attempt, stops = self.attempt, self.stops
        if attempt.reason == "lost":
            return None
        if self._done and (not stops.terminated or self._outcome is None or self._outcome.recorded):
            return self._outcome
        if self._done:  # after SIGTERM its outcome does not count: what it relied on may have been ended by that
            return forced(attempt, self.info)
        if attempt.reason is not None and (end.killed or stops.terminated):
            return self._forced(end)
        if self.start_error is not None or stops.never_began:
            return self._not_begun()
        if self.channel.broken:
            why = f"its process was ended, for it {self.channel.broken}{self._how_far()}"
            return errored(attempt.held, HoldfastError(why), self.info, Error("GARBLED", why), "errored")
        return Crash(f"its process {end.described(output or '')}{self._how_far()}", company=False)

    def _not_begun(self) -> Outcome:
        held, error = self.attempt.held, self.start_error
        why = "its process could not begin: "
        why += f"{error.number} {error.message}" if error else f"it took longer than {STARTING:g} s"
        if error is not None and error.number == UNGUARDED:  # it would be the same every time
            return Outcome("fail", held.id, held.fence, "errored", error=kept(Error("UNGUARDED", why)).at(held.task))
        return errored(held, HoldfastError(why), self.info, kept(Error("NOT_BEGUN", why)), "errored")

    def _forced(self, end: ExitStatus) -> Outcome | None:
        """It did not get to say anything more."""
        outcome = forced(self.attempt, self.info)
        if outcome is None or outcome.error is None:
            return outcome
        how = ", and did not stop when it was told to" if end.killed else ""
        return replace(outcome, error=replace(outcome.error, message=f"{outcome.error.message}{how}{self._how_far()}"))

    def _how_far(self) -> str:
        return "" if self._progress is None else how_far(self._progress[0], self._progress[1])
