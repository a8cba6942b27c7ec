"""A pooled process as its worker sees it: what it was given, what it was asked, and how it ended."""

from __future__ import annotations

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
from itertools import repeat
from typing import IO

from holdfast import events
from holdfast.runners.arrivals import Arrivals, span
from holdfast.runners.attempt_table import MARKS, AttemptTable, Marks
from holdfast.runners.base import WorkerLink
from holdfast.runners.child_setup import ChildSetup
from holdfast.runners.event_forwarding import Forwarder
from holdfast.runners.spawn import spawn
from holdfast.runners.wire import (
    Begin,
    Channel,
    Close,
    Configure,
    Delivered,
    Done,
    Garbled,
    Progressed,
    Stack,
    Start,
    StartFailed,
    Stop,
    TakeStack,
    ToRunner,
    ToWorker,
    Withdraw,
    Withdrawn,
    frame,
)
from holdfast.tasks.attempt import Attempt, emit_errored

# What pooled processes that take attempts send: outcomes, progress, stacks, attempts given back.


class PooledMessages:
    def __init__(self, link: WorkerLink, arrivals: Arrivals, forwarder: Forwarder) -> None:
        self._link = link
        self._arrivals = arrivals
        self._forwarder = forwarder

    def received(self, process: PooledProcess, message: ToWorker) -> None:
        match message:
            case Done():
                self.done(process, message)
            case Progressed():
                self._progressed(process, message)
            case Stack(number, stack):
                if (attempt := process.stack_received(number)) is not None:
                    self._link.stack_taken(attempt, self._arrivals.stack(attempt.held, stack))
            case Withdrawn(is_async, numbers):
                process.withdrawals.answered(is_async)
                process.check_given(numbers)
                for attempt in process.take(numbers):
                    if attempt is not None:
                        self._link.outcomes.finished(attempt, None)
            case Delivered():
                self._forwarder.delivered(process)
            case StartFailed():
                pass  # it failed after it had started, and ends
            case _:
                raise Garbled("spoke out of turn")

    def _progressed(self, process: PooledProcess, message: Progressed) -> None:
        table = process.table
        for number, done, total, note in message.progress:
            if (attempt := table.get(number)) is not None:
                attempt.hide = attempt.hide or self._arrivals.hiding(attempt.held)
                table.set_progress(attempt, (done, total, note))
        for number in message.others:
            if (attempt := table.get(number)) is not None:
                attempt.moved = time.monotonic()

    def done(self, process: PooledProcess, message: Done) -> None:
        process.check_given(message.numbers)
        process.check_given(number for number, *_ in message.others)
        self._succeeded(process, message)
        outcomes, now = self._link.outcomes, time.monotonic()
        for number, started, ended, said in message.others:
            if (attempt := process.table.get(number)) is not None:
                outcome = self._arrivals.outcome(attempt.held, said)
                process.take([number])
                attempt.started, attempt.ended = span(attempt, started, ended, now)
                attempt.recorded = outcome is not None and outcome.recorded
                outcomes.finished(attempt, outcome)

    def _succeeded(self, process: PooledProcess, message: Done) -> None:
        attempts, outcomes, now = [], [], time.monotonic()
        taken = process.take(message.numbers)
        results = message.results or repeat(None)
        for attempt, started, ended, result in zip(taken, message.started, message.ended, results, strict=False):
            if attempt is None:
                continue
            if not attempt.taken <= started <= ended <= now:
                started, ended = span(attempt, started, ended, now)
            attempt.started = started
            attempt.ended = ended
            outcome = self._arrivals.returned(attempt.held, result)
            if outcome.verb == "succeed":
                attempts.append(attempt)
                outcomes.append(outcome)
            else:  # its result can't be kept
                emit_errored(attempt.held, outcome, worker=self._link.worker)
                self._link.outcomes.finished(attempt, outcome)
        if attempts:
            self._link.outcomes.succeeded(attempts, outcomes)


SLOW = 30.0  # seconds of importing the application after which that is reported
TICK = 0.1  # seconds between two looks whether anybody still waits for it


