"""When to look next: at once after a wake-up, else when the next job falls due, else by backing off."""

from __future__ import annotations

from holdfast.model.backoff import PollBackoff


class Poller:
    """While notifications are heard, an empty look needs no timer of its own but the next due time: the watchdog's
    look, at least once a lease, is the fallback. Deaf, it polls."""

    def __init__(self, backoff: PollBackoff) -> None:
        self._backoff = backoff
        self.listening = False
        self.empty_polls = 0

    def found(self) -> None:
        self.empty_polls = 0

    def wait(self, next_due: float | None) -> float | None:
        """Seconds until the next look after an empty one; None: until woken."""
        self.empty_polls += 1
        due = None if next_due is None else max(0.0, next_due)
        if self.listening:
            return due
        pause = self._backoff.wait(self.empty_polls)
        return pause if due is None else min(pause, due)
