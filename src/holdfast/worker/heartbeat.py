"""Renews the leases of what is in flight, on its own thread and connection. With each renewal it learns what people
asked for (pause, cancel, a stack) and which leases are lost. It also writes progress, coalesced, and enforces timeouts.
It beats until the last handler is gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from holdfast import events
from holdfast.errors import LeaseLost, StoreError
from holdfast.model.job import Request
from holdfast.store.base import Ref, Store
from holdfast.tasks.attempt import Attempt, Speed, emit_lost
from holdfast.worker.loop import Loop

TICK = 1.0  # seconds between two writes of one attempt's progress
IDLE = 0.5  # seconds between two looks whether anything is in flight
LOOK = 0.25  # seconds between two looks for a first report of progress, and between checks of timeouts
YOUNG = 1.0  # seconds since the claim, and a quarter of a beat at most, in which a lease need not be renewed
REQUESTS_EVERY = 0.2  # seconds between two reads of what people ask, however often they may have asked


class Heartbeat:
    def __init__(
        self, store: Store, in_flight: Callable[[], list[Attempt]], *, every: float, lease: float, worker: str = "",
        progress_timeouts: Mapping[str, float] | None = None,
        ask_for_stack: Callable[[Attempt], None] = lambda attempt: None,
        connection_broke: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`progress_timeouts`: for a task, how many seconds its attempts may go without progress. `ask_for_stack` has a
        runner call `answer` with the stack of a handler. `connection_broke` is called if leases could not be renewed.
        """
        self._store = store
        self._worker = worker
        self._in_flight = in_flight
        self._every = every
        self._lease = lease
        self._progress_timeouts = progress_timeouts or {}
        self._ask_for_stack = ask_for_stack
        self._connection_broke = connection_broke
        self._next = time.monotonic() + every
        self._requested = False  # people may have asked for something since we last read that
        self._requests_read_at = 0.0
        self._answers: deque[tuple[Attempt, str]] = deque()
        self._loop = Loop("heartbeat", self._step)

    def start(self) -> None:
        self._loop.start()

    def stop(self, timeout: float = 5.0) -> None:
        self._loop.stop(timeout)

    def join(self, timeout: float) -> None:
        self._loop.join(timeout)

    def requested(self) -> None:
        """People may have asked for something: read it now instead of with the next beat."""
        if not self._requested:  # else it is on its way, however often somebody commits
            self._requested = True
            self._loop.wake()

    def answer(self, attempt: Attempt, stack: str) -> None:
        """A runner says where the handler of this attempt is. From any thread, at any time after `ask_for_stack`."""
        self._answers.append((attempt, stack))
        self._loop.wake()

    def _step(self) -> float:
        attempts = self._in_flight()
        now = time.monotonic()
        if not attempts:
            # What is claimed from now on has a fresh lease: the first renewal is due an interval later.
            self._next = now + self._every
            self._requested = False
            return min(IDLE, self._every)
        if now >= self._next:
            requested, self._requested = self._requested, False
            # With short jobs everything in flight is new, thousands of them, and gone before the beat ends.
            old = [attempt for attempt in attempts if now - attempt.leased >= min(YOUNG, self._every / 4)]
            self._next = now + (self._every if self._beat(old) else min(TICK, self._every / 4))
            if requested and len(old) < len(attempts):
                self._read_requests(attempts)
        elif self._requested and now >= self._requests_read_at + REQUESTS_EVERY:
            self._requested = False
            self._requests_read_at = now
            self._read_requests(attempts)
        self._write_answers()
        self._write_progress(attempts)
        self._enforce_timeouts(attempts)
        self._find_stalled(attempts)
        next_at = min(self._next, self._requests_read_at + REQUESTS_EVERY) if self._requested else self._next
        return min(max(0.01, next_at - time.monotonic()), LOOK)

    # -- leases and requests -------------------------------------------------------------------------------------------

    def _beat(self, attempts: list[Attempt]) -> bool:
        if not attempts:
            return True
        refs = {Ref(a.held.id, a.held.fence): a for a in attempts}
        fences = list({ref.fence for ref in refs})
        try:
            alive, requests = self._store.attempts.renew(fences, list(refs), self._lease)
        except StoreError as error:
            self._connection_broke()
            events.emit("unavailable", error=f"leases could not be renewed: {error}", wait=min(TICK, self._every / 4))
            return False
        events.emit("renewed", count=len(alive))
        self._lost(attempt for ref, attempt in refs.items() if ref.fence not in alive)
        self._obey(requests, refs)
        self._ask_for_stacks(refs)
        return True

    def _read_requests(self, attempts: list[Attempt]) -> None:
        """Read what people ask for without renewing anything. On SQLite every commit wakes us: a renewal would wake us
        again."""
        try:
            requests = self._store.attempts.asked()
        except StoreError:
            self._requested = True
            return
        refs = {Ref(a.held.id, a.held.fence): a for a in attempts}
        self._obey([request for request in requests if Ref(request.id, request.fence) in refs], refs)
        self._ask_for_stacks(refs)

    def _obey(self, requests: list[Request], refs: dict[Ref, Attempt]) -> None:
        self._lost(refs[Ref(request.id, request.fence)] for request in requests if request.lost)
        for request in requests:
            if not request.lost:
                _ask(refs[Ref(request.id, request.fence)], cancel=request.cancel, pause=request.pause)

    def _ask_for_stacks(self, refs: dict[Ref, Attempt]) -> None:
        try:
            asked = self._store.stack_requests.unanswered()
        except StoreError:
            return  # no job depends on it: whoever asked learns that there is no answer
        for id, fence in asked:
            attempt = refs.get(Ref(id, fence))
            if attempt is not None:
                self._ask_for_stack(attempt)

    def _write_answers(self) -> None:
        while self._answers:
            attempt, stack = self._answers.popleft()
            with suppress(StoreError):  # no job depends on it
                self._store.stack_requests.answer(attempt.held.id, attempt.held.fence, stack)

    def _lost(self, attempts: Iterable[Attempt]) -> None:
        """These leases are gone. But what finished since the list was made was recorded, not lost. With short jobs that
        is all of them, thousands, so what is in flight is read once. An attempt that has ended may be recorded and
        still be in flight: if it was lost, the round trip that carries its outcome will say so."""
        attempts = list(attempts)
        in_flight = set(self._in_flight()) if attempts else set()
        for attempt in attempts:
            if attempt in in_flight and not attempt.ended and not attempt.has_recorded and attempt.ask("lost"):
                emit_lost(attempt.held, self._worker)

    # -- progress and timeouts -----------------------------------------------------------------------------------------

    def _write_progress(self, attempts: list[Attempt]) -> None:
        now = time.monotonic()
        for attempt in attempts:
            # Once it has ended, its outcome says how far it came.
            due = attempt.fresh and not attempt.ended and now - attempt.told >= TICK
            progress = attempt.new_progress() if due else None
            if progress is None:
                continue
            attempt.told = attempt.moved = now
            try:
                cancel, pause = self._store.attempts.progress(
                    Ref(attempt.held.id, attempt.held.fence), *progress, _rate(attempt, progress[0])
                )
            except LeaseLost:
                self._lost([attempt])
            except StoreError:
                attempt.fresh = True
            else:
                events.emit(
                    "progressed", job=str(attempt.held.id), done=progress[0], total=progress[1], note=progress[2]
                )
                _ask(attempt, cancel=cancel, pause=pause)

    def _enforce_timeouts(self, attempts: list[Attempt]) -> None:
        now = time.monotonic()
        for attempt in attempts:
            if attempt.timeout is not None and attempt.started and now - attempt.started > attempt.timeout:
                attempt.ask("timeout")

    def _find_stalled(self, attempts: list[Attempt]) -> None:
        """A lease says that a process lives; only progress says that its work moves."""
        if not self._progress_timeouts:
            return
        now = time.monotonic()
        for attempt in attempts:
            timeout = self._progress_timeouts.get(attempt.held.task)
            if timeout is not None:
                attempt.patience = timeout
                if attempt.started and now - max(attempt.started, attempt.moved) > timeout:
                    attempt.ask("stalled")


def _ask(attempt: Attempt, *, cancel: bool, pause: bool) -> None:
    if cancel:
        attempt.ask("cancel")
    elif pause:
        attempt.ask("pause")


def _rate(attempt: Attempt, done: int | None) -> float | None:
    if done is None:
        return None
    now = time.monotonic()
    if attempt.speed is None:
        attempt.speed = Speed(now, done)
    return attempt.speed.now(now, done)
