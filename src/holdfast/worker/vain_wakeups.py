"""How far wake-ups are believed."""

from __future__ import annotations

from collections.abc import Callable

LOOKS = 20  # in vain, one after the other, after which it is checked whether jobs come at all
APART = 1.0  # seconds between two looks after which the second one counts as the first
SHORTEST, LONGEST = 0.001, 0.1  # seconds of a rest


class VainWakeups:
    """Whoever can connect to the database can send notifications. A flood of them must not make a worker look without
    end, and honest ones must never be made to wait.

    A look is in vain if a wake-up asked for it and it found no job. That alone proves nothing: a peer may have been
    quicker, somebody may have the job locked, or it is for a handler that has no free slot. So after LOOKS of
    them in a row the newest job's id is read, and after as many again it is compared. Where wake-ups are honest, jobs
    were enqueued meanwhile, about one for each. Where at most one came for every two looks, the worker rests before
    the next look that a wake-up asks for, twice as long after each that is in vain. Any job found ends it, so does
    the news that jobs come, or a quiet second.

    Wake-ups heard during a rest lead to one look at its end (`until`). What the worker looks for by itself, and what
    it does later than others by its place (model/peers.py), is neither counted nor put off."""

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self.asked = False  # a wake-up asked for the next look
        self.until = 0.0  # monotonic: looks that wake-ups ask for wait until then
        self.rest = 0.0  # seconds of the newest rest
        self._known: int | None = None
        self._looks = 0  # in vain, since the newest id was read
        self._last = 0.0

    def found(self) -> None:
        """A look found a job, whoever asked for it."""
        self.asked = False
        self.until = self.rest = 0.0
        self._known, self._looks = None, 0

    def in_vain(self, now: float) -> bool:
        """A look that a wake-up asked for found nothing. True: this is where the rests begin."""
        if now > self._last + APART:
            self.found()
        self.asked, self._last = False, now
        self._looks += 1
        before = self.rest
        if self._looks >= LOOKS:
            self._compare()
        if self.rest:
            self.until = now + self.rest
            self.rest = min(2 * self.rest, LONGEST)
        return bool(self.rest and not before)

    def _compare(self) -> None:
        known, looks = self._known, self._looks
        newest = self._newest()
        if known is not None and 2 * (newest - known) > looks:
            self.found()
        elif known is not None:
            self.rest = self.rest or SHORTEST
        self._known, self._looks = newest, 0
