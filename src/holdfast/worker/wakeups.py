"""Wake-ups: hints that there may be work. Anyone who can connect to the database may send them. So they decide when and
where to look, never what to do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated

import msgspec

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.outcome import LONGEST_DELAY as LONGEST
from holdfast.model.peers import LATE, Place
from holdfast.store.base import Store
from holdfast.worker.loop import Bell
from holdfast.worker.poller import Poller
from holdfast.worker.runner_slots import FEW, Lane, SlotTable

MOST = 1000  # wake-ups that wait for the desk; instead of more, it looks everywhere


class Wakeups:
    """The desk handles wake-ups of jobs in its own thread, in between round trips; other threads `put` them. The other
    methods that don't say so may be called from any thread.

    `turn` in these methods: how many peers act on the same wake-up before this worker (model/peers.py)."""

    def __init__(self, poller: Poller, slots: SlotTable, bell: Bell) -> None:
        self._poller = poller
        self._peers = poller.peers
        self._vain = poller.vain
        self._slots = slots
        self._bell = bell
        self._waiting: deque[Callable[[], None]] = deque()

    def put(self, handle: Callable[[], None]) -> None:
        """Let the desk call this soon."""
        if len(self._waiting) < MOST:
            self._waiting.append(handle)
        else:  # the desk is held up, or this is a flood
            self._slots.look_everywhere()
        self._bell.ring()

    def handle(self) -> None:
        """For the desk's thread: handle those that wait now. More may arrive meanwhile."""
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()

    def wake(self) -> None:
        """Look for work soon. Safe from a signal handler."""
        self._peers.all_woken(time.monotonic())
        self._slots.look_everywhere()
        self._bell.ring()

    def look_everywhere(self) -> None:
        """Something may have been said where this worker did not listen."""
        self._slots.look_everywhere()
        self._bell.ring()

    def job_somewhere(self, turn: int | None) -> None:
        """A job is due in some lane. `turn` is None if all workers were told. For the desk's thread."""
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

    def job_in_lane(self, queue: str, task: str, priority: int, turn: int = 0) -> None:
        """A job that is due was enqueued there. For the desk's thread."""
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

    def due_in(self, seconds: float, turn: int = 0) -> None:
        """Somebody saw when the next job falls due."""
        if seconds <= 0:
            self._poller.nothing_due = False
        at = time.monotonic() + max(0.0, seconds) + (LATE if turn else 0.0)
        self._poller.job_due_at(at, by_wakeup=not turn)
        self._bell.ring()

    @property
    def place(self) -> Place:
        """This worker's, among its peers."""
        return self._peers.place

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


# Listens on a thread, and a connection, of its own. Losing the connection costs latency, never correctness: the worker
# polls until there is another one.

RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0)
POOLED_DELAY = 60.0  # behind a pooler that drops notifications: that seldom changes, and each try logs a warning


_lane = msgspec.json.Decoder(tuple[str, str, Annotated[int, msgspec.Meta(ge=-100, le=100)]])


@lru_cache(maxsize=1000)  # an application has few lanes
def lane_of(text: str) -> Lane | None:
    """The lane that a wake-up names. None: the text names none, so it is not one of ours."""
    try:
        lane = _lane.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return None if "\0" in lane[0] else lane  # no queue has such a name, and no statement takes it


def seconds_of(text: str) -> float | None:
    """In how many seconds a job falls due, as a wake-up says."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST else None


class Listener:
    def __init__(
        self, store: Store, wakeups: Wakeups, *, queues: tuple[str, ...] | None, requested: Callable[[], None],
        peers_changed: Callable[[], None], listening: Callable[[bool], None], table_written: Callable[[int], None],
    ) -> None:  # fmt: skip
        """`requested`: somebody asked for a pause, a cancel or a stack. `peers_changed`: a worker came or left.
        `listening`: wake-ups arrive from now on, or no longer. `table_written`: somebody wrote to an adopted table."""
        self._store = store
        self._wakeups = wakeups
        self._queues = queues
        self._requested = requested
        self._peers_changed = peers_changed
        self._listening = listening
        self._table_written = table_written
        self._stopping = threading.Event()
        self._failures = 0
        self._reported_unreadable = False
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)

    def start(self) -> None:
        if self._store.wakeups.can_listen:
            self._thread.start()

    def stop(self) -> None:
        """Stop listening. The thread ends by itself: at the next wake-up, which the worker sends when it unregisters,
        or within half a second."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._store.wakeups.listen(self.received, self._stopping.is_set, place=lambda: self._wakeups.place)
            except Exception as error:  # noqa: BLE001 - a listener that ended for any reason must listen again
                if not isinstance(error, StoreError):
                    events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                self._listening(False)
                events.emit("deaf", error=str(error))
                delay = RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)]
                pooled = isinstance(error, StoreError) and error.number == "HF3402"
                self._stopping.wait(POOLED_DELAY if pooled else delay)
                self._failures += 1

    def received(self, kind: str, what: str, turn: int | None = None) -> None:
        """A wake-up arrived. `turn`: how many workers act on it before this one; None: it is for all at once.

        Anyone who can connect to the database may send a wake-up. So it is only a hint where to look, and what it says
        is checked before it reaches a statement. How many looks it can cause is bounded as well (`VainWakeups`)."""
        if kind == "listening":
            # Listen first, then look: nothing that came in between is missed.
            self._failures = 0
            self._listening(True)
            events.emit("listening")
            self._wakeups.wake()
        elif kind == "requests":
            self._requested()
        elif kind == "changed":
            self._wakeups.wake()
            self._requested()
        elif kind == "inbox":
            self._table_written(turn or 0)
        elif kind == "workers":
            self._peers_changed()
        elif kind == "moved":
            self._wakeups.look_everywhere()
        elif kind == "due":
            seconds = seconds_of(what)
            if seconds is None:
                self._unreadable()
            else:
                self._wakeups.put(partial(self._wakeups.due_in, seconds, turn or 0))
        elif kind == "queue":
            if self._queues is None or not what or what in self._queues:
                self._wakeups.put(partial(self._wakeups.job_somewhere, turn))
        elif kind == "lane":
            lane = lane_of(what)
            if lane is None:
                self._unreadable()
            elif self._queues is None or lane[0] in self._queues:
                self._wakeups.put(partial(self._wakeups.job_in_lane, *lane, turn or 0))
        elif kind == "other":
            self._unreadable()

    def _unreadable(self) -> None:
        if not self._reported_unreadable:
            self._reported_unreadable = True
            events.emit("not_understood")
