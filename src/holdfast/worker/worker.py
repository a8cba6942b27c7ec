"""The worker: starts, wires and stops the parts. Holds leases for what its runners run."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable

from holdfast import events
from holdfast.errors import HoldfastError, StoreError
from holdfast.model.job import Processed
from holdfast.model.names import checked_name
from holdfast.runners.group import RunnerGroup, WorkerLink
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.worker.cron import Crons
from holdfast.worker.desk import Desk
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.listener import Listener
from holdfast.worker.neighbours import meet
from holdfast.worker.unserved import warn_of_unserved
from holdfast.worker.watchdog import SPREAD, Watchdog

AFTER_GRACE = 1.0  # seconds for all that is left to do when the grace is over (signals.py ends the process soon after)
LAST_WORDS = 3.0  # seconds at most, within that, to record what there is still to say


class Worker:
    """Runs jobs of an application until `stop()`."""

    def __init__(
        self, store: Store, settings: Settings, group: RunnerGroup, *, queues: Iterable[str] | None = None
    ) -> None:
        self.host = settings.host or socket.gethostname()
        name = settings.worker_name or os.environ.get("WORKER_ID") or f"{self.host}-{os.getpid()}"
        self.name = checked_name("the name of a worker", name)
        # Many processes may share one name: the id that owns leases has a random part.
        self.id = f"{self.name[:100]}/{uuid.uuid4().hex[:12]}".replace("/", "~")
        self.where = store.shown_url
        self.grace = settings.grace
        self._store = store
        self._settings = settings
        self._queues = None if queues is None else tuple(queues)
        self._stop_asked = 0
        self._end_by = math.inf  # monotonic: when the stop is to be over, with all that belongs to it
        self._group = group
        self.desk = Desk(self.id, store, settings, self._queues)
        for runner in group.runners:
            self.desk.add(runner)
        if group.suspect_runner is not None:
            self.desk.add_solo(group.suspect_runner)
        self.tasks = tuple(name for lane in self.desk.lanes for name in lane.tasks)
        self._heartbeat = Heartbeat(
            store, self.desk.in_hand, every=settings.heartbeat, lease=settings.lease, worker=self.id,
            patience={name: t.progress_timeout for t in group.tasks if t.progress_timeout for name in t.names},
        )  # fmt: skip
        self._heartbeat.stack_of = group.stack
        self._neighbours = meet(store, self.host, self.id)
        self.crons = Crons(store, group.tasks, self.desk.due_in)
        self.watchdog = Watchdog(
            self.id, store, settings, self._neighbours, tasks=self.tasks, queues=self._queues,
            due_in=self.desk.due_in, crons=self.crons, is_open=lambda: self.desk.open, placed=self.desk.placed,
            register=self._register,
        )  # fmt: skip
        self.desk.broken = self._heartbeat.broken = self.watchdog.distrust
        self.watchdog.misfit = self._stop_for
        self._misfit: HoldfastError | None = None
        self._listener = Listener(
            store,
            queues=self._queues,
            wake=self.desk.wake,
            hinted=self.desk.hinted,
            told=self.desk.told,
            due_in=self.desk.due_in,
            peers_changed=lambda: self.watchdog.look_soon(SPREAD),
            asked=self._heartbeat.ask,
            hearing=self._hearing,
            attend=self.desk.attend,
        )
        self.desk.heard, self.desk.deaf = self._listener.heard, self._listener.deaf
        self._ended = threading.Event()

    def run(self) -> Processed:
        """Work until `stop()`; returns how many jobs finished."""
        if not self._begin():
            return self._processed()
        try:
            warn_of_unserved(self._store)
            self._listener.start()
            while not self._stop_asked:
                if not self.desk.turn():
                    self.desk.wait()
            self._finish_gracefully()
        finally:
            self._end()
        return self._processed()

    def drain(self, *, seconds: float | None = None, jobs: int | None = None) -> Processed:
        """Work until nothing is due or the budget is used up; returns how many jobs finished. `jobs`: claim no more
        than so many; one that is tried again counts again. Jobs of workers that went silent count as due: where only
        drains run, each looks after the ones before it."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self.desk.limit = jobs
        self.desk.thorough = True
        if not self._begin():
            return self._processed()
        try:
            while not self._stop_asked and (deadline is None or time.monotonic() < deadline):
                empty = self.desk.found_all and not self.watchdog.owes_a_look
                if self.desk.idle() and (empty or self.desk.limit == 0):
                    break
                if not self.desk.turn():
                    longest = 0.5 if self.watchdog.looked else 0.01
                    self.desk.wait(longest if deadline is None else max(0.0, min(longest, deadline - time.monotonic())))
            self._finish_gracefully()
        finally:
            self._end()
        return self._processed()

    def stop(self) -> int:
        """End in good order: claim no more, let what runs finish within its grace, give back the rest. Called twice,
        the grace is over at once. Safe from a signal handler. Returns how often it was called."""
        now = time.monotonic()
        self._end_by = min(self._end_by, now + AFTER_GRACE + (0.0 if self._stop_asked else self.grace))
        self.desk.end_by = self._end_by
        self._stop_asked += 1
        self.desk.claiming = False
        self.desk.wake()
        return self._stop_asked

    def _stop_for(self, misfit: HoldfastError) -> None:
        """Database or application no longer fit this worker: end in good order, and say why."""
        if self._misfit is None:
            self._misfit = misfit
            events.emit("misfit", error=str(misfit), worker=self.id)
            self.stop()

    def _processed(self) -> Processed:
        if self._misfit is not None:
            raise self._misfit
        meters = self.desk.meters
        return Processed.count(meters.jobs, meters.attempts, meters.failed)

    @property
    def slots(self) -> int:
        return sum(lane.runner.slots for lane in self.desk.lanes)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """False: it was asked to stop meanwhile."""
        try:
            if not self._stop_asked:
                self._store.check()
            if not self._stop_asked:
                self._group.open(self._link())
            if self._stop_asked:
                self._group.close(self._end_by)
                self._neighbours.leave()
                return False
            self._register()
        except BaseException:
            self._group.close(time.monotonic() + AFTER_GRACE)
            self._neighbours.leave()
            raise
        self._heartbeat.start()
        self.watchdog.start()
        slots = " + ".join(f"{lane.runner.slots} {type(lane.runner).__name__}" for lane in self.desk.lanes)
        events.emit(
            "worker_started", worker=self.id, tasks=", ".join(sorted(self.tasks)),
            queues=", ".join(self._queues) if self._queues else "all queues", slots=slots,
        )  # fmt: skip
        return True

    def _link(self) -> WorkerLink:
        return WorkerLink(
            worker=self.id, outcomes=self.desk, stack_taken=self._heartbeat.answer, give_up=self._stop_for,
            slots_changed=self.desk.wake, stopping=lambda: bool(self._stop_asked), lock=self._neighbours.descriptor,
        )  # fmt: skip

    def _register(self) -> None:
        if not self._stop_asked:  # then its row was there, and will be deleted
            self._store.register(
                id=self.id, name=self.name, host=self.host, pid=os.getpid(), queues=self._queues, tasks=self.tasks,
                slots=self.slots, crons=self.crons.names, lease=self._settings.lease,
            )  # fmt: skip

    def _hearing(self, listening: bool) -> None:
        if not listening and self.desk.poller.listening:
            # The connection broke: so may have everyone's. (One that never heard anything says nothing of others.)
            self.watchdog.distrust()
        self.desk.poller.listening = listening
        self.desk.wake()
        self.watchdog.look_soon()

    def _finish_gracefully(self) -> None:
        """Everything from here on is over by `_end_by`."""
        self._end_by = min(self._end_by, time.monotonic() + self.grace + AFTER_GRACE)  # a drain ends unasked
        self.desk.claiming = False
        self.desk.withdraw()
        running = self.desk.undecided()
        if running:
            events.emit("worker_stopping", worker=self.id, running=len(running), grace=self.grace)
        for attempt in running:
            attempt.ask("shutdown")
        # The grace is for what runs, and for outcomes of what ran. Who has nothing in hand ends at once.
        while self.desk.in_hand() and self._left() > AFTER_GRACE:
            if not self.desk.turn():
                self.desk.wait(min(0.2, max(0.01, self._left() - AFTER_GRACE)))
        self._release_the_rest()

    def _left(self) -> float:
        """Seconds until the stop is to be over. A second `stop()` makes them few."""
        return self._end_by - time.monotonic()

    def _release_the_rest(self) -> None:
        """The grace is over: coroutines are cancelled, processes ended; a thread can't be, so its job is given back and
        whatever it still does is fenced off."""
        for attempt in self.desk.undecided():
            attempt.force()
        self._turn_until(lambda: not any(a.interrupt or a.remote for a in self.desk.undecided()), self._left() / 3)
        if any(attempt.remote for attempt in self.desk.undecided()):
            self._group.abandon(self._left() / 3)
            self._turn_until(lambda: not any(attempt.remote for attempt in self.desk.undecided()), self._left() / 4)
        for attempt in self.desk.undecided():
            if attempt.ask("lost"):
                events.emit("unstoppable", job=str(attempt.held.id), task=attempt.held.task)
                self.desk.ends.give_back(attempt)
            else:  # it was lost before: whatever its handler still does, there is nothing to wait for
                self.desk.ends.forget(attempt.held)
        self._turn_until(self.desk.idle, min(LAST_WORDS, self._left() * 3 / 4))

    def _turn_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if not self.desk.turn():
                self.desk.wait(0.05)

    def _end(self) -> None:
        end_by = min(self._end_by, time.monotonic() + self.grace + AFTER_GRACE)  # if an error ended it
        self._listener.stop()
        self.watchdog.stop(0.0)
        self._heartbeat.stop(0.0)
        events.emit("worker_stopped", worker=self.id, processed=self.desk.meters.jobs)
        self._group.close(end_by)
        try:
            self._store.unregister(self.id)
        except StoreError as error:
            events.emit("unavailable", error=str(error), wait=0.0)
        for part in (self.watchdog, self._heartbeat, self._listener):
            part.join(end_by - time.monotonic())
        self.desk.hang_up()
        if self.desk.idle():
            self._neighbours.leave()
        self._ended.set()

    def __repr__(self) -> str:
        return f"<Worker {self.id}: {len(self.desk.in_hand())} of {self.slots} busy>"
