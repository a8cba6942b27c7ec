"""Runs handlers in processes of their own: the worker imports no user code, so no handler can keep it from renewing its
leases, and a process that dies takes only what it ran with it.

One thread looks after them: it hears what they say and how they end, starts others in their place, and ends those whose
attempts don't stop when they are told to. It lives as long as they do, which they need (see `Process`)."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from holdfast import events
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.outcome import Crash, Outcome, given_back
from holdfast.runners.arrivals import Arrivals, span
from holdfast.runners.base import Ends, Runner
from holdfast.runners.decide import forced
from holdfast.runners.event_forwarding import Forwarder
from holdfast.runners.pooled import PooledRunner
from holdfast.runners.pooled_process import Process
from holdfast.runners.stacks import absent
from holdfast.runners.wire import Back, Done, Garbled, Heard, Hello, Here, Moved, Orders, Ready, ToWorker, Unfit
from holdfast.settings import Settings
from holdfast.signals import Stopped
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.attempt_events import emit_errored
from holdfast.tasks.manifest import Manifest

TICK = 0.2  # seconds between looks at attempts that were asked to stop
KILLING = 0.4  # seconds of those for a shutdown that are kept to end processes which don't end by themselves
PARTING = 2.0  # seconds one has to end that said nothing more
LISTENING = 0.5  # seconds the application's listeners have to hear the last events
MUTE = 5.0  # seconds a process may owe an answer before it counts as stuck
AGAIN = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before another is started in place of one that could not start


class Pool:
    """A crew of processes."""

    def __init__(
        self, app: str, *, verbose: int = 0, stopping: Callable[[], bool] = lambda: False, **settings: Any
    ) -> None:
        """Starts the first one, and waits until it has said what it can run, and with how many others."""
        given = {name: value for name, value in settings.items() if value is not None}
        self._orders = Orders(app, verbose, given)
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._stumbles = 0
        self._start_at: float | None = None
        self._why = ""  # what the last one said that could not start
        first, said = self._meet_first(stopping)
        self._stumbles = 0
        self._first: Process | None = first
        self.settings = Settings(**said.settings)  # type: ignore[arg-type]
        self._arrivals = Arrivals(max_result=self.settings.max_result, url=self.settings.url)
        self._count = self.settings.processes
        self.tasks = said.tasks
        self._watched = frozenset(
            name for task in self.tasks if task.timeout or task.progress_timeout for name in task.names
        )
        self._of = {name: task for task in self.tasks for name in task.names}
        colours = ((True, self.settings.concurrency), (False, self.settings.threads))
        self.runners = [
            PooledRunner(self, mine, slots, is_async=is_async)
            for is_async, slots in colours
            if (mine := [task for task in self.tasks if task.is_async is is_async and task.isolation is None])
        ]
        self.solo: Runner | None = None
        self.misfit: Callable[[HoldfastError], None] = lambda error: None
        self.answer: Callable[[Attempt, str], None] = lambda attempt, stack: None
        self._processes: list[Process] = []
        self._ready: tuple[Process, ...] = ()
        self._forwarder = Forwarder(self.wake)
        self._selector = selectors.DefaultSelector()
        self._changed = threading.Condition()
        self.stopping = False  # set by whoever asks the worker to stop, who may be a signal handler
        self._closing = False
        self._began = False  # some process got ready
        self._trouble: HoldfastError | None = None
        self._thread = threading.Thread(target=self._look_after, name="holdfast-runners", daemon=True)

    def _meet_first(self, stopping: Callable[[], bool]) -> tuple[Process, Hello]:
        """One that can't be started, or is killed while it imports the application, says nothing about that: another
        is started, a little later each time."""
        while not stopping():
            try:
                first = Process(self._orders, self.wake)
            except OSError as error:  # no more processes, memory or descriptors
                how = f"it could not be started: {error}"
            else:
                said = first.hear_first(stopping)
                if isinstance(said, Hello):
                    return first, said
                how = first.bury(0.0 if stopping() else PARTING)
                if isinstance(said, Unfit):
                    raise Arrivals(max_result=0, url=str(self._orders.settings.get("url", ""))).unfit(said)
                if not first.was_killed:
                    raise BadSettings(f"the application can't be run: its runner process {how} while it was imported")
                how = f"it {how} while it imported the application"
            if not stopping():
                start_at = self._stumbled(how)
                while time.monotonic() < start_at and not stopping():
                    time.sleep(TICK / 2)
        raise Stopped

    # -- the crew ------------------------------------------------------------------------------------------------------

    def open(self, worker: str, ends: Ends, lock: int | None, slots_changed: Callable[[], None]) -> None:
        self._ends = ends
        self._slots_changed = slots_changed
        self._worker = worker
        self._thread.start()
        with self._changed:
            while self._trouble is None and not self._enough() and not self.stopping:
                self._changed.wait(TICK)
        if self._trouble is not None:
            raise self._trouble

    def _enough(self) -> bool:
        """All are ready; or some are, and another can't be started."""
        return len(self._ready) >= (1 if self._stumbles else self._count)

    def ready(self) -> tuple[Process, ...]:
        return self._ready

    def not_run(self, attempt: Attempt) -> None:
        """There is nobody to run it: given back."""
        self._ends.finished(attempt, None)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # then it is awake
            os.write(self._wake_out, b"!")

    def stack(self, attempt: Attempt) -> None:
        process = next((one for one in list(self._processes) if one.get(attempt.number) is attempt), None)
        if process is None:
            self.answer(attempt, absent(attempt))
        else:
            process.ask_where(attempt)

    def abandon(self, seconds: float) -> None:
        self._closing = True  # no others are started
        for process in list(self._processes):
            process.kill()
        self._until_gone(seconds)

    def close(self, end_by: float) -> None:
        self._forwarder.close(max(0.0, min(LISTENING, end_by - KILLING - time.monotonic())))
        self._closing = True
        if not self._thread.ident:
            if self._first is not None:
                self._first.bury()
            return
        for process in list(self._processes):
            if process.ready or process.retired:
                process.ask_to_end(max(0.0, end_by - KILLING - time.monotonic()))
            else:
                process.kill()  # it still imports, or opens: there is nothing to end in good order
        self.wake()
        if not self._until_gone(end_by - KILLING - time.monotonic()):
            for process in list(self._processes):
                events.emit("runner_stuck", pid=process.pid)
                process.kill()
            self._until_gone(end_by - time.monotonic())
        self._thread.join(max(0.0, end_by - time.monotonic()))

    def _until_gone(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._processes, max(0.0, seconds))

    # -- on the thread that looks after them ---------------------------------------------------------------------------

    def _look_after(self) -> None:
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._start_at = time.monotonic()
        while not (self._closing and not self._processes):
            try:
                self._round()
            except Exception as error:  # noqa: BLE001 - who looks after processes must outlive any surprise
                events.emit("stumbled", part=self._thread.name, error=f"{type(error).__name__}: {error}")
                time.sleep(TICK)

    def _round(self) -> None:
        for key, mask in self._selector.select(self._longest_wait()):
            self._attend(key, mask)
        for process in list(self._processes):
            if process.pidfd is None and process.has_died():
                self._ended(process)
            elif process.asked and not process.doomed:
                self._enforce(process)
        if self._start_at is not None and time.monotonic() >= self._start_at and not self._closing:
            self._start_at = None
            try:
                for _ in range(self._missing()):
                    self._start_one()
            except OSError as error:  # no more processes, memory or descriptors
                self._stumbled(f"it could not be started: {error}")
        self._forwarder.send(self._ready)
        self._watch_backlogs()

    def _longest_wait(self) -> float | None:
        wait = None
        for process in self._processes:
            if process.notice_starts() or process.asked or process.pidfd is None:
                wait = TICK
        if self._start_at is not None and not self._closing:
            until = max(0.0, self._start_at - time.monotonic())
            wait = until if wait is None else min(wait, until)
        return wait

    def _watch_backlogs(self) -> None:
        for process in self._processes:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if process.backlog else 0)
            known = self._selector.get_map().get(process.line)
            if known is not None and known.events != wanted:
                self._selector.modify(process.line, wanted, process)

    def _missing(self) -> int:
        return self._count - sum(1 for process in self._processes if not process.retired)

    def _attend(self, key: selectors.SelectorKey, mask: int) -> None:
        if key.fileobj == self._wake_in:
            os.read(self._wake_in, 4096)
            return
        process: Process = key.data
        if process not in self._processes:
            return
        if mask & selectors.EVENT_WRITE:
            process.flush()
        if key.fileobj == process.pidfd:
            self._ended(process)
        elif mask & selectors.EVENT_READ and not self._hear(process):
            self._selector.unregister(process.line)
            process.hang_up()

    def _start_one(self) -> None:
        first, self._first = self._first, None
        process = first or Process(self._orders, self.wake)
        process.watched = self._watched
        with self._changed:
            self._processes.append(process)
        self._selector.register(process.line, selectors.EVENT_READ, process)
        if process.pidfd is not None:
            self._selector.register(process.pidfd, selectors.EVENT_READ, process)
        if first is not None:
            process.begin(self._worker, self.settings.max_result)
        if self._closing:  # since it was decided to start it
            process.kill()

    def _hear(self, process: Process) -> bool:
        """False: it will say no more."""
        said = process.receive()
        return self._take_all(process, said or ()) and said is not None

    def _take_all(self, process: Process, said: Iterable[ToWorker]) -> bool:
        """False: it said something that nothing of ours says."""
        try:
            for message in said:
                self._take(process, message)
        except Garbled as garbled:
            process.garbled(str(garbled))
            return False
        return True

    def _take(self, process: Process, message: ToWorker) -> None:
        match message:
            case Hello(_, tasks) if not process.greeted:
                if Manifest(tasks).names != Manifest(self.tasks).names:
                    process.kill()
                    self._closing = True
                    self.misfit(
                        BadSettings("the application has other tasks than when this worker started: start it anew")
                    )
                else:
                    process.begin(self._worker, self.settings.max_result)
            case Unfit():
                if not process.opened:
                    self._refused(self._arrivals.unfit(message))
            case Ready(hears) if process.greeted and not process.opened:
                try:
                    self._forwarder.announced(hears)
                except BadSettings:
                    raise Garbled("listens to events that there are not") from None
                self._stumbles = 0
                self._began = True
                process.ready = process.opened = True
                self._count_ready()
            case _ if not process.opened:
                raise Garbled("spoke out of turn")
            case Done():
                self._done(process, message)
            case Moved(progress, others):
                for number, done, total, note in progress:
                    if (attempt := process.get(number)) is not None:
                        attempt.hide = attempt.hide or self._arrivals.hiding(attempt.held)
                        process.reached(number, done, total, note)
                for number in others:
                    if (attempt := process.get(number)) is not None:
                        attempt.moved = time.monotonic()
            case Here(number, stack):
                if (attempt := process.asked_where(number)) is not None:
                    self.answer(attempt, self._arrivals.stack(attempt.held, stack))
            case Back(is_async, numbers):
                process.answered(is_async)
                process.check_given(numbers)
                for attempt in process.taken(numbers):
                    if attempt is not None:
                        self._ends.finished(attempt, None)
            case Heard():
                self._forwarder.heard(process)
            case _:
                raise Garbled("spoke out of turn")

    def _done(self, process: Process, message: Done) -> None:
        process.check_given(message.numbers)
        process.check_given(number for number, *_ in message.others)
        attempts, outcomes, now = [], [], time.monotonic()
        taken = process.taken(message.numbers)
        results = message.results or repeat(None)
        for attempt, started, ended, result in zip(taken, message.started, message.ended, results, strict=False):
            if attempt is None:
                continue
            if not attempt.taken <= started <= ended <= now:
                started, ended = span(attempt, started, ended, now)
            attempt.started = started
            attempt.ended = ended
            outcome = self._arrivals.returned(attempt.held, result)
            if outcome.verb == "succeed":
                attempts.append(attempt)
                outcomes.append(outcome)
            else:
                emit_errored(attempt.held, outcome, worker=self._worker)
                self._ends.finished(attempt, outcome)
        if attempts:
            self._ends.succeeded(attempts, outcomes)
        for number, started, ended, said in message.others:
            if (attempt := process.get(number)) is not None:
                decided = self._arrivals.outcome(attempt.held, said)
                process.taken([number])
                attempt.started, attempt.ended = span(attempt, started, ended, now)
                attempt.recorded = decided is not None and decided.recorded
                self._ends.finished(attempt, decided)

    def _count_ready(self) -> None:
        with self._changed:
            self._ready = tuple(process for process in self._processes if process.ready)
            self._changed.notify_all()
        self._slots_changed()

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _ended(self, process: Process) -> None:
        self._take_all(process, process.last_words())
        left = process.all_taken()
        doomed, was_ready = process.doomed, process in self._ready
        for watched in (process.line, process.pidfd):
            if watched is not None and watched in self._selector.get_map():
                self._selector.unregister(watched)
        how = process.bury()
        self._forwarder.lost(process)
        self._settle(process, left, how, doomed=doomed)
        if not doomed:
            events.emit("runner_ended", pid=process.pid, how=how, held=len(left))
        with self._changed:
            self._processes.remove(process)
        self._count_ready()
        if not self._closing and self._trouble is None and self._missing():
            if not was_ready and not doomed:
                self._stumbled(self._why or f"it {how} before it was ready")
            else:
                self._start_at = time.monotonic()

    def _stumbled(self, how: str) -> float:
        """A process could not start: again, a little later each time. Returns when (monotonic)."""
        self._stumbles += 1
        wait = AGAIN[min(self._stumbles, len(AGAIN) - 1)]
        events.emit("runner_unfit", error=how, wait=wait)
        self._why = ""
        self._start_at = time.monotonic() + wait
        return self._start_at

    def _settle(self, process: Process, left: list[Attempt], cause: str, *, doomed: bool) -> None:
        """What becomes of the attempts of a process that is gone."""
        running = {attempt for attempt in left if process.runs(attempt)}
        ended = {attempt for attempt in left if process.has_ended(attempt)}  # and did not get to say so
        suspects = set() if doomed else running or ended
        for attempt in left:
            begun = attempt in running or attempt in ended
            if begun:
                attempt.started, attempt.ended = attempt.started or attempt.taken, time.monotonic()
            if doomed and begun and attempt.must_stop:
                self._ends.finished(attempt, self._forced(attempt, process))
            elif attempt in suspects:
                told = f"its runner process {cause}{process.how_far(attempt)}"
                self._ends.finished(attempt, Crash(told, company=len(suspects) > 1))
            else:
                recorded = process.has_recorded(attempt)
                self._ends.finished(attempt, given_back(attempt.held, started=begun, recorded=recorded))

    def _forced(self, attempt: Attempt, process: Process) -> Outcome | None:
        """It did not stop by itself when it was asked to."""
        outcome = forced(attempt, self._of[attempt.held.task])
        if outcome is None:
            return None
        outcome = replace(outcome, recorded=process.has_recorded(attempt))
        emit_errored(attempt.held, outcome, worker=self._worker)
        return outcome

    def _enforce(self, process: Process) -> None:
        """Attempts that were asked to stop and don't: their process takes no others, and is ended. What runs beside
        them is told, and has as much time to finish, as at a shutdown; then it is given back."""
        now = time.monotonic()
        process.asked = False  # before we look: whoever asks from here on sets it anew
        left = process.in_hand()
        asked = [attempt for attempt in left if attempt.reason not in (None, "shutdown")]
        late = [attempt for attempt in asked if now - attempt.asked_at > self.settings.grace]
        if asked:
            process.asked = True
        if not late:
            return
        if process.ready:
            process.ready = False
            self._count_ready()
            for is_async in (True, False):
                process.withdraw(None, is_async=is_async)
            events.emit("runner_retired", pid=process.pid, job=str(late[0].held.id), grace=self.settings.grace)
            process.retired = True
            self._start_at = now  # another takes its place meanwhile
        beside = [attempt for attempt in left if attempt not in late and process.runs(attempt)]
        over = min(attempt.asked_at for attempt in late) + 2 * self.settings.grace
        if not beside or process.silent_for() > MUTE or now > over + PARTING:
            if beside:
                events.emit("neighbours_released", pid=process.pid, count=len(beside))
            process.kill()
            return
        for attempt in beside:
            attempt.ask("shutdown")
            if now > over and not attempt.forced:
                attempt.force()

    def _refused(self, error: HoldfastError) -> None:
        """What it says is told when it has ended, with when another is started; at first it ends the worker."""
        if self._began:
            self._why = str(error)
        else:
            self._give_up(error)

    def _give_up(self, error: HoldfastError) -> None:
        """It can't be opened."""
        with self._changed:
            self._trouble = error
            self._changed.notify_all()
