"""Which wake-ups a worker acts on, so that one job does not cost a statement of every idle worker.

The wake-up for one job goes out on one of CHANNELS channels, chosen at random. Peers are workers that serve the same
tasks and queues. Each learns its rank among them, and their number, when its watchdog looks at the database. That gives
every channel an order of workers without any agreement between them: the first looks for work at once, the second a
moment later in case the first is dead or stuck, and the others don't listen on that channel. The first two on channel
TIMES also keep the time: only they set timers for delayed jobs and crons.

What a worker knows of its peers may be slightly out of date. Then two of them look at once; or the two that should look
are both dead, and the next regular look of any worker finds the job."""

from __future__ import annotations

import msgspec

CHANNELS = 64
TIMES = 0  # the channel that announces when a job falls due
IN_LINE = 2  # workers that act on a wake-up
LATE = 0.06  # seconds that the second waits


class Place(msgspec.Struct, frozen=True):
    """A worker's rank among its peers, from 0, and how many they are, itself included."""

    rank: int = 0
    count: int = 1

    def turn(self, channel: int) -> int:
        """How many workers act before this one on a wake-up of this channel."""
        return (self.rank - channel) % self.count

    def channels(self) -> frozenset[int]:
        """The channels it listens on."""
        return frozenset(channel for channel in range(CHANNELS) if self.turn(channel) < IN_LINE)

    def due(self, seconds: float) -> float | None:
        """When to act on a job that falls due in so many seconds; None: leave it to others. A worker that sees an
        overdue job acts at once."""
        if seconds <= 0:
            return 0.0
        turn = self.turn(TIMES)
        return seconds + LATE * turn if turn < IN_LINE else None
