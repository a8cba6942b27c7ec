"""Takes jobs back from workers that are gone. Any number of workers may do so: each lease is taken back only once.

Nobody is punished for an outage. If the database was away, or may have been, live workers could not renew their leases.
So after such an event one more lease has to pass before anyone is rescued because a lease expired: by then every live
holder has renewed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast.store.base import Store
from holdfast.tasks.attempt import emit_rescued


def now() -> float:
    """A clock that also counts the time a machine was asleep, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Trust:
    """Whether an expired lease means that its holder is gone. All parts of a worker share it: whoever sees a connection
    break revokes it, and the watchdog asks for it."""

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


class Rescuer:
    def __init__(
        self, worker: str, store: Store, *, quarantine_after: int, job_due_in: Callable[[float], None]
    ) -> None:
        """`job_due_in` tells our own desk that jobs are due."""
        self._worker = worker
        self._store = store
        self._quarantine_after = quarantine_after
        self._job_due_in = job_due_in

    def rescue_expired(self) -> None:
        """Take back jobs whose lease expired."""
        self._rescue(by_expiry=True)

    def rescue_from(self, dead: Sequence[str]) -> None:
        """Take back all jobs of these workers, which are dead beyond doubt."""
        self._rescue(by_expiry=False, dead=dead)

    def _rescue(self, *, by_expiry: bool, dead: Sequence[str] = ()) -> None:
        while rescued := self._store.rescues.rescue(
            by_expiry=by_expiry, dead=list(dead), quarantine_after=self._quarantine_after
        ):
            for job in rescued:
                emit_rescued(job, self._worker)
            self._store.wakeups.tell([job.queue for job in rescued])
            self._job_due_in(0.0)
