"""When suspects come again that found no free process. They are given back, so that another worker can take them, and
spread over time, so that they don't go round in circles here: one after the other, as quickly as processes were last
freed."""

from __future__ import annotations

FIRST_PACE = 1.0  # seconds between two, until it is known how quickly processes are freed
LONGEST = 30.0  # seconds after which one comes again at the latest


class Turns:
    """Instants are monotonic."""

    def __init__(self) -> None:
        self._pace = FIRST_PACE
        self._freed_at: float | None = None  # the last process, if all were busy until then
        self.until = 0.0  # when the last of those that were given back comes again

    def freed(self, now: float, *, all_busy: bool) -> None:
        """A suspect has ended. `all_busy`: until then no process was free."""
        if all_busy and self._freed_at is not None:
            self._pace = (self._pace + min(LONGEST, now - self._freed_at)) / 2
        self._freed_at = now if all_busy else None

    def delays(self, count: int, now: float) -> list[float]:
        """Seconds until each of so many suspects is due again, in their order."""
        first = max(now, self.until)
        delays = [min(LONGEST, first - now + self._pace * turn) for turn in range(1, count + 1)]
        if delays:
            self.until = now + delays[-1]
        return delays
