"""Runs each attempt in a process of its own: started for it, held to its limits, ended with everything it started.

One thread looks after all of them: it starts them (they die with it, see `spawn`), hears what they say, reads what they
write, and ends those that don't stop when they are told to. What they ask of the database is done by a few threads of
their own, so that nobody waits for another's."""

from __future__ import annotations

import os
import selectors
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.base import Ends
from holdfast.runners.isolated_process import IsolatedProcess
from holdfast.runners.store_proxy import perform
from holdfast.runners.unstarted import Waiting
from holdfast.runners.wire import (
    Ask,
    Began,
    Garbled,
    Here,
    Moved,
    Over,
    Recording,
    Reply,
    Run,
    ToWorker,
    Unfit,
    Where,
)
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored
from holdfast.tasks.manifest import Manifest, TaskInfo

TICK = 0.1  # seconds between looks at attempts that were asked to stop
NOT_STARTED = 5.0  # seconds until a job is tried again for which the system had no process
RELAYS = 4  # threads that speak to the database for them


class IsolatedRunner(Waiting):
    """`tasks` are those it is offered jobs of; it can run an attempt of any of `others`, too."""

    may_wait = False  # each needs a process, which takes a while to start
    many = False

    def __init__(
        self, app: str, tasks: Iterable[TaskInfo], others: Iterable[TaskInfo], store: Store, settings: Settings,
    ) -> None:  # fmt: skip
        super().__init__()
        mine = tuple(tasks)
        self.slots = settings.isolated
        self.busy = 0
        self.manifest = Manifest(mine)
        self._app = app
        self._infos = {name: task for task in (*others, *mine) for name in task.names}
        self._store = store
        self._settings = settings
        self._arrivals = Arrivals(max_result=settings.max_result, url=settings.url)
        self._worker = ""
        self.answer: Callable[[Attempt, str], None] = lambda attempt, stack: None
        self._solos: dict[int, IsolatedProcess] = {}  # by pid
        self._closing = False
        self._doomed = False
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._waking = threading.Lock()
        self._awake = True  # it can be woken
        self._gone = threading.Condition()
        self._helpers = ThreadPoolExecutor(RELAYS, "holdfast-relay")
        self._removals: set[Future[None]] = set()  # of directories, under way
        self._thread = threading.Thread(target=self._look_after, name="holdfast-isolated", daemon=True)

    # -- as the desk and the crew see it -------------------------------------------------------------------------------

    def open(self, worker: str, ends: Ends) -> None:
        self._worker, self._ends = worker, ends
        self._thread.start()

    def start(self, attempts: Sequence[Attempt]) -> None:
        self._waiting.extend(attempts)
        self._wake()

    def ask_where(self, attempt: Attempt) -> bool:
        """Ask where its handler is: `answer` is told. False: it does not run here."""
        solo = next((one for one in list(self._solos.values()) if one.attempt is attempt), None)
        if solo is not None and not solo.where_asked:
            solo.where_asked = True
            if not solo.outgoing.send(Where(0)):
                self._wake()
        return solo is not None

    def abandon(self, seconds: float) -> None:
        """End all of them now."""
        self._doomed = True
        self._wake()
        self._until_gone(seconds)

    def close(self, timeout: float = 2.0) -> None:
        """No attempt is to run any more."""
        if self._thread.ident:
            self._closing = self._doomed = True
            self._wake()
            self._thread.join(timeout)
        self._helpers.shutdown(wait=False)
        if not self._thread.is_alive():
            with self._waking:
                self._awake = False
                for descriptor in (self._wake_in, self._wake_out):
                    os.close(descriptor)
            self._selector.close()

    def clear_away(self, seconds: float) -> None:
        """Wait so long until the directories of all attempts are removed. Nothing removes them after this process."""
        wait(list(self._removals), seconds)

    def _until_gone(self, seconds: float) -> bool:
        with self._gone:
            return self._gone.wait_for(lambda: not self._solos, seconds)

    def _wake(self, _: object = None) -> None:
        with self._waking, suppress(BlockingIOError):  # then it is awake
            if self._awake:
                os.write(self._wake_out, b"!")

    # -- on the thread that looks after them ---------------------------------------------------------------------------

    def _look_after(self) -> None:
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        while not (self._closing and not self._solos):
            self._round()

    def _round(self) -> None:
        for key, mask in self._selector.select(self._longest_wait()):
            if key.fileobj == self._wake_in:
                os.read(self._wake_in, 4096)
            else:
                self._attend(key, mask)
        for solo in list(self._solos.values()):
            self._look_at(solo)
        try:
            self._start_waiting()
        except Exception as error:  # noqa: BLE001 - the thread that all of them live by must outlive any surprise
            self._stumbled(error)
            time.sleep(TICK)

    def _look_at(self, solo: IsolatedProcess) -> None:
        try:
            if self._doomed:
                solo.kill()
            solo.enforce()
            if solo.child.ended():
                self._ended(solo)
            else:
                self._watch_backlog(solo)
        except Exception as error:  # noqa: BLE001 - the thread that all of them live by must outlive any surprise
            self._stumbled(error)
            solo.kill()
            self._let_go(solo, Crash(f"its process could not be looked after: {type(error).__name__}", company=False))

    def _longest_wait(self) -> float | None:
        unwatched = any(solo.child.watched is None for solo in self._solos.values())
        times = [at for solo in self._solos.values() if (at := solo.next_step_at()) is not None]
        if not times:
            return TICK if unwatched else None
        until = max(0.0, min(times) - time.monotonic())
        return min(until, TICK) if unwatched else until

    def _attend(self, key: selectors.SelectorKey, mask: int) -> None:
        solo: IsolatedProcess = key.data
        try:
            if key.fd == solo.capture_fd and not solo.read_output():
                self._selector.unregister(key.fileobj)
            elif key.fileobj is solo.line:
                if mask & selectors.EVENT_WRITE:
                    solo.outgoing.flush()
                if mask & selectors.EVENT_READ and not self._hear(solo):
                    self._selector.unregister(key.fileobj)
        except Exception as error:  # noqa: BLE001 - as above
            self._stumbled(error)
            self._selector.unregister(key.fileobj)
            solo.kill()

    def _stumbled(self, error: Exception) -> None:
        events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")

    def _watch_backlog(self, solo: IsolatedProcess) -> None:
        wanted = selectors.EVENT_READ | (0 if solo.outgoing.empty else selectors.EVENT_WRITE)
        known = self._selector.get_map().get(solo.line)
        if known is not None and known.events != wanted:
            self._selector.modify(solo.line, wanted, solo)

    # -- beginnings ----------------------------------------------------------------------------------------------------

    def _start_waiting(self) -> None:
        while len(self._solos) < self.slots and not self._closing:
            try:
                attempt = self._waiting.popleft()
            except IndexError:  # that was all
                return
            if attempt.not_to_begin:
                self._ends.finished(attempt, None)  # given back
            else:
                self._start(attempt)

    def _start(self, attempt: Attempt) -> None:
        info = self._infos[attempt.held.task]
        try:
            solo = IsolatedProcess(attempt, info, self._settings)
        except OSError as error:  # no more processes, memory or descriptors: that is not the job's fault
            told = f"no process could be started for job {attempt.held.id}: {error}"
            events.emit("unavailable", error=told, wait=NOT_STARTED)
            self._ends.finished(attempt, given_back(attempt.held, started=False, delay=NOT_STARTED))
            return
        with self._gone:
            self._solos[solo.child.pid] = solo
        self._selector.register(solo.line, selectors.EVENT_READ, solo)
        for descriptor in (solo.capture_fd, solo.child.watched):
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, solo)
        try:
            solo.outgoing.send(self._run(solo))
        except Exception:
            solo.kill()  # it ends without having begun, which is told
            raise
        attempt.remote = self
        attempt.hide = self._arrivals.hiding(attempt.held)

    def _run(self, solo: IsolatedProcess) -> Run:
        settings: dict[str, Any] = asdict(self._settings)
        if not solo.database:
            del settings["url"]
        attempt = solo.attempt
        path = [str(entry) for entry in sys.path]
        return Run(
            self._app, path, settings, attempt.held, attempt.timeout, solo.info.progress_timeout, self._worker,
            solo.database, attempt.begin_by,
        )  # fmt: skip

    def stop_requested(self, attempt: Attempt) -> None:
        """It was asked to stop: what follows is done on our own thread."""
        self._wake()

    def has_begun(self, attempt: Attempt) -> bool:
        return attempt.started > 0  # as it told us

    def has_recorded(self, attempt: Attempt) -> bool:
        return attempt.recorded  # as it told us

    # -- what they say -------------------------------------------------------------------------------------------------

    def _hear(self, solo: IsolatedProcess) -> bool:
        """False: it will say no more."""
        said = solo.receive()
        return self._take_all(solo, said or ()) and said is not None

    def _take_all(self, solo: IsolatedProcess, said: Iterable[ToWorker]) -> bool:
        """False: it said something that nothing of ours says, and is ended for it."""
        try:
            for message in said:
                self._take(solo, message)
        except Garbled as garbled:
            solo.garbled(str(garbled))
            return False
        return True

    def _take(self, solo: IsolatedProcess, message: ToWorker) -> None:
        held = solo.attempt.held
        match message:
            case Here(_, stack):
                if solo.where_asked:
                    solo.where_asked = False
                    self.answer(solo.attempt, self._arrivals.stack(held, stack))
            case Began():
                solo.begun()
            case Over(outcome):
                solo.ended(self._arrivals.outcome(held, outcome))
            case Moved(progress):
                for _, done, total, note in progress:
                    solo.moved((done, total, note))
            case Ask(number, Recording()):
                # At once: the handler has a transaction open, and on SQLite the helpers may all wait for its end.
                solo.asks()
                solo.attempt.recorded = True
                self._reply(solo, Reply(number, None, None))
            case Ask():
                solo.asks()
                if not solo.asking.acquire(blocking=False):
                    raise Garbled("asked for more than it may at once")
                with suppress(RuntimeError):  # we are closed: nobody is left to wait for an answer
                    self._helpers.submit(self._answer, solo, message)
            case Unfit():
                solo.unfit = self._arrivals.unfit(message, held.args)
            case _:
                raise Garbled("sent what only a pooled process sends")

    def _answer(self, solo: IsolatedProcess, ask: Ask) -> None:
        """On a thread of ours: what an attempt wants kept, under its own lease, whatever it says it is."""
        held = solo.attempt.held
        try:
            value = perform(self._store, Ref(held.id, held.fence), ask.request, self._arrivals)
        except HoldfastError as error:
            reply = Reply(ask.number, None, (type(error).__name__, error.message, error.number))
        except Exception as error:  # noqa: BLE001 - it is waiting for an answer, whatever that is
            reply = Reply(ask.number, None, ("HoldfastError", f"{type(error).__name__}: {error}", HoldfastError.number))
        else:
            solo.attempt.moved = time.monotonic()
            reply = Reply(ask.number, value, None)
        solo.asking.release()  # before it hears the answer, and asks again
        self._reply(solo, reply)

    def _reply(self, solo: IsolatedProcess, reply: Reply) -> None:
        if not solo.outgoing.send(reply):
            self._wake()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _ended(self, solo: IsolatedProcess) -> None:
        self._take_all(solo, solo.last_words())
        self._unwatch(solo)
        end = solo.child.reap()
        assert end is not None
        outcome = solo.outcome(end, self._settings.url)
        if solo.directory is not None:
            self._remove(solo.directory)
        if isinstance(outcome, Outcome):
            told = solo.has_told
            emit_errored(solo.attempt.held, outcome, worker=None if told else self._worker, log_only=told)
        self._let_go(solo, outcome)

    def _remove(self, directory: str) -> None:
        try:
            removal = self._helpers.submit(shutil.rmtree, directory, ignore_errors=True)
        except RuntimeError:  # we were closed before its process had ended
            shutil.rmtree(directory, ignore_errors=True)
            return
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    def _let_go(self, solo: IsolatedProcess, outcome: Outcome | Crash | None) -> None:
        self._unwatch(solo)
        attempt = solo.attempt
        attempt.remote = None
        if attempt.started:
            attempt.end()
        with self._gone:
            del self._solos[solo.child.pid]
            self._gone.notify_all()
        self._ends.finished(attempt, outcome)

    def _unwatch(self, solo: IsolatedProcess) -> None:
        for watched in (solo.line, solo.capture_fd, solo.child.watched):
            if watched is not None:
                with suppress(KeyError, ValueError):  # it was closed, or is not watched any more
                    self._selector.unregister(watched)
