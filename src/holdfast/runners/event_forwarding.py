"""Events of a worker, for the listeners of an application that lives in its runner processes.

The worker keeps them in a queue of limited size and sends them to one process, a batch at a time: the next batch goes
when the listeners have heard the one before. So a listener that is slow, or blocks, holds up nothing but itself; what
finds the queue full is dropped and counted."""

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
from holdfast.runners.wire import Happened, ToRunner

ROOM = 2 << 20  # bytes of events that may wait
BATCH = 256 << 10  # bytes sent at once
TELL_EVERY = 1.0  # seconds between two words about dropped events, while there are more to send

LOG_EVERY = 10.0  # seconds between two words about them in the log, while listeners don't get on

_encoder = msgspec.msgpack.Encoder(enc_hook=str)
_decoder = msgspec.msgpack.Decoder(tuple[str, dict[str, Any]])


class Taker(Protocol):
    """A runner process."""

    def send(self, message: ToRunner) -> None: ...

    @property
    def backlog(self) -> bool:
        """It has not taken all that was sent before."""


class Forwarder:
    """The worker's side. Listens for what the application listens to: for nothing, if that is nothing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake`: has `send` called soon."""
        self._wake = wake
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._size = 0  # bytes in it
        self._to: Taker | None = None
        self._under_way = 0  # events that were sent and not heard yet
        self._dropped = 0  # and not told of
        self._logged = 0  # those of them that the log tells of
        self._logged_at = -math.inf  # monotonic
        self._told_at = 0.0  # monotonic: when dropped events were last told of
        self._names: list[str] | None = []
        self._unsubscribe: Callable[[], None] = lambda: None

    def announced(self, names: list[str] | None) -> None:
        """A process is ready, and its application listens to these; None: to everything."""
        if names != self._names:
            self._unsubscribe()
            self._names = names
            if names != []:
                self._unsubscribe = events.subscribe(self._hear, only=names)

    def _hear(self, name: str, fields: dict[str, Any]) -> None:
        """From any thread; never waits."""
        event = _encoder.encode((name, fields))
        with self._changed:
            if self._size >= ROOM:
                self._dropped += 1
                to_log = self._to_log() if time.monotonic() - self._logged_at >= LOG_EVERY else 0
                idle = False
            else:
                self._queue.append(event)
                self._size += len(event)
                to_log = 0
                idle = len(self._queue) == 1 and not self._under_way
        if idle:
            self._wake()
        _log(to_log)

    def _to_log(self) -> int:
        """How many dropped events the log does not tell of yet."""
        count, self._logged = self._dropped - self._logged, self._dropped
        self._logged_at = time.monotonic()
        return count

    # -- on the thread that looks after the processes ------------------------------------------------------------------

    def send(self, ready: Sequence[Taker]) -> None:
        """The next batch, if there is one and somebody to take it: the same as before, as long as it is ready."""
        if self._under_way or not self._queue or not ready:
            return
        to = self._to if self._to is not None and self._to in ready else ready[0]
        self._to = to
        if to.backlog:
            return  # whoever says that it has heard, and does not listen, shall not fill our memory
        batch = self._take()
        to.send(Happened([msgspec.Raw(event) for event in batch]))
        self._tell_dropped()

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

    def heard(self, by: Taker) -> None:
        if by is self._to:
            self._tell_dropped()
            self._arrived()

    def lost(self, by: Taker) -> None:
        """This process is gone. How much it still heard nobody knows, and nothing is told twice."""
        if by is self._to:
            with self._changed:
                self._dropped += self._under_way
            self._to = None
            self._tell_dropped()
            self._arrived()

    def _arrived(self) -> None:
        with self._changed:
            self._under_way = 0
            self._changed.notify_all()

    def _tell_dropped(self) -> None:
        """At the latest when the queue is empty."""
        now = time.monotonic()
        with self._changed:
            if not self._dropped or self._size >= ROOM or (self._queue and now - self._told_at < TELL_EVERY):
                return
            self._told_at = now
            dropped, to_log = self._dropped, self._to_log()
            self._dropped = self._logged = 0
        _log(to_log)
        events.deliver("events_dropped", {"count": dropped})

    # ------------------------------------------------------------------------------------------------------------------

    def close(self, patience: float) -> None:
        """Wait so long until all was heard, then listen no more. What was not heard by then is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queue and not self._under_way, patience)
        self._unsubscribe()
        with self._changed:
            self._dropped += len(self._queue) + self._under_way
            self._queue.clear()
            self._size = self._under_way = 0
            self._to = None
        self._tell_dropped()


def _log(dropped: int) -> None:
    if dropped:
        events.write_log("events_dropped", {"count": dropped})


class Receiver:
    """The runner's side: calls the listeners, on a thread of its own, so that they hold up no attempt."""

    def __init__(self, heard: Callable[[], None]) -> None:
        """`heard`: asks for more."""
        self._heard = heard
        self._batches: SimpleQueue[list[msgspec.Raw]] = SimpleQueue()
        self._thread = threading.Thread(target=self._tell, name="holdfast-events", daemon=True)

    def take(self, batch: list[msgspec.Raw]) -> None:
        if not self._thread.ident:
            self._thread.start()
        self._batches.put(batch)

    def _tell(self) -> None:
        while True:
            for event in self._batches.get():
                events.deliver(*_decoder.decode(event))
            self._heard()
