"""What pooled processes that take attempts send: outcomes, progress, stacks, attempts given back."""

from __future__ import annotations

import time
from itertools import repeat

from holdfast.runners.arrivals import Arrivals, span
from holdfast.runners.base import WorkerLink
from holdfast.runners.channel import Garbled
from holdfast.runners.event_forwarding import Forwarder
from holdfast.runners.messages import Delivered, Done, Progressed, Stack, StartFailed, ToWorker, Withdrawn
from holdfast.runners.pooled_process import PooledProcess
from holdfast.tasks.attempt_events import emit_errored


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
