"""A pooled process, from inside: takes attempts from its worker over a socket, runs them on the same event loop and
threads as a worker that runs its handlers itself, and sends back their outcomes.

The main thread reads. Outcomes are sent by the thread they came about on, and by the reader if the loop does not get to
it."""

from __future__ import annotations

import mmap
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from holdfast import events
from holdfast.model.outcome import Outcome
from holdfast.runners.attempt_table import ENDED, MARKS, RECORDED, RECORDS, RUNS
from holdfast.runners.child_setup import forks_are_no_runners
from holdfast.runners.event_forwarding import Receiver
from holdfast.runners.event_loop import LoopRunner
from holdfast.runners.inprocess import InProcessGroup
from holdfast.runners.wire import (
    LENGTH,
    PART,
    Begin,
    Close,
    Deliver,
    Delivered,
    Done,
    FrameReader,
    Hello,
    Progressed,
    Ready,
    Stack,
    Start,
    Stop,
    TakeStack,
    ToRunner,
    ToWorker,
    Withdraw,
    Withdrawn,
    receive,
    send,
    to_runner,
)
from holdfast.settings import Settings
from holdfast.tasks.attempt import NOTE_LIMIT, Attempt

if TYPE_CHECKING:
    import asyncio
    import socket


# How a pooled process reports outcomes: in batches. What ends on the event loop is sent once in each round of it, so
# a batch of short jobs is one frame; what ends on a thread is sent by that thread.

NOTES = PART // (4 * NOTE_LIMIT)  # progress reports in one frame: a character takes up to four bytes
OVERHEAD = 1_000  # bytes of an outcome, besides its result and the texts of its error

Report = tuple[int, int | None, int | None, str | None]  # an attempt's number, and its progress


class WorkerConnection:
    """A process's end of the connection to its worker. Any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._lock = threading.Lock()

    def send(self, message: ToWorker) -> None:
        with self._lock:
            send(self.socket, message)


class OutcomeBatches:
    def __init__(self, connection: WorkerConnection, in_flight: MutableMapping[int, Any]) -> None:
        """`in_flight`: the attempts by number. What was reported is removed."""
        self._connection = connection
        self._in_flight = in_flight
        self._flushing = threading.Lock()
        self._finished: deque[tuple[Attempt, Outcome | None]] = deque()
        self._succeeded: deque[Attempt] = deque()  # without a result
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scheduled = False  # the loop is about to send

    @property
    def pending(self) -> bool:
        return bool(self._finished or self._succeeded)

    # -- from threads --------------------------------------------------------------------------------------------------

    def finished(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._finished.append((attempt, outcome))
        self.flush()

    def succeeded(self, attempt: Attempt) -> None:
        self._succeeded.append(attempt)
        self.flush()

    # -- from the event loop -------------------------------------------------------------------------------------------

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def finished_on_loop(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._finished.append((attempt, outcome))
        if not self._scheduled:
            self._schedule()

    def succeeded_on_loop(self, attempt: Attempt) -> None:
        self._succeeded.append(attempt)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        assert self._loop is not None
        self._scheduled = True
        self._loop.call_soon(self.flush)

    # ------------------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send what has ended. From any thread."""
        with self._flushing:
            self._scheduled = False
            self._send([self._succeeded.popleft() for _ in range(len(self._succeeded))])
            while self._finished:
                self._send([])

    def _send(self, succeeded: list[Attempt]) -> None:
        """Those that succeeded without a result, and as many others as fit in a frame."""
        if not succeeded and not self._finished:
            return
        size = 0
        results: list[bytes | None] = []
        others: list[tuple[int, float, float, Outcome | None]] = []
        reports: list[Report] = []
        while self._finished and size < PART:
            attempt, outcome = self._finished.popleft()
            size += _size(outcome)
            if outcome is None or outcome.verb != "succeed" or outcome.recorded or not attempt.started:
                others.append((attempt.number, attempt.started, attempt.ended, outcome))
                if (progress := attempt.progress) is not None:
                    reports.append((attempt.number, *progress))
                self._in_flight.pop(attempt.number, None)
            else:
                results += [None] * (len(succeeded) - len(results))
                results.append(outcome.result)
                succeeded.append(attempt)
        reports += [(a.number, *p) for a in succeeded if (p := a.progress)]
        numbers = [attempt.number for attempt in succeeded]
        for number in numbers:
            self._in_flight.pop(number, None)
        started, ended = [a.started for a in succeeded], [a.ended for a in succeeded]
        send_progress(self._connection, reports)
        self._connection.send(Done(numbers, started, ended, results, others))


def send_progress(connection: WorkerConnection, reports: list[Report]) -> None:
    """In as many frames as it takes."""
    for at in range(0, len(reports), NOTES):
        connection.send(Progressed(reports[at : at + NOTES]))


def _size(outcome: Outcome | None) -> int:
    """Bytes it takes at most."""
    if outcome is None:
        return OVERHEAD
    error = outcome.error
    texts = 0 if error is None else len(error.message) + len(error.traceback or "")
    return OVERHEAD + len(outcome.result or b"") + 4 * texts


TICK = 0.25  # seconds between reports of progress
SOON = 0.02  # seconds an outcome waits at most for a busy loop


