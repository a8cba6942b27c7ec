"""What round trips ask the store for."""

from __future__ import annotations

import uuid

from holdfast.model.job import Wants
from holdfast.worker.capacity import Capacity
from holdfast.worker.in_flight import InFlight
from holdfast.worker.orders import Orders
from holdfast.worker.round_trip import Claim
from holdfast.worker.runner_slots import RunnerSlots


class Claims:
    """Makes claims, each with its own fence, and keeps the fences of those whose reply was lost. The worker chooses the
    fence, so that it can find out later what such a claim took (docs/decisions/0006)."""

    def __init__(
        self, worker: str, queues: tuple[str, ...] | None, lease: float, capacity: Capacity, in_flight: InFlight,
        orders: Orders,
    ) -> None:  # fmt: skip
        self._worker = worker
        self._queues = queues
        self._lease = lease
        self._capacity = capacity
        self._in_flight = in_flight
        self._orders = orders
        self._fence = ""  # of the next claim
        self.unknown: list[str] = []  # fences of claims whose reply was lost

    def prepare(self) -> None:
        """Make the next fence while there is nothing else to do: the claim of a lone job comes sooner."""
        self._fence = self._fence or str(uuid.uuid4())

    def make(self, slots: RunnerSlots, at_least: int = 1) -> Claim | None:
        """For all that this runner can take now; None if that is less than `at_least`."""
        limit, ahead = self._capacity.limits(slots)
        if limit + ahead < at_least:
            return None
        self.prepare()
        fence, self._fence = self._fence, ""
        wants = Wants(
            fence=fence, worker=self._worker, tasks=slots.tasks, limit=limit, ahead=ahead, lease=self._lease,
            queues=self._queues, told=slots.take_lanes(), held=len(self._in_flight), thorough=self._orders.exhaustive,
        )  # fmt: skip
        return Claim(wants, slots)
