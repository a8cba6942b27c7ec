"""An attempt in a process of its own, as its worker has it: what it was told, what it said, and what became of it."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from typing import Any

from msgspec.structs import replace

from holdfast.errors import UNGUARDED, HoldfastError
from holdfast.model.environment import child_environment
from holdfast.model.outcome import Crash, Error, Outcome, Progress, errored, kept
from holdfast.redact import hiding
from holdfast.runners.capture import Capture
from holdfast.runners.child_setup import Terms
from holdfast.runners.decide import forced
from holdfast.runners.exit_status import End
from holdfast.runners.spawn import spawn
from holdfast.runners.wire import ASKS, Garbled, Hearing, Outgoing, Tell, ToWorker
from holdfast.settings import Settings
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import is_error
from holdfast.tasks.manifest import TaskInfo

TERM = 5.0  # seconds after SIGTERM until SIGKILL
AGAIN = 1.0  # seconds after which one is killed once more that has not ended
STARTING = 60.0  # seconds to import the application and open resources
CLOSING = 10.0  # seconds it has to put its resources away, once its handler is done
REPLY = 64 * 1024  # bytes of an answer, beside a step's result
AT_ONCE = ("timeout", "stalled", "lost")  # reasons for which nobody waits for the handler to find a good place
PROGRAM = [sys.executable, "-m", "holdfast.isolated_main"]


class IsolatedProcess:
    """Started when it is made, by a thread that outlives it. A task that asked for a process of its own gets little of
    our environment, and what it writes is kept; one that is only run alone for once gets all it is used to."""

    def __init__(self, attempt: Attempt, info: TaskInfo, settings: Settings) -> None:
        self.attempt = attempt
        self.info = info
        asked = info.isolation is not None
        self.database = info.database or not asked
        self._grace = settings.grace
        self.unfit: HoldfastError | None = None
        self.where_asked = False  # it owes us a stack
        self.asking = threading.BoundedSemaphore(ASKS)  # what it asked for, and was not answered yet
        self._room = ASKS * (settings.max_result + REPLY)
        self.directory: str | None = None
        self._capture: Capture | None = None
        self._progress: Progress | None = None
        self._over = False
        self._outcome: Outcome | None = None
        self._told: tuple[Any, bool] = (None, False)  # what it was told last
        self._term_at: float | None = None  # when it was sent SIGTERM
        self._close_by: float | None = None
        self._killed_at: float | None = None
        self._spawned = time.monotonic()
        with ExitStack() as undo:
            if asked:
                self.directory = tempfile.mkdtemp(prefix="holdfast-")
                undo.callback(os.rmdir, self.directory)
                self._capture = Capture()
                undo.callback(self._capture.close)
            self.line, theirs = socket.socketpair()
            undo.callback(self.line.close)
            self.outgoing = Outgoing(self.line)
            self._hearing = Hearing(self.line, settings.max_result)
            self.last_words = self._hearing.last_words
            try:
                self.child = spawn(
                    [*PROGRAM, str(theirs.fileno())], env=self._environment(),
                    terms=Terms(parent=0, limits=info.limits, no_new_privs=asked, umask=0o077 if asked else None),
                    output=None if self._capture is None else self._capture.to,
                    pass_fds=[theirs.fileno()],
                )  # fmt: skip
            finally:
                theirs.close()
                if self._capture is not None:
                    self._capture.started()
            undo.pop_all()  # it runs

    def _environment(self) -> dict[str, str]:
        if self.directory is None:
            return dict(os.environ)
        kept = child_environment(os.environ, self.info.env, database=self.database)
        return {**kept, "TMPDIR": self.directory}

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def capture_fd(self) -> int | None:
        return None if self._capture is None else self._capture.fd

    def read_output(self) -> bool:
        return self._capture is not None and self._capture.read()

    def receive(self) -> list[ToWorker] | None:
        """What it said, without waiting. None: it will say no more."""
        said = self._hearing.receive()
        if self._hearing.broken:
            self.garbled(self._hearing.broken)
        return said

    def garbled(self, how: str) -> None:
        """It meddled with its line: nothing that it said about its end counts. "It …"."""
        self._hearing.broken = how
        self._over, self._outcome = False, None
        self.kill()

    def begun(self) -> None:
        if self.attempt.started:
            raise Garbled("began twice")  # its time would start anew
        self.attempt.begin()

    def moved(self, progress: Progress) -> None:
        self._progress = progress
        self.attempt.set_progress(progress)

    def asks(self) -> None:
        """It asks for something more. Its own code waits for answers before it asks again, and takes them in."""
        if self.outgoing.waiting > self._room:
            raise Garbled("asked and asked, and took no answers")

    def ended(self, outcome: Outcome | None) -> None:
        """Its handler is done."""
        if self._over:
            raise Garbled("ended twice")
        self._over = True
        self._outcome = outcome
        self._close_by = time.monotonic() + CLOSING

    # -- being told ----------------------------------------------------------------------------------------------------

    def enforce(self) -> None:
        """What the attempt was asked, passed on; and what follows if it does not obey in time."""
        attempt, now = self.attempt, time.monotonic()
        late = (at := self._force_at()) is not None and now >= at
        forced = attempt.forced or attempt.reason in AT_ONCE or late or self._term_at is not None
        told = (attempt.reason, forced)
        if attempt.reason is not None and told != self._told and not self._over:
            self._told = told
            self.outgoing.send(Tell(0, *told))
            if forced and self._term_at is None:
                self._term_at = now
                self.child.terminate()
        at = self._kill_at()
        if at is not None and now >= at:
            self.kill()

    def _kill_at(self) -> float | None:
        if self._killed_at is not None:
            return self._killed_at + AGAIN
        term = None if self._term_at is None else self._term_at + min(TERM, self._grace)
        begin_by = None if self.attempt.started else self._spawned + STARTING
        times = [at for at in (term, self._close_by, begin_by) if at is not None]
        return min(times, default=None)

    def next_step_at(self) -> float | None:
        """When to enforce something more."""
        times = [at for at in (self._kill_at(), self._force_at()) if at is not None]
        return min(times, default=None)

    def _force_at(self) -> float | None:
        asked = self.attempt.reason in ("cancel", "pause") and self._term_at is None and not self._over
        return self.attempt.asked_at + self._grace if asked else None

    def kill(self) -> None:
        self._killed_at = time.monotonic()
        self.child.kill()

    # -- the end -------------------------------------------------------------------------------------------------------

    def outcome(self, end: End, url: str) -> Outcome | Crash | None:
        """The process is gone, and with it everybody it started. What follows?"""
        self.line.close()
        said = self._output(url)
        decided = self._decided(end, said)
        if isinstance(decided, Outcome) and self.attempt.recorded:
            decided = replace(decided, recorded=True)
        return decided if said is None or decided is None else replace(decided, output=said)

    def _output(self, url: str) -> str | None:
        if self._capture is None:
            return None
        self._capture.close()
        return self._capture.text(hiding(self.attempt.held.args, (), url))

    @property
    def has_spoken(self) -> bool:
        """Did it say itself what became of its attempt, and does that count?"""
        return self._over and (self._term_at is None or self._outcome is None or self._outcome.recorded)

    @property
    def has_told(self) -> bool:
        """Did its process tell listeners and hooks of an error, whether or not that is what counts?"""
        return self._outcome is not None and is_error(self._outcome)

    def _decided(self, end: End, said: str | None) -> Outcome | Crash | None:
        attempt = self.attempt
        if attempt.reason == "lost":
            return None
        if self.has_spoken:
            return self._outcome
        if self._over:  # whatever it says after SIGTERM, what it relied on may have been ended by that
            return forced(attempt, self.info)
        if attempt.reason is not None and (end.killed or self._term_at is not None):
            return self._forced(attempt, end)
        late = not attempt.started and self._killed_at is not None and self._killed_at >= self._spawned + STARTING
        if self.unfit is not None or late:
            why = "its process could not begin: "
            why += f"{self.unfit.number} {self.unfit.message}" if self.unfit else f"it took longer than {STARTING:g} s"
            if self.unfit is not None and self.unfit.number == UNGUARDED:  # it would be the same every time
                held = attempt.held
                return Outcome("fail", held.id, held.fence, "errored", error=kept(Error("UNGUARDED", why)))
            return errored(attempt.held, HoldfastError(why), self.info, kept(Error("NOT_BEGUN", why)), "errored")
        if self._hearing.broken:
            why = f"its process was ended, for it {self._hearing.broken}{self._how_far()}"
            return errored(attempt.held, HoldfastError(why), self.info, Error("GARBLED", why), "errored")
        return Crash(f"its process {end.told(said or '')}{self._how_far()}", company=False)

    def _forced(self, attempt: Attempt, end: End) -> Outcome | None:
        """It did not get to say anything more."""
        outcome = forced(attempt, self.info)
        if outcome is None or outcome.error is None:
            return outcome
        how = ", and did not stop when it was told to" if end.killed else ""
        return replace(outcome, error=replace(outcome.error, message=f"{outcome.error.message}{how}{self._how_far()}"))

    def _how_far(self) -> str:
        if self._progress is None:
            return ""
        done, total, _ = self._progress
        return f" (at {done} of {total})" if total is not None else f" (at {done})"
