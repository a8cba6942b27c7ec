"""How a pooled process reports outcomes: in batches. What ends on the event loop is sent once in each round of it, so a
batch of short jobs is one frame; what ends on a thread is sent by that thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from holdfast.model.outcome import Outcome
from holdfast.runners.messages import Done, Progressed, ToWorker
from holdfast.runners.wire import PART, send
from holdfast.tasks.attempt import NOTE_LIMIT, Attempt

if TYPE_CHECKING:
    import asyncio
    import socket

NOTES = PART // (4 * NOTE_LIMIT)  # progress reports in one frame: a character takes up to four bytes
OVERHEAD = 1_000  # bytes of an outcome, besides its result and the texts of its error

Report = tuple[int, int, int | None, str | None]  # an attempt's number, and its progress


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
        reports += [(a.number, *p) for a in succeeded if a.done is not None and (p := a.progress)]
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
