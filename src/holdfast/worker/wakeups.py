"""Wake-ups: hints that there may be work. They may come from any thread, and from anyone who can connect to the
database. So they decide when and where to look, never what to do."""

from __future__ import annotations

import time

from holdfast.model.peers import LATE, Place
from holdfast.worker.periodic import Bell
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import FEW, SlotTable


class Wakeups:
    """`turn` in these methods: how many peers act on the same wake-up before this worker (model/peers.py)."""

    def __init__(self, poller: Poller, slots: SlotTable, bell: Bell) -> None:
        self._poller = poller
        self._peers = poller.peers
        self._vain = poller.vain
        self._slots = slots
        self._bell = bell

    def wake(self) -> None:
        """Look for work soon. Safe from a signal handler."""
        self._peers.all_woken(time.monotonic())
        self._slots.look_everywhere()
        self._bell.ring()

    def job_somewhere(self, turn: int | None) -> None:
        """A job is due in some lane. `turn` is None if all workers were told."""
        now = time.monotonic()
        if turn:
            self._poller.look_within(LATE, now)
        elif not self._rests(now):
            self._slots.look_everywhere()
        if turn is None:
            self._peers.all_woken(now)
        elif not turn:
            self._peers.announce_due = True
            self._peers.job_announced(self._slots, now)
        self._bell.ring()

    def job_in_lane(self, queue: str, task: str, priority: int, turn: int = 0) -> None:
        """A job that is due was enqueued there."""
        slots = self._slots.for_task(task)
        if slots is None:
            return
        now = time.monotonic()
        if turn:
            if len(slots.reserve) < FEW:
                slots.reserve.append((now + LATE, (queue, task, priority)))
        elif self._rests(now):
            pass
        elif len(slots.lanes) < FEW:
            slots.lanes.append((queue, task, priority))
        else:
            slots.look_everywhere = True  # the list is not emptied while the runner is full
        if not turn:
            self._peers.job_announced([slots], now)
        self._bell.ring()

    def due_in(self, seconds: float, turn: int = 0) -> None:
        """Somebody saw when the next job falls due."""
        if seconds <= 0:
            self._poller.nothing_due = False
        at = time.monotonic() + max(0.0, seconds) + (LATE if turn else 0.0)
        self._poller.job_due_at(at, by_wakeup=not turn)
        self._bell.ring()

    def peers_changed(self, place: Place) -> None:
        """This worker has another rank among its peers, so other wake-ups concern it."""
        self._peers.place = place
        self._bell.ring()

    def _rests(self, now: float) -> bool:
        """A wake-up asks for a look now. True: it comes when the rest is over."""
        self._vain.asked = True
        left = self._vain.until - now
        if left > 0:
            self._poller.look_within(left, now)
        return left > 0
