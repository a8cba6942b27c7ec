"""Renews the leases of what is in hand, on its own thread and connection; learns what people have asked, and what was
lost; writes progress, coalesced. Beats until the last handler is gone."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from holdfast import events
from holdfast.errors import LeaseLost, StoreError
from holdfast.model.job import Request
from holdfast.model.speed import Speed
from holdfast.store.base import Ref, Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_lost
from holdfast.worker.periodic import Loop

TICK = 1.0  # seconds between writes of progress and looks at the clock of handlers with a timeout
YOUNG = 1.0  # seconds since an attempt was claimed, and a quarter of a beat at most: its lease is as good as new
HEAR_EVERY = 0.2  # seconds between two looks at what people ask, however often they may have asked


class Heartbeat:
    def __init__(
        self, store: Store, in_hand: Callable[[], list[Attempt]], *, every: float, lease: float,
        worker: str = "", patience: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._worker = worker
        self._in_hand = in_hand
        self._every = every
        self._lease = lease
        self._patience = patience or {}  # task -> seconds its attempts may go without progress
        self._next = time.monotonic() + every
        self._asked = False
        self._heard_at = 0.0
        self.broken: Callable[[], None] = lambda: None  # tells that a connection broke
        self.stack_of: Callable[[Attempt], None] = lambda attempt: None  # has its runner `answer` where the handler is
        self._answers: deque[tuple[Attempt, str]] = deque()
        self._loop = Loop("heartbeat", self._step)
        self.start = self._loop.start
        self.stop, self.join = self._loop.stop, self._loop.join

    def ask(self) -> None:
        """People may have asked something of a running job: look now instead of at the next beat."""
        if not self._asked:  # else it is on its way, however often somebody commits
            self._asked = True
            self._loop.wake()

    def answer(self, attempt: Attempt, stack: str) -> None:
        """A runner tells where the handler of this attempt is. From any thread, at any time after `stack_of`."""
        self._answers.append((attempt, stack))
        self._loop.wake()

    def _step(self) -> float:
        attempts = self._in_hand()
        now = time.monotonic()
        if not attempts:
            # What is claimed from now on carries a fresh lease: the first renewal is due an interval later.
            self._next = now + self._every
            self._asked = False
            return min(TICK, self._every)
        if now >= self._next:
            asked, self._asked = self._asked, False
            # With short jobs all that is in hand is new, thousands of them, and gone before the beat ends.
            old = [attempt for attempt in attempts if now - attempt.leased >= min(YOUNG, self._every / 4)]
            self._next = now + (self._every if self._beat(old) else min(TICK, self._every / 4))
            if asked and len(old) < len(attempts):
                self._hear(attempts)
        elif self._asked and now >= self._heard_at + HEAR_EVERY:
            self._asked = False
            self._heard_at = now
            self._hear(attempts)
        self._write_answers()
        self._write_progress(attempts)
        self._enforce_timeouts(attempts)
        self._find_stalled(attempts)
        next_at = min(self._next, self._heard_at + HEAR_EVERY) if self._asked else self._next
        return min(max(0.01, next_at - time.monotonic()), TICK)

    def _beat(self, attempts: list[Attempt]) -> bool:
        if not attempts:
            return True
        refs = {Ref(a.held.id, a.held.fence): a for a in attempts}
        fences = list({ref.fence for ref in refs})
        try:
            alive, requests = self._store.renew(fences, list(refs), self._lease)
        except StoreError as error:
            self.broken()
            events.emit("unavailable", error=f"leases could not be renewed: {error}", wait=min(TICK, self._every / 4))
            return False
        events.emit("renewed", count=len(alive))
        self._lost(attempt for ref, attempt in refs.items() if ref.fence not in alive)
        self._obey(requests, refs)
        self._ask_for_stacks(refs)
        return True

    def _hear(self, attempts: list[Attempt]) -> None:
        """What people ask, without renewing anything. On SQLite whoever commits wakes us: a renewal would wake us
        again."""
        try:
            requests = self._store.asked()
        except StoreError:
            self._asked = True
            return
        refs = {Ref(a.held.id, a.held.fence): a for a in attempts}
        self._obey([request for request in requests if Ref(request.id, request.fence) in refs], refs)
        self._ask_for_stacks(refs)

    def _obey(self, requests: list[Request], refs: dict[Ref, Attempt]) -> None:
        self._lost(refs[Ref(request.id, request.fence)] for request in requests if request.lost)
        for request in requests:
            attempt = refs[Ref(request.id, request.fence)]
            if request.lost:
                continue
            if request.cancel:
                attempt.ask("cancel")
            elif request.pause:
                attempt.ask("pause")

    def _ask_for_stacks(self, refs: dict[Ref, Attempt]) -> None:
        try:
            asked = self._store.stack_asks()
        except StoreError:
            return  # nobody's job depends on it: whoever asked is told that there is no answer
        for id, fence in asked:
            attempt = refs.get(Ref(id, fence))
            if attempt is not None:
                self.stack_of(attempt)

    def _write_answers(self) -> None:
        while self._answers:
            attempt, stack = self._answers.popleft()
            with suppress(StoreError):  # as above
                self._store.answer_stack(attempt.held.id, attempt.held.fence, stack)

    def _lost(self, attempts: Iterable[Attempt]) -> None:
        """What finished since the list was made was recorded, not lost. With short jobs that is all of them, thousands:
        what is in hand is asked for once. One that has ended may be recorded and still be in hand: if it was lost, the
        trip that brings its outcome tells."""
        attempts = list(attempts)
        in_hand = set(self._in_hand()) if attempts else set()
        for attempt in attempts:
            if attempt in in_hand and not attempt.ended and not attempt.has_recorded and attempt.ask("lost"):
                emit_lost(attempt.held, self._worker)

    def _write_progress(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            # Once it has ended, its outcome says how far it came.
            progress = None if attempt.ended else attempt.new_progress()
            if progress is None:
                continue
            attempt.moved = time.monotonic()
            try:
                cancel, pause = self._store.progress(
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
                if cancel:
                    attempt.ask("cancel")
                elif pause:
                    attempt.ask("pause")

    def _enforce_timeouts(self, attempts: list[Attempt]) -> None:
        now = time.monotonic()
        for attempt in attempts:
            if attempt.timeout is not None and attempt.started and now - attempt.started > attempt.timeout:
                attempt.ask("timeout")

    def _find_stalled(self, attempts: list[Attempt]) -> None:
        """The lease says that a process lives; only progress says that its work moves."""
        if not self._patience:
            return
        now = time.monotonic()
        for attempt in attempts:
            patience = self._patience.get(attempt.held.task)
            if patience is not None:
                attempt.patience = patience
                if attempt.started and now - max(attempt.started, attempt.moved) > patience:
                    attempt.ask("stalled")


def _rate(attempt: Attempt, done: int) -> float | None:
    now = time.monotonic()
    if attempt.speed is None:
        attempt.speed = Speed(now, done)
    return attempt.speed.now(now, done)