class PooledProcess:
    """Starts when it is created: by a thread that outlives it, since it is killed when that thread ends."""

    output = None  # its stdout and stderr are the worker's

    def __init__(self, configure: Configure, wake: Callable[[], None]) -> None:
        """`wake`: has the watcher look after it."""
        self._shared = _shared_memory()
        ours, theirs = socket.socketpair()
        with theirs:
            self.child = spawn(
                [sys.executable, "-m", "holdfast.pooled_main", str(theirs.fileno())], env=os.environ,
                setup=ChildSetup(parent=0), pass_fds=[theirs.fileno()],
            )  # fmt: skip
        with suppress(OSError):  # it has ended already, which is noticed elsewhere
            ours.sendall(frame(configure))
        self.channel = Channel(ours)
        self.table = AttemptTable(Marks(self._shared.fileno()))
        self.withdrawals = Withdrawals(self.send)
        self.greeted = False  # it has sent Hello
        self.opened = False  # it has sent Ready
        self.ready = False  # it takes attempts
        self.retired = False  # another process has taken its place
        self.doomed = False  # we end it
        self.stops_pending = False  # attempts were asked to stop, and may not have yet
        self._wake = wake
        self._stacks: set[int] = set()  # attempts whose stack was asked for
        self._unread: deque[tuple[int, int]] = deque()  # first number of a batch, and how many bytes go before it

    # -- before it is ready --------------------------------------------------------------------------------------------

    def first_message(self, stopping: Callable[[], bool]) -> ToWorker | None:
        """Wait for its first message. None: it ended without one, or nobody waits any more."""
        readable = select.poll()
        readable.register(self.channel.connection, select.POLLIN)
        began, report_after = time.monotonic(), SLOW
        while not stopping():
            if not readable.poll(TICK * 1000):
                if self.child.ended():  # while a process that it forked keeps the connection open
                    return next(iter(self.channel.receive_rest()), None)
                if time.monotonic() - began >= report_after:
                    events.emit("runner_slow", pid=self.child.pid, seconds=report_after)
                    report_after *= 2
            elif (messages := self.channel.receive()) is None:
                return None
            elif messages:
                return messages[0]
        return None

    def begin(self, worker: str, max_result: int, timed_tasks: Collection[str]) -> None:
        """It belongs to this worker. `timed_tasks`: those with a timeout."""
        self.greeted = True
        self.channel.allow(max_result)
        self.table.timed_tasks = timed_tasks
        try:
            with self._shared as shared:
                socket.send_fds(self.channel.connection, [frame(Begin(worker))], [shared.fileno()])
        except OSError:  # no more memory or descriptors, or it has ended meanwhile: another takes its place
            self.disconnect()

    # -- attempts ------------------------------------------------------------------------------------------------------

    def give(self, attempts: Sequence[Attempt], *, is_async: bool) -> bool:
        """Let it run these. False: it takes no more."""
        first = self.table.add(attempts, self, is_async=is_async) if self.ready else None
        if first is None:
            return False
        if self.backlog:
            self._unread.append((first, self.channel.outgoing.written))
        expires = any(attempt.begin_by is not None for attempt in attempts)
        begin_by = [attempt.begin_by for attempt in attempts] if expires else []
        self.send(Start(first, attempts[0].taken, [attempt.held for attempt in attempts], begin_by))
        if self.table.awaits_starts:
            self._wake()
        for attempt in attempts:
            if attempt.reason is not None:
                self.stop_requested(attempt)  # requested at the very moment it was given
        return True

    def check_given(self, numbers: Iterable[int]) -> None:
        """A process can't have ended what it has not read yet. (Otherwise one that does not read would be given more
        and more, all of which we would buffer.)"""
        while self._unread and self._unread[0][1] <= self.channel.outgoing.sent:
            self._unread.popleft()
        if self._unread and any(number >= self._unread[0][0] for number in numbers):
            raise Garbled("ended what it was not given yet")

    def take(self, numbers: Sequence[int]) -> list[Attempt | None]:
        """Attempts that ended, or were given back. None: there is no such attempt any more."""
        if self._stacks:
            self._stacks.difference_update(numbers)
        return self.table.take(numbers)

    def take_all(self) -> list[Attempt]:
        """It is gone: what it had in flight."""
        self.ready = False
        return self.table.take_all()

    def stop_requested(self, attempt: Attempt) -> None:
        self.stops_pending = True
        self.send(Stop(attempt.number, attempt.reason, attempt.forced))
        self._wake()

    def has_begun(self, attempt: Attempt) -> bool:
        return self.table.marks.has_begun(attempt)

    def has_recorded(self, attempt: Attempt) -> bool:
        return self.table.marks.has_recorded(attempt)

    def request_stack(self, attempt: Attempt) -> None:
        """It answers with Stack."""
        if attempt.number not in self._stacks:
            self._stacks.add(attempt.number)
            self.send(TakeStack(attempt.number))
            self._wake()

    def stack_received(self, number: int) -> Attempt | None:
        """The attempt that this stack is of; None: it was not asked for."""
        if number not in self._stacks:
            return None
        self._stacks.discard(number)
        return self.table.get(number)

    # -- its connection ------------------------------------------------------------------------------------------------

    def send(self, message: ToRunner) -> None:
        if not self.channel.send(message):
            self._wake()

    @property
    def backlog(self) -> bool:
        """It has not taken all that was sent to it."""
        return not self.channel.outgoing.empty

    # -- its end -------------------------------------------------------------------------------------------------------

    def ask_to_end(self, seconds: float) -> None:
        self.ready = False
        self.doomed = True
        self.send(Close(seconds))

    def kill(self) -> None:
        """It and whatever it started."""
        self.ready = False
        self.doomed = True
        self.child.kill()

    def disconnect(self) -> None:
        """It closed its connection, or nothing it sends can be trusted any more: that counts as its end."""
        self.ready = False
        self.child.kill()

    @property
    def was_killed(self) -> bool:
        """It did not end by itself. (Call this when it has ended. Python ends by SIGINT if nobody catches a
        KeyboardInterrupt; a SIGINT from outside is ignored, the worker decides what follows.)"""
        end = self.child.exit_status
        return end is None or end.code is None or (end.code < 0 and end.code != -signal.SIGINT)

    def reap(self, patience: float = 0.0) -> str:
        """How it ended, in words. It gets so many seconds to end by itself. Nothing it started is left."""
        if self.child.watched is not None:
            ended = select.poll()
            ended.register(self.child.watched, select.POLLIN)
            ended.poll(patience * 1000)
        if not self.child.ended():
            self.child.kill()
            self.child.wait()
        end = self.child.reap()
        assert end is not None
        self.channel.close()
        self._shared.close()
        return f"was ended, for it {self.channel.broken}" if self.channel.broken else end.described()


