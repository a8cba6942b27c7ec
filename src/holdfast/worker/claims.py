"""What to claim."""

from __future__ import annotations

import uuid

from holdfast.model.job import Wants
from holdfast.worker.in_flight import InFlight
from holdfast.worker.mandate import Mandate
from holdfast.worker.outbox import BATCH, Outbox, RunnerClaim
from holdfast.worker.runner_slots import RunnerSlots, SlotTable


class Claims:
    """Knows how many jobs a runner can take now, makes claims for them, each with its own fence, and keeps the fences
    of claims whose reply was lost. The worker chooses the fence, so that it can find out later what such a claim took
    (docs/decisions/0006)."""

    def __init__(
        self, worker: str, queues: tuple[str, ...] | None, lease: float, slots: SlotTable, in_flight: InFlight,
        outbox: Outbox, mandate: Mandate, *, prefetch: bool,
    ) -> None:  # fmt: skip
        """`prefetch`: False with `after_job_delay`, which asks for a pause between two jobs."""
        self._worker = worker
        self._queues = queues
        self._lease = lease
        self._slots = slots
        self._in_flight = in_flight
        self._outbox = outbox
        self._mandate = mandate
        self._prefetch = prefetch
        self._fence = ""  # of the next claim
        self.unknown: list[str] = []  # fences of claims whose reply was lost

    def limits(self, slots: RunnerSlots) -> tuple[int, int]:
        """How many jobs to claim for free slots, and how many ahead of them, which will start soon (prefetch.py). Fewer
        if outcomes pile up, which is the worker's back-pressure, or if a drain's budget is nearly spent."""
        room = slots.free
        if self._prefetch:
            room = min(BATCH, room + slots.prefetchable - self._outbox.backlog)
        if self._mandate.budget is not None:
            room = min(room, self._mandate.budget)
        limit = max(0, min(slots.free, room))
        return limit, max(0, room - limit)

    def is_full(self, slots: RunnerSlots) -> bool:
        return self.limits(slots) == (0, 0)

    def has_room(self) -> bool:
        """Could any runner take a job?"""
        return any(not self.is_full(slots) for slots in self._slots)

    def prepare(self) -> None:
        """Make the next fence while there is nothing else to do: the claim of a lone job comes sooner."""
        self._fence = self._fence or str(uuid.uuid4())

    def make(self, slots: RunnerSlots, at_least: int = 1) -> RunnerClaim | None:
        """For all that this runner can take now; None if that is less than `at_least`."""
        limit, ahead = self.limits(slots)
        if limit + ahead < at_least:
            return None
        self.prepare()
        fence, self._fence = self._fence, ""
        wants = Wants(
            fence=fence, worker=self._worker, tasks=slots.tasks, limit=limit, ahead=ahead, lease=self._lease,
            queues=self._queues, told=slots.take_lanes(), held=len(self._in_flight), thorough=self._mandate.exhaustive,
        )  # fmt: skip
        return RunnerClaim(wants, slots)
