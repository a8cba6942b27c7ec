"""How many jobs a runner can take now."""

from __future__ import annotations

from holdfast.worker.orders import Orders
from holdfast.worker.outbox import BATCH, Outbox
from holdfast.worker.runner_slots import RunnerSlots, SlotTable


class Capacity:
    """A runner takes as many jobs as it has free slots, and ahead of them what it will start soon (prefetch.py). Less
    if outcomes pile up, which is the worker's back-pressure, or if a drain's budget is nearly spent."""

    def __init__(self, slots: SlotTable, outbox: Outbox, orders: Orders, *, prefetch: bool) -> None:
        """`prefetch`: False with `after_job_delay`, which asks for a pause between two jobs."""
        self._slots = slots
        self._outbox = outbox
        self._orders = orders
        self._prefetch = prefetch

    def limits(self, slots: RunnerSlots) -> tuple[int, int]:
        """How many jobs to claim for free slots, and how many ahead of them."""
        room = slots.free
        if self._prefetch:
            room = min(BATCH, room + slots.prefetchable - self._outbox.backlog)
        if self._orders.budget is not None:
            room = min(room, self._orders.budget)
        limit = max(0, min(slots.free, room))
        return limit, max(0, room - limit)

    def is_full(self, slots: RunnerSlots) -> bool:
        return self.limits(slots) == (0, 0)

    def has_room(self) -> bool:
        """Could any runner take a job?"""
        return any(not self.is_full(slots) for slots in self._slots)
