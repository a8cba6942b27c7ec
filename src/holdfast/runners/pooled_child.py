"""A runner process, from within: takes attempts from its worker over a socket, runs them on the same loop and threads
as a worker that runs its handlers itself, and sends back what became of them.

The main thread reads. What ended is sent by the thread it ended on: by the loop once in a round, so that a batch of
short jobs is one frame; and by the reader if the loop does not get to it."""

from __future__ import annotations

import mmap
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from time import monotonic

from holdfast import events
from holdfast.model.outcome import Outcome
from holdfast.runners.child_setup import forks_are_no_runners
from holdfast.runners.event_forwarding import Receiver
from holdfast.runners.event_loop import LoopRunner
from holdfast.runners.group import InProcessGroup
from holdfast.runners.wire import (
    ENDED,
    LENGTH,
    MARKS,
    PART,
    RECORDED,
    RECORDS,
    RUNS,
    Back,
    Begin,
    Close,
    Done,
    Happened,
    Heard,
    Hello,
    Here,
    Incoming,
    Moved,
    Ready,
    Start,
    Tell,
    ToRunner,
    ToWorker,
    Where,
    Withdraw,
    hear,
    say,
    to_runner,
)
from holdfast.settings import Settings
from holdfast.tasks.attempt import NOTE_LIMIT, Attempt

TICK = 0.5  # seconds between reports of progress
NOTES = PART // (4 * NOTE_LIMIT)  # progress told of in one frame: a character takes up to four bytes
LITTLE = 1_000  # bytes of an outcome, beside its result and the texts of its error
SOON = 0.02  # seconds an outcome waits at most for a loop that is busy

Reached = tuple[int, int, int | None, str | None]  # an attempt's number, and its progress


class Numbered(Attempt, kw_only=True, eq=False, gc=False):
    """An attempt as its runner has it: what becomes of it is marked where the worker can see it, whatever happens."""

    marks: mmap.mmap

    def begin(self) -> None:
        self.started = monotonic()
        self.marks[self.number % MARKS] = RUNS

    def end(self) -> None:
        self.ended = monotonic()
        self.marks[self.number % MARKS] = RECORDED if self.recorded else ENDED

    def lose(self) -> bool:
        self.ask("lost")
        return False  # the worker sees it too, and tells

    def record(self, value: bool) -> None:
        self.recorded = value
        self.marks[self.number % MARKS] = RECORDS if value else RUNS


