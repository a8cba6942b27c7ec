"""Attempts that ended: runners add them from any thread, the desk collects them into its outbox."""

from __future__ import annotations

import time
from collections import deque

from msgspec.structs import replace

from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.tasks.attempt import Attempt
from holdfast.worker.intake import Suspects
from holdfast.worker.mandate import Mandate, Meters
from holdfast.worker.outbox import Outbox
from holdfast.worker.periodic import Bell
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import SlotTable


class EndedAttempts:
    """Implements `Ends`, by which runners report."""

    def __init__(
        self, slots: SlotTable, outbox: Outbox, suspects: Suspects, poller: Poller, mandate: Mandate, meters: Meters,
        bell: Bell, *, pause: float,
    ) -> None:  # fmt: skip
        """`pause`: seconds to wait after an attempt before the next job is claimed."""
        self._slots = slots
        self._outbox = outbox
        self._suspects = suspects
        self._poller = poller
        self._mandate = mandate
        self._meters = meters
        self._pause = pause
        self._bell = bell
        self._ended: deque[tuple[Attempt, Outcome | Crash | None]] = deque()
        self._succeeded: deque[tuple[list[Attempt], list[Outcome]]] = deque()
        self.any_expired = False  # jobs were given back because they expired before they began

    # -- from any thread -----------------------------------------------------------------------------------------------

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        self._ended.append((attempt, outcome))
        self._bell.ring()

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        """Many at once, none of which recorded its success itself."""
        self._succeeded.append((attempts, outcomes))
        self._bell.ring()

    # -- from the desk -------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Is there anything to collect?"""
        return bool(self._ended or self._succeeded)

    def collect(self) -> None:
        """Move what ended into the outbox, and free its slots."""
        now = time.monotonic()
        self._outbox.unblock(now)
        if not self:
            return
        while self._succeeded:
            self._collect_succeeded(*self._succeeded.popleft(), now)
        while self._ended:
            self._collect_one(*self._ended.popleft(), now)
        for slots in self._slots:
            slots.prefetch.measure()
        self._poller.slot_freed(now, self._pause)

    def _collect_succeeded(self, attempts: list[Attempt], outcomes: list[Outcome], now: float) -> None:
        """`_collect_one` for a batch: rare cases are checked once for all of them. This is the drain's hot path."""
        numbers = {attempt.runner for attempt in attempts}
        slots = self._slots[numbers.pop()] if len(numbers) == 1 else None
        if slots is None or slots is self._slots.isolated or self._outbox.any_given_back:
            for attempt, outcome in zip(attempts, outcomes, strict=True):
                self._collect_one(attempt, outcome, now)
            return
        slots.runner.busy -= len(attempts)
        seconds = longest_wait = 0.0
        for n, attempt in enumerate(attempts):
            started = attempt.started
            seconds += attempt.ended - started
            if started - attempt.taken > longest_wait:
                longest_wait = started - attempt.taken
            if attempt.done is not None:
                outcomes[n] = replace(outcomes[n], progress=attempt.progress)
        slots.prefetch.ended(len(attempts), seconds, longest_wait)
        self._outbox.outcomes += outcomes

    def _collect_one(self, attempt: Attempt, outcome: Outcome | Crash | None, now: float) -> None:
        self._free_slot(attempt, now)
        if self._outbox.was_given_back(attempt.held):
            return
        if isinstance(outcome, Crash):
            self._outbox.crashes.append((attempt, outcome))
            return
        if outcome is None and attempt.reason != "lost":
            outcome = given_back(attempt.held, started=bool(attempt.started))
            self.any_expired = self.any_expired or (attempt.begin_by is not None and not attempt.started)
        if outcome is None:
            self._meters.lost += 1
            self._outbox.forget(attempt.held)
            return
        if attempt.done is not None:
            outcome = replace(outcome, progress=attempt.progress)
        if outcome.verb == "release" and not attempt.started:
            self._mandate.refund(1)
        if outcome.recorded:
            self._outbox.to_verify.append((attempt, outcome))
        else:
            self._outbox.outcomes.append(outcome)

    def _free_slot(self, attempt: Attempt, now: float) -> None:
        slots = self._slots.of(attempt)
        if slots is self._slots.isolated:
            self._suspects.delays.freed(now, all_busy=slots.free <= 0)
        slots.runner.busy -= 1
        if attempt.ended:
            slots.prefetch.ended(1, attempt.ended - attempt.started, attempt.started - attempt.taken)
