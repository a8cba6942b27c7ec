"""Which wake-ups a worker acts on, so that one job does not cost a statement of every idle worker.

The wake-up for one job goes out on one of CHANNELS channels, chosen at random. Peers are workers that serve the same
tasks and queues; each knows its rank among them, and how many they are, from its last regular look. That gives every
channel an order of workers nobody has to agree on: the first looks at once, the second a moment later, in case the
first is gone or stuck, and the others don't listen there. The two that come first on channel TIMES also keep the time:
they alone set timers for delayed jobs and for crons.

What a worker knows of its peers may be a little old. Then two look at once, or the two that should look are both gone
and the next regular look of any worker finds the job."""

from __future__ import annotations

import msgspec

CHANNELS = 64
TIMES = 0  # the channel that tells when a job falls due
IN_LINE = 2  # workers that act on a wake-up
LATE = 0.06  # seconds by which all but the first of them wait


class Place(msgspec.Struct, frozen=True):
    """A worker's rank among its peers, from 0, and how many they are, itself included."""

    rank: int = 0
    count: int = 1

    def turn(self, channel: int) -> int:
        """How many act before this worker on what is said there."""
        return (self.rank - channel) % self.count

    def channels(self) -> frozenset[int]:
        """Where it listens."""
        return frozenset(channel for channel in range(CHANNELS) if self.turn(channel) < IN_LINE)

    def due(self, seconds: float) -> float | None:
        """When to act on what falls due in so many seconds; None: others keep that time. Whoever sees that something
        is overdue acts at once."""
        if seconds <= 0:
            return 0.0
        turn = self.turn(TIMES)
        return seconds + LATE * turn if turn < IN_LINE else None
