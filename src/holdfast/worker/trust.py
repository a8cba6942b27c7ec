"""Whether an expired lease means that its holder is gone.

Nobody is punished for an outage. If the database was away, or may have been, live workers could not renew their leases.
So after such an event one more lease has to pass before anyone is rescued by expiry: by then every live holder has
renewed."""

from __future__ import annotations

import time


def now() -> float:
    """A clock that also counts the time a machine was asleep, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Trust:
    """Shared by all parts of a worker: whoever sees a connection break revokes it, the watchdog asks for it."""

    def __init__(self, lease: float) -> None:
        """A worker that just started does not know what was before: it trusts nothing for one lease."""
        self._lease = lease
        self._since = now() + lease

    def revoke(self) -> None:
        """The database was away, or may have been: give every holder one lease to renew."""
        self._since = now() + self._lease

    @property
    def established(self) -> bool:
        return now() >= self._since

    @property
    def seconds_left(self) -> float:
        """Until it is established."""
        return max(0.0, self._since - now())
