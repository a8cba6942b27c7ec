"""How far a worker trusts wake-ups."""

from __future__ import annotations

from collections.abc import Callable

LOOKS = 20  # in vain, one after the other, before the worker checks whether jobs are enqueued at all
APART = 1.0  # seconds between two looks after which the count starts again
SHORTEST, LONGEST = 0.001, 0.1  # seconds of a rest


class VainWakeups:
    """Anyone who can connect to the database can send notifications. A flood of them must not make a worker look for
    work without end, and honest ones must never have to wait.

    A look is in vain if a wake-up asked for it and it found no job. That alone proves nothing: a peer may have been
    quicker, somebody may have the job locked, or it is for a runner that is full. So after LOOKS of them in a row the
    worker reads the newest job's id, and after as many again it compares. Where wake-ups are honest, jobs were enqueued
    meanwhile, about one for each. Where at most one came for every two looks, the worker rests before the next look
    that a wake-up asks for, twice as long after each one that is in vain. Any job found ends this, and so does the
    news that jobs are enqueued, or a quiet second.

    Wake-ups that arrive during a rest lead to one look at its end (`until`). Looks that the worker makes on its own
    account, or later than a peer because of its rank (model/peers.py), are neither counted nor put off."""

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self.asked = False  # a wake-up asked for the next look
        self.until = 0.0  # monotonic: looks that wake-ups ask for wait until then
        self._rest = 0.0  # seconds of the next rest; 0: wake-ups are trusted
        self._newest_before: int | None = None
        self._looks = 0  # in vain, since the newest id was read
        self._last = 0.0
        self._reported = False

    def found(self) -> None:
        """A look found a job, whoever asked for it."""
        self.asked = False
        self.until = self._rest = 0.0
        self._newest_before, self._looks = None, 0

    def in_vain(self, now: float) -> bool:
        """A look that a wake-up asked for found nothing. True: the worker starts to rest, for the first time ever. A
        flood may come and go; one report is enough."""
        if now > self._last + APART:
            self.found()
        self.asked, self._last = False, now
        self._looks += 1
        if self._looks >= LOOKS:
            self._compare()
        if not self._rest:
            return False
        self.until = now + self._rest
        self._rest = min(2 * self._rest, LONGEST)
        first, self._reported = not self._reported, True
        return first

    def _compare(self) -> None:
        before, looks = self._newest_before, self._looks
        newest = self._newest()
        if before is not None and 2 * (newest - before) > looks:
            self.found()
        elif before is not None:
            self._rest = self._rest or SHORTEST
        self._newest_before, self._looks = newest, 0