class Withdrawals:
    """Attempts that were asked back because they have not begun. One request at a time for coroutines, and one for
    synchronous handlers: the process answers each of them, and an answer that nobody asked for is refused."""

    def __init__(self, send: Callable[[Withdraw], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._asked_at: dict[bool, float] = {}  # is_async -> since when an answer is due (monotonic)

    def request(self, most: int | None, *, is_async: bool) -> None:
        """What has not begun comes back with the answer."""
        with self._lock:
            if is_async in self._asked_at:
                return
            self._asked_at[is_async] = time.monotonic()
        self._send(Withdraw(is_async, most))

    def answered(self, is_async: bool) -> None:
        if self._asked_at.pop(is_async, None) is None:
            raise Garbled("gave back what nobody asked for")

    def is_pending(self, *, is_async: bool) -> bool:
        return is_async in self._asked_at

    def silent_for(self) -> float:
        """Seconds that an answer is due."""
        return time.monotonic() - min(self._asked_at.values(), default=time.monotonic())


def _shared_memory() -> IO[bytes]:
    """A file in memory, large enough for the marks of all attempts."""
    in_memory = hasattr(os, "memfd_create")
    file = os.fdopen(os.memfd_create("holdfast"), "r+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115
    file.truncate(MARKS)
    return file
