"""Wakes the desk when the store tells of new work. Where the store has an ear for that, the desk itself listens, while
it waits, and here is only seen to it that it has one: opening a connection takes its time. Losing it changes latency,
never correctness (R3.7)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from queue import SimpleQueue

import msgspec

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.job import Held
from holdfast.store.base import Ear, Store

RETRY_DELAYS = (0.5, 1.0, 2.0, 5.0)


@lru_cache(maxsize=1000)  # an application has few lanes
def lane_of(text: str) -> tuple[str, str, int]:
    return msgspec.json.decode(text, type=tuple[str, str, int])


# When it was claimed, its fence and id, queue, task, priority, how often it may be tried, and its correlation id.
_given = msgspec.json.Decoder(tuple[float, str, int, str, str, int, int, str | None])


def given_job(text: str) -> tuple[Held, float]:
    """A fresh job that was claimed for us as it was enqueued, and when, by the database's clock. The text: all but its
    arguments, and these on the next line."""
    about, _, args = text.partition("\n")
    at, fence, id, queue, task, priority, max_attempts, correlation_id = _given.decode(about)
    return Held(id, fence, task, queue, args.encode(), 1, max_attempts, priority, None, correlation_id), at


class Listener:
    def __init__(
        self, store: Store, *, queues: tuple[str, ...] | None, wake: Callable[[], None],
        told: Callable[[str, str, int], None], given: Callable[[Held, float], None], asked: Callable[[], None],
        hearing: Callable[[bool], None], attend: Callable[[Ear], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._queues = queues
        self._wake = wake
        self._told = told
        self._given = given
        self._asked = asked
        self._hearing = hearing
        self._attend = attend
        self._lent = SimpleQueue[Exception | None]()  # why the ear we gave away is back; None: we stop
        self._stopping = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-listener", daemon=True)

    def start(self) -> None:
        if self._store.can_listen:
            self._thread.start()

    def stop(self) -> None:
        """Hear no more. The thread ends by itself: where it listens, at the next commit or, if there is none, within
        half a second."""
        self._stopping.set()
        self._lent.put(None)

    def join(self) -> None:
        if self._thread.is_alive():
            self._thread.join(2.0)

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
                self._stopping.wait(RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)])
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

    def heard(self, kind: str, what: str) -> None:
        if kind == "listening":
            # Listen first, then look: nothing that came between is missed (F17).
            self._failures = 0
            self._hearing(True)
            events.emit("listening")
            self._wake()
        elif kind == "given":
            self._given(*given_job(what))
        elif kind == "requests":
            self._asked()
        elif kind == "changed":
            self._wake()
            self._asked()
        elif kind == "queue" and (self._queues is None or not what or what in self._queues):
            self._wake()
        elif kind == "lane":
            queue, task, priority = lane_of(what)
            if self._queues is None or queue in self._queues:
                self._told(queue, task, priority)
