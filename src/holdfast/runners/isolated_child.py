"""One attempt in a process of its own, from inside. A synchronous handler runs on the main thread, where a signal can
interrupt it: when its time is over, it is stopped wherever it is, and its `finally` blocks run."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, cast

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.model.outcome import Outcome
from holdfast.runners.child_setup import leave_signals_to_the_worker
from holdfast.runners.execution import Handler
from holdfast.runners.inprocess import InProcessGroup, InProcessRunner
from holdfast.runners.stacks import of_thread
from holdfast.runners.store_proxy import StoreProxy
from holdfast.runners.wire import (
    REQUESTS,
    Ask,
    Began,
    Ended,
    FrameReader,
    Progressed,
    RecordsSuccess,
    Reply,
    Run,
    Stack,
    Stop,
    StoreRequest,
    TakeStack,
    ToWorker,
    receive,
    send,
    to_runner,
)
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt, StopAttempt
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_worker

CLOSING = 10.0  # seconds to close resources (the worker waits no longer)
TICK = 0.25  # seconds between reports of progress


class IsolatedAttempt(Attempt, kw_only=True, eq=False, gc=False):
    """Reports to its worker when it begins."""

    began: Callable[[], None]

    @property
    def not_to_begin(self) -> bool:
        """A stop requested while the application was imported is obeyed by the attempt itself, and kept in history."""
        return self.has_expired

    def begin(self) -> None:
        self.started = time.monotonic()
        self.began()

    def lose(self) -> bool:
        self.ask("lost")
        return False  # the worker notices as well, and reports it


class MainThreadRunner(InProcessRunner):
    """Runs an attempt where it is started, on the main thread."""

    _interruptible = False

    def start(self, attempts: Sequence[Attempt]) -> None:
        [self._attempt] = attempts
        signal.signal(signal.SIGTERM, self._interrupted)
        current_worker.set(self._worker)
        self._execution.run(self._attempt, self._call, self._interrupt)

    def close(self, timeout: float) -> None:
        """It ran where it was called."""

    def stack(self, attempt: Attempt) -> str | None:
        main = threading.main_thread()
        text = of_thread(main.ident or 0)
        return None if text is None or attempt.ended else self._execution.encoded_stack(attempt, main.name, text)

    def _call(self, handler: Handler, context: JobContext, args: bytes) -> object:
        try:
            self._interruptible = True
            self._attempt.raise_if_stopping()  # requested while the application was imported
            return handler._run(context, args)
        finally:
            self._interruptible = False

    def _interrupt(self, attempt: Attempt) -> None:
        """Called on the listening thread. Until its grace is over, a handler is only asked."""
        if attempt.forced:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _interrupted(self, number: int, frame: object) -> None:
        if self._interruptible and self._attempt.forced and self._attempt.must_stop:
            self._interruptible = False  # once: its clean-up is not interrupted
            self._attempt.stop_seen = True
            raise StopAttempt(self._attempt.reason)


class StoreCalls:
    """Sends requests for the store to the worker, and waits for the replies. From any thread. However many threads send
    requests, only so many are under way at once, and so many replies; so the worker always reads, and so do we. The
    report that a success is about to be recorded is not counted: the others may wait for the end of its transaction."""

    def __init__(self, send: Callable[[ToWorker], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._number = 0
        self._waiting: dict[int, tuple[SimpleQueue[Reply], bool]] = {}  # with: is it counted?
        self._free = threading.Semaphore(REQUESTS)

    def call(self, request: StoreRequest) -> Any:
        replies: SimpleQueue[Reply] = SimpleQueue()
        counted = not isinstance(request, RecordsSuccess)
        if counted:
            self._free.acquire()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = replies, counted
        self._send(Ask(number, request))
        reply = replies.get()
        if reply.error is not None:
            kind, message, hf = reply.error
            raise getattr(errors, kind, HoldfastError)(message, number=hf)
        return reply.value

    def replied(self, reply: Reply) -> None:
        replies, counted = self._waiting.pop(reply.number)
        if counted:
            self._free.release()
        replies.put(reply)


class IsolatedChild:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameReader()
        self._sending = threading.Lock()
        self._calls = StoreCalls(self._send)
        self._done = threading.Event()
        leave_signals_to_the_worker()

    def first_message(self) -> Run | None:
        """Wait for what to run. None: the worker is gone."""
        while data := receive(self._connection):
            if messages := self._frames.feed(data):
                run, *self._early = map(to_runner.decode, messages)
                assert isinstance(run, Run)
                self._attempt = IsolatedAttempt(
                    run.held, run.timeout, time.monotonic(), patience=run.patience, begin_by=run.begin_by,
                    began=lambda: self._send(Began()),
                )  # fmt: skip
                self._worker = run.worker
                return run
        return None

    def store(self, real: Callable[[], Store] | None) -> Store:
        """The Store for the handler's context. `real`: opens the database; None: this process has no access to it."""
        return cast(Store, StoreProxy(self._calls.call, real))

    def serve(self, group: InProcessGroup) -> None:
        """Run it, report its outcome, and clean up."""
        self._group = group
        [runner] = group.runners
        runner.open(self._worker, self._finished)
        group.open_resources(self._worker)
        threading.Thread(target=self._listen, name="holdfast-connection", daemon=True).start()
        try:
            runner.start([self._attempt])
            self._done.wait()
        finally:
            group.close(time.monotonic() + CLOSING)

    # -- the connection to the worker ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        for message in self._early:
            self._obey(message)
        readable = select.poll()
        readable.register(self._connection, select.POLLIN)
        while True:
            if readable.poll(TICK * 1000):
                data = receive(self._connection)
                if not data:
                    os._exit(1)  # the worker is gone
                for message in map(to_runner.decode, self._frames.feed(data)):
                    self._obey(message)
            self._report_progress()

    def _obey(self, message: object) -> None:
        match message:
            case Stop(_, reason, forced):
                self._attempt.forced = self._attempt.forced or forced
                if reason is not None:
                    self._attempt.ask(reason)
                if forced:
                    self._attempt.force()
            case TakeStack():
                self._send(Stack(0, self._group.stack_of(self._attempt)))
            case Reply():
                self._calls.replied(message)

    def _report_progress(self) -> None:
        with self._sending:  # a later report is the newer one
            if (progress := self._attempt.new_progress()) is not None:
                send(self._connection, Progressed([(0, *progress)]))

    def _finished(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._report_progress()
        self._send(Ended(outcome))
        self._done.set()

    def _send(self, message: ToWorker) -> None:
        with self._sending, uninterrupted():
            send(self._connection, message)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A handler whose time is over is interrupted after this. (Half a frame would garble what follows.)"""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
