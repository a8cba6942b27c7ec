"""Waits for jobs: `Updates` reads a job until it has finished, `Waiters` wakes it when that may be so."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast import events
from holdfast.errors import BadArguments, HoldfastError, RightMissing, StoreError, StoreUnavailable, WaitTimeout
from holdfast.model.job import JobRecord
from holdfast.store.base import Store
from holdfast.tasks.current import in_handler
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T_co = TypeVar("T_co", covariant=True)

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.02, 2.0, 1.6  # seconds between two reads while no notification arrives
FIRST_UPDATE_WAIT = 0.25  # the same for updates: only the last one is notified


class Updates(Generic[T_co]):
    """A job, read until it has finished: yields it at first, and again whenever it changed. `for` and `async for` both
    work. It is read at once when a notification says that it has finished, otherwise at growing intervals; while the
    database is away it goes on trying. Raises WaitTimeout when the time is over."""

    def __init__(
        self,
        app: Holdfast,
        id: str,
        read: Callable[[], JobRecord],
        changed: Callable[[JobRecord], object],
        show: Callable[[JobRecord], T_co],
        *,
        first: float,
        timeout: float | timedelta | None,
    ) -> None:
        self._app = app
        self._id = id
        self._read_job = read
        self._changed = changed  # what is compared with the last one that was yielded
        self._show = show
        self._first = first
        self._timeout = _checked(timeout)

    def __iter__(self) -> Iterator[T_co]:
        self._refuse_in_handler()
        patience = _Patience(self._first, self._timeout)
        woken = threading.Event()
        self._request_notification()
        seen: object = None
        with self._app._expecting(self._id, woken.set):
            while True:
                record = self._read(patience)
                if record is not None and (now := self._changed(record)) != seen:
                    seen = now
                    patience.renew()
                    yield self._show(record)
                if record is not None and record.finished:
                    return
                pause = patience.pause()
                if pause is None:
                    raise self._timed_out(patience, record)
                if woken.wait(pause):
                    woken.clear()
                    patience.renew()

    async def __aiter__(self) -> AsyncIterator[T_co]:
        self._refuse_in_handler()
        import asyncio  # slow to import, and many programs never await

        patience = _Patience(self._first, self._timeout)
        woken, loop = asyncio.Event(), asyncio.get_running_loop()
        await in_thread(self._app, self._request_notification)
        seen: object = None
        with self._app._expecting(self._id, lambda: loop.call_soon_threadsafe(woken.set)):
            while True:
                record = await asyncio.to_thread(self._read, patience)
                if record is not None and (now := self._changed(record)) != seen:
                    seen = now
                    patience.renew()
                    yield self._show(record)
                if record is not None and record.finished:
                    return
                pause = patience.pause()
                if pause is None:
                    raise await asyncio.to_thread(self._timed_out, patience, record)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await woken.wait()
                    woken.clear()
                    patience.renew()

    def _refuse_in_handler(self) -> None:
        if in_handler():
            raise HoldfastError(
                f"a handler can't wait for job {self._id}: it would occupy a slot that this job may need; "
                "enqueue a follow-up job instead",
                number="HF1306",
            )

    def _request_notification(self) -> None:
        with suppress(StoreUnavailable, RightMissing):  # unavailable or not permitted: then we read at intervals
            self._app.store.operator.await_finish(self._id)

    def _read(self, patience: _Patience) -> JobRecord | None:
        """The job as it is now; None while the database is away."""
        try:
            return self._read_job()
        except StoreUnavailable as error:
            patience.trouble = error
            return None

    def _timed_out(self, patience: _Patience, record: JobRecord | None) -> WaitTimeout:
        if record is None:
            return WaitTimeout(f"nothing is known of job {self._id} after {self._timeout:g} s: {patience.trouble}")
        text = f"job {self._id} is {record.state.value} after {self._timeout:g} s"
        with suppress(StoreError):
            from holdfast.model.why import Why
            from holdfast.store.why import why

            reasons = why(self._app.store, self._id)
            behind = [reason for reason in reasons if reason.code is Why.BEHIND]
            text += ": " + next((reason for reason in reasons if reason.blocks), (*behind, *reasons)[0]).text
        return WaitTimeout(text)


class _Patience:
    """How long to wait between two reads of a job: longer each time unless it was renewed, never past the deadline."""

    def __init__(self, first: float, timeout: float | None) -> None:
        self._first = first
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self.trouble: StoreUnavailable | None = None  # why the last read failed
        self.renew()

    def renew(self) -> None:
        self._next = self._first

    def pause(self) -> float | None:
        """None: the time is over."""
        pause, self._next = self._next, min(self._next * GROWTH, LONGEST_WAIT)
        if self._deadline is None:
            return pause
        left = self._deadline - time.monotonic()
        return min(pause, left) if left > 0 else None


def _checked(timeout: float | timedelta | None) -> float | None:
    """In seconds. The rest of a deadline may be negative, which counts as 0."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout == timeout
    if timeout is not None and not number:
        raise BadArguments(f"wait: timeout must be seconds (a number or a timedelta) or None, not {timeout!r:.80}")
    return None if timeout is None else max(0.0, timeout)


class Waiters:
    """Wakes callers that wait for a job: one listener per application, which runs only while somebody waits."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._thread: threading.Thread | None = None
        self._reported = False  # that listening failed

    @contextmanager
    def expecting(self, id: str, wake: Callable[[], object]) -> Iterator[None]:
        if os.getpid() != self._pid:  # forked: the listener, and whoever held the lock, are the parent's
            self.__init__(self._store)  # type: ignore[misc]
        with self._lock:
            self._waiting.setdefault(id, []).append(wake)
            if self._thread is None and self._store().wakeups.can_listen:
                self._thread = threading.Thread(target=self._listen, name="holdfast-waiting", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[id].remove(wake)
                if not self._waiting[id]:
                    del self._waiting[id]

    def _listen(self) -> None:
        failed = False
        while True:
            with self._lock:
                if failed or not self._waiting:
                    self._thread = None
                    return
            try:
                self._store().wakeups.listen(self._received, self._nobody, finished=True)
            except StoreError as error:
                failed = True  # waiting callers look at intervals
                if not self._reported:
                    self._reported = True
                    events.emit("deaf", error=str(error))

    def _nobody(self) -> bool:
        with self._lock:
            return not self._waiting

    def _received(self, kind: str, what: str, turn: int | None) -> None:
        with self._lock:
            self._reported = False
            concerned = [self._waiting.get(what, [])] if kind == "finished" else []
            if kind in ("listening", "changed"):  # ignore anything else: anyone may send notifications
                concerned = list(self._waiting.values())
            for wakes in concerned:
                for wake in wakes:
                    with suppress(RuntimeError):  # its event loop is closed
                        wake()
