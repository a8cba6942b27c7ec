"""A runner process as its worker has it: what it was given, what it was told, and what became of it."""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from holdfast import events
from holdfast.runners.child_setup import Terms
from holdfast.runners.spawn import spawn
from holdfast.runners.wire import (
    ENDED,
    MARKS,
    RECORDED,
    RECORDS,
    RUNS,
    WAITS,
    Begin,
    Close,
    Garbled,
    Hearing,
    Orders,
    Outgoing,
    Start,
    Tell,
    ToRunner,
    ToWorker,
    Where,
    Withdraw,
    frame,
)
from holdfast.tasks.attempt import Attempt

SLOW = 30.0  # seconds after which it is told that one still imports the application
TICK = 0.1  # seconds between looks whether it is still waited for
MOST = MARKS // 2  # attempts in hand of one process


@dataclass(slots=True)
class Batch:
    """Attempts that were given together: the first number that has not begun, as far as we know, and where they end."""

    first: int
    end: int
    taken: float


class Process:
    """Spawned here: by a thread that outlives it, since it is killed when that thread ends."""

    def __init__(self, orders: Orders, wake: Callable[[], None]) -> None:
        """`wake`: tells who looks after it that there is something to look at."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = spawn(
                [sys.executable, "-m", "holdfast.pooled_main", str(theirs.fileno())], env=os.environ,
                terms=Terms(parent=0), pass_fds=[theirs.fileno()],
            )  # fmt: skip
        with suppress(OSError):  # it has ended already, which is noticed elsewhere
            ours.sendall(frame(orders))
        self.line = ours
        self._wake = wake
        self.watched: Collection[str] = ()  # tasks with a timeout
        self.pid = self._child.pid
        self.pidfd = self._child.watched  # readable when it ends
        self.ready = False  # it takes attempts
        self.doomed = False  # we end it
        self.retired = False  # another has taken its place
        self.asked = False  # something was asked of an attempt there
        self.greeted = False  # it has said Hello
        self.opened = False  # it has said Ready
        self._hearing = Hearing(ours)
        self.receive, self.last_words = self._hearing.receive, self._hearing.last_words
        self._wheres: set[int] = set()  # attempts it owes us the stack of
        self._outgoing = Outgoing(ours)
        self._lock = threading.Lock()
        self._number = 0
        self._in_hand: dict[int, Attempt] = {}
        self._loads = {True: 0, False: 0}  # by colour
        self._waiting: dict[bool, deque[Batch]] = {True: deque(), False: deque()}  # by colour, in the order given
        self._far: dict[int, str] = {}  # how far those are that reported it
        self._unread: deque[tuple[int, int]] = deque()  # the first number of a batch, and how much is sent before it
        self._timed: set[Attempt] = set()  # those with a timeout that have not begun, as far as we know
        self._owes_back: dict[bool, float] = {}  # colour -> since when it owes us an answer to Withdraw

    # -- before it is ready --------------------------------------------------------------------------------------------

    def hear_first(self, stopping: Callable[[], bool]) -> ToWorker | None:
        """Its first word, whenever it comes. None: it ended without one, or nobody waits any more."""
        readable = select.poll()
        readable.register(self.line, select.POLLIN)
        began, told = time.monotonic(), SLOW
        while not stopping():
            if not readable.poll(TICK * 1000):
                if self.has_died():  # while something that it forked keeps the line open
                    return next(iter(self.last_words()), None)
                if time.monotonic() - began >= told:
                    events.emit("runner_slow", pid=self.pid, seconds=told)
                    told *= 2
            elif (said := self.receive()) is None:
                return None
            elif said:
                return said[0]
        return None

    def begin(self, worker: str, max_result: int) -> None:
        """It belongs to this worker."""
        self.greeted = True
        self._hearing.allow(max_result)
        try:
            with _shared_memory() as shared:
                shared.truncate(MARKS)
                self._marks = mmap.mmap(shared.fileno(), MARKS)
                socket.send_fds(self.line, [frame(Begin(worker))], [shared.fileno()])
        except OSError:  # no more memory or descriptors, or it has ended meanwhile: another takes its place
            self.hang_up()

    # -- attempts ------------------------------------------------------------------------------------------------------

    def load(self, *, is_async: bool) -> int:
        """Attempts of a colour in hand."""
        return self._loads[is_async]

    def give(self, attempts: Sequence[Attempt], *, is_async: bool) -> bool:
        """Let it run these. False: it takes no more."""
        with self._lock:
            if not self.ready or len(self._in_hand) + len(attempts) > MOST:
                return False
            self._pass_begun(is_async)
            first = self._free_numbers(len(attempts))
            end = first + len(attempts)
            self._mark_waiting(first, end)
            for number, attempt in enumerate(attempts, first):
                attempt.number = number
                attempt.remote = self
                attempt.is_async = is_async
            self._in_hand.update(zip(range(first, end), attempts, strict=True))
            self._loads[is_async] += len(attempts)
            self._number = end
            self._waiting[is_async].append(Batch(first, end, attempts[0].taken))
            if self.watched:
                self._timed.update(attempt for attempt in attempts if attempt.held.task in self.watched)
        if self.backlog:
            self._unread.append((first, self._outgoing.written))
        expires = any(attempt.begin_by is not None for attempt in attempts)
        begin_by = [attempt.begin_by for attempt in attempts] if expires else []
        self.send(Start(first, attempts[0].taken, [attempt.held for attempt in attempts], begin_by))
        if self._timed:
            self._wake()
        for attempt in attempts:
            if attempt.reason is not None:
                self.stop_requested(attempt)  # asked in the very moment it was given
        return True

    def check_given(self, numbers: Iterable[int]) -> None:
        """Nobody ends what it can't have heard of. (Else one that does not listen would be given more and more, and we
        would keep it all.)"""
        while self._unread and self._unread[0][1] <= self._outgoing.sent:
            self._unread.popleft()
        if self._unread and any(number >= self._unread[0][0] for number in numbers):
            raise Garbled("ended what it was not given yet")

    def taken(self, numbers: Sequence[int]) -> list[Attempt | None]:
        """Attempts that ended, or were given back. None: that one is nobody's any more."""
        if self._far:
            for number in numbers:
                self._far.pop(number, None)
        if self._wheres:
            self._wheres.difference_update(numbers)
        pop = self._in_hand.pop
        taken = [pop(number, None) for number in numbers]
        coroutines = sum([1 for attempt in taken if attempt is not None and attempt.is_async])
        with self._lock:
            self._loads[True] -= coroutines
            self._loads[False] -= len(taken) - taken.count(None) - coroutines
        return taken

    def _mark_waiting(self, first: int, end: int) -> None:
        at, count = first % MARKS, end - first
        before_turn = min(count, MARKS - at)
        self._marks[at : at + before_turn] = bytes([WAITS]) * before_turn
        self._marks[: count - before_turn] = bytes([WAITS]) * (count - before_turn)

    def _free_numbers(self, count: int) -> int:
        """So many in a row, the first of them, whose marks are nobody's: numbers come round, and attempts may last."""
        first = self._number
        oldest = next(iter(self._in_hand), first)
        if first + count - oldest >= MARKS:
            taken = {number % MARKS for number in self._in_hand}
            while clash := [number for number in range(first, first + count) if number % MARKS in taken]:
                first = clash[-1] + 1
        return first

    def get(self, number: int) -> Attempt | None:
        return self._in_hand.get(number)

    def reached(self, number: int, done: int, total: int | None, note: str | None) -> None:
        """An attempt reports how far it is."""
        if (attempt := self._in_hand.get(number)) is not None:
            attempt.set_progress((done, total, note))
            self._far[number] = f" (at {done})" if total is None else f" (at {done} of {total})"

    def how_far(self, attempt: Attempt) -> str:
        """In words, as far as it was reported."""
        return self._far.get(attempt.number, "")

    def in_hand(self) -> list[Attempt]:
        with self._lock:
            return list(self._in_hand.values())

    def all_taken(self) -> list[Attempt]:
        """It is gone: what it had in hand."""
        with self._lock:
            self.ready = False
            left, self._in_hand = list(self._in_hand.values()), {}
            self._timed.clear()
            return left

    def stop_requested(self, attempt: Attempt) -> None:
        self.asked = True
        self.send(Tell(attempt.number, attempt.reason, attempt.forced))
        self._wake()

    def ask_where(self, attempt: Attempt) -> None:
        """It answers with Here."""
        if attempt.number not in self._wheres:
            self._wheres.add(attempt.number)
            self.send(Where(attempt.number))
            self._wake()

    def asked_where(self, number: int) -> Attempt | None:
        """The attempt whose stack it answers with, if it was asked for that."""
        if number not in self._wheres:
            return None
        self._wheres.discard(number)
        return self._in_hand.get(number)

    def withdraw(self, most: int | None, *, is_async: bool) -> None:
        """Ask for what has not begun; it comes back as its answer says. One asks at a time: it answers each time, and
        what nobody asked for is not taken."""
        with self._lock:
            if is_async in self._owes_back:
                return
            self._owes_back[is_async] = time.monotonic()
        self.send(Withdraw(is_async, most))

    def answered(self, is_async: bool) -> None:
        if self._owes_back.pop(is_async, None) is None:
            raise Garbled("gave back what nobody asked for")

    def silent_for(self) -> float:
        """Seconds it owes us an answer."""
        return time.monotonic() - min(self._owes_back.values(), default=time.monotonic())

    def waiting_since(self, *, is_async: bool) -> float | None:
        """When the oldest was claimed that has not begun, unless it was asked for already."""
        self._pass_begun(is_async)
        waiting = self._waiting[is_async]
        return waiting[0].taken if waiting and is_async not in self._owes_back else None

    def _pass_begun(self, is_async: bool) -> None:
        waiting = self._waiting[is_async]
        while waiting and not self._waits(waiting[0]):
            waiting.popleft()

    def _waits(self, batch: Batch) -> bool:
        """Does something of it wait? Passes those that don't."""
        while batch.first < batch.end:
            at = batch.first % MARKS
            until = min(MARKS, at + batch.end - batch.first)
            found = self._marks.find(bytes([WAITS]), at, until)
            batch.first += (until if found < 0 else found) - at
            if found >= 0:
                if batch.first in self._in_hand:
                    return True
                batch.first += 1  # it was given back
        return False

    def notice_starts(self) -> bool:
        """Note when attempts with a timeout began. False: there are none to look at."""
        with self._lock:
            for attempt in [attempt for attempt in self._timed if self.mark(attempt) != WAITS]:
                self._timed.discard(attempt)
                attempt.started = attempt.started or time.monotonic()
            self._timed = {attempt for attempt in self._timed if attempt.number in self._in_hand}
            return bool(self._timed)

    def mark(self, attempt: Attempt) -> int:
        return self._marks[attempt.number % MARKS]

    def runs(self, attempt: Attempt) -> bool:
        return self.mark(attempt) in (RUNS, RECORDS)

    def has_begun(self, attempt: Attempt) -> bool:
        return self.mark(attempt) != WAITS

    def has_recorded(self, attempt: Attempt) -> bool:
        return self.mark(attempt) in (RECORDS, RECORDED)

    def has_ended(self, attempt: Attempt) -> bool:
        return self.mark(attempt) in (ENDED, RECORDED)

    # -- the line ------------------------------------------------------------------------------------------------------

    def send(self, message: ToRunner) -> None:
        if not self._outgoing.send(message):
            self._wake()

    def flush(self) -> None:
        self._outgoing.flush()

    @property
    def backlog(self) -> bool:
        """The line is full: there is more to send when it is not."""
        return not self._outgoing.empty

    # -- the end -------------------------------------------------------------------------------------------------------

    def ask_to_end(self, seconds: float) -> None:
        self.ready = False
        self.doomed = True
        self.send(Close(seconds))

    def kill(self) -> None:
        """It and whatever it started."""
        self.ready = False
        self.doomed = True
        self._child.kill()

    def garbled(self, how: str) -> None:
        """A handler of its meddled with the line: nothing more from there counts. "It …"."""
        self._hearing.broken = how

    def hang_up(self) -> None:
        """It closed its line, or what it says can't be trusted any more: that counts as its end."""
        self.ready = False
        self._child.kill()

    @property
    def was_killed(self) -> bool:
        """It did not end by itself. (Asked when it has ended. Python ends by SIGINT if nobody catches a
        KeyboardInterrupt; one from outside is left to the worker.)"""
        end = self._child.end
        return end is None or end.status is None or (end.status < 0 and end.status != -signal.SIGINT)

    def has_died(self) -> bool:
        return self._child.ended()

    def bury(self, patience: float = 0.0) -> str:
        """How it ended, in words; it gets so many seconds to do so by itself. None of those it started is left."""
        if self.pidfd is not None:
            ended = select.poll()
            ended.register(self.pidfd, select.POLLIN)
            ended.poll(patience * 1000)
        if not self._child.ended():
            self._child.kill()
            self._child.wait()
        end = self._child.reap()
        assert end is not None
        self.line.close()
        return f"was ended, for it {self._hearing.broken}" if self._hearing.broken else end.told()


def _shared_memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("holdfast"), "r+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()
