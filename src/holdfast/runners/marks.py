"""The state of every attempt in a pooled process, in memory that it shares with its worker. It outlives the process, so
the worker knows after a crash which attempts ran and which only waited."""

from __future__ import annotations

import mmap

from holdfast.tasks.attempt import Attempt

MARKS = 1 << 16  # attempts are numbered modulo this; no process has more of them in flight
WAITS, RUNS, ENDED, RECORDS, RECORDED = 0, 1, 2, 3, 4  # RECORDS, RECORDED: runs, ended; its handler recorded success
_WAITS = bytes([WAITS])


class Marks:
    """The worker's view of them."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, MARKS)

    def set_waiting(self, first: int, end: int) -> None:
        """Mark these numbers, which may wrap around."""
        at, count = first % MARKS, end - first
        before_wrap = min(count, MARKS - at)
        self._memory[at : at + before_wrap] = _WAITS * before_wrap
        self._memory[: count - before_wrap] = _WAITS * (count - before_wrap)

    def next_waiting(self, first: int, end: int) -> int:
        """The first of these numbers that waits; `end`: none does."""
        while first < end:
            at = first % MARKS
            until = min(MARKS, at + end - first)
            found = self._memory.find(_WAITS, at, until)
            first += (until if found < 0 else found) - at
            if found >= 0:
                break
        return first

    def runs(self, attempt: Attempt) -> bool:
        return self._memory[attempt.number % MARKS] in (RUNS, RECORDS)

    def has_begun(self, attempt: Attempt) -> bool:
        return self._memory[attempt.number % MARKS] != WAITS

    def has_recorded(self, attempt: Attempt) -> bool:
        return self._memory[attempt.number % MARKS] in (RECORDS, RECORDED)

    def has_ended(self, attempt: Attempt) -> bool:
        return self._memory[attempt.number % MARKS] in (ENDED, RECORDED)
