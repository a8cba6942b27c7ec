"""Leases with no attempt left under them, which a round trip will delete."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.outcome import Outcome
from holdfast.worker.in_flight import InFlight

MANY = 50  # spent leases that may wait to be deleted


class SpentLeases:
    """A lease row that stays a little longer costs nothing, so a round trip in a hurry leaves it to a later one. A
    lease that no outcome belongs to (its last attempt was lost, say) does not wait: nothing else might come."""

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
