"""Wakes the desk when the store tells of new work. Where the store has an ear for that, the desk itself listens, while
it waits, and here is only seen to it that it has one: opening a connection takes its time. Losing it changes latency,
never correctness."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue
from typing import Annotated

import msgspec

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.outcome import LONGEST_DELAY as LONGEST
from holdfast.store.base import Ear, Store

RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0)
POOLED_DELAY = 60.0  # where a pooler passes no notifications on: that seldom changes, and each try logs a warning


_lane = msgspec.json.Decoder(tuple[str, str, Annotated[int, msgspec.Meta(ge=-100, le=100)]])


@lru_cache(maxsize=1000)  # an application has few lanes
def lane_of(text: str) -> tuple[str, str, int] | None:
    """The queue, task and priority that a wake-up names. None: the text names none, so it is not one of ours."""
    try:
        lane = _lane.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return None if "\0" in lane[0] else lane  # no queue has such a name, and no statement takes it


def seconds_of(text: str) -> float | None:
    """In how long a job falls due, as a wake-up says."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= LONGEST else None


class Listener:
    def __init__(
        self, store: Store, *, queues: tuple[str, ...] | None, wake: Callable[[], None],
        hinted: Callable[[int | None], None], told: Callable[[str, str, int, int], None],
        due_in: Callable[[float, int], None], asked: Callable[[], None], hearing: Callable[[bool], None],
        peers_changed: Callable[[], None], attend: Callable[[Ear], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._queues = queues
        self._wake = wake
        self._hinted = hinted
        self._told = told
        self._due_in = due_in
        self._peers_changed = peers_changed
        self._asked = asked
        self._hearing = hearing
        self._attend = attend
        self._lent = SimpleQueue[Exception | None]()  # why the ear we gave away is back; None: we stop
        self._stopping = threading.Event()
        self._failures = 0
        self._understood_all = True
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)

    def start(self) -> None:
        if self._store.can_listen:
            self._thread.start()

    def stop(self) -> None:
        """Hear no more. The thread ends by itself: where it listens, at the next commit or, if there is none, within
        half a second."""
        self._stopping.set()
        self._lent.put(None)

    def join(self, timeout: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                ear = self._store.open_ear()
                if ear is None:
                    self._store.listen(self.heard, self._stopping.is_set)
                else:
                    self._lend(ear)
            except Exception as error:  # noqa: BLE001 - a listener that ended for any reason must listen again
                if not isinstance(error, StoreError):
                    events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                self._hearing(False)
                events.emit("deaf", error=str(error))
                delay = RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)]
                pooled = isinstance(error, StoreError) and error.number == "HF3402"
                self._stopping.wait(POOLED_DELAY if pooled else delay)
                self._failures += 1

    def _lend(self, ear: Ear) -> None:
        """The desk has it until it is deaf."""
        if self._stopping.is_set():
            ear.close()
            return
        self._attend(ear)
        self.heard("listening", "")
        if (error := self._lent.get()) is not None:
            raise error

    def deaf(self, error: Exception) -> None:
        self._lent.put(error)

    def heard(self, kind: str, what: str, turn: int | None = None) -> None:
        """`turn`: how many workers act on it before this one; None: it is for all at once. Anyone who can connect to
        the database may send a wake-up. So it is only a hint where to look: it never says what to do, and what it says
        is checked before it reaches a statement. How often it leads to a look is bounded as well (doubt.py)."""
        if kind == "listening":
            # Listen first, then look: nothing that came between is missed.
            self._failures = 0
            self._hearing(True)
            events.emit("listening")
            self._wake()
        elif kind == "requests":
            self._asked()
        elif kind == "changed":
            self._wake()
            self._asked()
        elif kind == "workers":
            self._peers_changed()
        elif kind == "due":
            seconds = seconds_of(what)
            if seconds is None:
                self._not_understood()
            else:
                self._due_in(seconds, turn or 0)
        elif kind == "queue":
            if self._queues is None or not what or what in self._queues:
                self._hinted(turn)
        elif kind == "lane":
            lane = lane_of(what)
            if lane is None:
                self._not_understood()
            elif self._queues is None or lane[0] in self._queues:
                self._told(*lane, turn or 0)
        elif kind == "other":
            self._not_understood()

    def _not_understood(self) -> None:
        if self._understood_all:
            self._understood_all = False
            events.emit("not_understood")
