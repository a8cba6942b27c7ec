"""Rescues the jobs of workers on the same host that died. Their locks tell (neighbours.py), so this needs neither the
lease nor trust in the clock. It has a thread of its own: a look, a cron or retention that the database keeps waiting
must not hold it up."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import events
from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.store.base import Store
from holdfast.worker.neighbours import Neighbours
from holdfast.worker.periodic import Loop
from holdfast.worker.rescuer import Rescuer
from holdfast.worker.trust import Trust

EVERY = 0.5  # seconds; costs no statement


class NeighbourWatch:
    def __init__(
        self, store: Store, neighbours: Neighbours, rescuer: Rescuer, trust: Trust, *, failed: Callable[[], None]
    ) -> None:
        """`failed` is called if the database did not take a rescue."""
        self._store = store
        self._neighbours = neighbours
        self._rescuer = rescuer
        self._trust = trust
        self._failed = failed
        self.looked = False  # at least once, to the end
        self.loop = Loop("neighbours", self._step)

    def _step(self) -> float:
        try:
            self._rescue()
        except StoreError as error:
            if isinstance(error, OutcomeUnknown):
                self._trust.revoke()
            events.emit("unavailable", error=str(error), wait=EVERY)
            self._failed()
        else:
            self.looked = True
        return EVERY

    def _rescue(self) -> None:
        for worker in self._neighbours.dead():
            events.emit("neighbour_died", worker=worker)
            self._rescuer.rescue_from([worker])
            self._store.unregister(worker)
            self._neighbours.bury(worker)
