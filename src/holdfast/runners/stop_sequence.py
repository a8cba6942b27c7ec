"""How an attempt in a process of its own is stopped: it is asked; when its time is over, it is interrupted and its
process group gets SIGTERM; at last SIGKILL."""

from __future__ import annotations

import time
from typing import Any

from holdfast.runners.messages import Stop
from holdfast.runners.spawn import Child
from holdfast.runners.wire import Channel
from holdfast.tasks.attempt import Attempt

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
