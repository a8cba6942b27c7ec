"""How a worker stops: in good order, and in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from holdfast import events
from holdfast.runners.base import RunnerGroup
from holdfast.worker.desk import Desk

AFTER_GRACE = 1.0  # seconds for all that is left to do when the grace is over (signals.py ends the process soon after)
LAST_OUTCOMES = 3.0  # seconds at most, within that, to record the last outcomes


class Shutdown:
    """Claim no more, let what runs finish within its grace, give back the rest. Everything is over by `end_by`."""

    def __init__(self, worker: str, desk: Desk, runners: RunnerGroup, grace: float) -> None:
        self._worker = worker
        self._desk = desk
        self._runners = runners
        self._grace = grace
        self._end_by = math.inf  # monotonic
        self.asked = 0  # how often

    def ask(self) -> int:
        """Asked twice, the grace is over at once. Safe from a signal handler. Returns how often it was asked."""
        now = time.monotonic()
        self._end_by = min(self._end_by, now + AFTER_GRACE + (0.0 if self.asked else self._grace))
        self._desk.mandate.end_by = self._end_by
        self.asked += 1
        self._desk.mandate.claiming = False
        self._desk.wakeups.wake()
        return self.asked

    @property
    def end_by(self) -> float:
        """When all of it must be over (monotonic). A drain, or a worker that failed, ends without being asked."""
        return min(self._end_by, time.monotonic() + self._grace + AFTER_GRACE)

    def finish(self) -> None:
        """Let what runs finish, and give back what does not in time."""
        self._end_by = self.end_by
        self._desk.mandate.claiming = False
        self._desk.intake.withdraw()
        running = self._desk.undecided()
        if running:
            events.emit("worker_stopping", worker=self._worker, running=len(running), grace=self._grace)
        for attempt in running:
            attempt.ask("shutdown")
        # The grace is for what runs, and for outcomes of what ran. With nothing in flight the worker ends at once.
        while self._desk.in_flight and self._left() > AFTER_GRACE:
            if not self._desk.turn():
                self._desk.wait(min(0.2, max(0.01, self._left() - AFTER_GRACE)))
        self._release_rest()

    def _left(self) -> float:
        """Seconds until it must be over. A second `ask` makes them few."""
        return self._end_by - time.monotonic()

    def _release_rest(self) -> None:
        """The grace is over. Coroutines are cancelled and processes ended. A thread can't be stopped, so its job is
        given back, and the fence keeps out whatever the handler still does."""
        undecided = self._desk.undecided
        for attempt in undecided():
            attempt.force()
        self._turn_until(lambda: not any(a.interrupt or a.remote for a in undecided()), self._left() / 3)
        if any(attempt.remote for attempt in undecided()):
            self._runners.abandon(self._left() / 3)
            self._turn_until(lambda: not any(attempt.remote for attempt in undecided()), self._left() / 4)
        for attempt in undecided():
            if attempt.ask("lost"):
                events.emit("unstoppable", job=str(attempt.held.id), task=attempt.held.task)
                self._desk.outbox.give_back(attempt)
            else:  # its lease was lost before: whatever its handler still does, there is nothing to wait for
                self._desk.outbox.forget(attempt.held)
        self._turn_until(self._desk.idle, min(LAST_OUTCOMES, self._left() * 3 / 4))

    def _turn_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if not self._desk.turn():
                self._desk.wait(0.05)
