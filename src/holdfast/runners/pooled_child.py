"""A pooled process, from inside: takes attempts from its worker over a socket, runs them on the same event loop and
threads as a worker that runs its handlers itself, and sends back their outcomes.

The main thread reads. Outcomes are sent by the thread they came about on, and by the reader if the loop does not get to
it."""

from __future__ import annotations

import mmap
import os
import select
import socket
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from time import monotonic

from holdfast import events
from holdfast.runners.child_setup import forks_are_no_runners
from holdfast.runners.event_forwarding import Receiver
from holdfast.runners.event_loop import LoopRunner
from holdfast.runners.inprocess_group import InProcessGroup
from holdfast.runners.marks import ENDED, MARKS, RECORDED, RECORDS, RUNS
from holdfast.runners.messages import (
    Begin,
    Close,
    Deliver,
    Delivered,
    Hello,
    Progressed,
    Ready,
    Stack,
    Start,
    Stop,
    TakeStack,
    ToRunner,
    Withdraw,
    Withdrawn,
)
from holdfast.runners.outcome_batches import OutcomeBatches, WorkerConnection, send_progress
from holdfast.runners.wire import LENGTH, FrameReader, receive, to_runner
from holdfast.settings import Settings
from holdfast.tasks.attempt import Attempt

TICK = 0.5  # seconds between reports of progress
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
