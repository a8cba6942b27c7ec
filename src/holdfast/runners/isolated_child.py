"""One attempt, in a process that is there for nothing else; from within. A synchronous handler runs on the main thread,
where a signal can interrupt it: when its time is over, it is stopped wherever it is, and its `finally` is run."""

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
from holdfast.runners.group import InProcessGroup
from holdfast.runners.inprocess import InProcessRunner
from holdfast.runners.stacks import of_thread
from holdfast.runners.store_proxy import StoreProxy
from holdfast.runners.wire import (
    ASKS,
    Ask,
    Began,
    Here,
    Incoming,
    Moved,
    Over,
    Recording,
    Reply,
    Request,
    Run,
    Tell,
    ToWorker,
    Where,
    hear,
    say,
    to_runner,
)
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt, StopAttempt
from holdfast.tasks.context import JobContext
from holdfast.tasks.current import current_context, current_worker

CLOSING = 10.0  # seconds to put resources away (the worker waits no longer)
TICK = 0.5  # seconds between reports of progress


class IsolatedAttempt(Attempt, kw_only=True, eq=False, gc=False):
    """Tells its worker when it begins."""

    began: Callable[[], None]

    def begin(self) -> None:
        self.started = time.monotonic()
        self.began()

    def lose(self) -> bool:
        self.ask("lost")
        return False  # the worker sees it too, and tells


class MainThreadRunner(InProcessRunner):
    """Runs an attempt where it is started, on the main thread."""

    _interruptible = False

    def start(self, attempts: Sequence[Attempt]) -> None:
        [self._attempt] = attempts
        signal.signal(signal.SIGTERM, self._interrupted)
        current_worker.set(self.worker)
        self._run(self._attempt)

    def close(self, timeout: float) -> None:
        """It ran where it was called."""

    def stack(self, attempt: Attempt) -> str | None:
        main = threading.main_thread()
        text = of_thread(main.ident or 0)
        return None if text is None or attempt.ended else self._taken(attempt, main.name, text)

    def _run(self, attempt: Attempt) -> None:
        if attempt.begin_by is not None and attempt.not_to_begin:
            self.finished(attempt, None)  # given back
            return
        attempt.begin()
        attempt.interrupt = self._interrupt
        task = self._handlers[attempt.held.task]
        context = JobContext(attempt, self._store, self._settings, task.secrets)
        current_context.set(context)
        try:
            self._interruptible = True
            try:
                if attempt.must_stop:  # asked while the application was imported
                    raise StopAttempt(attempt.reason)
                value = task.run(context, attempt.held.args)
            finally:
                self._interruptible = False
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its attempt's outcome
            outcome = self._on_raise(attempt, error)
        else:
            outcome = self._on_return(attempt, value)
        attempt.end()
        self.finished(attempt, outcome)

    def _interrupt(self, attempt: Attempt) -> None:
        """Called on the thread that listens. Before its grace is over a handler is only asked."""
        if attempt.forced:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _interrupted(self, number: int, frame: object) -> None:
        if self._interruptible and self._attempt.forced and self._attempt.must_stop:
            self._interruptible = False  # once: what it does to clean up goes on
            self._attempt.stop_seen = True
            raise StopAttempt(self._attempt.reason)


class IsolatedChild:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._incoming = Incoming()
        self._sending = threading.Lock()
        self._asked: dict[int, tuple[SimpleQueue[Reply], bool]] = {}  # with: is it counted?
        self._asking = threading.Semaphore(ASKS)
        self._number = 0
        self._over = threading.Event()
        leave_signals_to_the_worker()

    def hear(self) -> Run | None:
        """The first word, whenever it comes: what to run."""
        while data := hear(self._line):
            if messages := self._incoming.feed(data):
                run, *self._early = map(to_runner.decode, messages)
                assert isinstance(run, Run)
                self.attempt = IsolatedAttempt(
                    run.held, run.timeout, time.monotonic(), patience=run.patience, begin_by=run.begin_by,
                    began=lambda: self._send(Began()),
                )  # fmt: skip
                self._worker = run.worker
                return run
        return None

    def store(self, real: Callable[[], Store] | None) -> Store:
        """What the handler's context gets for a Store. `real`: opens the database, None if it is not to be had."""
        return cast(Store, StoreProxy(self._ask, real))

    def serve(self, crew: InProcessGroup) -> None:
        """Run it, tell what became of it, and put everything away."""
        self._crew = crew
        crew.open(self._worker, self)
        threading.Thread(target=self._listen, name="holdfast-line", daemon=True).start()
        try:
            [runner] = crew.runners
            runner.start([self.attempt])
            self._over.wait()
        finally:
            crew.close(time.monotonic() + CLOSING)

    # -- the line ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        for message in self._early:
            self._obey(message)
        readable = select.poll()
        readable.register(self._line, select.POLLIN)
        while True:
            if readable.poll(TICK * 1000):
                data = hear(self._line)
                if not data:
                    os._exit(1)  # there is nobody any more to tell anything
                for message in map(to_runner.decode, self._incoming.feed(data)):
                    self._obey(message)
            self._report_progress()

    def _obey(self, message: object) -> None:
        match message:
            case Tell(_, reason, forced):
                self.attempt.forced = self.attempt.forced or forced
                if reason is not None:
                    self.attempt.ask(reason)
                if forced:
                    self.attempt.force()
            case Where():
                self._send(Here(0, self._crew.stack_of(self.attempt)))
            case Reply(number):
                answer, counted = self._asked.pop(number)
                if counted:
                    self._asking.release()
                answer.put(message)

    def _ask(self, request: Request) -> Any:
        """Have the worker do this, and wait for its answer. From any thread. However many threads ask, only so many
        requests are under way at once, and so many answers; so the worker always listens, and we always hear. Not so
        before a success is recorded: the others may wait for the end of that transaction."""
        answer: SimpleQueue[Reply] = SimpleQueue()
        counted = not isinstance(request, Recording)
        if counted:
            self._asking.acquire()
        with self._sending:
            self._number += 1
            number = self._number
            self._asked[number] = answer, counted
        self._send(Ask(number, request))
        reply = answer.get()
        if reply.error is not None:
            kind, message, hf = reply.error
            raise getattr(errors, kind, HoldfastError)(message, number=hf)
        return reply.value

    def _report_progress(self) -> None:
        with self._sending:  # whoever comes second has the newer
            if (progress := self.attempt.new_progress()) is not None:
                say(self._line, Moved([(0, *progress)]))

    def finished(self, attempt: Attempt, outcome: Outcome | None) -> None:
        self._report_progress()
        self._send(Over(outcome))
        self._over.set()

    def _send(self, message: ToWorker) -> None:
        with self._sending, uninterrupted():
            say(self._line, message)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """A handler whose time is over is interrupted after this. (Half a frame would make nonsense of what follows.)"""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
