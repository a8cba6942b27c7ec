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
from holdfast.durations import FORMS, Duration, to_seconds
from holdfast.errors import (
    BadArguments,
    BadSettings,
    HoldfastError,
    RightMissing,
    StoreError,
    StoreUnavailable,
    WaitTimeout,
)
from holdfast.model.job import JobRecord
from holdfast.store.base import Store
from holdfast.tasks.current import in_handler
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

T_co = TypeVar("T_co", covariant=True)

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.02, 2.0, 1.6  # seconds between two reads while no notification arrives
CLOSING = 2.0  # seconds that a close waits for the listener at most
FIRST_UPDATE_WAIT = 0.25  # the same for updates: only the last one is notified


class Updates(Generic[T_co]):
    """A job, read until it has finished: yields it at first, and again whenever it changed. `for` and `async for` both
    work. It is read at once when a notification says that it has finished, otherwise at growing intervals; while the
    database is away it goes on trying. When the time is over it raises WaitTimeout, which says why the job did not
    finish; `quiet`: it ends."""

    def __init__(
        self,
        app: Holdfast,
        id: str,
        read: Callable[[], JobRecord],
        changed: Callable[[JobRecord], object],
        show: Callable[[JobRecord], T_co],
        *,
        first: float,
        timeout: Duration | None,
        quiet: bool = False,
    ) -> None:
        self._app = app
        self._id = id
        self._read_job = read
        self._changed = changed  # what is compared with the last one that was yielded
        self._show = show
        self._first = first
        self._timeout = _checked(timeout)
        self._quiet = quiet

    def __iter__(self) -> Iterator[T_co]:
        self._refuse_in_handler()
        patience = _Patience(self._first, self._timeout)
        woken = threading.Event()
        self._request_notification()
        seen: object = None
        with self._app._expecting(self._id, woken.set):
            while True:
                abandoned = self._nothing_runs()  # before the read: what ran until now may have finished the job
                record = self._read(patience)
                if record is not None and (now := self._changed(record)) != seen:
                    seen = now
                    patience.renew()
                    yield self._show(record)
                elif abandoned:
                    raise self._timed_out(patience, record)
                if record is not None and record.finished:
                    return
                pause = patience.pause()
                if pause is None:
                    if self._quiet:
                        return
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
                abandoned = self._app._in_kit and await asyncio.to_thread(self._nothing_runs)
                record = await asyncio.to_thread(self._read, patience)
                if record is not None and (now := self._changed(record)) != seen:
                    seen = now
                    patience.renew()
                    yield self._show(record)
                elif abandoned:
                    raise await asyncio.to_thread(self._timed_out, patience, record)
                if record is not None and record.finished:
                    return
                pause = patience.pause()
                if pause is None:
                    if self._quiet:
                        return
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
        try:
            self._app.store.operator.await_finish(self._id)
        except (StoreUnavailable, RightMissing):  # unavailable or not permitted: then we read at intervals
            pass
        except BadSettings:  # SQLite: the caller has a transaction open
            self._read_job()  # if the job was enqueued in it, this says that it has not committed yet
            raise

    def _read(self, patience: _Patience) -> JobRecord | None:
        """The job as it is now; None while the database is away."""
        try:
            return self._read_job()
        except StoreUnavailable as error:
            patience.trouble = error
            return None

    def _nothing_runs(self) -> bool:
        """Would this wait never end? In the test kit, jobs only run while the test calls `run_due()`."""
        return self._app._in_kit and self._timeout is None and not self._app.store.workers.all()

    def _timed_out(self, patience: _Patience, record: JobRecord | None) -> WaitTimeout:
        after = "" if self._timeout is None else f" after {self._timeout:g} s"
        if record is None:
            return WaitTimeout(f"nothing is known of job {self._id}{after}: {patience.trouble}")
        text = f"job {self._id} is {record.state.value}{after}"
        with suppress(StoreError):
            text += f": {self._obstacle()}"
        if self._app._in_kit:
            text += ". In the test kit, jobs run when the test calls kit.run_due(): call it before you wait"
        return WaitTimeout(text)

    def _obstacle(self) -> str:
        from holdfast.model.why import Why
        from holdfast.store.why import why

        reasons = why(self._app.store, self._id)
        if self._app._in_kit:  # where run_due() is the worker
            reasons = [one for one in reasons if one.code not in (Why.NO_WORKER, Why.NO_HANDLER)]
        behind = [reason for reason in reasons if reason.code is Why.BEHIND]
        shown = next((reason for reason in reasons if reason.blocks), next(iter((*behind, *reasons)), None))
        return "it is due" if shown is None else shown.text


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


def _checked(timeout: Duration | None) -> float | None:
    """In seconds. The rest of a deadline may be negative, which counts as 0."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout == timeout:
        return max(0.0, timeout)
    try:
        return None if timeout is None else to_seconds(timeout)
    except ValueError:
        raise BadArguments(f"wait: timeout must be {FORMS}, or None; not {timeout!r:.80}") from None


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

    def close(self) -> None:
        """Wait until the listener has closed its connection, so that this process may fork. While somebody still waits
        it stays, and where the database does not answer it may take longer."""
        if os.getpid() == self._pid:
            with self._lock:
                thread = None if self._waiting else self._thread
            if thread is not None:
                thread.join(CLOSING)

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
