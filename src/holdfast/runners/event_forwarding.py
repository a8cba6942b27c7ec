"""Forwards a worker's events to the listeners of an application that lives in its pooled processes.

The worker keeps events in a bounded queue and sends them to one process, a batch at a time: the next batch follows when
the listeners were called for the one before. So a listener that is slow, or blocks, holds up nothing but itself. Events
that find the queue full are dropped and counted."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

import msgspec

from holdfast import events
from holdfast.runners.wire import Deliver, ToRunner

ROOM = 2 << 20  # bytes of events that may wait
BATCH = 256 << 10  # bytes sent at once
TELL_EVERY = 1.0  # seconds between two reports of dropped events to listeners, while there are more to send
LOG_EVERY = 10.0  # seconds between two log lines about them, while listeners don't keep up

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_decoder = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]])


class Target(Protocol):
    """A pooled process."""

    def send(self, message: ToRunner) -> None: ...

    @property
    def backlog(self) -> bool:
        """It has not taken all that was sent to it."""


class Forwarder:
    """The worker's side. Subscribes to what the application listens to, which may be nothing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: has `send` called soon."""
        self._wake = wake
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes in it
        self._to: Target | None = None
        self._under_way = 0  # events that were sent, and whose listeners may not have been called yet
        self._dropped = _Dropped()
        self._names: list[str] | None = []
        self._unsubscribe: Callable[[], None] = lambda: None

    def announced(self, names: list[str] | None) -> None:
        """A process is ready, and its application listens to these events; None: to all."""
        if names != self._names:
            self._unsubscribe()
            self._names = names
            if names != []:
                self._unsubscribe = events.subscribe(self._add, only=names)

    def _add(self, name: str, fields: dict[str, Any]) -> None:
        """From any thread; never waits."""
        event = _encoder.encode((name, fields))
        with self._changed:
            if self._size >= ROOM:
                to_log = self._dropped.add_one()
                idle = False
            else:
                self._queue.append(event)
                self._size += len(event)
                to_log = 0
                idle = len(self._queue) == 1 and not self._under_way
        if idle:
            self._wake()
        _log(to_log)

    # -- on the watcher's thread ---------------------------------------------------------------------------------------

    def send(self, ready: Sequence[Target]) -> None:
        """Send the next batch, if there is one: to the same process as before, as long as it is ready."""
        if self._under_way or not self._queue or not ready:
            return
        to = self._to if self._to is not None and self._to in ready else ready[0]
        self._to = to
        if to.backlog:
            return  # a process that claims to have delivered, and does not read, must not fill our memory
        batch = self._take()
        to.send(Deliver([msgspec.Raw(event) for event in batch]))
        self._report_dropped()

    def _take(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        with self._changed:
            while self._queue and size < BATCH:
                batch.append(self._queue.popleft())
                size += len(batch[-1])
            self._size -= size
            self._under_way = len(batch)
        return batch

    def delivered(self, by: Target) -> None:
        if by is self._to:
            self._report_dropped()
            self._arrived()

    def lost(self, by: Target) -> None:
        """This process is gone. Nobody knows for how many events it called its listeners, and none is sent twice."""
        if by is self._to:
            with self._changed:
                self._dropped.count += self._under_way
            self._to = None
            self._report_dropped()
            self._arrived()

    def _arrived(self) -> None:
        with self._changed:
            self._under_way = 0
            self._changed.notify_all()

    def _report_dropped(self) -> None:
        """At the latest when the queue is empty."""
        with self._changed:
            if self._size >= ROOM or (self._queue and not self._dropped.may_report()):
                return
            dropped, to_log = self._dropped.take()
        if dropped:
            _log(to_log)
            events.deliver("events_dropped", {"count": dropped})

    # ------------------------------------------------------------------------------------------------------------------

    def close(self, patience: float) -> None:
        """Wait so long until all events were delivered, then unsubscribe. What was not delivered by then is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._under_way, patience)
        self._unsubscribe()
        with self._changed:
            self._dropped.count += len(self._queue) + self._under_way
            self._queue.clear()
            self._size = self._under_way = 0
            self._to = None
        self._report_dropped()


class _Dropped:
    """Events that were dropped since the last report to listeners."""

    def __init__(self) -> None:
        self.count = 0
        self._logged = 0  # those of them that are in the log
        self._logged_at = -math.inf  # monotonic
        self._reported_at = 0.0  # monotonic

    def add_one(self) -> int:
        """Returns how many to log now."""
        self.count += 1
        return self._to_log() if time.monotonic() - self._logged_at >= LOG_EVERY else 0

    def may_report(self) -> bool:
        return time.monotonic() - self._reported_at >= TELL_EVERY

    def take(self) -> tuple[int, int]:
        """How many to report, and how many of them are not in the log yet."""
        if not self.count:
            return 0, 0
        self._reported_at = time.monotonic()
        count, to_log = self.count, self._to_log()
        self.count = self._logged = 0
        return count, to_log

    def _to_log(self) -> int:
        count, self._logged = self.count - self._logged, self.count
        self._logged_at = time.monotonic()
        return count


def _log(dropped: int) -> None:
    if dropped:
        events.write_log("events_dropped", {"count": dropped})


class Receiver:
    """The process's side: calls the listeners on a thread of its own, so that they hold up no attempt."""

    def __init__(self, delivered: Callable[[], None]) -> None:
        """`delivered`: asks for more."""
        self._delivered = delivered
        self._batches: SimpleQueue[list[msgspec.Raw]] = SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name="holdfast-events", daemon=True)

    def take(self, batch: list[msgspec.Raw]) -> None:
        if not self._thread.ident:
            self._thread.start()
        self._batches.put(batch)

    def _deliver(self) -> None:
        while True:
            for event in self._batches.get():
                events.deliver(*_decoder.decode(event))
            self._delivered()
