"""The attempts that a worker has given to one pooled process, by number."""

from __future__ import annotations

import mmap
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.model.outcome import Progress
from holdfast.tasks.attempt import Attempt, Remote

# The state of every attempt in a pooled process, in memory that it shares with its worker. It outlives the process,
# so the worker knows after a crash which attempts ran and which only waited.

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


MOST = MARKS // 2  # attempts in flight in one process


@dataclass(slots=True)
class Batch:
    """Attempts that were given together: the first number that has not begun, as far as we know, and where they end."""

    first: int
    end: int
    taken: float


class AttemptTable:
    """`is_async` tells coroutines from synchronous handlers, which take other slots."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.timed_tasks: Collection[str] = ()  # tasks with a timeout
        self._lock = threading.Lock()
        self._closed = False
        self._next = 0  # the next number
        self._attempts: dict[int, Attempt] = {}
        self._loads = {True: 0, False: 0}
        self._batches: dict[bool, deque[Batch]] = {True: deque(), False: deque()}  # in the order given
        self._how_far: dict[int, str] = {}  # of those that reported progress
        self._timed: set[Attempt] = set()  # those with a timeout that have not begun, as far as we know

    def add(self, attempts: Sequence[Attempt], remote: Remote, *, is_async: bool) -> int | None:
        """Number these and mark them as waiting. Returns the first number; None: there are too many, or the process is
        gone."""
        with self._lock:
            if self._closed or len(self._attempts) + len(attempts) > MOST:
                return None
            self._skip_begun(is_async)
            first = self._free_numbers(len(attempts))
            end = first + len(attempts)
            self.marks.set_waiting(first, end)
            for number, attempt in enumerate(attempts, first):
                attempt.number = number
                attempt.remote = remote
                attempt.is_async = is_async
            self._attempts.update(zip(range(first, end), attempts, strict=True))
            self._loads[is_async] += len(attempts)
            self._next = end
            self._batches[is_async].append(Batch(first, end, attempts[0].taken))
            if self.timed_tasks:
                self._timed.update(attempt for attempt in attempts if attempt.held.task in self.timed_tasks)
            return first

    def _free_numbers(self, count: int) -> int:
        """The first of so many consecutive numbers whose marks are free: numbers wrap around, and attempts may last."""
        first = self._next
        oldest = next(iter(self._attempts), first)
        if first + count - oldest >= MARKS:
            used = {number % MARKS for number in self._attempts}
            while clash := [number for number in range(first, first + count) if number % MARKS in used]:
                first = clash[-1] + 1
        return first

    def take(self, numbers: Sequence[int]) -> list[Attempt | None]:
        """Remove attempts that ended, or were given back. None: there is no such attempt any more."""
        if self._how_far:
            for number in numbers:
                self._how_far.pop(number, None)
        pop = self._attempts.pop
        taken = [pop(number, None) for number in numbers]
        coroutines = sum([1 for attempt in taken if attempt is not None and attempt.is_async])
        with self._lock:
            self._loads[True] -= coroutines
            self._loads[False] -= len(taken) - taken.count(None) - coroutines
        return taken

    def take_all(self) -> list[Attempt]:
        """Its process is gone: what it had in flight. Nothing can be added any more."""
        with self._lock:
            self._closed = True
            left, self._attempts = list(self._attempts.values()), {}
            self._timed.clear()
            return left

    def get(self, number: int) -> Attempt | None:
        return self._attempts.get(number)

    def all(self) -> list[Attempt]:
        with self._lock:
            return list(self._attempts.values())

    def load(self, *, is_async: bool) -> int:
        return self._loads[is_async]

    # -- what has begun ------------------------------------------------------------------------------------------------

    def waiting_since(self, *, is_async: bool) -> float | None:
        """When the oldest attempt that has not begun was claimed."""
        self._skip_begun(is_async)
        batches = self._batches[is_async]
        return batches[0].taken if batches else None

    def _skip_begun(self, is_async: bool) -> None:
        batches = self._batches[is_async]
        while batches and not self._waits(batches[0]):
            batches.popleft()

    def _waits(self, batch: Batch) -> bool:
        """Is some of it still waiting? Skips those that are not."""
        while (first := self.marks.next_waiting(batch.first, batch.end)) < batch.end:
            batch.first = first
            if first in self._attempts:
                return True
            batch.first += 1  # it was given back
        batch.first = batch.end
        return False

    def note_starts(self) -> bool:
        """Note when attempts with a timeout began. False: there are none to look at."""
        if not self._timed:
            return False
        with self._lock:
            for attempt in [attempt for attempt in self._timed if self.marks.has_begun(attempt)]:
                self._timed.discard(attempt)
                attempt.started = attempt.started or time.monotonic()
            self._timed = {attempt for attempt in self._timed if attempt.number in self._attempts}
            return bool(self._timed)

    @property
    def awaits_starts(self) -> bool:
        return bool(self._timed)

    # -- progress ------------------------------------------------------------------------------------------------------

    def set_progress(self, attempt: Attempt, progress: Progress) -> None:
        attempt.set_progress(progress)
        done, total, _ = progress
        self._how_far[attempt.number] = how_far(done, total)

    def how_far(self, attempt: Attempt) -> str:
        return self._how_far.get(attempt.number, "")


def how_far(done: int | None, total: int | None) -> str:
    """The end of a sentence about an attempt that was interrupted."""
    if done is None:
        return ""
    return f" (at {done})" if total is None else f" (at {done} of {total})"
