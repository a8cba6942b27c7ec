"""The attempts in flight: claimed, and their outcome not recorded yet. And the leases that they leave behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome
from holdfast.store.base import JobId
from holdfast.tasks.attempt import Attempt

MANY = 50  # spent leases that may wait to be deleted


class InFlight:
    """Attempts by the fence of their claim, since a lease belongs to a claim. The desk changes it; the heartbeat reads
    it from its own thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, dict[JobId, Attempt]] = {}  # fence -> its attempts
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def attempts(self) -> list[Attempt]:
        with self._lock:
            return [attempt for claim in self._claims.values() for attempt in claim.values()]

    def get(self, id: JobId, fence: str) -> Attempt | None:
        claim = self._claims.get(fence)
        return None if claim is None else claim.get(id)

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts that all belong to one claim."""
        if not attempts:
            return
        with self._lock:
            claim = self._claims.setdefault(attempts[0].held.fence, {})
            before = len(claim)
            claim.update({attempt.held.id: attempt for attempt in attempts})
            self._count += len(claim) - before

    def remove(self, ended: Iterable[ClaimedJob | Outcome]) -> None:
        with self._lock:
            claims = self._claims
            for one in ended:
                claim = claims.get(one.fence)
                if claim is not None and claim.pop(one.id, None) is not None:
                    self._count -= 1
                    if not claim:
                        del claims[one.fence]

    def has_claim(self, fence: str) -> bool:
        """Is any attempt of this claim in flight?"""
        return fence in self._claims

    def emptied_by(self, outcomes: Iterable[Outcome]) -> Iterator[str]:
        """The fences of claims with no attempt left once these outcomes are recorded."""
        ending = Counter([outcome.fence for outcome in outcomes])
        return (fence for fence, count in ending.items() if count >= len(self._claims.get(fence, ())))


class SpentLeases:
    """Leases with no attempt left under them, which a round trip will delete.

    A lease row that stays a little longer costs nothing, so a round trip in a hurry leaves it to a later one. A lease
    that no outcome belongs to (its last attempt was lost, say) does not wait: nothing else might come."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.urgent: list[str] = []
        self.waiting: list[str] = []

    def emptied(self, fence: str) -> None:
        """An attempt left without an outcome: delete its lease if it was the last under it."""
        if not self._in_flight.has_claim(fence):
            self.urgent.append(fence)

    def take(self, outcomes: Sequence[Outcome], *, patient: bool) -> list[str]:
        """Those to delete with a round trip that records these outcomes. `patient`: they may wait unless there are
        many."""
        spent = list(dict.fromkeys([*self.waiting, *self._in_flight.emptied_by(outcomes)]))
        waits = patient and len(spent) < MANY
        taken = [*self.urgent, *([] if waits else spent)]
        self.urgent, self.waiting = [], spent if waits else []
        return taken

    def put_back(self, fences: Sequence[str]) -> None:
        self.urgent[:0] = fences

    def recorded(self, outcomes: Sequence[Outcome], deleted: Sequence[str]) -> None:
        """These outcomes are recorded, and no longer in flight. If the attempts of one lease ended in two round trips
        that overlapped, neither could tell that it left the lease empty."""
        known = {*deleted, *self.waiting}
        fences = dict.fromkeys(outcome.fence for outcome in outcomes)
        self.waiting += [fence for fence in fences if fence not in known and not self._in_flight.has_claim(fence)]

    def clear_urgent(self) -> None:
        """The database refuses one of these: they are rescued when they expire."""
        self.urgent.clear()