class PooledAttempt(Attempt, kw_only=True, eq=False, gc=False):
    """Marks its state in memory that outlives this process."""

    marks: mmap.mmap

    def begin(self) -> None:
        self.started = monotonic()
        self.marks[self.number % MARKS] = RUNS

    def end(self) -> None:
        self.ended = monotonic()
        self.marks[self.number % MARKS] = RECORDED if self.recorded else ENDED

    def lose(self) -> bool:
        self.ask("lost")
        return False  # the worker notices as well, and reports it

    def record(self, value: bool) -> None:
        self.recorded = value
        self.marks[self.number % MARKS] = RECORDS if value else RUNS


class PooledChild:
    def __init__(self, connection: socket.socket, settings: Settings, group: InProcessGroup) -> None:
        self._connection = WorkerConnection(connection)
        self._settings = settings
        self._group = group
        self._timeouts = {name: task.timeout for task in group.tasks for name in task.names}
        self._patience = {name: t.progress_timeout for t in group.tasks if t.progress_timeout for name in t.names}
        self._runner_of = {name: runner for runner in group.runners for name in runner.manifest.names}
        self._in_flight: dict[int, PooledAttempt] = {}
        self._outcomes = OutcomeBatches(self._connection, self._in_flight)
        self._reported_at = 0.0  # monotonic: when progress was last reported
        self._receiver = Receiver(lambda: self._connection.send(Delivered()))

    def serve(self) -> None:
        """Until the worker asks it to end, or is gone."""
        self._connection.send(Hello(asdict(self._settings), self._group.tasks))
        worker = self._begin()
        if worker is None:
            return
        self._open(worker)
        seconds = 0.0
        try:
            self._connection.send(Ready(events.heard()))
            for message in self._messages():
                if isinstance(message, Close):
                    seconds = message.seconds
                    break
                self._obey(message)
        finally:
            self._group.close(monotonic() + seconds)
            self._outcomes.flush()

    def _begin(self) -> str | None:
        """The one frame that brings a descriptor."""
        connection = self._connection.socket
        head, descriptors, _, _ = socket.recv_fds(connection, LENGTH.size, 1)
        if len(head) < LENGTH.size:
            return None
        message = to_runner.decode(connection.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL))
        if not isinstance(message, Begin):
            return None  # the worker ends before we began
        forks_are_no_runners(connection.fileno())
        self._marks = mmap.mmap(descriptors[0], MARKS)
        os.close(descriptors[0])
        return message.worker

    def _open(self, worker: str) -> None:
        outcomes = self._outcomes
        for runner in self._group.runners:
            if isinstance(runner, LoopRunner):
                outcomes.use_loop(runner.loop)
                runner.open(worker, outcomes.finished_on_loop, outcomes.succeeded_on_loop)
            else:
                runner.open(worker, outcomes.finished, outcomes.succeeded)
        self._group.open_resources(worker)

    # -- what comes ----------------------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[ToRunner]:
        connection, frames = self._connection.socket, FrameReader()
        readable = select.poll()
        readable.register(connection, select.POLLIN)
        report_at = 0.0
        while True:
            wait = SOON if self._outcomes.pending else TICK if self._in_flight else None
            if readable.poll(None if wait is None else wait * 1000):
                data = receive(connection)
                if not data:
                    os._exit(1)  # the worker is gone, and others will soon run its jobs: nothing may go on here
                yield from map(to_runner.decode, frames.feed(data))
            else:
                self._outcomes.flush()
            if not self._in_flight:
                report_at = 0.0
            elif not report_at:  # they have just begun: the loop needs the processor to run them
                report_at = monotonic() + TICK
            elif monotonic() >= report_at:
                report_at = monotonic() + TICK
                self._report_progress()

    def _obey(self, message: ToRunner) -> None:
        match message:
            case Start():
                self._start(message)
            case Stop(number, reason, forced):
                if (attempt := self._in_flight.get(number)) is not None:
                    if reason is not None:
                        attempt.ask(reason)
                    if forced:
                        attempt.force()
            case Withdraw(is_async, most):
                self._withdraw(is_async, most)
            case TakeStack(number):
                if (attempt := self._in_flight.get(number)) is not None:
                    self._connection.send(Stack(number, self._group.stack_of(attempt)))
            case Deliver(batch):
                self._receiver.take(batch)
            case _:
                raise AssertionError("sent once")

    def _start(self, message: Start) -> None:
        timeouts, taken, marks = self._timeouts, message.taken, self._marks
        attempts = [
            PooledAttempt(held, timeouts[held.task], taken, 0, number, marks=marks)
            for number, held in enumerate(message.jobs, message.first)
        ]
        for attempt, begin_by in zip(attempts, message.begin_by, strict=False):
            attempt.begin_by = begin_by
        if self._patience:
            for attempt in attempts:
                attempt.patience = self._patience.get(attempt.held.task)
        self._in_flight.update(zip(count(message.first), attempts))
        self._runner_of[attempts[0].held.task].start(attempts)

    def _withdraw(self, is_async: bool, most: int | None) -> None:
        back: list[int] = []
        for runner in self._group.runners:
            if isinstance(runner, LoopRunner) is is_async:
                back += [attempt.number for attempt in runner.withdraw(most)]
        for number in back:
            del self._in_flight[number]
        self._connection.send(Withdrawn(is_async, back))

    def _report_progress(self) -> None:
        reports, others, since = [], [], self._reported_at
        self._reported_at = monotonic()
        for attempt in list(self._in_flight.values()):
            if (progress := attempt.new_progress()) is not None:
                reports.append((attempt.number, *progress))
            elif attempt.moved > since:
                others.append(attempt.number)
        send_progress(self._connection, reports)
        if others:
            self._connection.send(Progressed([], others))