class Child:
    def __init__(self, line: socket.socket, settings: Settings, crew: InProcessGroup) -> None:
        self._line = line
        self._settings = settings
        self._crew = crew
        self._timeouts = {name: task.timeout for task in crew.tasks for name in task.names}
        self._patience = {name: t.progress_timeout for t in crew.tasks if t.progress_timeout for name in t.names}
        self._runner_of = {name: runner for runner in crew.runners for name in runner.manifest.names}
        self._in_hand: dict[int, Numbered] = {}
        self._sending = threading.Lock()
        self._done: deque[tuple[Attempt, Outcome | None]] = deque()
        self._plain: deque[Attempt] = deque()  # succeeded, without a result
        self._reported_at = 0.0  # monotonic
        self._called = False  # the loop is about to send
        self._receiver = Receiver(lambda: self._send(Heard()))

    def serve(self) -> None:
        """Until the worker asks for the end, or is gone."""
        self._send(Hello(asdict(self._settings), self._crew.tasks))
        worker = self._begin()
        if worker is None:
            return
        self._crew.open(worker, self)
        for runner in self._crew.runners:
            if isinstance(runner, LoopRunner):
                self._loop = runner.loop
                runner.finished, runner.succeeded = self._finished_on_loop, self._succeeded_on_loop
        seconds = 0.0
        try:
            self._send(Ready(events.heard()))
            for message in self._messages():
                if isinstance(message, Close):
                    seconds = message.seconds
                    break
                self._obey(message)
        finally:
            self._crew.close(monotonic() + seconds)
            self._flush()

    def _begin(self) -> str | None:
        """The one frame that brings a descriptor."""
        head, descriptors, _, _ = socket.recv_fds(self._line, LENGTH.size, 1)
        if len(head) < LENGTH.size:
            return None
        message = to_runner.decode(self._line.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL))
        if not isinstance(message, Begin):
            return None  # the worker ends before we began
        forks_are_no_runners(self._line.fileno())
        self._marks = mmap.mmap(descriptors[0], MARKS)
        os.close(descriptors[0])
        return message.worker

    # -- what comes ----------------------------------------------------------------------------------------------------

    def _messages(self) -> Iterator[ToRunner]:
        incoming = Incoming()
        readable = select.poll()
        readable.register(self._line, select.POLLIN)
        report_at = 0.0
        while True:
            wait = SOON if self._done or self._plain else TICK if self._in_hand else None
            if readable.poll(None if wait is None else wait * 1000):
                data = hear(self._line)
                if not data:
                    os._exit(1)  # the worker is gone, and others run its jobs soon: nothing may go on here
                yield from map(to_runner.decode, incoming.feed(data))
            else:
                self._flush()
            if not self._in_hand:
                report_at = 0.0
            elif not report_at:  # they have just begun: the loop wants to run them, and we would be in its way
                report_at = monotonic() + TICK
            elif monotonic() >= report_at:
                report_at = monotonic() + TICK
                self._report_progress()

    def _obey(self, message: ToRunner) -> None:
        match message:
            case Start():
                self._start(message)
            case Tell(number, reason, forced):
                if (attempt := self._in_hand.get(number)) is not None:
                    if reason is not None:
                        attempt.ask(reason)
                    if forced:
                        attempt.force()
            case Withdraw(is_async, most):
                self._withdraw(is_async, most)
            case Where(number):
                if (attempt := self._in_hand.get(number)) is not None:
                    self._send(Here(number, self._crew.stack_of(attempt)))
            case Happened(batch):
                self._receiver.take(batch)
            case _:
                raise AssertionError("said once")

    def _start(self, message: Start) -> None:
        timeouts, taken, marks = self._timeouts, message.taken, self._marks
        attempts = [
            Numbered(held, timeouts[held.task], taken, 0, number, marks=marks)
            for number, held in enumerate(message.jobs, message.first)
        ]
        for attempt, begin_by in zip(attempts, message.begin_by, strict=False):
            attempt.begin_by = begin_by
        if self._patience:
            for attempt in attempts:
                attempt.patience = self._patience.get(attempt.held.task)
        self._in_hand.update(zip(count(message.first), attempts))
        self._runner_of[attempts[0].held.task].start(attempts)

    def _withdraw(self, is_async: bool, most: int | None) -> None:
        back: list[int] = []
        for runner in self._crew.runners:
            if isinstance(runner, LoopRunner) is is_async:
                back += [a.number for a in runner.withdraw(most) if isinstance(a, Numbered)]
        for number in back:
            del self._in_hand[number]
        self._send(Back(is_async, back))

    def _report_progress(self) -> None:
        told, others, since = [], [], self._reported_at
        self._reported_at = monotonic()
        for attempt in list(self._in_hand.values()):
            if (progress := attempt.new_progress()) is not None:
                told.append((attempt.number, *progress))
            elif attempt.moved > since:
                others.append(attempt.number)
        with self._sending:
            self._say_moved(told)
            if others:
                say(self._line, Moved([], others))

    # -- what goes -----------------------------------------------------------------------------------------------------

    def finished(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._done.append((attempt, outcome))
        self._flush()

    def _finished_on_loop(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._done.append((attempt, outcome))
        self._flush_soon()

    def _succeeded_on_loop(self, attempt: Attempt) -> None:
        self._plain.append(attempt)
        if not self._called:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what has ended. From any thread."""
        with self._sending:
            self._called = False
            self._say_done([self._plain.popleft() for _ in range(len(self._plain))])
            while self._done:
                self._say_done([])

    def _say_done(self, succeeded: list[Attempt]) -> None:
        """Those that succeeded without a result, and as many others as a frame may hold."""
        if not succeeded and not self._done:
            return
        size = 0
        results: list[bytes | None] = []
        others: list[tuple[int, float, float, Outcome | None]] = []
        moved: list[Reached] = []  # how far they came
        while self._done and size < PART:
            attempt, outcome = self._done.popleft()
            size += _size(outcome)
            if outcome is None or outcome.verb != "succeed" or outcome.recorded or not attempt.started:
                others.append((attempt.number, attempt.started, attempt.ended, outcome))
                if (progress := attempt.progress) is not None:
                    moved.append((attempt.number, *progress))
                self._in_hand.pop(attempt.number, None)
            else:
                results += [None] * (len(succeeded) - len(results))
                results.append(outcome.result)
                succeeded.append(attempt)
        moved += [(a.number, *p) for a in succeeded if a.done is not None and (p := a.progress)]
        numbers = [attempt.number for attempt in succeeded]
        for number in numbers:
            self._in_hand.pop(number, None)
        started, ended = [a.started for a in succeeded], [a.ended for a in succeeded]
        self._say_moved(moved)
        say(self._line, Done(numbers, started, ended, results, others))

    def _say_moved(self, progress: list[Reached]) -> None:
        for at in range(0, len(progress), NOTES):
            say(self._line, Moved(progress[at : at + NOTES]))

    def _send(self, message: ToWorker) -> None:
        with self._sending:
            say(self._line, message)


def _size(outcome: Outcome | None) -> int:
    """Bytes it takes, at most."""
    if outcome is None:
        return LITTLE
    error = outcome.error
    texts = 0 if error is None else len(error.message) + len(error.traceback or "")
    return LITTLE + len(outcome.result or b"") + 4 * texts
